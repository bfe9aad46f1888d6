"""Connections to a fake pool: one with every power, one with none."""

from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial

from yunhe.infrastructure.contract.engine import ExecSession
from yunhe.infrastructure.contract.model import (
    Account,
    Catalogue,
    Description,
    ExecRequest,
    Inventory,
    LaunchOrder,
    LogChunk,
    Observation,
    Power,
    Spec,
    Upload,
    UsageMinute,
)
from yunhe.infrastructure.fake.exec_session import run_beside
from yunhe.infrastructure.fake.faults import Fault, Faults, deliver
from yunhe.infrastructure.fake.pool import FakePool
from yunhe.kernel.errors import PoolUnreachableError
from yunhe.kernel.ids import AllocationId
from yunhe.kernel.resources import Resources

PIECE_BYTES = 64 * 1024


class PlainFakeEngine:
    """A connection to a fake pool that can do the basics alone."""

    powers: frozenset[Power] = frozenset()

    def __init__(self, pool: FakePool, faults: Faults | None = None, *, timeout_s: float = 10.0) -> None:
        self.pool = pool
        self.faults = faults or Faults()
        self._timeout_s = timeout_s
        self._closed = False
        self._told = Observation(version=-1, allocations=())

    async def describe(self) -> Description:
        """Return what this engine is and can do."""
        await self._reach("describe")
        return Description(
            engine="fake",
            version="1",
            powers=self.powers,
            missing={
                power: f"this fake was made without {power}." for power in Power if power not in self.powers
            },
            limits="none: nothing really runs",
        )

    async def account(self) -> Account:
        """Return who the caller is to the pool: anybody."""
        await self._reach("account")
        return Account(identity="anybody")

    async def catalogue(self) -> Catalogue:
        """Return the sizes of the pool's nodes."""
        await self._reach("catalogue")
        nodes = self.pool.inventory().nodes
        price = self.pool.price_micros_per_hour
        return Catalogue(
            specs=tuple(
                Spec(name=node.id, resources=node.total, count=1, price_micros_per_hour=price)
                for node in nodes
            )
        )

    async def inventory(self) -> Inventory:
        """Return every node with what it has and what is in use now."""
        await self._reach("inventory")
        return self.pool.inventory()

    async def launch(self, order: LaunchOrder) -> None:
        """Begin *order*."""
        launch = partial(self.pool.launch, order)
        await self._command("launch", launch, crash=partial(launch, crash=True))

    async def stop(self, allocation_id: AllocationId, token: int, *, grace_s: float = 10.0) -> None:
        """Begin to end an allocation."""
        await self._command("stop", partial(self.pool.stop, allocation_id, token, grace_s))

    async def release(self, allocation_id: AllocationId, token: int) -> None:
        """Forget an ended allocation."""
        await self._command("release", partial(self.pool.release, allocation_id, token))

    async def observe(self, *, beyond: int = -1, wait_s: float = 0.0) -> Observation:
        """Return what changed after *beyond*, or everything; wait for a version greater than it."""
        if await self._reach("observe") is Fault.STALE:
            return self._told
        deadline = self.pool.time.now() + wait_s
        while self.pool.version == beyond and self.pool.time.now() < deadline:
            await self.pool.changed(deadline)
        self._told = self.pool.observation(beyond)
        return self._told

    async def logs(
        self, allocation_id: AllocationId, *, offset: int = 0, follow: bool = False
    ) -> AsyncIterator[LogChunk]:
        """Yield output from byte *offset*; with *follow*, until the allocation has ended and all is read."""
        breaks = await self._reach("logs") is Fault.UNANSWERED
        while True:
            chunk, more = self.pool.read_log(allocation_id, offset)
            if chunk.data:
                yield chunk
                offset = chunk.offset + len(chunk.data)
                if breaks:
                    raise _no_answer("logs")
            elif follow and more:
                await self.pool.changed(float("inf"))
            else:
                return

    async def usage(self, *, beyond: int = -1) -> AsyncIterator[UsageMinute]:
        """Yield every minute whose sequence number is greater than *beyond*, then end."""
        breaks = await self._reach("usage") is Fault.UNANSWERED
        for minute in self.pool.minutes(beyond):
            yield minute
            if breaks:
                raise _no_answer("usage")

    async def close(self) -> None:
        """Let go of the connection; allocations go on."""
        self._closed = True

    async def _reach(self, verb: str) -> Fault | None:
        """Travel to the pool with a question; return the fault that has yet to show."""
        fault = self.faults.take(verb)
        if await self._travels_too_long() or fault in {Fault.UNHEARD, Fault.LATE}:
            raise _no_answer(verb)
        return fault

    async def _command(
        self, verb: str, act: Callable[[], None], crash: Callable[[], None] | None = None
    ) -> None:
        """Deliver a command with whatever goes wrong on its way, then what was held up before it."""
        held = self.faults.held()
        fault = self.faults.take(verb)
        too_long = await self._travels_too_long()
        try:
            if fault is Fault.UNHEARD:
                raise _no_answer(verb)
            if fault is Fault.LATE or too_long:
                self.faults.hold(act)
                raise _no_answer(verb)
            (crash if fault is Fault.CRASHED and crash else act)()
            if fault is Fault.DUPLICATED:
                self.faults.hold(act)
            if fault in {Fault.UNANSWERED, Fault.CRASHED}:
                raise _no_answer(verb)
        finally:
            deliver(held)

    async def _travels_too_long(self) -> bool:
        """Take the latency of the way, though no longer than the timeout; return whether that cut it short."""
        if self._closed:
            raise PoolUnreachableError("This connection is closed.", remedy="Open another.")
        arrives_at = self.pool.time.now() + min(self.faults.latency_s, self._timeout_s)
        while self.pool.time.now() < arrives_at:
            await self.pool.changed(arrives_at)
        self.pool.settle()
        return self.faults.latency_s > self._timeout_s


