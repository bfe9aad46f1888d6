import itertools
import json
import math

import msgspec
import numpy as np
import pytest

from yunhe.availability.frontier import find_frontier
from yunhe.availability.model import (
    Assumptions,
    Model,
    Module,
    SharedDependency,
    SubModule,
    Zone,
    uniform_model,
)
from yunhe.availability.partition import Choice, balanced_groups, spread
from yunhe.availability.percent import parse_availability, parse_target, show_percent
from yunhe.availability.planner import Infeasible, Planned, frontier_points, make_plan, trade_off
from yunhe.availability.pricing import Pricing
from yunhe.availability.published import paper
from yunhe.kernel.errors import InvalidInputError, UnsupportedError


def planned(model: Model, target: float, pricing: Pricing | None = None) -> Planned:
    outcome = make_plan(model, target, pricing or Pricing())
    assert isinstance(outcome, Planned)
    return outcome


def test_the_paper_s_platform_at_99_needs_14_services_for_four_nines():
    outcome = planned(uniform_model(paper.MODULES, 0.99), 0.9999)
    assert (outcome.point.services, outcome.point.instances) == (14, 42)
    assert f"{outcome.point.availability_percent:.5f}" == "99.99172"
    assert outcome.proven
    assert outcome.least_possible_cost == 42
    sizes = sorted((len(service.submodules) for service in outcome.services), reverse=True)
    assert sizes == [2] * 10 + [1] * 4


def test_infeasible_is_said_with_the_nearest_value_and_what_would_make_it_feasible():
    outcome = make_plan(uniform_model(paper.MODULES, 0.99), 0.99999, Pricing())
    assert isinstance(outcome, Infeasible)
    assert outcome.proven
    assert (outcome.point.services, f"{outcome.point.availability_percent:.5f}") == (24, "99.99760")
    found = {
        (change.field, change.value): remedy.point for remedy in outcome.remedies for change in remedy.changes
    }
    assert found["replicas", "4"].services == 10
    assert found["mixed", "true"].instances == 38
    assert found["availability", "0.995"].services == 15


def test_a_weak_database_is_named_as_what_holds_the_platform_back():
    model = uniform_model(paper.MODULES, 0.99, shared=(SharedDependency("database", 0.999),))
    outcome = make_plan(model, 0.9999, Pricing())
    assert isinstance(outcome, Infeasible)
    assert outcome.ceiling_percent == pytest.approx(99.9)
    assert [[(change.field, change.value) for change in remedy.changes] for remedy in outcome.remedies] == [
        [("shared.database.instances", "2")]
    ]


@pytest.mark.parametrize(
    ("assumptions", "field"),
    [
        (Assumptions(common_cause=0.3), "common_cause"),
        (Assumptions(failover=0.5), "failover"),
        (Assumptions(switchover_s=1200.0), "switchover"),
        (Assumptions(zones=(Zone("a", 0.9),)), "zones"),
    ],
)
def test_the_assumption_that_holds_the_platform_back_is_named(assumptions: Assumptions, field: str):
    outcome = make_plan(uniform_model(paper.MODULES, 0.999, assumptions=assumptions), 0.9999, Pricing())
    assert isinstance(outcome, Infeasible)
    assert field in {change.field for remedy in outcome.remedies for change in remedy.changes}


def test_where_no_single_change_suffices_several_together_are_named():
    model = uniform_model(
        paper.MODULES,
        0.9,
        shared=(SharedDependency("database", 0.999),),
        assumptions=Assumptions(common_cause=0.05),
    )
    outcome = make_plan(model, 0.9999, Pricing())
    assert isinstance(outcome, Infeasible)
    assert len(outcome.remedies) == 1
    assert len(outcome.remedies[0].changes) > 1
    assert outcome.remedies[0].point.availability_percent >= 99.99


