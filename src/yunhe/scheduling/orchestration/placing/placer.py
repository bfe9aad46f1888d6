"""The placer: takes pending jobs in order, decides, and writes the allocations down before anything is sent.

Placing is optimistic and has no leader: any process may decide for any pending job. What is written is guarded by the
job still being pending and by the node still having room, both checked in the transaction that writes it.
"""

import math
import zlib
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import replace

import anyio
import anyio.to_thread
import msgspec
from prometheus_client import Counter, Histogram

from yunhe.kernel.clock import Clock
from yunhe.kernel.ids import JobId, NodeId
from yunhe.kernel.resources import Resources
from yunhe.observability.failpoints import failpoint
from yunhe.observability.metrics import FINE_BUCKETS_S, REGISTRY
from yunhe.scheduling.decision.filter.rules import agrees
from yunhe.scheduling.decision.model import Demand
from yunhe.scheduling.orchestration.jobs import store
from yunhe.scheduling.orchestration.jobs.events import JobChanged
from yunhe.scheduling.orchestration.jobs.states import JobState
from yunhe.scheduling.orchestration.placing import placement_store
from yunhe.scheduling.orchestration.placing.deadlines import DeadlineQueue
from yunhe.scheduling.orchestration.placing.placement_round import (
    PlacementBatch,
    PlacementRound,
    world_change,
)
from yunhe.scheduling.orchestration.placing.placement_store import LeaseTerms, PlacedJob
from yunhe.scheduling.orchestration.placing.rounds import RoundLog, RoundRow
from yunhe.scheduling.orchestration.placing.waiting import WaitingQueue, needs_of
from yunhe.scheduling.perception.interface import Perception
from yunhe.scheduling.perception.snapshot import Snapshot
from yunhe.storage.database import AnyRow, Connection, Database
from yunhe.storage.outbox import Event
from yunhe.storage.quotas import QuotaBook

TICK_S = 1.0
GATHER_S = 0.01  # what comes within this long is decided together
PAGE = 500
ARRIVALS = 1000
"""So many jobs that came since the last round are looked at in one."""
LOOKS = 50
"""So many shapes that were woken are looked at before jobs that came meanwhile are."""
BACKLOG_S = 0.1
"""So long one look at the world serves shapes that were woken, while nothing comes."""
ROUND_S = 1.0
"""So long a look at the world serves, while jobs keep coming."""
LOOK_TIMES = 4
"""Where a look takes long, it serves so many times as long as it took."""
QUIET_S = 0.2
"""So long after what came was placed before a backlog, that is left alone, unless more comes: the jobs placed start first."""
EXPLAIN_S = 0.02
GROUP_LOCKS = 256
REASONS_KEPT_S = 86400.0
REFRESH_S = 3600.0

_CYCLE = Histogram(
    "yunhe_placement_cycle_seconds",
    "How long one round of placing takes.",
    registry=REGISTRY,
    buckets=FINE_BUCKETS_S,
)
_DECISIONS = Counter(
    "yunhe_placement_decisions_total",
    "Jobs placed, shapes of jobs that wait, and placements that came after the room had gone to others.",
    ["outcome"],
    registry=REGISTRY,
)

Taken = Callable[[JobId, int], None]
"""Told of each job this process has placed, with the token of its lease."""

_CHANGE = msgspec.json.Decoder(JobChanged)


