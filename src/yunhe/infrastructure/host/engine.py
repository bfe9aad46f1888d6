"""The contract over an agent: a link that is opened when it is needed and comes back after it was cut."""

import math
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from types import TracebackType
from typing import ClassVar, Self

import anyio
import msgspec

from yunhe.agent import AGENT_VERSION
from yunhe.agent.protocol.frames import CHUNK_BYTES
from yunhe.infrastructure.contract.engine import ExecSession, ForwardSession
from yunhe.infrastructure.contract.model import (
    Account,
    Catalogue,
    Description,
    ExecRequest,
    Inventory,
    LaunchOrder,
    LogChunk,
    LogMark,
    Observation,
    Observed,
    Spec,
    Upload,
    UsageMinute,
)
from yunhe.infrastructure.host.bridge import Opened, open_bridge
from yunhe.infrastructure.host.exec_session import HostConnection, HostSession
from yunhe.infrastructure.host.link import AgentLink, Body, Exchange
from yunhe.infrastructure.host.package import AgentFile, agent_file
from yunhe.infrastructure.host.target import ALLOWABLE, HostTarget
from yunhe.kernel.confinement import Confinement
from yunhe.kernel.errors import (
    LaunchUnansweredError,
    PoolNotReachedError,
    PoolUnreachableError,
    UnsupportedError,
    YunheError,
)
from yunhe.kernel.ids import AllocationId
from yunhe.kernel.resources import Resources

REQUEST_WITHIN_S = 30.0
LOOK_WITHIN_S = 1.5
"""How long an agent may take to say what it has: it knows without asking anybody."""
LAUNCH_WITHIN_S = 10.0
"""How long after it was sent an agent may claim an order, by the agent's own clock."""
ANSWER_LATE_S = 2.0
CLOCK_FRESH_S = 60.0
FIRST_BACKOFF_S = 0.2
LONGEST_BACKOFF_S = 15.0
TELLS_CHANGES = 2
"""The protocol from which on ``observe`` may be asked for changes alone."""
LIMITS_UPLOADS = 6
"""The agent from which on an archive is unpacked within what its allocation has."""


async def connect_host(target: HostTarget) -> "HostEngine":
    """Return an engine that has reached its host; raise ``PoolUnreachableError`` if it cannot be reached."""
    engine = HostEngine(target)
    await engine.hello()
    return engine


