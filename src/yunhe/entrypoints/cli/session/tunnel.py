"""Connections of programs on this machine, each carried into a job through the platform."""

import socket
import struct
from collections.abc import AsyncGenerator, Callable
from contextlib import AsyncExitStack, asynccontextmanager, suppress

import anyio
from anyio.abc import SocketAttribute, SocketStream

from yunhe.entrypoints.client import AsyncClient
from yunhe.entrypoints.client.errors import ServerUnreachableError
from yunhe.entrypoints.client.exec import ForwardStream
from yunhe.kernel.errors import PoolUnreachableError, TooManyRequestsError, YunheError

PATIENCE_S = 30.0
"""How long a new connection waits for a platform that does not answer: a restart fits."""
PAUSE_S = 0.5
SAY_AGAIN_S = 10.0
"""A page that is loaded again and again says what is wrong once in this time."""
_RESET = struct.pack("ii", 1, 0)


class PortTunnel:
    """One port of one job."""

    def __init__(self, client: AsyncClient, job_id: str, port: int, say: Callable[[str], None]) -> None:
        self._client = client
        self._job_id = job_id
        self._port = port
        self._say = say
        self._said: dict[str, float] = {}

    async def carry(self, near: SocketStream) -> None:
        """Join a connection of this machine to a new one into the job, until both sides have said all."""
        carried = False
        async with near:
            try:
                async with self._connected() as far:
                    carried = True
                    async with anyio.create_task_group() as group:
                        group.start_soon(_send_all, near, far)
                        await _receive_all(far, near)
            except* YunheError as errors:
                self._tell(_first(errors), cut=carried)
                _reset(near)
            except* (anyio.BrokenResourceError, anyio.ClosedResourceError):
                carried = False  # the program here has left

    @asynccontextmanager
    async def _connected(self) -> AsyncGenerator[ForwardStream]:
        """Connect into the job; wait for a platform that restarts, or has no room."""
        give_up = anyio.current_time() + PATIENCE_S
        async with AsyncExitStack() as stack:
            while True:
                try:
                    far = await stack.enter_async_context(self._client.forward(self._job_id, self._port))
                    break
                except (ServerUnreachableError, PoolUnreachableError, TooManyRequestsError) as error:
                    if anyio.current_time() > give_up:
                        raise
                    self._tell(error, again=True)
                    await anyio.sleep(PAUSE_S)
            yield far

    def _tell(self, error: YunheError, *, cut: bool = False, again: bool = False) -> None:
        words = f"Port {self._port}: {error.problem}"
        if again:
            words += " It is tried again."
        elif cut:
            words += " This connection is lost, perhaps with bytes on their way; a new one is made as usual."
        elif error.remedy:
            words += f" {error.remedy}"
        now = anyio.current_time()
        if now - self._said.get(words, -SAY_AGAIN_S) >= SAY_AGAIN_S:
            self._said = {words: now}
            self._say(words)


def _reset(near: SocketStream) -> None:
    """Have the program here see, when *near* is closed, that something is missing."""
    with suppress(OSError):
        ours = near.extra(SocketAttribute.raw_socket)  # noqa: S610 - no database is near
        ours.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)


async def _send_all(near: SocketStream, far: ForwardStream) -> None:
    async for data in near:
        await far.send(data)
    await far.send(b"")


async def _receive_all(far: ForwardStream, near: SocketStream) -> None:
    while data := await far.receive():
        await near.send(data)
    await near.send_eof()


def _first(errors: BaseExceptionGroup[YunheError]) -> YunheError:
    first = errors.exceptions[0]
    return first if isinstance(first, YunheError) else _first(first)