@pytest.mark.feature(
    "A19",
    file="src/yunhe/availability/pricing.py",
    old="(self.service_cost + self.instance_cost * count) // unit",
    new="count",
)
def test_devices_and_people_are_both_weighed():
    model = uniform_model(paper.MODULES, 0.8)
    people = planned(model, 0.99, Pricing(mixed=True, max_replicas=6, service_cost=20, instance_cost=1))
    devices = planned(model, 0.99, Pricing(mixed=True, max_replicas=6, service_cost=0, instance_cost=1))
    for outcome, service_cost in ((people, 20), (devices, 0)):
        point = outcome.point
        assert point.services == len(outcome.services)
        assert point.instances == sum(service.replicas for service in outcome.services)
        assert point.cost == service_cost * point.services + point.instances
        assert outcome.proven
    assert people.point.services < devices.point.services
    assert people.point.instances > devices.point.instances
    both = trade_off(model, 0.99, Pricing(mixed=True, max_replicas=6))
    pairs = [(point.services, point.instances) for point in both]
    assert (people.point.services, people.point.instances) in pairs
    assert (devices.point.services, devices.point.instances) in pairs
    assert pairs == sorted(pairs)
    assert [instances for _, instances in pairs] == sorted((i for _, i in pairs), reverse=True)
    along = frontier_points(model, Pricing(mixed=True, max_replicas=6, service_cost=20), 10_000)
    assert all(a.cost < b.cost and a.unavailability > b.unavailability for a, b in itertools.pairwise(along))
    met = next(point for point in along if point.availability_percent >= 99)
    assert (met.services, met.instances, met.cost) == (
        people.point.services,
        people.point.instances,
        people.point.cost,
    )


def test_a_mixed_plan_never_costs_more_than_an_equal_one():
    for a in (0.95, 0.99, 0.995):
        model = uniform_model(paper.MODULES, a)
        equal = planned(model, 0.99)
        mixed = planned(model, 0.99, Pricing(mixed=True))
        assert mixed.point.instances <= equal.point.instances


def test_mixing_modules_at_99_9_could_do_with_4_2_and_1_services():
    for a, services in ((0.99, 4), (0.995, 2), (0.999, 1)):
        assert planned(uniform_model(paper.MODULES, a), 0.999).bounds.across_modules_services == services


def test_with_common_cause_more_services_may_be_worse_and_the_frontier_says_so():
    model = uniform_model(paper.MODULES, 0.995, assumptions=Assumptions(common_cause=0.05))
    found = find_frontier(model, [Choice(3, 1)])
    assert found.reached[24] < found.reached[10]
    points = frontier_points(model, Pricing(), 100)
    assert points[-1].services < 24


def test_a_million_equal_submodules_are_planned_exactly_and_their_plan_is_whole():
    modules = tuple(
        Module(f"m{number}", tuple(SubModule(f"s{index}", 0.9999) for index in range(100)))
        for number in range(10_000)
    )
    model = Model(modules)
    found = find_frontier(model, [Choice(3, 1)])
    assert len(found.reached) == 1_000_001
    assert found.bound is found.reached or np.array_equal(found.bound, found.reached)
    cost = found.cheapest(math.log(0.999))
    assert cost is not None
    services = found.services(cost)
    assert len(services) == cost
    assert sum(len(service.submodules) for service in services) == 1_000_000
    f = {size: math.log1p(-((1 - 0.9999**size) ** 3)) for size in range(1, 101)}
    total = math.fsum(f[len(service.submodules)] for service in services)
    assert found.reached[cost] == pytest.approx(total, rel=1e-9)
    sizes = {len(service.submodules) for service in services}
    assert max(sizes) - min(sizes) <= 34, "every module is in three or four balanced parts"


def test_large_unequal_modules_give_a_plan_and_a_bound():
    random = np.random.default_rng(3)
    for count in (40, 700):
        modules = (
            Module(
                "big", tuple(SubModule(f"s{i}", a) for i, a in enumerate(random.uniform(0.99, 0.9999, count)))
            ),
        )
        outcome = planned(Model(modules), 0.999)
        assert outcome.least_possible_cost <= outcome.point.cost
        packaged = sorted(name for service in outcome.services for name in service.submodules)
        assert packaged == sorted(f"s{i}" for i in range(count))


def test_a_module_of_too_many_different_submodules_is_refused_with_a_way_out():
    values = np.random.default_rng(4).uniform(0.99, 0.999, 2001)
    model = Model((Module("big", tuple(SubModule(f"s{i}", a) for i, a in enumerate(values))),))
    with pytest.raises(UnsupportedError, match="2,001 sub-modules"):
        make_plan(model, 0.99, Pricing())


def test_many_modules_of_different_submodules_are_planned():
    values = np.random.default_rng(4).uniform(0.99, 0.999, (1000, 3))
    model = Model(
        tuple(
            Module(f"m{number}", tuple(SubModule(f"s{i}", a) for i, a in enumerate(row)))
            for number, row in enumerate(values)
        )
    )
    outcome = planned(model, 0.999)
    assert outcome.proven
    assert outcome.bounds.across_modules_services is not None
    assert outcome.bounds.across_modules_services <= outcome.point.services


