"""Calls to a plugin: bounded, repeated against the current instance where that does no harm."""

from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from typing import TypeVar

import anyio
import grpc
import grpc.aio
from google.protobuf.message import Message

from yunhe.infrastructure.contract.generated import engine_pb2
from yunhe.infrastructure.contract.manifest import Manifest
from yunhe.infrastructure.contract.model import CONTRACT_VERSION
from yunhe.infrastructure.contract.wire import PROBLEM_TRAILER, problem_error
from yunhe.infrastructure.remote.channels import Channels, PluginChannel
from yunhe.infrastructure.remote.conversation import Conversation
from yunhe.kernel.backoff import Backoff
from yunhe.kernel.errors import PoolUnreachableError, UnauthenticatedError, UnsupportedError, YunheError

REPEAT_FOR_S = 5.0
"""How long a call that was not heard is repeated: an upgrade takes less."""
FIRST_PAUSE_S = 0.02
LONGEST_PAUSE_S = 0.5
MAY_REPEAT = frozenset({grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.CANCELLED})

R = TypeVar("R", bound=Message)


class Interrupted(Exception):  # noqa: N818 - not a failure yet: the call may be repeated
    """The transport gave up on a call; whether it was heard is not known."""


class OutOfTime(Interrupted):
    """Its deadline passed."""


class RetryWindow:
    """How long to go on repeating what the transport lost, from the first time it did."""

    def __init__(self) -> None:
        self._ends_at: float | None = None
        self._backoff = Backoff(FIRST_PAUSE_S, LONGEST_PAUSE_S)

    def renew(self) -> None:
        """Begin again: something came through."""
        self._ends_at = None
        self._backoff.reset()

    async def or_give_up(self, interrupted: Interrupted) -> None:
        """Pause before the next attempt; raise ``PoolUnreachableError`` when there should be none."""
        self._ends_at = self._ends_at or anyio.current_time() + REPEAT_FOR_S
        pause_s = self._backoff.next_s()
        if anyio.current_time() + pause_s > self._ends_at:
            raise _silence(interrupted) from None
        await anyio.sleep(pause_s)


