"""A connection to a port of a pod, over the channels that its kubelet multiplexes on a websocket.

The protocol is the one that kubelets have served since Kubernetes 1.6, ``v4.channel.k8s.io``: data on channel 0, errors on
channel 1, each begun by the number of the port. It has no way to say that one side has said all.
"""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import anyio
from websockets.asyncio.client import ClientConnection
from websockets.exceptions import ConnectionClosed, InvalidHandshake

from yunhe.infrastructure.contract.sessions import StreamSession
from yunhe.infrastructure.kubernetes.api.client import Api
from yunhe.infrastructure.kubernetes.api.exec_session import OPEN_WITHIN_S, V4, connect_to_pod
from yunhe.infrastructure.kubernetes.api.shapes import Key
from yunhe.kernel.errors import ConflictError, PoolUnreachableError

DATA, ERROR = 0, 1
HEAD_BYTES = 2
PIECE_BYTES = 32 * 1024
LINGER_S = 30.0
"""How long the program may say nothing after we have said all: it cannot be told, so one that waits would wait for ever."""
LOOK_S = 5.0


@asynccontextmanager
async def open_forward(api: Api, key: Key, port: int) -> AsyncGenerator["KubernetesConnection", None]:
    """Connect to a port of a pod; leaving the block hangs up."""
    try:
        with anyio.fail_after(OPEN_WITHIN_S):
            socket = await connect_to_pod(api, key, "portforward", [("ports", str(port))], [V4])
    except (OSError, TimeoutError, InvalidHandshake) as error:
        raise PoolUnreachableError(f"The port could not be reached: {error or 'no answer'}.") from None
    try:
        yield KubernetesConnection(socket, port)
    finally:
        with anyio.CancelScope(shield=True), anyio.move_on_after(2):
            await socket.close()


class KubernetesConnection(StreamSession):
    """A connection to a port; its exit code stands for the end of what the program says."""

    def __init__(self, socket: ClientConnection, port: int) -> None:
        super().__init__()
        self._socket = socket
        self._port = port
        self._begun: set[int] = set()
        self._said_all_at: float | None = None

    async def send(self, data: bytes) -> None:
        """Send to the program; empty says that nothing more will come, which it is not told."""
        if not data:
            self._said_all_at = anyio.current_time()
        for start in range(0, len(data), PIECE_BYTES):
            try:
                await self._socket.send(bytes([DATA]) + data[start : start + PIECE_BYTES])
            except ConnectionClosed:
                return  # receive tells how

    async def hear(self) -> bytes | int | None:
        """Return what the next message says: a first byte names its channel."""
        message: bytes | None = None
        try:
            with anyio.move_on_after(LOOK_S):
                message = await self._socket.recv(decode=False)
        except ConnectionClosed:
            return 0
        if message is None:
            waited_s = anyio.current_time() - (self._said_all_at or anyio.current_time())
            return 0 if waited_s > LINGER_S else None
        if self._said_all_at is not None:
            self._said_all_at = anyio.current_time()
        channel, data = message[0], bytes(message[1:])
        if channel not in self._begun:
            self._begun.add(channel)
            data = data[HEAD_BYTES:]
        if channel == ERROR and data:
            raise self._refused(data.decode(errors="replace"))
        return data if channel == DATA and data else None

    def _refused(self, words: str) -> ConflictError:
        if "refused" in words:
            return ConflictError(
                f"Nothing listens on port {self._port} in the job.",
                remedy="Its program may not be ready, or listen on another port: see its log.",
            )
        return ConflictError(f"Port {self._port} in the job: {words}")
