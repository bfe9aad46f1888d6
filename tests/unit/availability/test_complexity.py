import importlib.util
import math
import time
from types import ModuleType

import numpy as np
import pytest
from lab.availability.two_level import allocations, set_partitions, stirling, two_level_plan

from support.repository import REPOSITORY

BENCH = REPOSITORY / "bench" / "availability.py"


@pytest.fixture(scope="module")
def bench() -> ModuleType:
    spec = importlib.util.spec_from_file_location("bench_availability", BENCH)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.feature(
    "A12",
    file="lab/availability/two_level.py",
    old="range(min(size - 1, budget - spent) + 1)",
    new="range(min(size, budget - spent) + 1)",
)
def test_the_enumeration_grows_with_the_product_of_sizes_and_the_frontier_does_not(bench: ModuleType):
    # outer level: every allocation of every budget is listed, M̄^M of them
    for sizes in ((4,) * 3, (4,) * 5, (2, 3, 4), (5, 5, 2)):
        budgets = range(sum(sizes) - len(sizes) + 1)
        listed = [allocations(sizes, budget) for budget in budgets]
        assert sum(len(rows) for rows in listed) == math.prod(sizes)
        assert two_level_plan([[0.9] * size for size in sizes], 3, 0.9999999).plans_tried == math.prod(sizes)
    # inner level: S(J, I) partitions of J entries each are listed, at most I^J
    for items, groups in ((4, 2), (6, 3), (8, 4)):
        partitions = list(set_partitions(items, groups))
        assert len(partitions) == stirling(items, groups) <= groups**items
        assert all(sum(map(len, parts)) == items for parts in partitions)
    # and in one run, with equal answers, the exact frontier of 31 points beats a million plans by far
    result = bench.compare((4,) * 10)
    assert result.plans == 4**10
    assert result.ratio > 20


def test_a_million_submodules_stay_within_the_limit(bench: ModuleType):
    model = bench.model_of(bench.MILLIONS["10,000 modules of 100"])
    started = time.process_time()  # not the wall: other tests share the cores
    points = bench.whole_frontier(model).reached
    assert time.process_time() - started < bench.MILLION_LIMIT_S
    assert np.isfinite(points).sum() == 990_001