class HostEngine:
    """An engine whose node is one host.

    It holds one connection, opened by the first call. A call that finds it cut raises ``PoolUnreachableError``; the
    next one opens it again, at growing intervals while that fails. Nothing runs in the background: make it in any
    task, use it from any, and end it with ``close`` or as an async context manager.
    """

    look_within_s: ClassVar[float] = LOOK_WITHIN_S

    def __init__(self, target: HostTarget, *, request_within_s: float = REQUEST_WITHIN_S) -> None:
        self._target = target
        self._request_within_s = request_within_s
        self._opened: Opened | None = None
        self._opening = anyio.Lock()
        self._failures = 0
        self._not_before = 0.0
        self._upgraded = False
        self._clock = AgentClock()
        self._unanswered: dict[AllocationId, float] = {}
        """Launches that were sent and not answered, and when they surely have expired."""

    async def __aenter__(self) -> Self:
        await self.hello()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, fault: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    # The contract

    async def describe(self) -> Description:
        """Return what this engine is and can do."""
        told = msgspec.convert(await self._ask("describe", {}), Description)
        return msgspec.structs.replace(told, permits=(*told.permits, *self._target.declared.allowed))

    async def account(self) -> Account:
        """Return the user the agent is."""
        return msgspec.convert(await self._ask("account", {}), Account)

    async def catalogue(self) -> Catalogue:
        """Return the one size there is: the host itself."""
        nodes = (await self.inventory()).nodes
        return Catalogue(specs=tuple(Spec(name=node.id, resources=node.total, count=1) for node in nodes))

    async def inventory(self) -> Inventory:
        """Return the host with what it has and what is in use now."""
        link = await self._link()
        asked_at = anyio.current_time()
        with anyio.move_on_after(self.look_within_s):
            answer = await link.request("inventory", {}, timeout_s=self._request_within_s)
            self._clock.learn(answer, asked_at)
            return msgspec.convert(answer, Inventory)
        raise PoolUnreachableError(f"The agent did not say what it has within {self.look_within_s:g} s.")

    async def launch(self, order: LaunchOrder) -> None:
        """Begin *order*; return once the agent has claimed it durably.

        Raise ``PoolNotReachedError`` if it was surely not sent, ``LaunchUnansweredError`` once it has surely expired.
        """
        body = msgspec.to_builtins(order)
        body.update(self._confinement(body.pop("confinement")))
        if order.python is None:
            del body["python"]
        del body["outputs"]  # agents keep the whole directory, and older ones refuse a field they do not know
        try:
            link = await self._link()
            if not self._clock.is_fresh():
                await self.inventory()
        except PoolUnreachableError as error:
            raise self._not_launched(order.allocation_id, error) from error
        expires_ms = self._clock.in_ms(LAUNCH_WITHIN_S)
        if expires_ms is not None:
            body["expires_ms"] = expires_ms
        late_at = anyio.current_time() + LAUNCH_WITHIN_S + ANSWER_LATE_S
        self._unanswered[order.allocation_id] = late_at if expires_ms is not None else math.inf
        timeout_s = self._request_within_s if expires_ms is None else LAUNCH_WITHIN_S + ANSWER_LATE_S
        try:
            await link.request("launch", body, timeout_s=timeout_s)
        except PoolUnreachableError as error:
            raise self._not_launched(order.allocation_id, error) from error
        except YunheError:
            self._unanswered.pop(
                order.allocation_id, None
            )  # another call of the same launch may have done so
            raise
        self._unanswered.pop(order.allocation_id, None)

    def _confinement(self, wanted: Body | None) -> Body:
        """Return how far a task is kept apart, as agents are told: what is as usual is left out."""
        told: Body = dict(wanted or {})
        declared = self._target.declared
        needs = msgspec.convert(told, Confinement).needs()
        for name in set(ALLOWABLE) & set(needs) - set(declared.allowed):
            raise UnsupportedError(
                f"The owner of this pool does not allow {name}.",
                remedy=f"Leave it out, or add the pool with --option allow={name}.",
            )
        lists = [list(blocks) for blocks in (declared.egress, told.pop("egress", None)) if blocks]
        if declared.egress == () and told.get("network") != "host":
            told["network"] = "none"
        elif lists and told.get("network") != "none":
            told["egress"] = lists
        return told

    def _not_launched(self, allocation_id: AllocationId, error: PoolUnreachableError) -> PoolUnreachableError:
        late_at = self._unanswered.get(allocation_id)
        if late_at is None:
            return PoolNotReachedError(error.problem, remedy=error.remedy)
        if anyio.current_time() < late_at:
            return error
        return LaunchUnansweredError(f"The agent did not answer the launch: {error.problem}")

    async def stop(self, allocation_id: AllocationId, token: int, *, grace_s: float = 10.0) -> None:
        """Begin to end an allocation."""
        await self._ask("stop", {"allocation_id": allocation_id, "token": token, "grace_s": grace_s})

    async def release(self, allocation_id: AllocationId, token: int) -> None:
        """Forget an ended allocation and remove its directory."""
        self._unanswered.pop(allocation_id, None)
        await self._ask("release", {"allocation_id": allocation_id, "token": token})

    async def observe(self, *, beyond: int = -1, wait_s: float = 0.0) -> Observation:
        """Return what changed after *beyond*, or everything, waiting for news if asked to."""
        link = await self._link()
        seen: list[Observed] = []
        body: Body = {"beyond": beyond, "wait_s": wait_s}
        if (await self.hello())["protocol"] >= TELLS_CHANGES:
            body["changes"] = True
        within_s = wait_s + self._request_within_s
        exchange = link.exchange("observe", body)
        try:
            await exchange.take_turn()
            with anyio.move_on_after(within_s):
                await exchange.begin()
                while "part" in (frame := await exchange.next(within_s)).header:
                    seen += msgspec.convert(frame.header["part"]["allocations"], list[Observed])
                answer = frame.header["ok"]
                return Observation(
                    version=answer["version"],
                    allocations=tuple(seen),
                    since=answer.get("since", -1),
                    gone=tuple(answer.get("gone", ())),
                    notices=tuple(answer["notices"]),
                )
        finally:
            await exchange.leave()
        await link.close()
        raise PoolUnreachableError("The agent did not answer observe in time.")

    async def logs(
        self, allocation_id: AllocationId, *, offset: int = 0, follow: bool = False
    ) -> AsyncIterator[LogChunk]:
        """Yield output from byte *offset*."""
        link = await self._link()
        body = {"allocation_id": allocation_id, "offset": offset, "follow": follow, "marks": True}
        async for frame in link.stream("logs", body):
            if "part" in frame.header:
                part = frame.header["part"]
                marks = msgspec.convert(part.get("marks", ()), tuple[LogMark, ...])
                yield LogChunk(offset=part["offset"], data=frame.payload, marks=marks)

    async def usage(self, *, beyond: int = -1) -> AsyncIterator[UsageMinute]:
        """Yield every minute after *beyond*; the agent forgets those up to it."""
        link = await self._link()
        async for frame in link.stream("usage", {"beyond": beyond}):
            if "part" in frame.header:
                for minute in frame.header["part"]["minutes"]:
                    yield msgspec.convert(minute, UsageMinute)

    async def close(self) -> None:
        """Let go of the connection; allocations go on."""
        opened, self._opened = self._opened, None
        if opened is not None:
            await opened.link.close()

    # Powers

    async def resize(self, allocation_id: AllocationId, token: int, resources: Resources) -> None:
        """Change the limits of a running allocation in place."""
        full = {
            "cpu_millis": resources.cpu_millis,
            "memory_mib": resources.memory_mib,
            "disk_mib": resources.disk_mib,
            "accelerators": msgspec.to_builtins(resources.accelerators),
        }
        await self._ask("resize", {"allocation_id": allocation_id, "token": token, "resources": full})

    async def pin(self, allocation_id: AllocationId, token: int, cores: tuple[int, ...]) -> None:
        """Bind a running allocation to *cores*."""
        await self._ask("pin", {"allocation_id": allocation_id, "token": token, "cores": list(cores)})

    async def pause(self, allocation_id: AllocationId, token: int) -> None:
        """Freeze every process of the allocation."""
        await self._ask("pause", {"allocation_id": allocation_id, "token": token})

    async def resume(self, allocation_id: AllocationId, token: int) -> None:
        """Let a paused allocation go on."""
        await self._ask("resume", {"allocation_id": allocation_id, "token": token})

    async def put_archive(self, upload: Upload, chunks: AsyncIterator[bytes]) -> None:
        """Send an archive to be unpacked, unless the agent has it already."""
        link = await self._link()
        body = msgspec.to_builtins(upload)
        if (await self.hello())["agent_version"] < LIMITS_UPLOADS:
            del body["resources"]
        exchange = link.exchange("put_archive", body)
        try:
            await exchange.begin()
            if await self._send_all(exchange, chunks):
                await exchange.answer()
        finally:
            await exchange.leave()

    async def get_archive(self, allocation_id: AllocationId, paths: tuple[str, ...]) -> AsyncIterator[bytes]:
        """Yield a gzip-compressed tar of what matches *paths*."""
        link = await self._link()
        body = {"allocation_id": allocation_id, "paths": list(paths)}
        async for frame in link.stream("get_archive", body):
            if "part" in frame.header:
                yield frame.payload

    def exec(
        self, allocation_id: AllocationId, request: ExecRequest
    ) -> AbstractAsyncContextManager[ExecSession]:
        """Run a command beside a running allocation; leaving the block ends it."""
        return self._exec(allocation_id, request)

    @asynccontextmanager
    async def _exec(
        self, allocation_id: AllocationId, request: ExecRequest
    ) -> AsyncGenerator[HostSession, None]:
        link = await self._link()
        body = {"allocation_id": allocation_id, **msgspec.to_builtins(request)}
        exchange = link.exchange("exec", body)
        try:
            await exchange.begin()
            yield HostSession(exchange)
        finally:
            await exchange.leave()

    def forward(self, allocation_id: AllocationId, port: int) -> AbstractAsyncContextManager[ForwardSession]:
        """Connect to a port inside a running allocation; leaving the block hangs up."""
        return self._forward(allocation_id, port)

    @asynccontextmanager
    async def _forward(self, allocation_id: AllocationId, port: int) -> AsyncGenerator[HostConnection, None]:
        link = await self._link()
        exchange = link.exchange("forward", {"allocation_id": allocation_id, "port": port})
        try:
            await exchange.begin()
            connection = HostConnection(exchange)
            await exchange.wait_for_room()
            yield connection
        finally:
            await exchange.leave()

    # The agent itself

    def program(self) -> AgentFile:
        """Return what is taken to the host and answers there."""
        return agent_file()

    async def hello(self) -> Body:
        """Return what the agent said of itself: its version, digest, process ID and boot ID."""
        await self._link()
        return self._opened.hello if self._opened is not None else {}

    async def upgrade(self) -> None:
        """Have the agent become the one of this installation; its tasks are not touched."""
        agent = self.program()
        link = await self._link()
        body = {"digest": agent.digest, "size_bytes": len(agent.data)}
        exchange = link.exchange("upgrade", body)
        try:
            await exchange.begin()
            if await self._send_all(exchange, _pieces(agent.data)):
                await exchange.answer()
        finally:
            await exchange.leave()
        await self.close()

    # The link

    async def _ask(self, verb: str, body: Body) -> Body:
        link = await self._link()
        return await link.request(verb, body, timeout_s=self._request_within_s)

    async def _send_all(self, exchange: Exchange, chunks: AsyncIterator[bytes]) -> bool:
        """Send every piece as there is room; return False if the answer came first."""
        if not await exchange.wait_for_room():
            return False
        async for chunk in chunks:
            for start in range(0, len(chunk), CHUNK_BYTES):
                if not await exchange.send_input(chunk[start : start + CHUNK_BYTES]):
                    return False
        return await exchange.send_input(b"")

    async def _link(self) -> AgentLink:
        async with self._opening:
            if self._opened is not None and not self._opened.link.broken:
                return self._opened.link
            await self.close()
            if anyio.current_time() < self._not_before:
                wait_s = self._not_before - anyio.current_time()
                raise PoolUnreachableError(
                    f"The host cannot be reached; it is tried again in {wait_s:.1f} s."
                )
            try:
                self._opened = await open_bridge(self._target, self.program())
            except PoolUnreachableError:
                wait_s = min(LONGEST_BACKOFF_S, FIRST_BACKOFF_S * 2**self._failures)
                self._failures += 1
                self._not_before = anyio.current_time() + wait_s
                raise
            self._failures = 0
            self._clock = AgentClock()  # the host may have been started anew
            opened = self._opened
        if opened.hello["agent_version"] < AGENT_VERSION and not self._upgraded:
            self._upgraded = True
            await self.upgrade()
            return await self._link()
        return opened.link


class AgentClock:
    """What the agent's clock shows, as far as it has told."""

    def __init__(self) -> None:
        self._ahead_ms: float | None = None
        self._asked_at = -math.inf

    def learn(self, answer: Body, asked_at: float) -> None:
        """Take the clock from an *answer*; agents of older versions do not tell it."""
        told = answer.get("clock_ms")
        self._ahead_ms = None if told is None else told - asked_at * 1000
        self._asked_at = asked_at

    def is_fresh(self) -> bool:
        """Return whether it was told a short while ago: two clocks drift apart, and one may have started anew."""
        return anyio.current_time() - self._asked_at < CLOCK_FRESH_S

    def in_ms(self, seconds: float) -> int | None:
        """Return what it shows *seconds* from now; None if it was not told."""
        now = anyio.current_time() + seconds
        return None if self._ahead_ms is None else int(self._ahead_ms + now * 1000)


async def _pieces(data: bytes) -> AsyncGenerator[bytes, None]:
    for start in range(0, len(data), CHUNK_BYTES):
        yield data[start : start + CHUNK_BYTES]
