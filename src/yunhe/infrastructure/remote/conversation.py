"""A conversation with a plugin: both sides speak until one has had enough."""

from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

import anyio
import grpc
import grpc.aio
from google.protobuf.message import Message

STATUS_WITHIN_S = 1.0
"""The plugin's status comes right behind what its transport refuses; it waits on nobody."""

T = TypeVar("T")


class Conversation:
    """Sends and takes messages; why the plugin ended it is told by listening alone.

    A plugin may end a call while we write to it. grpcio then gives the call a status of its own making, over the one
    that the plugin gave or before it comes. So each status is noted as it is set, and the plugin's is the one told.
    """

    def __init__(self, begin: Callable[..., Any], *, within_s: float, metadata: Any) -> None:
        self._outbox, self._to_send = anyio.create_memory_object_stream[Message]()
        self._call = begin(self._to_send, timeout=within_s, metadata=metadata)
        self._messages = aiter(self._call)
        self._plugins_status: grpc.aio.AioRpcError | None = None
        self._has_status = anyio.Event()
        self._call.add_done_callback(self._note_status)

    async def tell(self, message: Message) -> bool:
        """Send *message*; false when the plugin listens no more, and hearing tells why."""
        try:
            await self._outbox.send(message)
        except (anyio.BrokenResourceError, anyio.ClosedResourceError):
            return False
        return True

    async def hear(self) -> Message | None:
        """Return the plugin's next message, or none when it has said all; raise why it broke off."""
        try:
            return await anext(self._messages, None)
        except grpc.aio.AioRpcError as error:
            with anyio.move_on_after(STATUS_WITHIN_S):
                await self._has_status.wait()
            told = self._plugins_status or error
            if told.code() is grpc.StatusCode.OK:
                return None
            raise told from None

    def fall_silent(self) -> None:
        """Say that nothing more will be sent."""
        self._outbox.close()

    def end(self) -> None:
        """Break it off."""
        self.fall_silent()
        self._call.cancel()
        self._to_send.close()

    def _note_status(self, call: Any) -> None:
        self._to_send.close()
        status = grpc.aio.AioRpcError(
            _at_once(call.code()),
            initial_metadata=grpc.aio.Metadata(),
            trailing_metadata=_at_once(call.trailing_metadata()),
            details=_at_once(call.details()),
        )
        if not self._has_status.is_set() and not _made_up(status):
            self._plugins_status = status
            self._has_status.set()


def _made_up(status: grpc.aio.AioRpcError) -> bool:
    return status.code() is grpc.StatusCode.INTERNAL and not status.trailing_metadata()


def _at_once(answer: Coroutine[Any, Any, T]) -> T:
    """Return what a coroutine answers that has nothing to wait for, as those of an ended call."""
    try:
        answer.send(None)
    except StopIteration as done:
        return done.value
    raise AssertionError("an ended call knows its status")
