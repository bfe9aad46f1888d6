"""A platform's past as something to simulate: its jobs become a workload, its pools a world."""

import math
import statistics
from bisect import bisect
from collections.abc import Sequence
from typing import NamedTuple

import msgspec
import numpy as np

from yunhe.kernel.errors import InvalidInputError
from yunhe.kernel.ids import made_at_s
from yunhe.scheduling.orchestration.jobs.model import Job
from yunhe.scheduling.perception.seen import world_of
from yunhe.simulator.engine import Played, report_of
from yunhe.simulator.model import SimulatedPlatform, SimulatedTask, SimulationReport, Workload

__all__ = ["Past", "past_of", "world_of"]

AS_IT_WAS = "as it was"
SAME_ROUND_S = 0.01
"""Placements no further apart were decided together."""


class Past(NamedTuple):
    """Jobs that ran to an end, as tasks in the order they came; times count from the first of them."""

    workload: Workload
    began_at: float
    was: SimulationReport
    """What came of them in truth."""
    platform: SimulatedPlatform
    """What the platform itself took, on average."""


class _Ran(NamedTuple):
    """A job with the times of the attempt it ended with."""

    job: Job
    placed_at: float
    started_at: float
    stopped_at: float
    """As the pool tells it; ``freed_at``: when its room was free for others."""
    freed_at: float


def past_of(jobs: Sequence[Job], cores: float = 0.0) -> Past:
    """Return the past that *jobs* tell of; those that never ran, or have not ended, are left out."""
    ran = [one for job in sorted(jobs, key=lambda job: job.id) if (one := _ran(job)) is not None]
    if not ran:
        raise InvalidInputError(
            "No job has run to its end there.", remedy="See what there is with `yunhe ps --all`."
        )
    began_at = min(one.job.submitted_at for one in ran)
    workload = Workload("recorded", [_task(one, began_at) for one in ran])
    handling_s = statistics.mean(
        (one.freed_at - one.placed_at) - (one.stopped_at - one.started_at) for one in ran
    )
    platform = SimulatedPlatform(max(0.0, handling_s), _reaction_s(ran))
    return Past(workload, began_at, _report(ran, workload, began_at, cores), platform)


def _ran(job: Job) -> _Ran | None:
    last = job.attempts[-1] if job.attempts else None
    if last is None or last.started_at is None or last.ended_at is None or job.ended_at is None:
        return None
    return _Ran(job, made_at_s(last.allocation_id), last.started_at, last.ended_at, job.ended_at)


def _task(ran: _Ran, began_at: float) -> SimulatedTask:
    demand = ran.job.demand
    return SimulatedTask(
        submitted_at=ran.job.submitted_at - began_at,
        resources=demand.alternatives[0].resources,
        run_s=max(0.001, ran.stopped_at - ran.started_at),
        members=demand.members,
        priority=demand.priority,
        demand=msgspec.structs.replace(demand, deadline_at=None),
    )


def _reaction_s(ran: Sequence[_Ran]) -> float:
    """Return how long a round of placements came after the first news since the round before, usually."""
    placed = sorted((one.placed_at, one.job.submitted_at) for one in ran)
    freed = sorted(one.freed_at for one in ran)
    took_s: list[float] = []
    before = -math.inf
    for at, submitted_at in placed:
        if at - before > SAME_ROUND_S:
            first = bisect(freed, before)
            room_at = freed[first] if first < len(freed) else math.inf
            news_at = max(submitted_at, room_at if room_at < at else before)
            took_s.append(at - news_at)
        before = at
    return statistics.mean(took_s)


def _report(ran: Sequence[_Ran], workload: Workload, began_at: float, cores: float) -> SimulationReport:
    started = np.array([one.started_at - began_at for one in ran])
    ended = np.array([one.freed_at - began_at for one in ran])
    held = [one.job.attempts[-1].resources.cpu_millis / 1000 for one in ran]
    busy = list(zip(started.tolist(), held, strict=True))
    busy += [(end, -amount) for end, amount in zip(ended.tolist(), held, strict=True)]
    restarts = sum(len(one.job.attempts) - 1 for one in ran)
    return report_of(workload, AS_IT_WAS, Played(started, ended, restarts, None, 0.0), cores, busy)
