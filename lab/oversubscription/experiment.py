"""The published experiment: the same hosts under 1×, 2×, 3× and flexible, and whether its gains are seen here."""

from collections.abc import Callable, Sequence

import numpy as np

from lab.oversubscription.causes import MOST
from lab.oversubscription.evaluation import Evaluation, Experiment
from lab.oversubscription.methods import DEFAULT, MAIN
from lab.oversubscription.printing import grid, rate_text, tenant_cost, utilisation
from lab.oversubscription.statistics import percent, violation_rate
from yunhe.flexible.replay import ReplayOutcome
from yunhe.flexible.trace import Floats

PAPER_VCPUS = (29_320, 65_166)
PAPER_UTILISATION = (0.162, 0.344)
PAPER_GAIN = PAPER_VCPUS[1] / PAPER_VCPUS[0]
PAPER_USE_GAIN = PAPER_UTILISATION[1] / PAPER_UTILISATION[0]


def fixed_hosts_table(results: Sequence[Evaluation], seed: int) -> str:
    """Return the published experiment on every set beside the published figures."""
    header = (
        "set",
        "hosts",
        "policy",
        "instances",
        "vCPU placed",
        "over 1× / 2× / 3×",
        "utilisation",
        "violation [95 %]",
        "worst host",
        "¥/vCPU-h",
    )
    rows: list[Sequence[str]] = []
    for result in results:
        given = result.experiment
        placed = {name: mean_placed(outcomes) for name, outcomes in given.outcomes.items()}
        for name, outcomes in given.outcomes.items():
            gains = " / ".join(
                f"{100 * (placed[name] / placed[f'fixed {r}x'] - 1):+.0f} %" for r in (1, 2, 3)
            )
            rows.append(
                (
                    result.data.name,
                    f"{given.hosts} × {given.cores:g}",
                    f"**{name} 1 %**" if name == DEFAULT else name,
                    f"{np.mean([one.placed for one in outcomes]):.0f} of {np.mean(given.offered):.0f}",
                    f"{placed[name]:.0f}",
                    gains,
                    percent(utilisation(outcomes, given.cores, given.hosts), 1),
                    rate_text(violation_rate(outcomes, seed)),
                    percent(max(one.worst_host for one in outcomes), 1),
                    tenant_cost(outcomes, given.cores, given.hosts),
                )
            )
    for name, vcpus, used in zip(("fixed 3x", "flexible"), PAPER_VCPUS, PAPER_UTILISATION, strict=True):
        over = f"– / – / {100 * (vcpus / PAPER_VCPUS[0] - 1):+.0f} %"
        rows.append(
            ("the paper", "–", name, "–", f"{vcpus}", over, percent(used, 1), "not reported", "–", "–")
        )
    note = (
        f"\nThe paper's arithmetic: {PAPER_VCPUS[1]:,}/{PAPER_VCPUS[0]:,} = {PAPER_GAIN:.4f} in vCPU, "
        f"{100 * PAPER_UTILISATION[1]:.1f}/{100 * PAPER_UTILISATION[0]:.1f} = {PAPER_USE_GAIN:.4f} in utilisation; "
        "no violation rate is given."
    )
    return grid(header, rows) + "\n" + note + "\n" + "\n".join(verdicts(results))


def verdicts(results: Sequence[Evaluation]) -> list[str]:
    """Return for each set whether the published gains over 3× were reproduced at a rate near the stated one."""
    lines: list[str] = []
    for result in results:
        given = result.experiment
        placed = _both(given, lambda one: one.requested)
        used = _both(given, lambda one: one.used)
        outcomes = given.outcomes[DEFAULT]
        share = [
            utilisation(each, given.cores, given.hosts) for each in (given.outcomes["fixed 3x"], outcomes)
        ]
        rate = sum(one.overloaded for one in outcomes) / sum(one.judged for one in outcomes)
        lines.append(
            f"- {result.data.name}: {100 * (_gain(placed) - 1):+.1f} % vCPU over 3× at {percent(rate)} violation: the "
            f"paper's {100 * (PAPER_GAIN - 1):+.1f} % is {_verdict(placed, PAPER_GAIN, rate, given)}; utilisation {percent(share[0], 1)} → "
            f"{percent(share[1], 1)}, {_gain(used):.4f}×: the paper's {PAPER_USE_GAIN:.4f}× is "
            f"{_verdict(used, PAPER_USE_GAIN, rate, given)}"
        )
    return lines


def _both(given: Experiment, of: Callable[[ReplayOutcome], float]) -> Floats:
    """Return two rows, fixed 3× and flexible, of something in every window."""
    return np.array([[of(one) for one in given.outcomes[name]] for name in ("fixed 3x", DEFAULT)])


def _gain(both: Floats) -> float:
    fixed, flexible = both.sum(axis=1)
    return float(flexible / fixed) if fixed else float("inf")


def _verdict(both: Floats, wanted: float, rate: float, given: Experiment) -> str:
    """Return whether a gain is seen; it is bounded by the instances there are.

    A window in which everybody had a place says nothing of what was possible. So a gain is refuted only by windows
    in which somebody was left, and only where most are such.
    """
    if _gain(both) >= wanted:
        near = rate <= MOST * MAIN
        return (
            "**reproduced**" if near else f"reached, **but not at a rate near the stated {percent(MAIN, 0)}**"
        )
    placed = np.array([one.placed for one in given.outcomes[DEFAULT]])
    left = placed < np.array(given.offered)
    if left.mean() > 0.5 and _gain(both[:, left]) < wanted:
        return "**refuted**"
    return f"**not decidable**: no instance was left to place in {int((~left).sum())} of {len(left)} windows"


def mean_placed(outcomes: Sequence[ReplayOutcome]) -> float:
    """Return the vCPU that found a place, on average over windows."""
    return float(np.mean([one.requested for one in outcomes]))
