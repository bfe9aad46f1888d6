"""The default method: try every rule on the past, keep the densest that would have met the target.

After each window every candidate rule is replayed on it with every margin, and how often hosts would have
overflowed is written down. Before the next window the margin of each rule is set so that, on that evidence,
the stated probability is met; the rule that then needs the fewest hosts is used. An error budget steers the
target: windows that were worse than stated are made good by caution later, and the reverse. So what is
calibrated is the rate over time; a single window may be far above or below it.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from yunhe.flexible.overload.estimators import (
    EstimateRequest,
    Estimator,
    aligned,
    n_sigma,
    recent,
    sum_of_percentiles,
)
from yunhe.flexible.placing.packing import Limits, Load, first_fit, host_usage, limits_at
from yunhe.flexible.replay import TIE, ReplayOutcome, Schedule, Window, judge, place
from yunhe.flexible.trace import Floats, Ints

MARGINS: Floats = np.exp(np.arange(np.log(0.6), np.log(2.3), 0.05))
"""Factors on a rule's estimate that are tried; below one the rule itself is too careful."""


@dataclass(frozen=True, slots=True)
class Tuning:
    """The numbers of the method; ``python -m lab.oversubscription.tuning`` chooses them and says on what."""

    half_life: float
    """Windows after which what was seen counts half."""
    caution: float
    """Standard errors added to a rate seen in few windows: the densest of many rules is partly luck."""
    gain: float
    """How strongly the error budget moves the target."""
    least_target: float
    most_target: float
    """Between which multiples of the stated rate it moves it."""


TUNING = Tuning(half_life=5, caution=0.0, gain=0.5, least_target=0.5, most_target=3.0)

FEW_HOSTS, MOST_ORDERS = 20, 5
"""A window with fewer hosts is replayed in more orders of arrival, up to so many."""


def default_pool(schedule: Schedule) -> tuple[Estimator, ...]:
    """Return the rules the default chooses from."""
    return (
        aligned(1.0),
        aligned(0.99),
        aligned(0.97),
        recent(aligned(1.0), schedule.recent_s),
        sum_of_percentiles(0.99),
        n_sigma(3),
    )


@dataclass(frozen=True, slots=True)
class Trial:
    """What each rule (row) with each margin (column) would have done in one window."""

    hosts: Floats
    requested: Floats
    """Cores asked for by the instances that found a place."""
    overloaded: Floats
    judged: Floats


@dataclass(frozen=True, slots=True)
class RuleChoice:
    """The rule and the margin to place with, and the rate the evidence promises."""

    rule: int
    margin: float
    expected: float


@dataclass(frozen=True, slots=True)
class Budget:
    """How much of the allowed overload was spent so far."""

    stated: float
    tuning: Tuning = TUNING
    overloaded: float = 0.0
    judged: float = 0.0
    windows: int = 0

    def target(self) -> float:
        """Return the rate to aim at next: what is left of the budget, within bounds."""
        if self.windows == 0:
            return self.stated
        left = (self.stated * self.judged - self.overloaded) / (self.judged / self.windows)
        least, most = self.tuning.least_target * self.stated, self.tuning.most_target * self.stated
        return float(np.clip(self.stated + self.tuning.gain * left, least, most))

    def after(self, overloaded: float, judged: float) -> "Budget":
        """Return the budget once a window has been judged."""
        return replace(
            self,
            overloaded=self.overloaded + overloaded,
            judged=self.judged + judged,
            windows=self.windows + 1,
        )


def limits_with_margin(hosts: int, load: Load, capacity: float, margin: float) -> Limits:
    """Return what equal hosts allow: *margin* times the estimate fits, or else the requests themselves do.

    A margin learned in a bad week must not refuse what cannot overload: but for clocks above nominal, nobody uses more
    than was requested.
    """
    limits = limits_at(np.full(hosts, capacity / margin), load, np.full(hosts, capacity))
    return replace(limits, requests=np.full(hosts, capacity))


def place_with_margin(
    window: Window, load: Load, capacity: float, margin: float, hosts: int | None = None
) -> Ints:
    """Return the host of each instance; never more hosts are used than at one requested core per real one."""
    count = len(window.instances) if hosts is None else hosts
    return first_fit(window.order, load, limits_with_margin(count, load, capacity, margin))


