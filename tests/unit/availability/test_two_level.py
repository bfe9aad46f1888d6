import itertools
from collections import Counter

import pytest
from lab.availability.two_level import (
    allocations,
    best_partition,
    set_partitions,
    stirling,
    two_level_plan,
)

from unit.availability.oracle import all_partitions
from yunhe.availability.published import paper
from yunhe.availability.published.reproduction import figure_9, figure_10

SIZES = [len(submodules) for submodules in paper.MODULES.values()]


@pytest.mark.feature(
    "A11",
    file="lab/availability/two_level.py",
    old="+ groups * stirling(items - 1, groups)",
    new="+ stirling(items - 1, groups)",
)
def test_every_set_partition_is_found_once_and_counted_by_the_recursion():
    known = {
        (4, 1): 1, (4, 2): 7, (4, 3): 6, (4, 4): 1, (5, 2): 15, (5, 3): 25, (6, 3): 90, (7, 4): 350,
        (10, 5): 42525, (0, 0): 1, (3, 0): 0, (0, 1): 0, (2, 3): 0, (3, 7): 0,
    }  # fmt: skip
    for (items, groups), count in known.items():
        assert stirling(items, groups) == count
    for items, groups in itertools.product(range(8), range(9)):
        found = [frozenset(map(frozenset, parts)) for parts in set_partitions(items, groups)]
        expected = {
            frozenset(map(frozenset, parts)) for parts in all_partitions(items) if len(parts) == groups
        }
        assert set(found) == expected
        assert len(found) == len(expected) == stirling(items, groups)


def test_the_inner_level_returns_the_most_available_partition():
    value, parts = best_partition([0.9, 0.5, 0.9, 0.5], 2, 3)
    assert sorted(map(sorted, parts)) in ([[0, 1], [2, 3]], [[0, 3], [1, 2]])
    assert value == pytest.approx((1 - 0.55**3) ** 2)


def test_the_outer_level_lists_every_allocation_of_a_budget_once():
    for sizes in ([4, 4, 3], [1, 2, 5], [2, 2, 2, 2], [1]):
        for budget in range(sum(sizes) - len(sizes) + 2):
            expected = Counter(
                extra for extra in itertools.product(*(range(size) for size in sizes)) if sum(extra) == budget
            )
            assert Counter(tuple(row) for row in allocations(sizes, budget).tolist()) == expected


@pytest.mark.feature(
    "A10",
    file="lab/availability/two_level.py",
    old="for budget in range(sum(sizes) - len(sizes) + 1)",
    new="for budget in range(1, sum(sizes) - len(sizes) + 1)",
)
def test_the_paper_s_two_levels_give_the_least_counts_of_figures_9_and_10():
    for cell in (*figure_9(), *figure_10()):
        a, target = cell.submodule_percent / 100, cell.requirement_percent / 100
        plan = two_level_plan([[a] * size for size in SIZES], cell.backups + 1, target)
        assert (plan.services, plan.feasible) == (cell.services, cell.feasible), cell
        used = [sum(len(group) for group in parts) for parts in plan.partitions]
        assert used == SIZES


def test_it_stops_at_the_first_budget_that_suffices_which_may_be_none_at_all():
    plan = two_level_plan([[0.999] * size for size in SIZES], 3, 0.999)
    assert (plan.services, plan.plans_tried) == (10, 1)
    plan = two_level_plan([[0.9] * size for size in SIZES], 3, 0.999)
    assert not plan.feasible
    assert plan.services == 24
    assert plan.plans_tried == 4 * 4 * 4 * 3 * 2 * 2 * 2
