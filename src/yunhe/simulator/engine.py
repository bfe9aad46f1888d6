"""The discrete-event engine: arrivals, ends and failures in order of time, every placement by the scheduling core."""

import heapq
import math
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import NamedTuple

import msgspec
import numpy as np

from yunhe.kernel.ids import JobId, ProjectId
from yunhe.scheduling.decision.cycle import Cycle, Fit
from yunhe.scheduling.decision.model import (
    Alternative,
    Demand,
    Policy,
    ScoreTerm,
)
from yunhe.scheduling.decision.nodes.kernels import FloatArray
from yunhe.scheduling.decision.score.kernels import HOURS
from yunhe.scheduling.perception.snapshot import Snapshot
from yunhe.simulator.model import (
    PROMPT,
    Failure,
    SimulatedOutcome,
    SimulatedPlatform,
    SimulatedTask,
    SimulationReport,
    Workload,
)
from yunhe.simulator.queue import Shape, SimulatedQueue

PROJECT = ProjectId("simulated")
TELL_EVERY = 2000
SAMPLES = 60
END, FAIL, RECOVER, SIT = range(4)
OWN_POLICY = "as asked"

Changes = list[tuple[float, float]]
"""When something changed, and by how much."""

Progress = Callable[[int, int], None]
"""Told how many of how many tasks have ended."""


def roughly_s(run_s: float) -> float:
    """Return a run time as a scheduler would know it: to one of ten steps per decade."""
    return 10 ** (round(math.log10(max(run_s, 0.001)) * 10) / 10)