class Calls:
    """Speaks to whichever instance of a plugin is the current one."""

    def __init__(self, manifest: Manifest, channels: Channels) -> None:
        self._manifest = manifest
        self._channels = channels
        self._asking = anyio.Semaphore(manifest.limits.calls)
        self._streaming = anyio.Semaphore(manifest.limits.calls)
        """Apart, so that whoever reads slowly keeps no command waiting."""

    @property
    def timeout_s(self) -> float:
        """How long the plugin may take to answer."""
        return self._manifest.limits.call_timeout_s

    async def ask(self, name: str, request: Message, answer: type[R], *, wait_s: float = 0.0) -> R:
        """Return the plugin's answer; *wait_s* is how long it was asked to wait before giving one."""
        patience = RetryWindow()
        while True:
            try:
                async with self._speaking(None if wait_s else self._asking) as instance:
                    call = instance.method(name, "unary_unary")
                    timeout_s = self.timeout_s + wait_s
                    return await call(request, timeout=timeout_s, metadata=instance.metadata)
            except OutOfTime as late:
                raise _silence(late) from None
            except Interrupted as interrupted:
                await patience.or_give_up(interrupted)

    async def read(
        self,
        name: str,
        request: Callable[[], Message],
        answer: type[R],
        *,
        within_s: float,
        waits: bool = False,
    ) -> AsyncGenerator[R, None]:
        """Yield the plugin's messages; *request* is made anew for each attempt, so that it goes on where it was.

        One that mostly *waits* for what is yet to happen takes no room from the others.
        """
        patience = RetryWindow()
        while True:
            try:
                async with self._speaking(None if waits else self._streaming) as instance:
                    call = instance.method(name, "unary_stream")(
                        request(), timeout=within_s, metadata=instance.metadata
                    )
                    try:
                        await call.initial_metadata()
                        if not call.done():
                            patience.renew()
                        async for message in call:
                            yield message
                    finally:
                        call.cancel()
                    return
            except OutOfTime:
                patience.renew()
            except Interrupted as interrupted:
                await patience.or_give_up(interrupted)

    @asynccontextmanager
    async def converse(
        self, name: str, first: Message, *, within_s: float, waits: bool = False
    ) -> AsyncGenerator[Conversation]:
        """Hold a conversation that begins with *first*; leaving the block ends it. It is not repeated."""
        try:
            async with self._speaking(None if waits else self._streaming) as instance:
                conversation = Conversation(
                    instance.method(name, "stream_stream"), within_s=within_s, metadata=instance.metadata
                )
                try:
                    await conversation.tell(first)
                    yield conversation
                finally:
                    conversation.end()
        except Interrupted as interrupted:
            raise _silence(interrupted) from None

    @asynccontextmanager
    async def _speaking(self, room: anyio.Semaphore | None) -> AsyncGenerator[PluginChannel]:
        """Use an instance that has agreed to our contract; its refusals are raised as the errors they were.

        With *room*, no more at once than its manifest lets us, whatever the plugin itself makes of that number.
        """
        async with self._place_in(room), self._channels.current() as instance:
            try:
                if not instance.negotiated:
                    await self._negotiate(instance)
                yield instance
            except grpc.aio.AioRpcError as error:
                raise told(error, self._manifest.name) from None

    @asynccontextmanager
    async def _place_in(self, room: anyio.Semaphore | None) -> AsyncGenerator[None]:
        if room is None:
            yield
            return
        try:
            with anyio.fail_after(self.timeout_s):
                await room.acquire()
        except TimeoutError:
            raise PoolUnreachableError(
                f"The plugin {self._manifest.name} was busy with {self._manifest.limits.calls} calls for {self.timeout_s:g} s.",
                remedy="Find out what keeps it, or let its manifest allow more at once: limits.calls.",
            ) from None
        try:
            yield
        finally:
            room.release()

    async def _negotiate(self, instance: PluginChannel) -> None:
        request = engine_pb2.DescribePluginRequest(contracts=[CONTRACT_VERSION])
        call = instance.method("Plugin/Describe", "unary_unary")
        answer: engine_pb2.DescribePluginResponse = await call(
            request, timeout=self.timeout_s, metadata=instance.metadata
        )
        if answer.contract != CONTRACT_VERSION:
            raise UnsupportedError(
                f"The plugin {self._manifest.name} answers with contract {answer.contract}, not {CONTRACT_VERSION}.",
                remedy="Use a release of it made for this platform.",
            )
        instance.negotiated = True


def _silence(interrupted: Interrupted) -> PoolUnreachableError:
    return PoolUnreachableError(
        f"The plugin did not answer: {interrupted}.", remedy="See yunhe plugin ls; is it running?"
    )


def told(error: grpc.aio.AioRpcError, plugin: str) -> Exception:
    """Return what a failed call means: the plugin's own refusal, an interruption, or silence."""
    for key, value in error.trailing_metadata() or ():
        if key == PROBLEM_TRAILER and isinstance(value, bytes):
            return problem_error(engine_pb2.Problem.FromString(value))
    code, details = error.code(), error.details() or "no reason given"
    if code in MAY_REPEAT:
        return Interrupted(details)
    if code is grpc.StatusCode.DEADLINE_EXCEEDED:
        return OutOfTime("it took too long")
    if code is grpc.StatusCode.UNAUTHENTICATED:
        return UnauthenticatedError(f"The plugin {plugin} does not know our token.", remedy="Start it anew.")
    if code is grpc.StatusCode.UNIMPLEMENTED:
        return UnsupportedError(f"The plugin {plugin} does not have this call: {details}.")
    return YunheError(f"The plugin {plugin} failed: {code.name.lower()}, {details}.")