def try_rules(window: Window, pool: Sequence[Estimator], capacity: float, hosts: int | None = None) -> Trial:
    """Return what every rule of *pool* with every margin would have done in *window*.

    A pool of few hosts is replayed in several orders of arrival, or luck would be taken for evidence.
    """
    shape = (len(pool), len(MARGINS))
    trial = Trial(np.zeros(shape), np.zeros(shape), np.zeros(shape), np.zeros(shape))
    loads = [rule.load(window.history, EstimateRequest(0.01, capacity)) for rule in pool]
    orders = _orders(window, int(place(window, loads[0], capacity, capacity, hosts).max(initial=0)) + 1)
    for row, load in enumerate(loads):
        for column, margin in enumerate(MARGINS):
            for one in orders:
                placement = place_with_margin(one, load, capacity, float(margin), hosts)
                over = host_usage(placement, window.future) > capacity * (1 + TIE)
                trial.hosts[row, column] += len(over) / len(orders)
                trial.requested[row, column] += window.history.request[placement >= 0].sum() / len(orders)
                trial.overloaded[row, column] += over.sum() / len(orders)
                trial.judged[row, column] += over.size / len(orders)
    return trial


def _orders(window: Window, hosts: int) -> list[Window]:
    random = np.random.default_rng(window.index)
    more = max(0, min(MOST_ORDERS, FEW_HOSTS // hosts) - 1)
    return [window, *(replace(window, order=random.permutation(window.order)) for _ in range(more))]


def choose(evidence: Sequence[Trial], target: float, tuning: Tuning = TUNING) -> RuleChoice:
    """Return the rule and margin that, on the evidence, meet *target* with the fewest hosts per core sold.

    Where none meets it, the lowest rate is the target. All margins of all rules compete, so a looser target never
    costs more hosts on the same evidence, also where first fit needs fewer hosts with a larger margin.
    """
    age = np.arange(len(evidence))[::-1]
    weight = 0.5 ** (age / tuning.half_life)[:, None, None]
    hosts = (weight * np.array([trial.hosts for trial in evidence])).sum(axis=0)
    hosts_per_core = hosts / (weight * np.array([trial.requested for trial in evidence])).sum(axis=0)
    rate = _careful_rate(weight, evidence, tuning.caution)
    meets = rate <= max(target, float(rate.min()))
    rule, column = divmod(int(np.argmin(np.where(meets, hosts_per_core, np.inf))), len(MARGINS))
    return RuleChoice(rule, float(MARGINS[column]), float(rate[rule, column]))


def _careful_rate(weight: npt.NDArray[np.float64], evidence: Sequence[Trial], caution: float) -> Floats:
    """Return rules × margins: the rate seen, with its uncertainty, never rising with the margin."""
    overloaded = np.array([trial.overloaded for trial in evidence])
    judged = np.array([trial.judged for trial in evidence])
    total = (weight * judged).sum(axis=0)
    rate = (weight * overloaded).sum(axis=0) / total
    residual = weight * (overloaded - rate * judged)
    rate = rate + caution * np.sqrt((residual**2).sum(axis=0)) / total
    return np.maximum.accumulate(rate[:, ::-1], axis=1)[:, ::-1]


@dataclass(frozen=True, slots=True)
class MarginStep:
    """One reported window of the default method: what was chosen, where everything went, what happened."""

    window: Window
    choice: RuleChoice
    rule: Estimator
    target: float
    placement: Ints
    outcome: ReplayOutcome


@dataclass(frozen=True, slots=True)
class Walk:
    """One window for every stated probability asked for."""

    window: Window
    trial: Trial
    steps: dict[float, MarginStep]


def walk_forward(
    steps: Iterator[Window],
    schedule: Schedule,
    capacity: float,
    stated: Sequence[float],
    hosts: int | None = None,
    from_s: int | None = None,
) -> Iterator[Walk]:
    """Yield each window after practice, placed by the default method with what was known before it.

    With *hosts* there are so many and no more; without, as many as it takes for every instance. With *from_s* all
    windows before it are practice.
    """
    pool = default_pool(schedule)
    evidence: list[Trial] = []
    budgets = {one: Budget(one) for one in stated}
    for window in steps:
        taken: dict[float, MarginStep] = {}
        if len(evidence) >= schedule.practice and (from_s is None or window.start_s >= from_s):
            for one, budget in budgets.items():
                choice = choose(evidence, budget.target())
                rule = pool[choice.rule]
                load = rule.load(window.history, EstimateRequest(0.01, capacity))
                placement = place_with_margin(window, load, capacity, choice.margin, hosts)
                outcome = judge(window, placement, capacity)
                taken[one] = MarginStep(window, choice, rule, budget.target(), placement, outcome)
                budgets[one] = budget.after(outcome.overloaded, outcome.judged)
        trial = try_rules(window, pool, capacity, hosts)
        evidence.append(trial)
        if taken:
            yield Walk(window, trial, taken)