class SimulationEngine:
    """One run of a workload under one policy (None: each task's own).

    *platform* is what the platform itself takes; by default it decides at once and starts at once.
    """

    def __init__(
        self,
        workload: Workload,
        snapshot: Snapshot,
        policy: Policy | None,
        *,
        platform: SimulatedPlatform = PROMPT,
        failures: Sequence[Failure] = (),
        progress: Progress | None = None,
    ) -> None:
        self._tasks = workload.tasks
        self._name = workload.name
        self._policy = policy
        self._platform = platform
        self._sitting_called = False
        self._cycle = Cycle(snapshot)
        self._progress = progress
        self._events: list[tuple[float, int, int, int]] = []
        """(when, what, which task or pool, which try of it)"""
        self._order = sorted(range(len(self._tasks)), key=lambda index: self._tasks[index].submitted_at)
        self._turn = np.empty(len(self._tasks), dtype=np.int64)
        self._turn[self._order] = np.arange(len(self._tasks))
        self._waiting = SimulatedQueue()
        self._tries = [0] * len(self._tasks)
        self._place: list[tuple[int, int] | None] = [None] * len(self._tasks)
        self._started = np.full(len(self._tasks), np.nan)
        self._ended = np.full(len(self._tasks), np.nan)
        self._cost = np.zeros(len(self._tasks))
        self._cost_known = True
        self._charges: dict[int, Charge] = {}
        self._carbon_g = 0.0
        self._busy: Changes = [(0.0, 0.0)]
        self._missing = [len(task.after) for task in self._tasks]
        self._followers: dict[int, list[int]] = {}
        for index, task in enumerate(self._tasks):
            for before in task.after:
                self._followers.setdefault(before, []).append(index)
        rows = snapshot.row_of_pool
        for failure in failures:
            heapq.heappush(self._events, (failure.at, FAIL, rows[failure.pool_id], 0))
            if failure.lasts_s < math.inf:
                back_at = failure.at + failure.lasts_s
                heapq.heappush(self._events, (back_at, RECOVER, rows[failure.pool_id], 0))

    def run(self) -> None:
        """Let everything happen."""
        arrivals = iter(self._order)
        coming = next(arrivals, None)
        ended = 0
        while coming is not None or self._events:
            if coming is not None and (
                not self._events or self._tasks[coming].submitted_at <= self._events[0][0]
            ):
                if self._missing[coming] == 0:
                    self._try(coming, self._tasks[coming].submitted_at)
                coming = next(arrivals, None)
                continue
            now, kind, which, number = heapq.heappop(self._events)
            if kind == END:
                if number == self._tries[which]:
                    self._end(which, now)
                    ended += 1
                    if self._progress is not None and ended % TELL_EVERY == 0:
                        self._progress(ended, len(self._tasks))
            elif kind == FAIL:
                self._fail(which, now)
            elif kind == RECOVER:
                self._cycle.appraiser.open_pool(which)
            else:
                self._sitting_called = False
                self._drain(now)
                continue
            if not self._events or self._events[0][0] > now:
                self._call_sitting(now)

    def _demand(self, index: int) -> Demand:
        task = self._tasks[index]
        if task.demand is not None:
            own = task.demand
            return msgspec.structs.replace(own, job_id=JobId(str(index)), policy=self._policy or own.policy)
        return Demand(
            job_id=JobId(str(index)),
            project_id=PROJECT,
            alternatives=(Alternative(task.resources, task.pools),),
            policy=self._policy or Policy.BALANCED,
            members=task.members,
            run_s=roughly_s(task.run_s),
            data=task.data,
        )

    def _try(self, index: int, now: float) -> None:
        """Place a task that has just come or must run again, or let it wait for the next sitting."""
        if self._platform.reaction_s or not self._placed(index, now):
            self._waiting.join(shape_of(self._tasks[index]), int(self._turn[index]), index)
            if self._platform.reaction_s:
                self._call_sitting(now)

    def _placed(self, index: int, now: float) -> bool:
        demand = self._demand(index)
        given = self._cycle.place(demand)
        if given is not None:
            self._start(index, demand, given.fit, now)
        return given is not None

    def _call_sitting(self, now: float) -> None:
        """Look at all who wait: now, or after what it takes the platform to react; what comes meanwhile is seen too."""
        if not self._platform.reaction_s:
            self._drain(now)
        elif self._waiting and not self._sitting_called:
            self._sitting_called = True
            heapq.heappush(self._events, (now + self._platform.reaction_s, SIT, 0, 0))

    def _start(self, index: int, demand: Demand, fit: Fit, now: float) -> None:
        task, option, pool = self._tasks[index], fit.option, fit.pool
        terms = self._cycle.shown(demand, fit).terms
        speed = float(self._cycle.appraiser.columns.speed[pool])
        hours = task.run_s / (speed if speed == speed else 1.0) / 3600  # noqa: PLR0124 - NaN: unknown
        before_s = (
            self._platform.handling_s + (terms[ScoreTerm.WAIT_S] or 0.0) + (terms[ScoreTerm.DATA_S] or 0.0)
        )
        grams_per_hour = (terms[ScoreTerm.CARBON_G] or 0.0) / (float(option.table[HOURS, pool]) or 1.0)
        self._cost_known &= terms[ScoreTerm.COST_PER_HOUR] is not None
        self._cost[index] += (terms[ScoreTerm.COST_PER_HOUR] or 0.0) * hours + (
            terms[ScoreTerm.DATA_COST] or 0.0
        )
        self._carbon_g += grams_per_hour * hours
        self._charges[index] = Charge(
            now + before_s, hours, terms[ScoreTerm.COST_PER_HOUR] or 0.0, grams_per_hour
        )
        self._started[index] = now + before_s
        self._place[index] = (pool, fit.members[0].row)
        self._busy.append((now, task.resources.cpu_millis * task.members / 1000))
        ends = now + before_s + hours * 3600
        heapq.heappush(self._events, (ends, END, index, self._tries[index]))

    def _end(self, index: int, now: float) -> None:
        task = self._tasks[index]
        self._cycle.release(JobId(str(index)))
        self._busy.append((now, -task.resources.cpu_millis * task.members / 1000))
        self._ended[index] = now
        for follower in self._followers.get(index, ()):
            self._missing[follower] -= 1
            if self._missing[follower] == 0 and self._tasks[follower].submitted_at <= now:
                self._try(follower, now)

    def _fail(self, pool: int, now: float) -> None:
        self._cycle.appraiser.close_pool(pool)
        lost = [
            index
            for index, place in enumerate(self._place)
            if place is not None and place[0] == pool and np.isnan(self._ended[index])
        ]
        for index in lost:
            if self._cycle.holds(JobId(str(index))):
                self._cycle.release(JobId(str(index)))
                task = self._tasks[index]
                self._busy.append((now, -task.resources.cpu_millis * task.members / 1000))
                self._refund(index, now)
                self._tries[index] += 1
                self._place[index] = None
                self._try(index, now)

    def _refund(self, index: int, now: float) -> None:
        """Take back what was charged for hours that an attempt did not get."""
        charge = self._charges[index]
        unused = charge.hours - min(max(now - charge.since, 0.0) / 3600, charge.hours)
        self._cost[index] -= charge.cost_per_hour * unused
        self._carbon_g -= charge.grams_per_hour * unused

    def _drain(self, now: float) -> None:
        """Let waiting tasks in."""
        self._waiting.let_in(lambda index: self._placed(index, now))

    def outcomes(self) -> list[SimulatedOutcome]:
        """Return what came of each task."""
        snapshot = self._cycle.snapshot
        return [
            SimulatedOutcome(
                pool=None if place is None else snapshot.pools[place[0]].name,
                node=None if place is None else snapshot.node_ids[place[1]],
                started_at=_or_none(self._started[index]),
                ended_at=_or_none(self._ended[index]),
                restarts=self._tries[index],
                cost=float(self._cost[index]),
            )
            for index, place in enumerate(self._place)
        ]

    def report(self) -> SimulationReport:
        """Return what came of the workload as a whole."""
        cost = float(self._cost.sum()) if self._cost_known else None
        played = Played(self._started, self._ended, sum(self._tries), cost, self._carbon_g)
        cores = float(self._cycle.snapshot.cpu_total_millis.sum()) / 1000
        return report_of(
            Workload(self._name, self._tasks), self._policy or OWN_POLICY, played, cores, self._busy
        )