class Placer:
    """Decides for pending jobs, again and again."""

    def __init__(  # noqa: PLR0913 - what it works with
        self,
        database: Database,
        perception: Perception,
        clock: Clock,
        *,
        owner: str,
        lease_s: float,
        taken: Taken,
        quotas: QuotaBook = QuotaBook(),  # noqa: B008 - it has no state
    ) -> None:
        self._quotas = quotas
        self._database = database
        self._perception = perception
        self._clock = clock
        self._owner = owner
        self._lease_s = lease_s
        self._taken = taken
        self._woken = anyio.Event()
        self._came = anyio.Event()
        self._backlog_s = 0.0
        """How much of the last round went into shapes that had been waiting before."""
        self._looked_at = 0.0
        """When shapes that were due were looked at last."""
        self._unexplained: dict[str, Demand] = {}
        """Shapes that were refused while there was no time to say why."""
        self._over_quota: dict[str, str] = {}
        """Shapes that were found to wait for the quota of their project, with the reason to tell."""
        self._quiet_at = 0.0
        """When those that were placed before a backlog will have started."""
        self._outdated = False
        """Whether others took room or jobs since the last look at the world."""
        self._queue = WaitingQueue()
        self._deadlines = DeadlineQueue()
        self._arrived: deque[tuple[JobId, str]] = deque()
        self._later: dict[JobId, tuple[float, str]] = {}
        """Jobs that are not due yet: when they are, and their shapes."""
        self._walked = ""
        """How far the walk over all pending jobs has come; empty: to the end."""
        self._walked_once = False
        self._left: Snapshot | None = None
        """The world as the last round left it: what the parked shapes were refused in, or less room than that."""
        self._world = 0
        self._turned_at = -math.inf
        self._refreshed_at = 0.0
        self._told: dict[str, int] = {}
        self._log = RoundLog()

    def wake(self) -> None:
        """Say that something changed: a job came, or room did."""
        self._woken.set()

    def hear(self, event: Event) -> None:
        """Take note that a job changed: one that became pending is looked at in the next round."""
        change = _CHANGE.decode(event.body)
        if change.state is JobState.PENDING:
            self._arrived.append((change.job_id, change.shape))
            self._came.set()
        self.wake()

    async def run(self) -> None:
        """Place until cancelled."""
        while True:
            self._woken = anyio.Event()
            if not self._arrived:
                self._came = anyio.Event()
            began = anyio.current_time()
            await self.cycle()
            took_s = anyio.current_time() - began  # at most half of the time goes into placing
            with anyio.move_on_after(TICK_S):
                if self._walked_once and not (self._arrived or self._queue.due):
                    await self._woken.wait()
                await anyio.sleep(max(GATHER_S, took_s - self._backlog_s))
                with anyio.move_on_after(max(self._backlog_s, self._quiet_at - anyio.current_time())):
                    await self._came.wait()

    async def cycle(self) -> int:
        """Look at what came, at what was woken and at some others, and return how many jobs were placed."""
        began = anyio.current_time()
        await self._end_overdue()
        came = [*await self._arrivals(), *self._now_due()]
        self._backlog_s = 0.0
        if not came:
            await self._walk()
        if not len(self._queue):
            return 0
        with _CYCLE.time():
            placed = await self._round(came, began)
        if came:
            await self._walk()  # after it: those that came need not wait for it
        return placed

    async def _round(self, came: list[str], began: float) -> int:
        """Look at the world, place what fits of what *came* and what is due, and say why others wait."""
        known, limits = await self._database.read(
            lambda c: (store.known(c), placement_store.running_quotas(c, self._quotas))
        )
        snapshot = await self._perception.snapshot(known.promised, known.groups)
        current = PlacementRound(snapshot, known.promised, known.newest, limits)
        self._notice(current)
        for project_id in self._queue.holding:
            room = limits.room(project_id)
            self._queue.let_go(project_id, LOOKS if room is None else min(room, LOOKS))
        self._outdated = False
        placed, looked = 0, anyio.current_time()
        until = looked + max(ROUND_S, LOOK_TIMES * (looked - began))
        while True:
            now_placed = await self._look(current, came, until)
            placed += now_placed
            if not now_placed or not self._arrived or anyio.current_time() > until:
                break  # what comes later is better served by a new look at the world
            came = await self._arrivals()
        worked_off = anyio.current_time()
        while self._may_go_on() and anyio.current_time() < worked_off + BACKLOG_S:
            placed += await self._look(current, [], until)
        # A group that this round has placed may be what others wait for: the next look sees it as new.
        self._left = replace(current.left, groups=snapshot.groups)
        _DECISIONS.labels("waiting").inc(len(current.refused))
        self._unexplained |= current.refused
        if self._looked_at >= looked:
            await self._explain(current)
        self._backlog_s = anyio.current_time() - worked_off
        return placed

    async def _look(self, current: PlacementRound, came: list[str], until: float) -> int:
        """Place what fits of the shapes that *came* and of some that are due, in order; return how many were placed.

        Where more are due than one look takes, there is no order between those and what came: that is placed first, and
        the others have a look once a second at least.
        """
        placed = 0
        if came and self._queue.due > LOOKS + len(came):
            placed = await self._judge_shapes(current, self._queue.choose(came, 0, None), until)
            if placed:
                self._quiet_at = anyio.current_time() + QUIET_S
            if placed and anyio.current_time() < self._looked_at + TICK_S:
                return placed
            came = []
        self._looked_at = anyio.current_time()
        shapes = self._queue.choose(came, LOOKS, self._in_turn())
        return placed + await self._judge_shapes(current, shapes, until)

    async def _judge_shapes(self, current: PlacementRound, shapes: list[str], until: float) -> int:
        """Place what fits of *shapes*, park those refused, and return how many jobs were placed."""
        placed = await self._place(current, set(shapes), until)
        for shape in shapes:
            if shape in current.refused:
                self._queue.park(shape, needs_of(current.refused[shape]), self._world)
                self._deadlines.add(shape, current.refused[shape])
            elif shape in current.held:
                demand = current.held[shape]
                self._queue.hold(shape, demand.project_id)
                self._deadlines.add(shape, demand)
                self._over_quota[shape] = current.hold_reason(demand.project_id)
        return placed

    async def _end_overdue(self) -> None:
        """End the jobs that still wait when their deadline passes: no pool can meet it any more."""
        for deadline_at, shape in self._deadlines.take_passed(self._clock()):
            while page := self._queue.page((shape,), "", PAGE):
                ids = [job_id for job_id, _ in page]
                now = self._clock()
                await self._database.write(
                    lambda c, i=ids, s=shape, d=deadline_at, n=now: placement_store.end_overdue(c, i, s, d, n)
                )
                for job_id in ids:
                    self._queue.remove(job_id, shape)

    def _may_go_on(self) -> bool:
        """Whether more shapes that are due can be judged in the same look at the world."""
        quiet = anyio.current_time() > self._quiet_at
        return bool(self._queue.due) and quiet and not self._arrived and not self._outdated

    def _in_turn(self) -> int | None:
        """Return the world whose refusals stand, once a tick: only then parked shapes are looked at in turn."""
        now = anyio.current_time()
        if now - self._turned_at < TICK_S:
            return None
        self._turned_at = now
        return self._world

    async def _arrivals(self) -> list[str]:
        """Take in jobs that came, the oldest and the newest first, and return their shapes."""
        shapes: list[str] = []
        unknown: list[JobId] = []
        for number in range(min(len(self._arrived), ARRIVALS)):
            job_id, shape = self._arrived.popleft() if number % 2 else self._arrived.pop()
            if shape:
                self._queue.add(job_id, shape)
                shapes.append(shape)
            else:
                unknown.append(job_id)
        for start in range(0, len(unknown), PAGE):
            ids = unknown[start : start + PAGE]
            shapes += self._take_in(
                await self._database.read(lambda c, i=ids: placement_store.still_pending(c, i))
            )
        return shapes

    async def _walk(self) -> None:
        """Read the next page of all pending jobs: what no event told of is found so, too."""
        rows = await self._database.read(lambda c: placement_store.pending_after(c, self._walked, PAGE))
        self._take_in(rows)
        self._walked = rows[-1].id if len(rows) == PAGE else ""
        self._walked_once |= not self._walked

    def _take_in(self, rows: Iterable[AnyRow]) -> list[str]:
        """Take pending jobs into the queue, or note when they are due; return the shapes of those taken."""
        now, shapes = self._clock(), list[str]()
        for row in rows:
            if row.due_at > now:
                self._later[JobId(row.id)] = (row.due_at, row.shape)
            else:
                self._queue.add(JobId(row.id), row.shape)
                shapes.append(row.shape)
        return shapes

    def _now_due(self) -> list[str]:
        now, shapes = self._clock(), list[str]()
        for job_id, (due_at, shape) in list(self._later.items()):
            if due_at <= now:
                del self._later[job_id]
                self._queue.add(job_id, shape)
                shapes.append(shape)
        return shapes

    def _notice(self, current: PlacementRound) -> None:
        """Wake the shapes that what changed since the last round may help."""
        change = world_change(self._left, current.snapshot)
        if change.anything or self._clock() - self._refreshed_at > REFRESH_S:
            self._world += 1
            self._queue.wake(change.gained)

    async def _place(self, current: PlacementRound, shapes: set[str], until: float) -> int:
        """Go through the jobs of *shapes* in order, page by page *until* then, and return how many were placed."""
        placed, after = 0, ""
        batch: PlacementBatch | None = None
        page = self._queue.page(shapes, after, PAGE)
        while batch or page:
            async with anyio.create_task_group() as tasks:  # a batch is written while the next is judged
                if batch:
                    tasks.start_soon(self._commit, current.knew, batch)
                batch = await self._judge(current, page) if page else None
            placed += len(batch.choices) if batch else 0
            shapes -= current.refused.keys() | current.held.keys()
            after = page[-1][0] if page else after
            page = self._queue.page(shapes, after, PAGE) if anyio.current_time() < until else []
        return placed

    async def _judge(self, current: PlacementRound, page: list[tuple[JobId, str]]) -> PlacementBatch | None:
        """Decide for the jobs of a page that are still pending; None: nothing is placed."""
        ids = [job_id for job_id, _ in page]
        rows = await self._database.read(lambda c: placement_store.pending_rows(c, ids))
        known = {row.id for row in rows}
        for job_id, shape in page:
            if job_id not in known:
                self._queue.remove(job_id, shape)
        # Judging is pure and may take a while: in a thread it holds up nobody.
        batch = await anyio.to_thread.run_sync(current.judge, rows)
        return batch if batch.choices else None

    async def _commit(self, knew: int, batch: PlacementBatch) -> None:
        """Write a batch, and hand on the jobs that are ours now."""
        terms = LeaseTerms(self._owner, now := self._clock(), now + self._lease_s)
        row = self._log.row(batch.seen, batch.reservations, now)
        failpoint("place-before-commit")
        try:
            taken = await self._database.write(
                lambda c: self._write(c, knew, batch, terms, row), uses_reserve=False
            )
        except BaseException:
            self._log.begin_anew()
            raise
        failpoint("place-after-commit")
        _DECISIONS.labels("placed").inc(len(taken))
        _DECISIONS.labels("conflict").inc(len(batch.choices) - len(taken))
        self._outdated |= len(taken) < len(batch.choices)
        for choice in taken:
            self._queue.remove(choice.row.id, choice.row.shape)
            self._taken(JobId(choice.row.id), choice.row.lease_token + 1)

    def _write(
        self, connection: Connection, knew: int, batch: PlacementBatch, terms: LeaseTerms, at: RoundRow
    ) -> list[PlacedJob]:
        """Make jobs ours that are still pending, where nodes have the room and quotas allow; return which."""
        allowed = placement_store.within_quotas(connection, self._quotas, batch.choices)
        roomy = _still_fitting(connection, batch, allowed)
        placement_store.write_round(connection, at, terms.now)
        return placement_store.start(connection, roomy, terms, knew, at)

    async def _explain(self, current: PlacementRound) -> None:
        """Write why jobs of each shape wait, where that has changed."""
        now = self._clock()
        if now - self._refreshed_at > REFRESH_S:
            self._refreshed_at, self._told = now, {}
            await self._database.write(lambda c: placement_store.forget_wait_reasons(c, now - REASONS_KEPT_S))
        if not self._unexplained and not self._over_quota:
            return
        asked, self._unexplained = self._unexplained, {}
        over_quota, self._over_quota = self._over_quota, {}
        reasons = await anyio.to_thread.run_sync(current.reasons, asked, EXPLAIN_S) | over_quota
        changed = {
            shape: reason for shape, reason in reasons.items() if self._told.get(shape) != hash(reason)
        }
        if changed:
            await self._database.write(lambda c: placement_store.write_wait_reasons(c, changed, now))
            self._told |= {shape: hash(reason) for shape, reason in changed.items()}


