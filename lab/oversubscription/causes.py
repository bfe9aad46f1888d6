"""Why a realised rate lies outside the band: said from what the walk itself has seen, and nothing where it says nothing."""

from collections.abc import Sequence

import numpy as np

from lab.oversubscription.evaluation import Evaluation
from lab.oversubscription.statistics import percent
from yunhe.flexible.overload.margin import MarginStep
from yunhe.flexible.placing.packing import host_usage
from yunhe.flexible.replay import TIE
from yunhe.flexible.trace import Floats

LEAST, MOST = 0.3, 1.5
"""A realised rate between these multiples of the stated one is called calibrated."""
SAME_HOSTS = 0.05
"""Fewer hosts by less than this, on average over windows, are not fewer."""
GROWN = 1.1
"""Load above the mean of the profile by this factor is another load."""


def calibrated(rate: float, stated: float) -> bool:
    """Return whether a realised rate may be called the stated one."""
    return LEAST * stated <= rate <= MOST * stated


def cause(result: Evaluation, stated: float) -> str | None:
    """Return why the default missed *stated* on a set, or None where it did not."""
    steps = result.steps[stated]
    rate = _realised(steps)
    if calibrated(rate, stated):
        return None
    why = _too_careful(result, stated) if rate < stated else _too_bold(steps, result.hosts.cores)
    return f"realised {percent(rate)}. {why} {_course(steps)}"


def _realised(steps: Sequence[MarginStep]) -> float:
    return sum(step.outcome.overloaded for step in steps) / sum(step.outcome.judged for step in steps)


def _course(steps: Sequence[MarginStep]) -> str:
    """Say what the budget did: what it aimed at, with which margins, and what the past promised."""
    targets = [step.target for step in steps]
    margins = [step.choice.margin for step in steps]
    promised = float(np.mean([step.choice.expected for step in steps]))
    return (
        f"Over {len(steps)} windows the target went from {percent(targets[0])} to {percent(targets[-1])} "
        f"(between {percent(min(targets))} and {percent(max(targets))}), the margin from {margins[0]:.2f} to "
        f"{margins[-1]:.2f}; on the windows before, the packings used had overloaded {percent(promised)}."
    )


def _too_careful(result: Evaluation, stated: float) -> str:
    """Say whether something denser existed, what it would have cost, and whether that could be known."""
    steps = result.steps[stated]
    mine = float(np.mean([step.outcome.hosts for step in steps]))
    hosts, realised = _alternatives(result)
    denser = hosts < mine - SAME_HOSTS
    if not denser.any():
        if mine < 1 + SAME_HOSTS:
            return "One host carries everything: no choice exists."
        return f"No rule with any margin tried needs fewer than the {mine:.1f} hosts used."
    if not (realised[denser] >= LEAST * stated).any():
        densest = np.argmin(np.where(denser, hosts, np.inf))
        return (
            f"Even the densest packing tried, with {hosts.flat[densest]:.1f} hosts for {mine:.1f}, would have "
            f"overloaded only {percent(realised.flat[densest])}."
        )
    within = denser & (realised >= LEAST * stated) & (realised <= MOST * stated)
    if not within.any():
        above = denser & (realised > MOST * stated)
        next_ = np.argmin(np.where(above, realised, np.inf))
        return (
            f"Hosts come in whole numbers: with {mine:.1f} hosts on average, the least overloaded packing denser and "
            f"not below the band takes {hosts.flat[next_]:.1f} and overloads {percent(realised.flat[next_])}."
        )
    best = np.argmin(np.where(within, np.abs(realised - stated), np.inf))
    reachable = (
        f"A rate within the band was there, with {hosts.flat[best]:.1f} hosts for {mine:.1f} at "
        f"{percent(realised.flat[best])}, but not on what was known before:"
    )
    promised = np.mean([step.choice.expected for step in steps])
    if promised >= LEAST * stated:
        return f"{reachable} the windows were calmer than those before them."
    return f"{reachable} there the next denser packing lay above the target."


def _alternatives(result: Evaluation) -> tuple[Floats, Floats]:
    """Return rules × margins: mean hosts and realised rate, had one been used in every reported window."""
    hosts = np.mean([trial.hosts for trial in result.trials], axis=0)
    judged = np.sum([trial.judged for trial in result.trials], axis=0)
    return hosts, np.sum([trial.overloaded for trial in result.trials], axis=0) / judged


def _too_bold(steps: Sequence[MarginStep], cores: float) -> str:
    """Say how concentrated the overload was, and whether load had grown, peaks were new, or peaks fell together."""
    over = np.array([step.outcome.overloaded for step in steps])
    worst = [int(number) for number in np.argsort(over)[::-1][:2]]
    held = f"The worst {len(worst)} of {len(steps)} windows hold {over[worst].sum() / over.sum():.0%} of it"
    grown = [_growth(steps[number]) for number in worst]
    text = f"{held} (the {' and the '.join(f'{number + 1}.' for number in sorted(worst))}): "
    if max(grown) >= GROWN:
        return f"{text}their load was {' and '.join(f'{one:.2f}×' for one in grown)} the mean of the profile before them."
    new = _share_of_new_peaks(steps, cores)
    if new >= 0.5:
        return (
            f"{text}load on the whole was as before, but {new:.0%} of the overloaded host-slots would have been none "
            "had no instance used more than ever in its profile: new peaks, which no rule over the profile sees."
        )
    return (
        f"{text}load was as before, and only {new:.0%} of the overloaded host-slots are due to instances that used "
        "more than ever in their profiles: peaks that were known fell together as they had not before."
    )


def _growth(step: MarginStep) -> float:
    history, future = step.window.history.series, step.window.future
    before = float(history.sum()) / history.shape[1]
    return float(future.sum()) / future.shape[1] / before if before else float("inf")


def _share_of_new_peaks(steps: Sequence[MarginStep], cores: float) -> float:
    """Return the share of overloaded host-slots that would not be, had nobody gone above their profile's highest."""
    overloaded = cured = 0
    for step in steps:
        highest = step.window.history.series.max(axis=1).astype(np.float64)
        future = step.window.future
        over = host_usage(step.placement, future) > cores * (1 + TIE)
        known = host_usage(step.placement, np.minimum(future, highest[:, None]))
        overloaded += int(over.sum())
        cured += int((over & (known <= cores * (1 + TIE))).sum())
    return cured / overloaded if overloaded else 0.0