def test_mixed_replicas_for_a_huge_module_are_refused_with_a_way_out():
    values = np.random.default_rng(4).uniform(0.99, 0.999, 300)
    model = Model((Module("big", tuple(SubModule(f"s{i}", a) for i, a in enumerate(values))),))
    with pytest.raises(UnsupportedError, match="300 sub-modules"):
        make_plan(model, 0.99, Pricing(mixed=True))


def test_the_trade_off_is_refused_where_it_would_take_too_long():
    with pytest.raises(UnsupportedError, match="up to 60"):
        trade_off(uniform_model({"big": [f"s{i}" for i in range(61)]}, 0.99), 0.99, Pricing(mixed=True))


@pytest.mark.parametrize("target", [0.0, 1.0, -0.5, 1.5, math.nan])
def test_a_target_that_is_no_probability_is_refused(target: float):
    with pytest.raises(InvalidInputError, match="target"):
        make_plan(uniform_model(paper.MODULES, 0.99), target, Pricing())


@pytest.mark.parametrize(
    ("pricing", "field"),
    [
        ({"max_replicas": 0}, "max_replicas"),
        ({"service_cost": -1}, "service_cost"),
        ({"instance_cost": 2000}, "instance_cost"),
        ({"instance_cost": 0}, "instance_cost"),
    ],
)
def test_costs_that_make_no_sense_are_refused(pricing: dict[str, int], field: str):
    with pytest.raises(InvalidInputError) as refused:
        msgspec.convert(pricing, Pricing)
    assert [problem.field for problem in refused.value.fields] == [field]


def test_a_plan_survives_being_written_and_read():
    outcome = planned(uniform_model(paper.MODULES, 0.99), 0.9999)
    assert msgspec.convert(json.loads(msgspec.json.encode(outcome)), Planned | Infeasible) == outcome


def test_balanced_groups_differ_by_at_most_one_and_lose_nobody():
    for count, groups in ((10, 3), (7, 7), (5, 1), (100, 33)):
        made = balanced_groups(count, groups, 2)
        sizes = [len(group.members) for group in made]
        assert len(made) == groups
        assert max(sizes) - min(sizes) <= 1
        assert [member for group in made for member in group.members] == list(range(count))


def test_spreading_by_heap_and_in_turns_loses_nobody_and_leaves_no_group_empty():
    for count in (30, 900):
        weights = np.random.default_rng(5).uniform(0.1, 1.0, count)
        for groups in (1, 2, 7, count // 2, count):
            members = spread(weights, groups)
            assert sorted(index for group in members for index in group) == list(range(count))
            assert all(members)
            assert len(members) == groups


@pytest.mark.parametrize(
    ("text", "value"), [("0.99", 0.99), ("99%", 0.99), (" 99.5 % ", 0.995), (0.5, 0.5), ("1e-1", 0.1)]
)
def test_availabilities_are_read_as_fraction_or_percent(text: object, value: float):
    assert parse_availability(text) == pytest.approx(value)


@pytest.mark.parametrize("text", ["", "many", "99 percent", None, True, [0.9], "0.9.9", "%"])
def test_what_is_no_availability_is_refused(text: object):
    with pytest.raises(ValueError, match="not a number"):
        parse_availability(text)


@pytest.mark.parametrize(
    ("text", "value"), [("99.99", 0.9999), ("0.9999", 0.9999), ("99.99%", 0.9999), (99, 0.99), ("40%", 0.4)]
)
def test_targets_are_read_as_people_say_them(text: object, value: float):
    assert parse_target(text) == pytest.approx(value)


@pytest.mark.parametrize("text", ["100", "1", "0", "-3", "7", "49", "100%", "nan", "0%"])
def test_targets_that_cannot_be_meant_are_refused(text: str):
    with pytest.raises(ValueError, match="not a target"):
        parse_target(text)


def test_percent_shows_three_digits_of_what_is_missing():
    assert show_percent(8.28e-5) == "99.99172 %"
    assert show_percent(0.155) == "84.50 %"
    assert show_percent(2.4e-8) == "99.99999760 %"
    assert show_percent(0.0) == "100 %"
    assert show_percent(1.0) == "0.00 %"
