import math

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from unit.availability.oracle import (
    best_by_cost,
    best_by_services,
    model_of,
    platform_availability,
)
from yunhe.availability import frontier as frontier_module
from yunhe.availability import partition
from yunhe.availability.evaluation import platform_log_availability
from yunhe.availability.frontier import find_frontier, least_services_across_modules
from yunhe.availability.model import Assumptions, Model, SharedDependency, Zone
from yunhe.availability.outage import FloatArray
from yunhe.availability.partition import Choice
from yunhe.availability.planner import Infeasible, Planned, make_plan, trade_off
from yunhe.availability.pricing import Pricing

SLOW = settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
FEWER = settings(SLOW, max_examples=25)

availabilities = st.floats(0.5, 0.9999)
unequal_modules = st.lists(st.lists(availabilities, min_size=1, max_size=4), min_size=1, max_size=2)


def _alike(sizes: list[int], a: float) -> list[list[float]]:
    return [[a] * size for size in sizes]


def _assuming(common_cause: float, failover: float) -> Assumptions:
    return Assumptions(common_cause=common_cause, failover=failover)


SIZES = [[1], [2], [3], [4], [5], [6], [1, 4], [5, 2], [3, 3], [4, 4], [2, 3, 1], [2, 2, 2]]
equal_modules = st.builds(_alike, st.sampled_from(SIZES), availabilities)
replicas = st.integers(1, 4)
dependent = st.builds(_assuming, st.floats(0, 1), st.floats(0, 1))


def agrees_everywhere(model: Model) -> None:
    """Every point of the frontier is the best of all plans of so many services, and its plan is real."""
    found = find_frontier(model, [Choice(model.replicas, 1)])
    best = best_by_services(model)
    assert set(np.flatnonzero(np.isfinite(found.reached))) == set(best)
    for services, value in best.items():
        assert math.exp(found.reached[services]) == pytest.approx(value, rel=1e-9)
        assert found.bound[services] == pytest.approx(found.reached[services], rel=1e-9, abs=1e-15)
        plan = found.services(services)
        assert len(plan) == services
        assert platform_availability(model, plan) == pytest.approx(value, rel=1e-9)


@SLOW
@given(equal_modules, replicas)
def test_equal_availabilities_equal_exhaustive_search(modules: list[list[float]], k: int):
    agrees_everywhere(model_of(modules, k))


@SLOW
@given(unequal_modules, replicas)
def test_unequal_availabilities_equal_exhaustive_search(modules: list[list[float]], k: int):
    agrees_everywhere(model_of(modules, k))


@SLOW
@given(equal_modules | unequal_modules, replicas, dependent)
def test_common_cause_and_failover_equal_exhaustive_search(
    modules: list[list[float]], k: int, assumptions: Assumptions
):
    agrees_everywhere(model_of(modules, k, assumptions))


@pytest.mark.feature(
    "A08",
    file="src/yunhe/availability/frontier.py",
    old="-np.expm1(log_availability) <= -np.expm1(log_target) * (1 + 1e-10)",
    new="-np.expm1(log_availability) <= 1.0",
)
@SLOW
@given(equal_modules | unequal_modules, replicas, st.floats(0.3, 0.99999))
def test_the_plan_is_the_fewest_services_that_meet_the_target_or_there_is_none(
    modules: list[list[float]], k: int, target: float
):
    model = model_of(modules, k)
    outcome = make_plan(model, target, Pricing())
    best = best_by_services(model)
    enough = [services for services, value in best.items() if 1 - value <= (1 - target) * (1 + 1e-9)]
    assert outcome.proven
    if isinstance(outcome, Planned):
        assert outcome.point.services == min(enough)
        assert outcome.point.unavailability <= (1 - target) * (1 + 1e-9)
        assert outcome.point.availability_percent == pytest.approx(100 * best[min(enough)])
    else:
        assert all(1 - value > (1 - target) * (1 - 1e-9) for value in best.values())
        assert outcome.point.availability_percent == pytest.approx(100 * max(best.values()))
    packaged = sorted((service.module, name) for service in outcome.services for name in service.submodules)
    assert packaged == sorted(
        (module.name, sub.name) for module in model.modules for sub in module.submodules
    )
    assert {service.replicas for service in outcome.services} == {k}


