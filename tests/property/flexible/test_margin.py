"""The calibrated margin: what evidence may and may not do to it."""

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from yunhe.flexible.overload.margin import MARGINS, TUNING, Budget, RuleChoice, Trial, choose
from yunhe.flexible.trace import Floats


@st.composite
def evidence(draw: st.DrawFn) -> list[Trial]:
    """Windows in which hosts and rates need not go with the margin: first fit knows no such order."""
    random = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    rules, windows = draw(st.integers(1, 4)), draw(st.integers(1, 8))
    shape = (rules, len(MARGINS))
    trials: list[Trial] = []
    for _ in range(windows):
        hosts = np.sort(random.integers(5, 40, shape), axis=1) + random.integers(0, 3, shape)
        rate = np.sort(random.random(shape) ** 6, axis=1)[:, ::-1] * random.uniform(0.5, 1, shape)
        sold = random.uniform(50, 150, shape)
        judged = hosts.astype(np.float64) * 288
        trials.append(Trial(hosts.astype(np.float64), sold, rate * judged, judged))
    return trials


def as_weighed(trials: list[Trial]) -> tuple[Floats, Floats]:
    """Return rules × margins of hosts per core sold and of the rate, each window counting by its age; plain sums."""
    weights = [0.5 ** (age / TUNING.half_life) for age in reversed(range(len(trials)))]

    def total(of: Callable[[Trial], Floats]) -> Floats:
        return np.sum([weight * of(trial) for weight, trial in zip(weights, trials, strict=True)], axis=0)

    hosts_per_core = total(lambda one: one.hosts) / total(lambda one: one.requested)
    return hosts_per_core, total(lambda one: one.overloaded) / total(lambda one: one.judged)


def chosen(trials: list[Trial], target: float) -> tuple[RuleChoice, tuple[int, int]]:
    choice = choose(trials, target)
    return choice, (choice.rule, int(np.argmin(np.abs(choice.margin - MARGINS))))


@given(evidence(), st.tuples(st.floats(0.001, 0.2), st.floats(0.001, 0.2)))
@settings(max_examples=100)
def test_a_looser_target_never_needs_more_hosts_however_many_windows_were_seen(
    trials: list[Trial], targets: tuple[float, float]
):
    strict, loose = sorted(targets)
    hosts_per_core, _ = as_weighed(trials)
    (strict_choice, strict_at), (loose_choice, loose_at) = chosen(trials, strict), chosen(trials, loose)
    assert loose_choice.expected <= loose or strict_choice.expected > strict
    assert hosts_per_core[loose_at] <= hosts_per_core[strict_at] + 1e-12


@given(evidence(), st.floats(0.001, 0.2))
@settings(max_examples=100)
def test_the_choice_meets_the_target_on_the_evidence_whenever_any_does_and_nothing_that_does_is_denser(
    trials: list[Trial], target: float
):
    hosts_per_core, rate = as_weighed(trials)
    never_rising = np.maximum.accumulate(rate[:, ::-1], axis=1)[:, ::-1]
    choice, at = chosen(trials, target)
    meets = never_rising <= target
    assert choice.expected == pytest.approx(never_rising[at])
    if meets.any():
        assert rate[at] <= target + 1e-12
        assert hosts_per_core[at] <= hosts_per_core[meets].min() + 1e-12
    else:
        assert choice.expected == pytest.approx(never_rising.min())


@given(st.floats(0.001, 0.1), st.lists(st.integers(0, 100), min_size=1, max_size=20))
@settings(max_examples=60)
def test_the_budget_tightens_after_overspending_and_stays_within_its_bounds(stated: float, spent: list[int]):
    budget = Budget(stated)
    assert budget.target() == stated
    for overloaded in spent:
        budget = budget.after(overloaded, 100)
    assert TUNING.least_target * stated <= budget.target() <= TUNING.most_target * stated
    rate = sum(spent) / (100 * len(spent))
    if rate > stated * 1.0001:
        assert budget.target() < stated
    elif rate < stated * 0.9999:
        assert budget.target() > stated
