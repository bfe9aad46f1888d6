import itertools
import math

import numpy as np
import pytest
from lab.availability import equations as eq

from unit.availability.oracle import all_partitions


@pytest.mark.feature(
    "A02",
    file="lab/availability/equations.py",
    old="return 1 - (1 - availability) ** instances",
    new="return availability",
)
def test_a_set_of_instances_is_down_only_when_all_are():
    assert eq.replicated(0.9, 1) == pytest.approx(0.9)
    assert eq.replicated(0.9, 2) == pytest.approx(0.99)
    assert eq.replicated(0.9, 3) == pytest.approx(0.999)
    random = np.random.default_rng(7)
    for availability, instances in ((0.9, 1), (0.7, 2), (0.6, 3), (0.5, 5)):
        up = np.asarray((random.random((400_000, instances)) < availability).any(axis=1))
        error = math.sqrt(up.mean() * (1 - up.mean()) / len(up))
        assert abs(up.mean() - eq.replicated(availability, instances)) < 4 * error


@pytest.mark.feature(
    "A03",
    file="lab/availability/equations.py",
    old="return math.prod(replicated(availability, instances) for availability, instances in sets)",
    new="return min((replicated(availability, instances) for availability, instances in sets), default=1)",
)
def test_sets_in_series_multiply():
    assert eq.series_parallel([]) == 1
    assert eq.series_parallel([(0.9, 2)]) == pytest.approx(0.99)
    assert eq.series_parallel([(0.9, 2), (0.8, 1), (0.5, 3)]) == pytest.approx(0.99 * 0.8 * 0.875)
    # the whole structure of Figure 7, one state of all instances after the other
    sets = [(0.9, 2), (0.8, 3), (0.7, 1)]
    total = 0.0
    for states in itertools.product((True, False), repeat=6):
        groups = (states[:2], states[2:5], states[5:])
        if all(any(group) for group in groups):
            total += math.prod(
                a if is_up else 1 - a for (a, _), group in zip(sets, groups, strict=True) for is_up in group
            )
    assert eq.series_parallel(sets) == pytest.approx(total)


@pytest.mark.feature(
    "A05",
    file="lab/availability/equations.py",
    old="math.prod((1 - x) + a * x for x, a in zip(row, submodules, strict=True))",
    new="math.prod(submodules)",
)
def test_an_instance_is_up_while_every_submodule_packaged_in_it_is():
    a = [0.9, 0.8, 0.7]
    assert eq.service([0, 0, 0], a) == 1
    assert eq.service([1, 0, 0], a) == pytest.approx(0.9)
    assert eq.service([0, 1, 1], a) == pytest.approx(0.56)
    assert eq.service([1, 1, 1], a) == pytest.approx(0.504)


@pytest.mark.feature(
    "A06",
    file="lab/availability/equations.py",
    old="return 1 - math.prod(1 - x for x in row)",
    new="return 1",
)
def test_a_service_is_in_use_exactly_when_it_holds_a_submodule():
    for row in itertools.product((0, 1), repeat=4):
        assert eq.in_use(row) == (1 if sum(row) else 0)


@pytest.mark.feature(
    "A07",
    file="lab/availability/equations.py",
    old="replicated(service(row, submodules), instances)",
    new="replicated(service(row, submodules), instances - 1)",
)
def test_a_module_multiplies_its_services_and_ignores_empty_ones():
    a = [0.9, 0.9, 0.9, 0.9]
    together = [[1, 1, 1, 1], [0, 0, 0, 0], [0, 0, 0, 0], [0, 0, 0, 0]]
    pairs = [[1, 1, 0, 0], [0, 0, 1, 1], [0, 0, 0, 0], [0, 0, 0, 0]]
    apart = [[1, 0, 0, 0], [0, 1, 0, 0], [0, 0, 1, 0], [0, 0, 0, 1]]
    backups = 1
    instances = backups + 1
    assert eq.module(together, a, instances) == pytest.approx(0.88173279)
    assert eq.module(pairs, a, instances) == pytest.approx(0.92910321)
    assert eq.module(apart, a, instances) == pytest.approx(0.96059601)
    for x in (together, pairs, apart):
        assert eq.module(x, a, 1) == pytest.approx(0.6561)
    both = [(pairs, a), (apart, a)]
    assert eq.platform(both, instances) == pytest.approx(0.92910321 * 0.96059601)
    assert eq.service_count(both) == 6


def test_exactly_one_service_for_each_submodule_is_told_from_none_and_two():
    assert eq.assigns_each_once([[1, 1, 0], [0, 0, 1]])
    assert not eq.assigns_each_once([[1, 1, 0], [0, 0, 0]])
    assert not eq.assigns_each_once([[1, 1, 0], [0, 1, 1]])
    for groups in all_partitions(4):
        assert eq.assigns_each_once([[int(item in group) for item in range(4)] for group in groups])