class FakeEngine(PlainFakeEngine):
    """A connection to a fake pool with every power."""

    powers = frozenset((Power.RESIZE, Power.PIN, Power.PAUSE, Power.FILES, Power.EXEC))

    async def resize(self, allocation_id: AllocationId, token: int, resources: Resources) -> None:
        """Change the limits of a running allocation in place."""
        await self._command("resize", partial(self.pool.resize, allocation_id, token, resources))

    async def pin(self, allocation_id: AllocationId, token: int, cores: tuple[int, ...]) -> None:
        """Bind a running allocation to *cores*."""
        await self._command("pin", partial(self.pool.pin, allocation_id, token, cores))

    async def pause(self, allocation_id: AllocationId, token: int) -> None:
        """Freeze the allocation where it stands."""
        await self._command("pause", partial(self.pool.pause, allocation_id, token))

    async def resume(self, allocation_id: AllocationId, token: int) -> None:
        """Let a paused allocation go on."""
        await self._command("resume", partial(self.pool.resume, allocation_id, token))

    async def put_archive(self, upload: Upload, chunks: AsyncIterator[bytes]) -> None:
        """Unpack a gzip-compressed tar, whole or not at all; nothing is read when it is there already."""
        await self._travels_too_long()
        archive = b"".join([chunk async for chunk in chunks]) if self.pool.expects(upload) else b""
        await self._command("put_archive", partial(self.pool.put, upload, archive))

    async def get_archive(self, allocation_id: AllocationId, paths: tuple[str, ...]) -> AsyncIterator[bytes]:
        """Yield a gzip-compressed tar of *paths*."""
        breaks = await self._reach("get_archive") is Fault.UNANSWERED
        archive = self.pool.known(allocation_id).directory.pack(paths)
        for start in range(0, len(archive), PIECE_BYTES):
            yield archive[start : start + PIECE_BYTES]
            if breaks:
                raise _no_answer("get_archive")

    @asynccontextmanager
    async def exec(
        self, allocation_id: AllocationId, request: ExecRequest
    ) -> AsyncGenerator[ExecSession, None]:
        """Run a command beside a running allocation; leaving the block ends it."""
        await self._reach("exec")
        async with run_beside(self.pool, allocation_id, request) as session:
            yield session


def _no_answer(verb: str) -> PoolUnreachableError:
    return PoolUnreachableError(
        f"The pool did not answer {verb}.", remedy="Try again: a repeated call does no harm."
    )
