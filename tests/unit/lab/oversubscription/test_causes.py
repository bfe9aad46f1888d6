"""The printed cause of a missed rate: each follows from evidence, and none is printed against it."""

import numpy as np
import pytest
from lab.oversubscription.causes import cause
from lab.oversubscription.datasets import DataSet
from lab.oversubscription.evaluation import Evaluation, Hosts
from lab.oversubscription.printing import misses

from yunhe.flexible.history import History
from yunhe.flexible.overload.estimators import aligned
from yunhe.flexible.overload.margin import MarginStep, RuleChoice, Trial
from yunhe.flexible.replay import LONG_LIVED, Window, judge
from yunhe.flexible.synthetic import Cluster, synthetic_trace
from yunhe.flexible.trace import Floats, hour_of_week

CORES = 8.0
SLOTS = 100
MINE = 0.01


def step(future: Floats, past: Floats, hosts: int, expected: float = MINE) -> MarginStep:
    """Two instances a host; what they use in the window and used before it."""
    count = len(future)
    history = History(
        past.astype(np.float32),
        hour_of_week(np.arange(past.shape[1]) * 300),
        np.full(count, 8.0),
        np.ones(count, dtype=bool),
        300,
    )
    window = Window(
        0,
        0,
        SLOTS * 300,
        tuple(map(str, range(count))),
        history,
        np.arange(count),
        future,
        ((0, SLOTS * 300),),
    )
    placement = np.arange(count) % hosts
    outcome = judge(window, placement, CORES)
    return MarginStep(window, RuleChoice(0, 1.2, expected), aligned(1.0), MINE, placement, outcome)


def evaluation(steps: list[MarginStep], others: list[tuple[float, float]]) -> Evaluation:
    """A walk beside which each other packing would have needed so many hosts at such a rate."""
    data = DataSet(
        "some", (synthetic_trace(Cluster(instances=3, days=1, period_s=3600)),), LONG_LIVED, "made up"
    )
    hosts = np.array([[one for one, _ in others]])
    rate = np.array([[one for _, one in others]])
    trials = [Trial(hosts, hosts, rate * hosts * SLOTS, hosts * SLOTS) for _ in steps]
    every = dict.fromkeys((0.005, 0.01, 0.02, 0.05), steps)
    return Evaluation(data, Hosts(CORES, "", 0), steps=every, trials=trials)


def quiet(hosts: int, expected: float = MINE) -> MarginStep:
    calm = np.ones((2 * hosts, SLOTS))
    return step(calm, calm, hosts, expected)


def overloaded(share: float, before: float, at_rest: float = 1.0) -> MarginStep:
    """One host of two instances: both at 5 cores for a share of the time, each as high as *before* earlier."""
    future = np.full((2, SLOTS), at_rest)
    future[:, : int(share * SLOTS)] = 5.0
    past = np.ones((2, SLOTS))
    past[0, :10], past[1, 50:60] = before, before
    return step(future, past, 1)


def test_a_rate_within_the_band_has_no_cause():
    assert cause(evaluation([overloaded(0.01, 5.0)], [(1, 0.01)]), MINE) is None
    assert misses([evaluation([overloaded(0.01, 5.0)], [(1, 0.01)])]).count("- some at") == 2


@pytest.mark.parametrize(
    ("hosts", "others", "expected", "said"),
    [
        (1, [(1.0, 0.0)], MINE, "One host carries everything: no choice exists."),
        (3, [(3.0, 0.0), (4.0, 0.0)], MINE, "needs fewer than the 3.0 hosts used"),
        (3, [(3.0, 0.0), (2.0, 0.001)], MINE, "with 2.0 hosts for 3.0, would have overloaded only 0.10 %"),
        (3, [(2.5, 0.001), (2.0, 0.062)], MINE, "Hosts come in whole numbers"),
        (3, [(2.6, 0.009), (2.0, 0.062)], MINE, "calmer than those before them"),
        (3, [(2.6, 0.009), (2.0, 0.062)], 0.0, "the next denser packing lay above the target"),
    ],
)
def test_too_careful_a_rate_is_put_down_to_what_could_be_had(
    hosts: int, others: list[tuple[float, float]], expected: float, said: str
):
    found = cause(evaluation([quiet(hosts, expected)] * 3, others), MINE)
    assert found is not None
    assert said in found
    assert "nan" not in found
    assert ("whole numbers" in found) == ("whole numbers" in said), (
        "blamed only if the denser rate is too high"
    )
    assert "Over 3 windows the target went from 1.00 % to 1.00 %" in found


@pytest.mark.parametrize(
    ("worst", "said"),
    [
        (overloaded(0.2, 5.0, at_rest=3.0), "the mean of the profile before them"),
        (overloaded(0.1, 2.0, at_rest=0.6), "100% of the overloaded host-slots would have been none"),
        (overloaded(0.1, 5.0, at_rest=0.6), "peaks that were known fell together"),
    ],
)
def test_too_bold_a_rate_is_put_down_to_growth_new_peaks_or_peaks_that_met(worst: MarginStep, said: str):
    found = cause(evaluation([quiet(1), worst, quiet(1)], [(1, 0.1)]), MINE)
    assert found is not None
    assert said in found
    assert "The worst 2 of 3 windows hold 100% of it (the " in found
    assert "2." in found
