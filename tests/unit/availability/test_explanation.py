import pytest

from yunhe.availability.explanation import explain
from yunhe.availability.model import Assumptions, SharedDependency, Zone, uniform_model
from yunhe.availability.planner import make_plan
from yunhe.availability.pricing import Pricing
from yunhe.availability.published import paper


def test_one_service_less_is_shown_to_miss_the_target():
    model = uniform_model(paper.MODULES, 0.99)
    told = explain(model, make_plan(model, 0.9999, Pricing()).services, 0.9999, Pricing())
    assert told.one_less is not None
    assert (told.one_less.services, f"{told.one_less.availability_percent:.5f}") == (13, "99.98999")
    assert told.one_less.availability_percent < 99.99 <= told.point.availability_percent


def test_the_fewest_services_there_can_be_have_nothing_below_them():
    model = uniform_model(paper.MODULES, 0.999)
    told = explain(model, make_plan(model, 0.999, Pricing()).services, 0.999, Pricing())
    assert told.one_less is None


def test_downtime_is_shared_out_among_parts_and_the_largest_come_first():
    model = uniform_model(
        paper.MODULES,
        0.99,
        shared=(SharedDependency("database", 0.9999, needs=("disk",)), SharedDependency("disk", 0.99999)),
    )
    told = explain(model, make_plan(model, 0.999, Pricing()).services, 0.999, Pricing())
    assert sum(part.share_percent for part in told.downtime) == pytest.approx(100, abs=0.1)
    assert [part.share_percent for part in told.downtime] == sorted(
        (p.share_percent for p in told.downtime), reverse=True
    )
    by_name = {part.part: part for part in told.downtime}
    assert by_name["shared: database"].downtime_s_per_year == pytest.approx(1e-4 * 365.25 * 86400, rel=1e-3)


def test_zones_are_a_part_of_their_own():
    zones = (Zone("a", 0.999), Zone("b", 0.999))
    model = uniform_model(paper.MODULES, 0.999, 2, assumptions=Assumptions(failover=0.9, zones=zones))
    told = explain(model, make_plan(model, 0.99, Pricing()).services, 0.99, Pricing())
    assert next(part for part in told.downtime if part.part == "zones").share_percent > 0


def test_what_more_would_buy_is_never_worse_and_counts_what_it_adds():
    model = uniform_model(paper.MODULES, 0.99, shared=(SharedDependency("database", 0.999, 2),))
    told = explain(model, make_plan(model, 0.9999, Pricing()).services, 0.9999, Pricing())
    changes = {step.change.split()[0] + " " + step.change.split()[-1]: step for step in told.next_steps}
    assert all(step.unavailability < told.point.unavailability for step in told.next_steps)
    assert {(step.added_services, step.added_instances) for step in changes.values()} == {(1, 3), (0, 1)}
    assert any("database" in step.change for step in told.next_steps)


def test_the_same_services_under_other_assumptions_show_what_the_plan_rests_on():
    model = uniform_model(paper.MODULES, 0.99)
    told = explain(model, make_plan(model, 0.9999, Pricing()).services, 0.9999, Pricing())
    cases = {case.assumption: case for case in told.what_ifs}
    assert cases["as assumed"].meets_target
    shared = cases["5 % of failures strike all replicas"]
    assert not shared.meets_target
    assert shared.availability_percent < 99
    assert all(case.meets_target == (case.availability_percent >= 99.99) for case in told.what_ifs)
    assert cases["as assumed"].availability_percent == pytest.approx(told.point.availability_percent)


def test_a_mixed_plan_is_explained_by_its_cost():
    model, pricing = uniform_model(paper.MODULES, 0.99), Pricing(mixed=True)
    told = explain(model, make_plan(model, 0.9999, pricing).services, 0.9999, pricing)
    assert told.one_less is not None
    assert told.one_less.instances == told.point.instances - 1
    assert told.one_less.availability_percent < 99.99
