"""The placer: takes pending jobs in order, decides, and writes the allocations down before anything is sent.

Placing is optimistic and has no leader: any process may decide for any pending job. What is written is guarded by the
job still being pending and by the node still having room, both checked in the transaction that writes it.
"""

import logging
from collections.abc import Callable, Iterable

import anyio
import anyio.to_thread
import msgspec
import sqlalchemy as sa
from prometheus_client import Counter, Histogram
from sqlalchemy.engine import Connection

from yunhe.control.pools.model import Meters
from yunhe.kernel.clock import Clock
from yunhe.kernel.ids import AllocationId, JobId, NodeId, new_id
from yunhe.kernel.resources import Accelerators, Resources
from yunhe.observability.failpoints import failpoint
from yunhe.observability.metrics import FINE_BUCKETS_S, REGISTRY
from yunhe.scheduling.decision.cycle import Cycle
from yunhe.scheduling.decision.decide import decide_in, place_in
from yunhe.scheduling.decision.model import Placed, Waiting
from yunhe.scheduling.orchestration.jobs import store
from yunhe.scheduling.orchestration.jobs.events import Placing
from yunhe.scheduling.orchestration.jobs.states import JobState, follow
from yunhe.scheduling.orchestration.jobs.store import AllocationState
from yunhe.scheduling.orchestration.jobs.tables import ALLOCATIONS, JOBS, NODES
from yunhe.scheduling.perception.interface import Perception
from yunhe.scheduling.perception.snapshot import Snapshot, check_snapshot
from yunhe.storage.database import AnyRow, Database, insert_if_missing

TICK_S = 1.0
GATHER_S = 0.01  # what comes within this long is decided together
PAGE = 500
PLACED_PER_CYCLE = 200

log = logging.getLogger(__name__)

