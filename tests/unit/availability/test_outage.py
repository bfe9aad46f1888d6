import math

import numpy as np
import pytest

from unit.availability.oracle import model_of, platform_availability, service_availability
from yunhe.availability.evaluation import fully_split, platform_log_availability, unsplit
from yunhe.availability.model import Assumptions, Model, Service, SharedDependency, Zone, uniform_model
from yunhe.availability.outage import Live, log_availability
from yunhe.availability.published import paper


def availability(model: Model, services: tuple[Service, ...]) -> float:
    return math.exp(platform_log_availability(model, services))


@pytest.mark.parametrize("common_cause", [0.0, 0.01, 0.3, 1.0])
@pytest.mark.parametrize("failover", [0.0, 0.5, 0.99, 1.0])
@pytest.mark.parametrize("replicas", [1, 2, 3, 5])
def test_the_closed_form_agrees_with_a_sum_over_all_states(
    common_cause: float, failover: float, replicas: int
):
    assumptions = Assumptions(common_cause=common_cause, failover=failover, switchover_s=60)
    for instance in (0.999, 0.9, 0.5, 0.01):
        weight = np.array([-math.log(instance)])
        value = log_availability(weight, Live(primary=True, replicas=replicas), assumptions)[0]
        expected = service_availability((instance,), replicas, assumptions)
        assert math.exp(value) == pytest.approx(expected, rel=1e-12, abs=1e-15)


def test_one_instance_is_as_available_as_it_is_whatever_is_assumed_about_replicas():
    assumptions = Assumptions(common_cause=0.4, failover=0.2)
    value = log_availability(np.array([-math.log(0.93)]), Live(primary=True, replicas=1), assumptions)
    assert math.exp(value[0]) == pytest.approx(0.93)


def test_neither_fifteen_nines_nor_groups_of_a_million_lose_precision():
    perfect = Assumptions()
    tiny = log_availability(np.array([1e-5]), Live(primary=True, replicas=3), perfect)[0]
    assert tiny == pytest.approx(-((-math.expm1(-1e-5)) ** 3), rel=1e-9)
    huge = log_availability(np.array([50_000.0]), Live(primary=True, replicas=3), perfect)[0]
    assert huge == pytest.approx(math.log(3) - 50_000.0, rel=1e-12)
    shared = log_availability(
        np.array([50_000.0]), Live(primary=True, replicas=3), Assumptions(common_cause=0.5)
    )
    assert np.isfinite(shared[0])


def test_without_a_live_replica_there_is_no_service():
    assert log_availability(np.array([0.1]), Live(primary=False, replicas=0), Assumptions())[0] == -math.inf


@pytest.mark.parametrize(
    ("a", "percent_unsplit", "percent_split"), [(0.99, "98.80", "98.80"), (0.995, "99.4020", "99.4015")]
)
def test_five_percent_of_common_cause_undo_what_splitting_brings(
    a: float, percent_unsplit: str, percent_split: str
):
    model = uniform_model(paper.MODULES, a, assumptions=Assumptions(common_cause=0.05))
    decimals = len(percent_split.partition(".")[2])
    assert f"{100 * availability(model, unsplit(model)):.{decimals}f}" == percent_unsplit
    assert f"{100 * availability(model, fully_split(model)):.{decimals}f}" == percent_split


def test_zones_failover_and_shared_dependencies_agree_with_a_sum_over_all_states():
    model = Model(
        model_of([[0.9, 0.95], [0.8, 0.99, 0.9]]).modules,
        (SharedDependency("database", 0.98, 2, ("disk",)), SharedDependency("disk", 0.99)),
        3,
        Assumptions(0.1, 0.9, 120.0, 1800.0, (Zone("a", 0.97), Zone("b", 0.9), Zone("c", 0.99))),
    )
    for services in (
        unsplit(model),
        fully_split(model),
        (
            Service("m0", ("s0",), 1),
            Service("m0", ("s1",), 4),
            Service("m1", ("s0", "s2"), 2),
            Service("m1", ("s1",), 3),
        ),
    ):
        assert availability(model, services) == pytest.approx(
            platform_availability(model, services), rel=1e-12
        )


def test_a_shared_dependency_caps_the_platform_and_more_instances_lift_the_cap():
    alone = uniform_model(paper.MODULES, 0.999)
    one = uniform_model(paper.MODULES, 0.999, shared=(SharedDependency("database", 0.999),))
    two = uniform_model(paper.MODULES, 0.999, shared=(SharedDependency("database", 0.999, 2),))
    assert availability(one, unsplit(one)) == pytest.approx(0.999 * availability(alone, unsplit(alone)))
    assert availability(two, unsplit(two)) == pytest.approx(0.999999 * availability(alone, unsplit(alone)))


def test_zones_are_worth_something_only_when_replicas_are_spread_over_them():
    zone = Zone("a", 0.999)
    one = uniform_model(paper.MODULES, 0.99, assumptions=Assumptions(zones=(zone,)))
    three = uniform_model(
        paper.MODULES, 0.99, assumptions=Assumptions(zones=(zone, Zone("b", 0.999), Zone("c", 0.999)))
    )
    bare = uniform_model(paper.MODULES, 0.99)
    assert availability(one, unsplit(one)) == pytest.approx(0.999 * availability(bare, unsplit(bare)))
    assert (
        availability(one, unsplit(one))
        < availability(three, unsplit(three))
        < availability(bare, unsplit(bare))
    )
