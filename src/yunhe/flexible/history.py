"""What is known of the instances at one moment: the only thing a decision at that moment may use."""

from dataclasses import dataclass

import numpy as np

from yunhe.flexible.trace import DAY_S, HOUR_S, Bools, Dimension, Floats, Ints, Singles, Trace, hour_of_week

ENOUGH_COVERAGE = 0.75
"""An instance that reported less of its own life than this is treated as new."""

POOL_COVERAGE = 0.5
"""A slot in which fewer of the instances report is an outage of the collector, not idleness."""


@dataclass(frozen=True, slots=True)
class History:
    """Aligned usage of the instances present at one moment; gaps are filled, newcomers at their request."""

    series: Singles
    hours: Ints
    request: Floats
    warm: Bools
    period_s: int

    @property
    def slots(self) -> int:
        """Return how many slots the history has."""
        return int(self.series.shape[1])

    def of(self, members: Ints) -> "History":
        """Return the history of some of the instances."""
        return History(
            self.series[members], self.hours, self.request[members], self.warm[members], self.period_s
        )

    def latest(self, span_s: int) -> "History":
        """Return the last *span_s* of the history."""
        first = max(0, self.slots - max(1, span_s // self.period_s))
        return History(
            np.ascontiguousarray(self.series[:, first:]),
            self.hours[first:],
            self.request,
            self.warm,
            self.period_s,
        )


@dataclass(frozen=True, slots=True)
class KnownHistory:
    """A history and which instances of the trace it speaks of."""

    history: History
    present: Ints


def history_before(
    trace: Trace,
    slot: int,
    span_s: int,
    warm_after_s: int,
    dimension: Dimension = Dimension.CPU,
) -> KnownHistory:
    """Return what was known when *slot* began, looking back at most *span_s*.

    An instance is present if it reported in the last hour that the pool reported at all. It is warm
    once it has *warm_after_s* of samples that cover most of its life; until then it counts at its request.
    """
    first = max(0, slot - span_s // trace.period_s)
    usage = trace.usage[dimension][:, first:slot]
    reported = ~np.isnan(usage)
    live = reporting_slots(reported)
    recent = np.flatnonzero(live)[-max(1, HOUR_S // trace.period_s) :]
    present = np.flatnonzero(reported[:, recent].any(axis=1))
    reported, usage = reported[present], usage[present]
    warm = _warm(reported[:, live], max(1, warm_after_s // trace.period_s))
    request = trace.request[dimension][present]
    filled = _filled(usage, DAY_S // trace.period_s)[:, live]
    series = np.where(warm[:, None], filled, request[:, None]).astype(np.float32)
    hours = hour_of_week(trace.slot_times_s(first, slot)[live])
    history = History(np.ascontiguousarray(series), hours, request, warm, trace.period_s)
    return KnownHistory(history, present)


def reporting_slots(reported: Bools) -> Bools:
    """Return the slots in which the pool as a whole reported."""
    share = reported.mean(axis=0) if len(reported) else np.zeros(reported.shape[1])
    return (share > 0) & (share >= POOL_COVERAGE * share.max(initial=0.0))


def _warm(reported: Bools, needed: int) -> Bools:
    if reported.size == 0:  # nobody reported in all that time: nobody is known
        return np.zeros(len(reported), dtype=np.bool_)
    seen = reported.sum(axis=1)
    life = reported.shape[1] - np.argmax(reported, axis=1)
    return (seen >= min(needed, reported.shape[1])) & (seen >= ENOUGH_COVERAGE * life)


def _filled(usage: Singles, slots_per_day: int) -> Singles:
    """Return *usage* without gaps: the same time on the next known day, else the instance's mean.

    A young instance thus repeats the days it has had, at their own hours.
    """
    filled = usage.copy()
    for first in range(usage.shape[1] - 2 * slots_per_day, -slots_per_day, -slots_per_day):
        lower = max(0, first)
        day = filled[:, lower : first + slots_per_day]
        next_day = filled[:, lower + slots_per_day : first + 2 * slots_per_day]
        np.copyto(day, next_day, where=np.isnan(day))
    empty = np.isnan(filled)
    seen = (~empty).sum(axis=1)
    mean = np.where(empty, 0, filled).sum(axis=1) / np.maximum(seen, 1)
    return np.where(empty, mean[:, None], filled)