def _still_fitting(
    connection: Connection, batch: PlacementBatch, choices: list[PlacedJob]
) -> list[PlacedJob]:
    """Return those of *choices* whose nodes still have the room."""
    together = {group for choice in batch.choices for group in _groups_of(choice.demand)}
    store.lock_nodes(connection, [*batch.totals, *{_lock_of(group) for group in together}])
    promised = store.promised(connection, batch.totals)
    groups = store.running_groups(connection) if together else {}
    roomy: list[PlacedJob] = []
    for choice in choices:
        goes, demand = choice.decision.assignments[0], choice.demand
        holds = promised.get(goes.node_id, Resources()).plus(goes.resources)
        # What another process has placed since the snapshot: the next round decides anew.
        if not batch.totals[goes.node_id].covers(holds):
            continue
        if (demand.affinity or demand.spread) and not agrees(demand, goes.node_id, batch.seen, groups):
            continue
        promised[goes.node_id] = holds
        groups[goes.node_id] = (*groups.get(goes.node_id, ()), *demand.groups)
        roomy.append(choice)
    return roomy


def _lock_of(group: str) -> NodeId:
    """Return the row to lock for a group: there are a few for all, for anybody may name as many groups as they like."""
    return NodeId(f"group/{zlib.crc32(group.encode()) % GROUP_LOCKS}")


def _groups_of(demand: Demand) -> set[str]:
    """Return the groups that a demand belongs to or goes by."""
    return {*demand.groups, *(one.group for one in demand.affinity)}
