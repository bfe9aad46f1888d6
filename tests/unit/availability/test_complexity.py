import importlib.util
import math
from pathlib import Path
from types import ModuleType

import pytest

from yunhe.availability.two_level import allocations, set_partitions, stirling, two_level_plan

BENCH = Path(__file__).parents[3] / "bench" / "availability.py"


@pytest.fixture(scope="module")
def bench() -> ModuleType:
    spec = importlib.util.spec_from_file_location("bench_availability", BENCH)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.feature("A12")
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
    # and in one run, with equal answers, the exact frontier wins by more the larger the instance
    small, large = bench.compare((4,) * 6), bench.compare((4,) * 10)
    assert (small.plans, large.plans) == (4**6, 4**10)
    assert large.ratio > 20
    assert large.ratio > small.ratio
    assert large.frontier_s < 10 * small.frontier_s


def test_a_million_submodules_stay_within_the_limit(bench: ModuleType):
    points, elapsed_s = bench.frontier_of_a_million(bench.MILLIONS["10,000 modules of 100"])
    assert points == 990_001
    assert elapsed_s < bench.MILLION_LIMIT_S
