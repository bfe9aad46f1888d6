"""The calibrated margin: what evidence may and may not do to it."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from yunhe.flexible.margin import MARGINS, TUNING, Budget, Trial, choose


@st.composite
def evidence(draw: st.DrawFn) -> list[Trial]:
    random = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    rules, windows = draw(st.integers(1, 4)), draw(st.integers(1, 8))
    trials: list[Trial] = []
    for _ in range(windows):
        hosts = np.sort(random.integers(5, 40, (rules, len(MARGINS))), axis=1).astype(np.float64)
        rate = np.sort(random.random((rules, len(MARGINS))) ** 6, axis=1)[:, ::-1]
        trials.append(Trial(hosts, np.full_like(hosts, 100.0), rate * hosts * 288, hosts * 288))
    return trials


@given(evidence(), st.tuples(st.floats(0.001, 0.2), st.floats(0.001, 0.2)))
@settings(max_examples=60)
def test_a_looser_target_never_needs_more_hosts(trials: list[Trial], targets: tuple[float, float]):
    strict, loose = sorted(targets)
    hosts = np.mean([trial.hosts for trial in trials], axis=0)

    def cost(target: float) -> tuple[bool, float]:
        choice = choose(trials, target)
        column = int(np.argmin(np.abs(choice.margin - MARGINS)))
        return choice.expected <= target, float(hosts[choice.rule, column])

    (strict_met, strict_hosts), (loose_met, loose_hosts) = cost(strict), cost(loose)
    assert loose_met or not strict_met
    if strict_met and len(trials) == 1:
        assert loose_hosts <= strict_hosts + 1e-9


@given(evidence(), st.floats(0.001, 0.2))
@settings(max_examples=60)
def test_the_choice_meets_the_target_on_the_evidence_whenever_any_margin_does(
    trials: list[Trial], target: float
):
    choice = choose(trials, target)
    column = int(np.argmin(np.abs(choice.margin - MARGINS)))
    seen = sum(trial.overloaded[choice.rule, column] for trial in trials) / sum(
        trial.judged[choice.rule, column] for trial in trials
    )
    if choice.expected <= target and len(trials) == 1:
        assert seen <= target + 1e-9
    safest = min(
        sum(trial.overloaded[rule, -1] for trial in trials) / sum(trial.judged[rule, -1] for trial in trials)
        for rule in range(len(trials[0].hosts))
    )
    assert choice.expected <= target or safest > target * 0.2


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