class Charge(NamedTuple):
    """What an attempt was charged for when it started: all of its hours, as if it ran to its end."""

    since: float
    hours: float
    cost_per_hour: float
    grams_per_hour: float


class Played(NamedTuple):
    """What came of tasks: when each started and ended (NaN: never), and what it took in all."""

    started: FloatArray
    ended: FloatArray
    restarts: int
    cost: float | None
    carbon_g: float


def report_of(
    workload: Workload, policy: str, played: Played, cores: float, busy: Changes
) -> SimulationReport:
    """Return what came of a workload as a whole; *busy* are changes of the cores in use."""
    submitted = np.array([task.submitted_at for task in workload.tasks])
    done = ~np.isnan(played.ended)
    waits = (played.started - submitted)[~np.isnan(played.started)]
    first = float(submitted.min()) if submitted.size else 0.0
    last = float(np.max(played.ended[done], initial=first))
    samples = _samples(busy, first, last)
    return SimulationReport(
        workload=workload.name,
        policy=policy,
        tasks=len(workload.tasks),
        ended=int(done.sum()),
        never_placed=int(np.isnan(played.started).sum()),
        restarts=played.restarts,
        makespan_s=last - first,
        wait_mean_s=float(waits.mean()) if waits.size else 0.0,
        wait_p50_s=float(np.percentile(waits, 50)) if waits.size else 0.0,
        wait_p95_s=float(np.percentile(waits, 95)) if waits.size else 0.0,
        turnaround_mean_s=float((played.ended - submitted)[done].mean()) if done.any() else 0.0,
        cost=played.cost,
        carbon_kg=played.carbon_g / 1000 if played.carbon_g else None,
        busy_cores_mean=sum(samples) / max(len(samples), 1),
        utilisation=tuple(round(sample / cores, 4) if cores else 0.0 for sample in samples),
    )


def shape_of(task: SimulatedTask) -> Shape:
    """Return what a task must have in common with another to wait for the same thing."""
    if task.demand is not None:
        alike = msgspec.structs.replace(task.demand, job_id=JobId(""))
        return -task.priority, msgspec.json.encode(alike)
    return -task.priority, (task.resources, task.members, task.pools, task.data)


def _or_none(value: float) -> float | None:
    return None if value != value else float(value)  # noqa: PLR0124 - NaN: never


def _samples(changes: Changes, first: float, last: float) -> list[float]:
    """Return the mean level in each of even intervals, from changes of it."""
    if last <= first:
        return []
    ordered = sorted(changes)
    at = np.array([max(when, first) for when, _ in ordered])
    level = np.cumsum([change for _, change in ordered])
    area = np.concatenate([[0.0], np.cumsum(level[:-1] * np.diff(at))])
    edges = np.linspace(first, last, SAMPLES + 1)
    index = np.clip(np.searchsorted(at, edges, side="right") - 1, 0, None)
    until = area[index] + level[index] * (edges - at[index])
    width = float(edges[1] - edges[0])
    return [(b - a) / width for a, b in pairwise(until.tolist())]