@FEWER
@given(
    st.lists(st.lists(availabilities, min_size=1, max_size=3), min_size=1, max_size=2),
    st.integers(0, 3),
    st.integers(1, 3),
    dependent | st.just(Assumptions()),
)
def test_mixed_replicas_equal_exhaustive_search(
    modules: list[list[float]], service_cost: int, instance_cost: int, assumptions: Assumptions
):
    model = model_of(modules, 3, assumptions)
    pricing = Pricing(mixed=True, max_replicas=3, service_cost=service_cost, instance_cost=instance_cost)
    found = find_frontier(model, pricing.choices(model.replicas))
    unit = pricing.unit(model.replicas)
    best = best_by_cost(model, [1, 2, 3], service_cost, instance_cost)
    assert {int(cost) * unit for cost in np.flatnonzero(np.isfinite(found.reached))} == set(best)
    for cost, value in best.items():
        assert math.exp(found.reached[cost // unit]) == pytest.approx(value, rel=1e-9)
        plan = found.services(cost // unit)
        assert pricing.cost(len(plan), sum(service.replicas for service in plan)) == cost
        assert platform_availability(model, plan) == pytest.approx(value, rel=1e-9)


@FEWER
@given(
    st.lists(st.lists(availabilities, min_size=1, max_size=3), min_size=1, max_size=2), st.floats(0.5, 0.999)
)
def test_services_against_instances_leaves_out_nothing_and_nothing_beaten(
    modules: list[list[float]], target: float
):
    model = model_of(modules)
    points = trade_off(model, target, Pricing(mixed=True, max_replicas=3))
    met = {
        (cost // 100, cost % 100)
        for cost, value in best_by_cost(model, [1, 2, 3], 100, 1).items()
        if 1 - value <= (1 - target) * (1 + 1e-9)
    }
    best = {pair for pair in met if not any(o != pair and o[0] <= pair[0] and o[1] <= pair[1] for o in met)}
    assert {(point.services, point.instances) for point in points} == best


zones = st.lists(st.floats(0.6, 0.999), min_size=1, max_size=3).map(
    lambda values: tuple(Zone(f"z{number}", value) for number, value in enumerate(values))
)


@FEWER
@given(equal_modules | unequal_modules, st.integers(1, 3), zones, st.floats(0.5, 1), st.integers(1, 2))
def test_with_zones_the_best_of_all_plans_lies_between_what_is_reached_and_the_bound(
    modules: list[list[float]], k: int, places: tuple[Zone, ...], failover: float, instances: int
):
    model = Model(
        model_of(modules).modules,
        (SharedDependency("database", 0.95, instances),),
        k,
        Assumptions(failover=failover, zones=places),
    )
    found = find_frontier(model, [Choice(k, 1)])
    for services, value in best_by_services(model).items():
        assert math.exp(found.reached[services]) <= value * (1 + 1e-9)
        assert value <= math.exp(found.bound[services]) * (1 + 1e-9)
        plan = found.services(services)
        assert platform_availability(model, plan) == pytest.approx(
            math.exp(found.reached[services]), rel=1e-9
        )
        assert platform_log_availability(model, plan) == pytest.approx(found.reached[services], rel=1e-9)


@FEWER
@given(
    st.lists(st.lists(availabilities, min_size=1, max_size=2), min_size=1, max_size=2),
    zones,
    st.floats(0.5, 1),
)
def test_mixed_replicas_over_zones_are_bounded_from_both_sides(
    modules: list[list[float]], places: tuple[Zone, ...], failover: float
):
    model = model_of(modules, 3, Assumptions(failover=failover, zones=places))
    found = find_frontier(model, [Choice(count, count) for count in (1, 2, 3)])
    for instances, value in best_by_cost(model, [1, 2, 3], 0, 1).items():
        assert math.exp(found.reached[instances]) <= value * (1 + 1e-9)
        assert value <= math.exp(found.bound[instances]) * (1 + 1e-9)
        plan = found.services(instances)
        assert platform_availability(model, plan) == pytest.approx(
            math.exp(found.reached[instances]), rel=1e-9
        )


def _only_crumbs_are_small(weights: FloatArray, *_: object) -> float:
    return 0 if len(weights) == partition.RELAXED_UNITS else math.inf


@FEWER
@given(unequal_modules | equal_modules, st.integers(2, 4), dependent | st.just(Assumptions()), st.booleans())
def test_what_is_too_large_to_be_exact_is_bounded_from_both_sides(
    modules: list[list[float]], k: int, assumptions: Assumptions, mixed: bool
):
    """The bounded ways are forced on instances small enough to know the truth."""
    model = model_of(modules, k, assumptions)
    choices = [Choice(count, count) for count in (1, 2, 3)] if mixed else [Choice(k, 1)]
    exact = find_frontier(model, choices).reached
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(partition, "_operations", _only_crumbs_are_small)
        bounded = find_frontier(model, choices)
        patch.setattr(frontier_module, "CONVOLUTION_OPERATIONS", 0)
        enveloped = find_frontier(model, choices)
    for found in (bounded, enveloped):
        finite = np.flatnonzero(np.isfinite(exact))
        assert (found.reached[finite] <= exact[finite] + 1e-12).all()
        assert (exact[finite] <= found.bound[finite] + 1e-12).all()
        for cost in np.flatnonzero(np.isfinite(found.reached)):
            plan = found.services(int(cost))
            assert platform_log_availability(model, plan) == pytest.approx(
                found.reached[cost], rel=1e-9, abs=1e-12
            )


@FEWER
@given(st.lists(st.floats(0.9, 0.9999), min_size=16, max_size=24, unique=True), st.integers(2, 4))
def test_a_large_unequal_module_is_close_to_its_bound(values: list[float], k: int):
    found = find_frontier(model_of([values], k), [Choice(k, 1)])
    reached, bound = -np.expm1(found.reached[1:]), -np.expm1(found.bound[1:])
    assert (reached >= bound * (1 - 1e-12)).all()
    assert found.reached[1] == pytest.approx(found.bound[1], rel=1e-9)
    few = slice(0, len(values) // 4)
    assert (reached[few] <= bound[few] * 1.5).all()


@FEWER
@given(equal_modules, replicas, st.floats(0.5, 0.9999))
def test_mixing_modules_never_needs_more_services(modules: list[list[float]], k: int, target: float):
    model = model_of(modules, k)
    bound = least_services_across_modules(model, math.log(target))
    cost = find_frontier(model, [Choice(k, 1)]).cheapest(math.log(target))
    if cost is not None:
        assert bound is not None
        assert bound <= cost
    together = model_of([[a for module in modules for a in module]], k)
    best = best_by_services(together) if len(together.modules[0].submodules) <= 8 else {}
    enough = [services for services, value in best.items() if 1 - value <= (1 - target) * (1 + 1e-9)]
    if best:
        assert bound == min(enough, default=None)


@FEWER
@given(unequal_modules, replicas, st.floats(0.5, 0.9999), dependent | st.just(Assumptions()))
def test_the_bound_across_unequal_modules_is_one(
    modules: list[list[float]], k: int, target: float, assumptions: Assumptions
):
    model = model_of(modules, k, assumptions)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(frontier_module, "SEARCHED_ACROSS_MODULES", 0)
        loose = least_services_across_modules(model, math.log(target))
    tight = least_services_across_modules(model, math.log(target))
    if tight is not None:
        assert loose is not None
        assert loose <= tight


@SLOW
@given(equal_modules | unequal_modules, st.integers(1, 3), st.floats(0.9, 0.9999999))
def test_what_is_said_to_make_a_target_feasible_does(modules: list[list[float]], k: int, target: float):
    model = model_of(modules, k)
    outcome = make_plan(model, target, Pricing(max_replicas=5))
    if not isinstance(outcome, Infeasible):
        return
    for remedy in outcome.remedies:
        change = remedy.changes[0]
        assert remedy.point.unavailability <= (1 - target) * (1 + 1e-9)
        if len(remedy.changes) > 1:
            assert len(outcome.remedies) == 1, "several at once only where no single one suffices"
            continue
        if change.field == "replicas":
            better = make_plan(model_of(modules, int(change.value)), target, Pricing())
            worse = make_plan(model_of(modules, int(change.value) - 1), target, Pricing())
            assert isinstance(better, Planned)
            assert isinstance(worse, Infeasible)
            assert better.point.services == remedy.point.services
        if change.field == "availability":
            lifted = [[max(a, float(change.value)) for a in values] for values in modules]
            assert isinstance(make_plan(model_of(lifted, k), target, Pricing()), Planned)
