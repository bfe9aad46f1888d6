"""The discrete-event engine: arrivals, ends and failures in order of time, every placement by the scheduling core."""

import heapq
import math
from collections import deque
from collections.abc import Callable, Sequence
from itertools import pairwise

import numpy as np

from yunhe.kernel.ids import JobId, ProjectId
from yunhe.kernel.resources import Resources
from yunhe.scheduling.orchestration.cycle import Cycle, Fit
from yunhe.scheduling.orchestration.model import Alternative, DataNeed, Demand, Policy
from yunhe.scheduling.orchestration.score_kernels import HOURS
from yunhe.scheduling.perception.snapshot import Snapshot
from yunhe.simulator.model import Failure, Outcome, Report, Workload

PROJECT = ProjectId("simulated")
TELL_EVERY = 2000
SAMPLES = 60
ARRIVAL, END, FAIL, RECOVER = range(4)

Shape = tuple[int, Resources, int, tuple[str, ...], tuple[DataNeed, ...]]
"""What tasks must have in common to stand in one line: priority first, negated."""

Progress = Callable[[int, int], None]
"""Told how many of how many tasks have ended."""


def roughly_s(run_s: float) -> float:
    """Return a run time as a scheduler would know it: to one of ten steps per decade."""
    return 10 ** (round(math.log10(max(run_s, 0.001)) * 10) / 10)


class Engine:
    """One run of a workload under one policy."""

    def __init__(
        self,
        workload: Workload,
        snapshot: Snapshot,
        policy: Policy,
        *,
        failures: Sequence[Failure] = (),
        progress: Progress | None = None,
    ) -> None:
        self._tasks = workload.tasks
        self._name = workload.name
        self._policy = policy
        self._cycle = Cycle(snapshot)
        self._progress = progress
        self._events: list[tuple[float, int, int, int]] = []
        """(when, what, which task or pool, which try of it)"""
        self._waiting: dict[Shape, deque[int]] = {}
        self._tries = [0] * len(self._tasks)
        self._place: list[tuple[int, int] | None] = [None] * len(self._tasks)
        self._started = np.full(len(self._tasks), np.nan)
        self._ended = np.full(len(self._tasks), np.nan)
        self._cost = np.zeros(len(self._tasks))
        self._carbon_g = 0.0
        self._busy: list[tuple[float, float]] = [(0.0, 0.0)]
        self._missing = [len(task.after) for task in self._tasks]
        self._followers: dict[int, list[int]] = {}
        for index, task in enumerate(self._tasks):
            for before in task.after:
                self._followers.setdefault(before, []).append(index)
        rows = snapshot.row_of_pool
        for failure in failures:
            heapq.heappush(self._events, (failure.at, FAIL, rows[failure.pool_id], 0))
            heapq.heappush(self._events, (failure.at + failure.lasts_s, RECOVER, rows[failure.pool_id], 0))

    def run(self) -> None:
        """Let everything happen."""
        arrivals = iter(sorted(range(len(self._tasks)), key=lambda index: self._tasks[index].submitted_at))
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
            else:
                self._cycle.appraiser.open_pool(which)
            if not self._events or self._events[0][0] > now:
                self._drain(now)

    def _demand(self, index: int) -> Demand:
        task = self._tasks[index]
        return Demand(
            job_id=JobId(str(index)),
            project_id=PROJECT,
            alternatives=(Alternative(task.resources, task.pools),),
            policy=self._policy,
            members=task.members,
            run_s=roughly_s(task.run_s),
            data=task.data,
        )

    def _try(self, index: int, now: float) -> None:
        demand = self._demand(index)
        placed = self._cycle.place(demand)
        if placed is None:
            task = self._tasks[index]
            shape = (-task.priority, task.resources, task.members, task.pools, task.data)
            self._waiting.setdefault(shape, deque()).append(index)
        else:
            self._start(index, demand, placed.fit, now)

    def _start(self, index: int, demand: Demand, fit: Fit, now: float) -> None:
        task, option, pool = self._tasks[index], fit.option, fit.pool
        terms = self._cycle.shown(demand, fit).terms
        speed = float(self._cycle.appraiser.columns.speed[pool])
        hours = task.run_s / (speed if speed == speed else 1.0) / 3600  # noqa: PLR0124 - NaN: unknown
        before_s = (terms["wait_s"] or 0.0) + (terms["data_s"] or 0.0)
        self._cost[index] += (terms["cost_per_hour"] or 0.0) * hours + (terms["data_cost"] or 0.0)
        self._carbon_g += (terms["carbon_g"] or 0.0) * hours / (float(option.table[HOURS, pool]) or 1.0)
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
                self._tries[index] += 1
                self._place[index] = None
                self._try(index, now)

    def _drain(self, now: float) -> None:
        """Let waiting tasks in, shape by shape; a shape that finds no room holds no other up."""
        for shape in sorted(self._waiting, key=lambda one: one[0]):
            line = self._waiting[shape]
            while line:
                demand = self._demand(line[0])
                placed = self._cycle.place(demand)
                if placed is None:
                    break
                self._start(line.popleft(), demand, placed.fit, now)
            if not line:
                del self._waiting[shape]

    def outcomes(self) -> list[Outcome]:
        """Return what came of each task."""
        snapshot = self._cycle.snapshot
        return [
            Outcome(
                pool=None if place is None else snapshot.pools[place[0]].name,
                node=None if place is None else snapshot.node_ids[place[1]],
                started_at=_or_none(self._started[index]),
                ended_at=_or_none(self._ended[index]),
                restarts=self._tries[index],
                cost=float(self._cost[index]),
            )
            for index, place in enumerate(self._place)
        ]

    def report(self, simulated_in_s: float) -> Report:
        """Return what came of the workload as a whole."""
        submitted = np.array([task.submitted_at for task in self._tasks])
        done = ~np.isnan(self._ended)
        waits = (self._started - submitted)[~np.isnan(self._started)]
        first = float(submitted.min(initial=0.0))
        last = float(np.max(self._ended[done], initial=first))
        cores = float(self._cycle.snapshot.cpu_total_millis.sum()) / 1000
        samples = _samples(self._busy, first, last)
        return Report(
            workload=self._name,
            policy=self._policy,
            tasks=len(self._tasks),
            ended=int(done.sum()),
            never_placed=int(np.isnan(self._started).sum()),
            restarts=sum(self._tries),
            makespan_s=last - first,
            wait_mean_s=float(waits.mean()) if waits.size else 0.0,
            wait_p50_s=float(np.percentile(waits, 50)) if waits.size else 0.0,
            wait_p95_s=float(np.percentile(waits, 95)) if waits.size else 0.0,
            turnaround_mean_s=float((self._ended - submitted)[done].mean()) if done.any() else 0.0,
            cost=float(self._cost.sum()),
            carbon_kg=self._carbon_g / 1000 if self._carbon_g else None,
            busy_cores_mean=sum(samples) / max(len(samples), 1),
            utilisation=tuple(round(sample / cores, 4) if cores else 0.0 for sample in samples),
            simulated_in_s=simulated_in_s,
        )


def _or_none(value: float) -> float | None:
    return None if value != value else float(value)  # noqa: PLR0124 - NaN: never


def _samples(changes: list[tuple[float, float]], first: float, last: float) -> list[float]:
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
