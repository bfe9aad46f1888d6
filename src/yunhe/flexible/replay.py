"""Walking through a trace as it happened: learn from the past, place, judge the future, move on."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from yunhe.flexible.history import History, history_before, reporting_slots
from yunhe.flexible.placing.packing import Load, first_fit, host_usage, limits_at
from yunhe.flexible.trace import DAY_S, HOUR_S, WEEK_S, Bools, Dimension, Floats, Ints, Trace

TIE = 1e-9
"""A host is overloaded when its sum exceeds its capacity by more than this share: sums of floats tie."""


@dataclass(frozen=True, slots=True)
class Schedule:
    """How a walk is cut."""

    profile_s: int
    """What the published methods look back on."""
    memory_s: int
    """How far back anything looks."""
    recent_s: int
    """What a method that follows changes looks back on."""
    horizon_s: int
    """How long a placement stands before it is judged and made anew."""
    warm_after_s: int
    """How long an instance is new."""
    practice: int
    """Windows that only teach; the first reported one comes after them."""

    @property
    def least_s(self) -> int:
        """Return how long a trace must be: one window to look back on, those that teach, one to judge."""
        return (self.practice + 2) * self.horizon_s


LONG_LIVED = Schedule(
    profile_s=WEEK_S, memory_s=WEEK_S, recent_s=DAY_S, horizon_s=DAY_S, warm_after_s=DAY_S, practice=6
)
ELASTIC = Schedule(
    profile_s=HOUR_S,
    memory_s=4 * HOUR_S,
    recent_s=HOUR_S,
    horizon_s=HOUR_S,
    warm_after_s=HOUR_S // 2,
    practice=3,
)


@dataclass(frozen=True, slots=True)
class Window:
    """One step of a walk: what was known, who was there, in which order they come, what then happened."""

    index: int
    start_s: int
    end_s: int
    instances: tuple[str, ...]
    history: History
    order: Ints
    future: Floats
    """Instances × judged slots; a gap of one instance counts as no use."""
    judged_s: tuple[tuple[int, int], ...]
    """From when until when the slots are judged: the window, less the times in which the collector was down."""


def windows(traces: Sequence[Trace], schedule: Schedule, seed: int) -> Iterator[Window]:
    """Yield every window of *traces*, which follow each other in time; the first ones are for practice.

    Nothing in a window's ``history`` lies at or after its ``start_s``. A window in which the collector was
    down for most of the time is left out.
    """
    random = np.random.default_rng(seed)
    index = 0
    for trace in traces:
        horizon = schedule.horizon_s // trace.period_s
        for slot in range(horizon, trace.slots - horizon + 1, horizon):
            known = history_before(trace, slot, schedule.memory_s, schedule.warm_after_s)
            usage = trace.usage[Dimension.CPU][known.present, slot : slot + horizon]
            judged = reporting_slots(~np.isnan(usage))
            if len(known.present) < 2 or judged.sum() < horizon / 4:
                continue
            yield Window(
                index=index,
                start_s=trace.start_s + slot * trace.period_s,
                end_s=trace.start_s + (slot + horizon) * trace.period_s,
                instances=tuple(trace.instances[i] for i in known.present),
                history=known.history,
                order=random.permutation(len(known.present)),
                future=np.nan_to_num(usage[:, judged].astype(np.float64)),
                judged_s=_spans(trace, slot, judged),
            )
            index += 1


def _spans(trace: Trace, first: int, judged: Bools) -> tuple[tuple[int, int], ...]:
    """Return the runs of judged slots as times."""
    edges = np.flatnonzero(np.diff(np.concatenate([[False], judged, [False]]).astype(np.int8)))
    times = trace.start_s + trace.period_s * (first + edges)
    return tuple((int(begin), int(end)) for begin, end in zip(times[::2], times[1::2], strict=True))


@dataclass(frozen=True, slots=True)
class ReplayOutcome:
    """What became of one placement in the window after it."""

    hosts: int
    placed: int
    requested: float
    overloaded: int
    judged: int
    worst_host: float
    lost: float
    used: float
    in_sample: float

    @property
    def violation(self) -> float:
        """Return the share of host-slots in which the host was asked for more than it has."""
        return self.overloaded / self.judged if self.judged else 0.0


def place(window: Window, load: Load, limit: float, capacity: float, hosts: int | None = None) -> Ints:
    """Return the host of each instance, first fit in the window's order, on equal hosts.

    Without *hosts* there are as many as it takes.
    """
    count = len(window.instances) if hosts is None else hosts
    limits = limits_at(np.full(count, limit), load, np.full(count, capacity))
    return first_fit(window.order, load, limits)


def judge(window: Window, placement: Ints, capacity: float) -> ReplayOutcome:
    """Return what happened on the hosts of *placement*, and what the profile itself would have shown."""
    on_host = placement >= 0
    after = host_usage(placement, window.future)
    before = host_usage(placement, window.history.series.astype(np.float64))
    over = after > capacity * (1 + TIE)
    return ReplayOutcome(
        hosts=len(after),
        placed=int(on_host.sum()),
        requested=float(window.history.request[on_host].sum()),
        overloaded=int(over.sum()),
        judged=over.size,
        worst_host=float(over.mean(axis=1).max(initial=0.0)),
        lost=float(np.maximum(after - capacity, 0).sum()),
        used=float(after.sum()),
        in_sample=float((before > capacity * (1 + TIE)).mean()) if before.size else 0.0,
    )
