"""Rates over windows, their intervals, and hosts and lost work at equal violation."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from yunhe.flexible.replay import ReplayOutcome
from yunhe.flexible.trace import Floats

RESAMPLES = 1000
TINY = 1e-12
BLOCK = 3
"""Windows that follow each other are alike, so they are resampled in blocks."""


@dataclass(frozen=True, slots=True)
class Rate:
    """A violation rate and the interval that 95 % of block-resampled walks fall in."""

    value: float
    low: float
    high: float


def violation_rate(outcomes: Sequence[ReplayOutcome], seed: int) -> Rate:
    """Return the share of host-slots overloaded over all windows, with its interval."""
    over = np.array([one.overloaded for one in outcomes], dtype=np.float64)
    judged = np.array([one.judged for one in outcomes], dtype=np.float64)
    block = min(BLOCK, len(over))
    random = np.random.default_rng(seed)
    starts = random.integers(0, len(over) - block + 1, size=(RESAMPLES, -(-len(over) // block)))
    picked = (starts[:, :, None] + np.arange(block)).reshape(RESAMPLES, -1)[:, : len(over)]
    rates = over[picked].sum(axis=1) / judged[picked].sum(axis=1)
    low, high = np.quantile(rates, (0.025, 0.975))
    return Rate(float(over.sum() / judged.sum()), float(low), float(high))


@dataclass(frozen=True, slots=True)
class Matched:
    """A swept method at the setting that realises a given rate."""

    hosts: float
    lost: float
    """The share of the work asked for that overloaded hosts could not do."""


def matched(rate: float, sweep: Sequence[Floats]) -> Matched | None:
    """Return what a swept method needs and loses where it realises *rate*; None if it never does.

    Between two settings it is interpolated.
    *sweep* has a row of (hosts, overloaded, judged, lost, used) for each setting, one array for each window.
    """
    total = np.sum(np.array(sweep), axis=0)
    total = total[np.argsort(total[:, 0])]
    hosts, lost = total[:, 0] / len(sweep), total[:, 3] / np.maximum(total[:, 4], TINY)
    realised = np.minimum.accumulate(total[:, 1] / total[:, 2])
    if realised[-1] > rate or not len(hosts):
        return None
    first = int(np.argmax(realised <= rate))
    if first == 0:
        return Matched(float(hosts[0]), float(lost[0]))
    above, below = realised[first - 1], realised[first]
    share = (above - rate) / (above - below) if above > below else 1.0
    between = [one[first - 1] + share * (one[first] - one[first - 1]) for one in (hosts, lost)]
    return Matched(float(between[0]), float(between[1]))


def percent(share: float, digits: int = 2) -> str:
    """Return a share as a percentage."""
    return f"{100 * share:.{digits}f} %"
