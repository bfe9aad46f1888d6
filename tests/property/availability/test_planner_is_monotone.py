import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from lab.availability.equations import module as module_availability

from unit.availability.oracle import all_partitions, model_of
from yunhe.availability.frontier import find_frontier
from yunhe.availability.partition import Choice
from yunhe.availability.planner import Infeasible, Planned, make_plan
from yunhe.availability.pricing import Pricing

QUICK = settings(max_examples=100, deadline=None)
availabilities = st.floats(0.5, 0.9999)
modules = st.lists(st.lists(availabilities, min_size=1, max_size=5), min_size=1, max_size=4)
replicas = st.integers(1, 5)
targets = st.floats(0.3, 0.999999)


def needed(values: list[list[float]], k: int, target: float) -> float:
    """Return the least number of services, infinite where none suffices."""
    cost = find_frontier(model_of(values, k), [Choice(k, 1)]).cheapest(math.log(target))
    return math.inf if cost is None else cost


@QUICK
@given(modules, replicas, targets, targets)
def test_a_higher_target_never_needs_fewer_services(
    values: list[list[float]], k: int, one: float, other: float
):
    assert needed(values, k, min(one, other)) <= needed(values, k, max(one, other))


@QUICK
@given(modules, replicas, targets)
def test_one_more_replica_never_needs_more_services(values: list[list[float]], k: int, target: float):
    assert needed(values, k + 1, target) <= needed(values, k, target)


@QUICK
@given(modules, replicas, targets, st.floats(0, 1))
def test_better_submodules_never_need_more_services(
    values: list[list[float]], k: int, target: float, share: float
):
    better = [[a + share * (0.99999 - a) for a in module] for module in values]
    assert needed(better, k, target) <= needed(values, k, target)


@pytest.mark.feature(
    "A09",
    file="lab/availability/equations.py",
    old="return math.prod(\n        in_use(row)",
    new="return min(\n        in_use(row)",
)
@QUICK
@given(st.lists(availabilities, min_size=2, max_size=5), st.integers(1, 4))
def test_splitting_raises_availability_with_backups_and_changes_nothing_without(values: list[float], k: int):
    """Every partition against every one that splits one of its services further."""
    count = len(values)
    for groups in all_partitions(count):
        for position, group in enumerate(groups):
            rest = groups[:position] + groups[position + 1 :]
            for cut in range(1, len(group)):
                finer = (*rest, group[:cut], group[cut:])
                coarse, fine = (
                    module_availability(
                        [[int(item in part) for item in range(count)] for part in parts], values, k
                    )
                    for parts in (groups, finer)
                )
                if k == 1:
                    assert fine == pytest.approx(coarse, rel=1e-12)
                else:
                    assert 1 - fine <= (1 - coarse) * (1 + 1e-12)
                    assert fine > coarse or 1 - coarse < 1e-13
                pricing = Pricing(service_cost=3, instance_cost=1)
                assert pricing.cost(len(finer), len(finer) * k) > pricing.cost(len(groups), len(groups) * k)


@pytest.mark.feature(
    "N32",
    file="src/yunhe/availability/frontier.py",
    old="-np.expm1(log_availability) <= -np.expm1(log_target) * (1 + 1e-10)",
    new="-np.expm1(log_availability) <= 1.0",
)
@settings(QUICK, max_examples=40)
@given(modules, replicas, targets)
def test_a_plan_lies_between_none_and_full_and_meets_the_target_whenever_full_does(
    values: list[list[float]], k: int, target: float
):
    outcome = make_plan(model_of(values, k), target, Pricing())
    none, full = outcome.bounds.unsplit, outcome.bounds.fully_split
    slack = 1 + 1e-9
    assert full.unavailability <= outcome.point.unavailability * slack
    assert outcome.point.unavailability <= none.unavailability * slack
    assert none.services <= outcome.point.services <= full.services
    full_meets = full.unavailability <= (1 - target) * (1 + 1e-10)
    assert isinstance(outcome, Planned if full_meets else Infeasible)
    if none.unavailability <= (1 - target):
        assert outcome.point.services == none.services