_CYCLE = Histogram(
    "yunhe_placement_cycle_seconds",
    "How long one pass over the pending jobs takes.",
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


class PlacementRound:
    """One look at the world and the decisions made on it, each seeing the room that earlier ones left."""

    def __init__(self, snapshot: Snapshot, promised: dict[NodeId, Resources], knew: int) -> None:
        self.knew = knew
        """The last event that had happened."""
        self.totals = _totals(snapshot, promised)
        self.waiting: dict[str, Waiting] = {}
        """By shape: jobs of one shape wait for the same thing, so one answer serves them all."""
        self.placed: list[tuple[AnyRow, Placed]] = []
        self._cycle = Cycle(check_snapshot(snapshot))
        self.world = (snapshot.pools, snapshot.node_ids, self.totals, promised)

    def learn_from(self, before: "PlacementRound | None") -> None:
        """Take over who must wait from a sitting on the very same world, where nothing can have changed for them."""
        if before is not None and not before.placed and before.world == self.world:
            self.waiting |= before.waiting

    def judge(self, page: list[AnyRow]) -> None:
        """Decide for each job in order; one that must wait holds nobody up."""
        for row in page:
            if row.shape in self.waiting:
                continue
            demand = store.pending_order(row)
            decision = decide_in(demand, self._cycle, advise=False)
            if isinstance(decision, Waiting) and demand.avoid_pools:
                # Better there again than nowhere; and why others of its shape wait, it must wait for too.
                demand = msgspec.structs.replace(demand, avoid_pools=())
                decision = decide_in(demand, self._cycle, advise=False)
            if isinstance(decision, Waiting):
                self.waiting[row.shape] = decision
            else:
                place_in(demand, self._cycle)
                self.placed.append((row, decision))


class Placer:
    """Decides for pending jobs, again and again."""

    def __init__(
        self,
        database: Database,
        perception: Perception,
        clock: Clock,
        *,
        owner: str,
        lease_s: float,
        taken: Taken,
    ) -> None:
        self._database = database
        self._perception = perception
        self._clock = clock
        self._owner = owner
        self._lease_s = lease_s
        self._taken = taken
        self._woken = anyio.Event()
        self._before: PlacementRound | None = None

    def wake(self) -> None:
        """Say that something changed: a job came, or room did."""
        self._woken.set()

    async def run(self) -> None:
        """Place until cancelled."""
        while True:
            self._woken = anyio.Event()
            began = anyio.current_time()
            placed = await self.cycle()
            took_s = anyio.current_time() - began
            if placed < PLACED_PER_CYCLE:
                with anyio.move_on_after(TICK_S):
                    await self._woken.wait()
                    await anyio.sleep(max(GATHER_S, took_s))  # at most half of the time goes into placing

    async def cycle(self) -> int:
        """Go through the pending jobs once, and return how many were placed."""
        if not await self._database.read(_anything_pending):
            return 0
        with _CYCLE.time():
            return await self._place_pending()

    async def _place_pending(self) -> int:
        promised, knew = await self._database.read(store.known)
        sitting = PlacementRound(await self._perception.snapshot(promised), promised, knew)
        sitting.learn_from(self._before)
        self._before = sitting
        after = ""
        while len(sitting.placed) < PLACED_PER_CYCLE:
            page = await self._database.read(
                lambda c, a=after: _pending(c, sitting.waiting, a, self._clock())
            )
            if not page:
                break
            after = page[-1].id
            # Judging is pure and may take a while: in a thread it holds up nobody.
            await anyio.to_thread.run_sync(sitting.judge, page)
        if sitting.waiting:
            _DECISIONS.labels("waiting").inc(len(sitting.waiting))
            await self._explain(sitting.waiting)
        if sitting.placed:
            failpoint("place-before-commit")
            taken = await self._database.write(lambda c: self._write(c, sitting), uses_reserve=False)
            failpoint("place-after-commit")
            _DECISIONS.labels("placed").inc(len(taken))
            _DECISIONS.labels("conflict").inc(len(sitting.placed) - len(taken))
            for job_id, token in taken:
                self._taken(job_id, token)
        return len(sitting.placed)

    async def _explain(self, waiting: dict[str, Waiting]) -> None:
        """Write why jobs of each shape wait, where that has changed."""
        reasons = {shape: _reason(decision) for shape, decision in waiting.items()}
        known = await self._database.read(lambda c: store.wait_reasons(c, reasons))
        changed = {shape: reason for shape, reason in reasons.items() if known.get(shape) != reason}
        if changed:
            now = self._clock()
            await self._database.write(lambda c: store.write_wait_reasons(c, changed, now))

    def _write(self, connection: Connection, sitting: PlacementRound) -> list[tuple[JobId, int]]:
        nodes = sorted({decision.assignments[0].node_id for _, decision in sitting.placed})
        _lock(connection, nodes)
        promised = store.promised(connection, nodes)
        taken: list[tuple[JobId, int]] = []
        for row, decision in sitting.placed:
            goes = decision.assignments[0]
            held = promised.get(goes.node_id, Resources())
            if not sitting.totals[goes.node_id].covers(held.plus(goes.resources)):
                continue  # another process gave the room away since the snapshot; the next cycle decides anew
            if self._take(connection, row, decision, sitting.knew):
                promised[goes.node_id] = held.plus(goes.resources)
                taken.append((JobId(row.id), row.lease_token + 1))
        return taken

    def _take(self, connection: Connection, row: AnyRow, decision: Placed, knew: int) -> bool:
        """Make a pending job ours with an allocation; False when it is not pending any more."""
        now = self._clock()
        allocation_id = AllocationId(new_id("alloc", now))
        won = connection.execute(
            JOBS.update()
            .where(
                JOBS.c.id == row.id, JOBS.c.state == JobState.PENDING, JOBS.c.lease_token == row.lease_token
            )
            .values(
                state=follow(JobState.PENDING, JobState.STARTING).value,
                reason="",
                attempts=JOBS.c.attempts + 1,
                allocation_id=allocation_id,
                decision=msgspec.json.encode(decision),
                decided_at=now,
                lease_owner=self._owner,
                lease_until=now + self._lease_s,
                lease_token=row.lease_token + 1,
            )
        )
        if won.rowcount != 1:
            return False
        goes, chosen = decision.assignments[0], decision.candidates[0]
        resources = msgspec.json.encode(goes.resources)
        connection.execute(
            ALLOCATIONS.insert().values(
                id=allocation_id,
                job_id=row.id,
                number=row.attempts + 1,
                pool_id=goes.pool_id,
                pool_name=chosen.pool_name,
                node_id=goes.node_id,
                state=AllocationState.INTENDED,
                resources=resources,
                held=resources,
                meters=msgspec.json.encode(Meters()),
            )
        )
        at = Placing(pool_id=goes.pool_id, node_id=goes.node_id, knew=knew)
        store.tell_placed(connection, JobId(row.id), row.project_id, now, at)
        return True


def _anything_pending(connection: Connection) -> bool:
    return (
        connection.scalar(sa.select(JOBS.c.id).where(JOBS.c.state == JobState.PENDING).limit(1)) is not None
    )


def _pending(connection: Connection, waiting: Iterable[str], after: str, now: float) -> list[AnyRow]:
    columns = (JOBS.c.id, JOBS.c.shape, JOBS.c.project_id, JOBS.c.job_order, JOBS.c.avoid_pools)
    query = (
        sa.select(*columns, JOBS.c.attempts, JOBS.c.lease_token)
        .where(JOBS.c.state == JobState.PENDING, JOBS.c.id > after, JOBS.c.due_at <= now)
        .order_by(JOBS.c.id)
        .limit(PAGE)
    )
    if waiting:
        query = query.where(JOBS.c.shape.not_in(list(waiting)))
    return list(connection.execute(query))


def _lock(connection: Connection, nodes: list[NodeId]) -> None:
    """Let no other process give out room on these nodes until this transaction ends."""
    for node in nodes:
        insert_if_missing(connection, NODES, id=node)
    connection.execute(
        sa.select(NODES.c.id).where(NODES.c.id.in_(nodes)).order_by(NODES.c.id).with_for_update()
    )


def _totals(snapshot: Snapshot, promised: dict[NodeId, Resources]) -> dict[NodeId, Resources]:
    """Return what each node has in all: what the snapshot says is free, and what was promised when it was taken."""
    return {
        node: Resources(
            cpu_millis=int(snapshot.cpu_free_millis[row]),
            memory_mib=int(snapshot.memory_free_mib[row]),
            disk_mib=int(snapshot.disk_free_mib[row]),
            accelerators=tuple(
                Accelerators(kind, int(column[row]))
                for kind, column in snapshot.accelerators_free_milli.items()
            ),
        ).plus(promised.get(node, Resources()))
        for row, node in enumerate(snapshot.node_ids)
    }


def _reason(decision: Waiting) -> str:
    """Say in one line why a job waits: the nearest misses first."""
    if not decision.rejected:
        return "no pool is connected; add one: yunhe pool add"
    shown = "; ".join(f"{r.pool_name}: {r.detail}" for r in decision.nearest_first[:3])
    more = len(decision.rejected) - 3
    return shown + (f"; and {more} more pools" if more > 0 else "")
