"""The far side of the fake: a pool that runs allocations in memory and never one of them twice.

Nothing runs in the background. What should have happened by now happens whenever somebody looks (``settle``), at the
moment it was due, so that ten thousand allocations cost as much as their events.
"""

import heapq
import itertools
from collections.abc import Callable, Iterable
from typing import Any

import anyio
import msgspec

from yunhe.agent.runs.changes import ChangeLog
from yunhe.infrastructure.contract.model import (
    Ending,
    Inventory,
    LaunchOrder,
    LogChunk,
    Node,
    Observation,
    Phase,
    Upload,
    UsageMinute,
)
from yunhe.infrastructure.fake.allocation import KILLED, FakeAllocation
from yunhe.infrastructure.fake.timeline import RealTime, Timeline
from yunhe.kernel.errors import (
    ConflictError,
    FencedError,
    NotFoundError,
    PoolUnreachableError,
    UnsupportedError,
)
from yunhe.kernel.ids import AllocationId, NodeId
from yunhe.kernel.resources import Resources

ONE_NODE = {NodeId("fake-1"): Resources(cpu_millis=8000, memory_mib=16_384, disk_mib=102_400)}


class FakePool:
    """Nodes, allocations, and the marks that released and never-launched ones leave."""

    def __init__(self, *, nodes: dict[NodeId, Resources] | None = None, time: Timeline | None = None) -> None:
        self.time: Timeline = time or RealTime()
        self._changes = ChangeLog(0)
        self.executed: list[AllocationId] = []
        """Every process ever started, in order: a test's witness that none was started twice."""
        self._nodes = dict(nodes or ONE_NODE)
        self.price_micros_per_hour: int | None = None
        """What its owner asks for a node."""
        self.reported: dict[NodeId, dict[str, Any]] = {}
        """What else each node reports: ``isa``, ``labels``, ``used`` and other fields of ``Node``."""
        self._lost: dict[NodeId, str] = {}
        self._allocations: dict[AllocationId, FakeAllocation] = {}
        self._marks: dict[AllocationId, int] = {}
        self._minutes: list[UsageMinute] = []
        self._agenda: list[tuple[float, int, Callable[[float], None]]] = []
        self._numbers = itertools.count()
        self._watchers: set[anyio.Event] = set()

    # Looking

    @property
    def version(self) -> int:
        """The number of changes so far."""
        return self._changes.version

    def settle(self) -> None:
        """Let everything happen that was due by now."""
        now = self.time.now()
        while self._agenda and self._agenda[0][0] <= now:
            at, _, happen = heapq.heappop(self._agenda)
            happen(at)

    def next_event_at(self) -> float:
        """Return when something may happen by itself."""
        return self._agenda[0][0] if self._agenda else float("inf")

    async def changed(self, until: float) -> None:
        """Return at the next change, or at *until*; it may return earlier, so callers look again."""
        watcher = anyio.Event()
        self._watchers.add(watcher)
        try:
            await self.time.wait(watcher, min(until, self.next_event_at()))
        finally:
            self._watchers.discard(watcher)
        self.settle()

    def observation(self, beyond: int = -1) -> Observation:
        """Return what changed after *beyond*; every allocation that is still known where that is not remembered."""
        since = self._changes.after(beyond)
        names, gone = (list(self._allocations), []) if since is None else since
        now = self.time.now()
        seen = [self._allocations[AllocationId(name)] for name in names]
        for allocation in seen:
            allocation.accrue(now)
        return Observation(
            version=self.version,
            allocations=tuple(allocation.observed() for allocation in seen),
            since=-1 if since is None else beyond,
            gone=tuple(AllocationId(name) for name in gone),
        )

    def inventory(self) -> Inventory:
        """Return the nodes; in use is what their allocations were given."""
        used = dict.fromkeys(self._nodes, Resources())
        for allocation in self._allocations.values():
            if allocation.order is not None and allocation.live:
                node_id = allocation.order.node_id
                used[node_id] = used[node_id].plus(allocation.resources)
        nodes = (
            msgspec.structs.replace(
                Node(
                    id=id_,
                    total=total,
                    used=used[id_],
                    ready=id_ not in self._lost,
                    reason=self._lost.get(id_, ""),
                ),
                **self.reported.get(id_, {}),
            )
            for id_, total in self._nodes.items()
        )
        return Inventory(taken_at=self.time.now(), nodes=tuple(nodes))

    def minutes(self, beyond: int) -> list[UsageMinute]:
        """Return the minutes that are over and come after *beyond*."""
        self._counted()
        return self._minutes[max(0, beyond + 1) :]

    def read_log(self, allocation_id: AllocationId, offset: int) -> tuple[LogChunk, bool]:
        """Return some output from *offset*, and whether more may come."""
        allocation = self.known(allocation_id)
        return allocation.log.read(offset), allocation.live

    def known(self, allocation_id: AllocationId) -> FakeAllocation:
        """Return an allocation that is still known."""
        allocation = self._allocations.get(allocation_id)
        if allocation is None:
            raise NotFoundError(
                f"The pool knows no allocation {allocation_id}.", remedy="It may be released."
            )
        return allocation

    def running(self, allocation_id: AllocationId) -> FakeAllocation:
        """Return an allocation that has processes."""
        allocation = self.known(allocation_id)
        if not allocation.live:
            raise ConflictError(f"{allocation_id} is {allocation.phase}, not running.")
        return allocation

    # Commanding

    def launch(self, order: LaunchOrder, *, crash: bool = False) -> None:
        """Claim *order* and start it; with *crash*, die between the two."""
        allocation = self._fenced(order.allocation_id, order.token)
        if allocation is None and order.allocation_id in self._marks:
            self._marks[order.allocation_id] = order.token
            return  # stopped before it came, or released: either way its time is over
        if allocation is None or allocation.phase is Phase.PREPARING:
            if order.image:
                raise UnsupportedError("A fake pool runs no containers.", remedy="Leave out the image.")
            if order.node_id not in self._nodes:
                raise NotFoundError(f"The pool has no node {order.node_id}.")
            if order.node_id in self._lost:
                raise PoolUnreachableError(f"Node {order.node_id} does not answer.")
            allocation = allocation or FakeAllocation(order.allocation_id, order.token)
            allocation.claim(order)
            self._allocations[order.allocation_id] = allocation
            if not crash:
                self._start(allocation, order)
        allocation.token = order.token
        self._changed(order.allocation_id)

    def stop(self, allocation_id: AllocationId, token: int, grace_s: float) -> None:
        """End an allocation, or leave a mark where there is none."""
        allocation = self._command(allocation_id, token)
        if allocation is None:
            self._marks[allocation_id] = token
        elif allocation.live:
            self._ask(allocation, self.time.now(), Ending.STOPPED, grace_s)
        elif allocation.phase is Phase.PREPARING:
            allocation.end(self.time.now(), Ending.STOPPED, None)
        self._changed(allocation_id)

    def release(self, allocation_id: AllocationId, token: int) -> None:
        """Forget an allocation that has ended."""
        allocation = self._fenced(allocation_id, token)
        if allocation is not None and (allocation.live or allocation.phase is Phase.PREPARING):
            raise ConflictError(
                f"{allocation_id} is {allocation.phase} and cannot be released.", remedy="Stop it first."
            )
        self._allocations.pop(allocation_id, None)
        self._marks[allocation_id] = token
        self._changed(allocation_id)

    def resize(self, allocation_id: AllocationId, token: int, resources: Resources) -> None:
        """Change the limits of a running allocation."""
        allocation = self._command_running(allocation_id, token)
        allocation.accrue(self.time.now())
        allocation.resources = resources
        self._changed(allocation_id)

    def pin(self, allocation_id: AllocationId, token: int, cores: tuple[int, ...]) -> None:
        """Bind a running allocation to *cores*."""
        self._command_running(allocation_id, token).cores = cores
        self._changed(allocation_id)

    def pause(self, allocation_id: AllocationId, token: int) -> None:
        """Freeze an allocation; a frozen one stays as it is."""
        allocation = self._command_running(allocation_id, token)
        if allocation.phase is Phase.RUNNING:
            allocation.pause(self.time.now())
        self._changed(allocation_id)

    def resume(self, allocation_id: AllocationId, token: int) -> None:
        """Let an allocation go on; a running one does."""
        allocation = self._command_running(allocation_id, token)
        if allocation.phase is Phase.PAUSED:
            allocation.resume(self.time.now())
            self._schedule_wake(allocation)
        self._changed(allocation_id)

    def expects(self, upload: Upload) -> bool:
        """Return whether the bytes of *upload* are wanted; refuse one that may not come."""
        allocation = self._fenced(upload.allocation_id, upload.token)
        if upload.allocation_id in self._marks:
            raise ConflictError(f"{upload.allocation_id} was stopped or released; nothing can be put there.")
        return allocation is None or not allocation.directory.has(upload)

    def put(self, upload: Upload, archive: bytes) -> None:
        """Unpack *archive* where the allocation is, or will be, launched."""
        if not self.expects(upload):
            return
        allocation = self._allocations.get(upload.allocation_id)
        allocation = allocation or FakeAllocation(upload.allocation_id, upload.token)
        allocation.directory.unpack(upload, archive)
        allocation.token = upload.token
        self._allocations[upload.allocation_id] = allocation
        self._changed(upload.allocation_id)

    # Misfortune

    def lose_node(self, node_id: NodeId, reason: str = "does not answer") -> None:
        """Let a node die with everything on it; how its allocations ended is not known."""
        self._lost[node_id] = reason
        for allocation in self._allocations.values():
            if allocation.live and allocation.order is not None and allocation.order.node_id == node_id:
                allocation.lose(self.time.now(), f"node {node_id} {reason}")
                self._changed(allocation.id)

    def restore_node(self, node_id: NodeId) -> None:
        """Bring a lost node back, empty."""
        self._lost.pop(node_id, None)

    def end(self, allocation_id: AllocationId, ending: Ending) -> None:
        """Let the engine end an allocation by itself: preempted, out of memory, out of disk."""
        self._end(self.running(allocation_id), self.time.now(), ending, KILLED)

    # Within

    def _fenced(self, allocation_id: AllocationId, token: int) -> FakeAllocation | None:
        """Return the allocation, if there is one; refuse whoever has been superseded."""
        allocation = self._allocations.get(allocation_id)
        seen = allocation.token if allocation is not None else self._marks.get(allocation_id, token)
        if token < seen:
            raise FencedError(f"{allocation_id} is commanded with token {seen} now; {token} is older.")
        return allocation

    def _command(self, allocation_id: AllocationId, token: int) -> FakeAllocation | None:
        allocation = self._fenced(allocation_id, token)
        if allocation is not None:
            allocation.token = token
        return allocation

    def _command_running(self, allocation_id: AllocationId, token: int) -> FakeAllocation:
        self._fenced(allocation_id, token)
        allocation = self.running(allocation_id)
        allocation.token = token
        return allocation

    def _start(self, allocation: FakeAllocation, order: LaunchOrder) -> None:
        self.executed.append(allocation.id)
        now = self.time.now()
        allocation.start(now, self._minutes, self._nodes[order.node_id].cpu_millis // 1000)
        self._schedule_wake(allocation)
        if order.timeout_s is not None:
            self._at(now + order.timeout_s, lambda at: self._time_out(allocation, at, order.grace_s))

    def _schedule_wake(self, allocation: FakeAllocation) -> None:
        due = allocation.wake_at
        if due is not None:
            self._at(due, lambda at: self._wake(allocation, at))

    def _wake(self, allocation: FakeAllocation, at: float) -> None:
        if allocation.wake_at != at:
            return  # paused or ended in between
        allocation.accrue(at)
        allocation.advance(at)
        self._schedule_wake(allocation)
        self._changed(allocation.id)

    def _time_out(self, allocation: FakeAllocation, at: float, grace_s: float) -> None:
        if allocation.live:
            self._ask(allocation, at, Ending.TIMED_OUT, grace_s)
            self._changed(allocation.id)

    def _ask(self, allocation: FakeAllocation, at: float, ending: Ending, grace_s: float) -> None:
        """Have it end politely, and by force when the grace is over."""
        allocation.ask(at, ending)
        if allocation.live:
            self._at(at + grace_s, lambda then: self._end(allocation, then, ending, KILLED))
            self._schedule_wake(allocation)

    def _end(self, allocation: FakeAllocation, at: float, ending: Ending, exit_code: int) -> None:
        if allocation.live:
            allocation.end(at, ending, exit_code)
            self._changed(allocation.id)

    def _at(self, when: float, happen: Callable[[float], None]) -> None:
        heapq.heappush(self._agenda, (when, next(self._numbers), happen))

    def _counted(self) -> Iterable[FakeAllocation]:
        now = self.time.now()
        for allocation in self._allocations.values():
            allocation.accrue(now)
        return self._allocations.values()

    def _changed(self, allocation_id: AllocationId) -> None:
        if allocation_id in self._allocations:
            self._changes.note(allocation_id)
        else:
            self._changes.forget(allocation_id)
        for watcher in self._watchers:
            watcher.set()
