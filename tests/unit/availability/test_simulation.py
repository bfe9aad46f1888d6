import math

import numpy as np
import pytest

from unit.availability.oracle import model_of
from yunhe.availability.evaluation import platform_log_availability, unsplit
from yunhe.availability.model import Assumptions, Model, Service, SharedDependency, Zone, uniform_model
from yunhe.availability.planner import make_plan
from yunhe.availability.pricing import Pricing
from yunhe.availability.published import paper
from yunhe.availability.simulation import Intervals, downtime_interval, simulate
from yunhe.kernel.errors import InvalidInputError, UnsupportedError

ZONES = (Zone("a", 0.98), Zone("b", 0.99), Zone("c", 0.97))
CASES = {
    "paper": uniform_model(paper.MODULES, 0.95),
    "unequal": model_of([[0.9, 0.99, 0.95], [0.97, 0.8]], 2),
    "one instance": model_of([[0.97, 0.98], [0.99]], 1),
    "common cause": uniform_model(paper.MODULES, 0.95, assumptions=Assumptions(common_cause=0.1)),
    "failover": uniform_model(paper.MODULES, 0.95, assumptions=Assumptions(failover=0.8)),
    "zones": uniform_model(paper.MODULES, 0.97, assumptions=Assumptions(zones=ZONES)),
    "zones and failover": uniform_model(paper.MODULES, 0.97, assumptions=Assumptions(failover=0.9, zones=ZONES)),
    "shared": uniform_model(paper.MODULES, 0.97, shared=(SharedDependency("db", 0.95, 2), SharedDependency("disk", 0.99))),
    "everything": uniform_model(
        paper.MODULES, 0.97, 3, (SharedDependency("db", 0.95, 2),), Assumptions(0.05, 0.95, 0.0, 600.0, ZONES)
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_the_formulas_agree_with_failures_and_repairs_played_out(name: str):
    """Over many seeds, the share of 95 % intervals that hold the formula's value is at least nearly that."""
    model = CASES[name]
    services = make_plan(model, 0.9, Pricing()).services
    results = [simulate(model, services, 3, seed) for seed in range(40)]
    assert sum(result.agrees for result in results) >= 33
    mean = sum(result.availability_percent for result in results) / len(results)
    widths = [high - low for low, high in (result.interval_percent for result in results)]
    error = sum(widths) / len(widths) / (2 * 1.96) / math.sqrt(len(results))
    assert abs(mean - results[0].predicted_percent) < 4 * error


def test_a_switch_over_that_takes_time_agrees_to_first_order():
    model = model_of([[0.98]], 3, Assumptions(switchover_s=600.0, repair_s=3600.0))
    result = simulate(model, unsplit(model), 400, 1)
    assert 1 - result.availability_percent / 100 == pytest.approx(result.predicted_unavailability, rel=0.05)


def test_the_paper_s_plan_for_99_percent_is_confirmed():
    model = uniform_model(paper.MODULES, 0.95)
    services = make_plan(model, 0.99, Pricing()).services
    result = simulate(model, services, 300, 3)
    assert f"{result.predicted_percent:.5f}" == "99.02747"
    assert result.agrees
    low, high = result.interval_percent
    assert high - low < 0.03
    assert result.outages_per_year == pytest.approx(result.outages / 300)
    assert result.mean_outage_s < 3600 < result.longest_outage_s
    assert sum(result.downtime_share_percent.values()) == pytest.approx(100)


def test_the_same_seed_gives_the_same_failures_and_another_others():
    model = uniform_model(paper.MODULES, 0.95)
    services = unsplit(model)
    assert simulate(model, services, 2, 5) == simulate(model, services, 2, 5)
    assert simulate(model, services, 2, 5) != simulate(model, services, 2, 6)


def test_progress_is_reported_up_to_the_end():
    model = uniform_model(paper.MODULES, 0.9)
    seen: list[float] = []
    simulate(model, unsplit(model), 40, 1, seen.append)
    assert seen == sorted(seen)
    assert seen[-1] == 1.0
    assert len(seen) > 1


def test_no_outage_seen_still_gives_an_interval_that_holds_the_truth():
    model = uniform_model({"a": ["x"]}, 0.9999)
    result = simulate(model, unsplit(model), 1, 1)
    assert result.outages == 0
    assert result.agrees
    assert result.interval_percent[0] < 100 == result.interval_percent[1]
    assert result.predicted_unavailability == pytest.approx(1e-12, rel=1e-6)


def test_an_interval_for_poisson_outages_of_random_length_holds_its_mean():
    random = np.random.default_rng(11)
    for mean_count in (1, 5, 40, 400):
        held = 0
        for _ in range(400):
            outages = random.exponential(2.0, random.poisson(mean_count))
            low, high = downtime_interval(outages, 2.0)
            held += low <= 2.0 * mean_count <= high
        assert held >= 0.91 * 400, mean_count


def test_stretches_of_time_that_touch_become_one():
    intervals = Intervals(np.array([5.0, 1.0, 2.0, 8.0]), np.array([6.0, 3.0, 2.5, 9.0]))
    assert intervals.starts.tolist() == [1.0, 5.0, 8.0]
    assert intervals.ends.tolist() == [3.0, 6.0, 9.0]
    assert Intervals(np.zeros(0), np.zeros(0)).lengths.sum() == 0


@pytest.mark.parametrize("years", [0.0, -1.0, math.nan, math.inf])
def test_a_time_that_is_none_is_refused(years: float):
    model = uniform_model({"a": ["x"]}, 0.9)
    with pytest.raises(InvalidInputError, match="simulated"):
        simulate(model, unsplit(model), years, 1)


def test_more_parts_than_can_be_played_out_are_refused():
    model = uniform_model({"a": [f"s{number}" for number in range(20_000)]}, 0.9)
    with pytest.raises(UnsupportedError, match="60,000"):
        simulate(model, unsplit(model), 1, 1)


def test_a_plan_of_one_s_own_can_be_judged_too():
    model = Model(model_of([[0.9, 0.9]]).modules)
    own = (Service("m0", ("s0",), 4), Service("m0", ("s1",), 1))
    assert math.exp(platform_log_availability(model, own)) == pytest.approx((1 - 0.1**4) * 0.9)
