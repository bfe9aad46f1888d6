"""A command beside an allocation, over the channels that the API server multiplexes on a websocket."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import urlencode

import anyio
import msgspec
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, InvalidHandshake
from websockets.typing import Subprotocol

from yunhe.infrastructure.contract.model import ExecRequest
from yunhe.infrastructure.contract.sessions import StreamSession
from yunhe.infrastructure.kubernetes.api.answers import decode
from yunhe.infrastructure.kubernetes.api.client import Api
from yunhe.infrastructure.kubernetes.api.shapes import Key
from yunhe.infrastructure.kubernetes.objects import names
from yunhe.infrastructure.kubernetes.objects.pods import path_of
from yunhe.kernel.errors import PoolUnreachableError, UnsupportedError

STDIN, STDOUT, STDERR, ERROR, RESIZE, CLOSE = 0, 1, 2, 3, 4, 255
V5, V4 = Subprotocol("v5.channel.k8s.io"), Subprotocol("v4.channel.k8s.io")
OPEN_WITHIN_S = 15.0


class _Cause(msgspec.Struct, frozen=True):
    reason: str = ""
    message: str = ""


class _Details(msgspec.Struct, frozen=True):
    causes: tuple[_Cause, ...] = ()


class _Outcome(msgspec.Struct, frozen=True):
    """What comes over the error channel at the end."""

    status: str = ""
    message: str = ""
    details: _Details | None = None


@asynccontextmanager
async def open_exec(
    api: Api, key: Key, request: ExecRequest, container: str = names.CONTAINER
) -> AsyncGenerator["KubernetesSession", None]:
    """Run a command in a container; leaving the block hangs up, which ends it."""
    try:
        with anyio.fail_after(OPEN_WITHIN_S):
            socket = await _connect(api, key, request, container)
    except (OSError, TimeoutError, InvalidHandshake) as error:
        raise PoolUnreachableError(f"The command could not be started: {error or 'no answer'}.") from None
    try:
        session = KubernetesSession(socket)
        if request.tty:
            await session.resize(request.rows, request.columns)
        yield session
    finally:
        with anyio.CancelScope(shield=True), anyio.move_on_after(2):
            await socket.close()


async def _connect(api: Api, key: Key, request: ExecRequest, container: str) -> ClientConnection:
    query: list[tuple[str, str]] = [("container", container)]
    query += [("command", word) for word in request.argv]
    query += [("stdin", "true"), ("stdout", "true")]
    query.append(("tty", "true") if request.tty else ("stderr", "true"))
    return await connect_to_pod(api, key, "exec", query, [V5, V4])


async def connect_to_pod(
    api: Api, key: Key, subresource: str, query: list[tuple[str, str]], protocols: list[Subprotocol]
) -> ClientConnection:
    """Return a websocket to a subresource of a pod."""
    token = await api.credentials.token()
    options: dict[str, Any] = {"proxy": api.access.proxy_url or None}
    if api.tls is not None:
        options["ssl"] = api.tls
    if api.access.tls_server_name:
        options["server_hostname"] = api.access.tls_server_name
    return await connect(
        f"{api.access.server.replace('http', 'ws', 1)}{path_of('pods', key, subresource)}?{urlencode(query)}",
        subprotocols=protocols,
        additional_headers={"authorization": f"Bearer {token}"} if token else {},
        max_size=None,
        compression=None,
        open_timeout=OPEN_WITHIN_S,
        **options,
    )


class KubernetesSession(StreamSession):
    """A command running beside an allocation."""

    def __init__(self, socket: ClientConnection) -> None:
        super().__init__()
        self._socket = socket

    async def send(self, data: bytes) -> None:
        """Write to its standard input; empty closes it."""
        if data:
            await self._say(STDIN, data)
        elif self._socket.subprotocol == V5:
            await self._say(CLOSE, bytes([STDIN]))
        else:
            raise UnsupportedError(
                "This API server cannot close a command's input.",
                remedy="It needs the protocol v5.channel.k8s.io, which is there from Kubernetes 1.30 on.",
            )

    async def resize(self, rows: int, columns: int) -> None:
        """Tell its terminal the new size."""
        await self._say(RESIZE, msgspec.json.encode({"Width": columns, "Height": rows}))

    async def hear(self) -> bytes | int | None:
        """Return what the next message says: a first byte names its channel."""
        try:
            message = await self._socket.recv(decode=False)
        except ConnectionClosed as error:
            raise PoolUnreachableError(f"The connection to the command was cut: {error}.") from None
        channel, data = message[0], bytes(message[1:])
        if channel == ERROR:
            return _exit_code(data)
        return data if channel in (STDOUT, STDERR) and data else None

    async def _say(self, channel: int, data: bytes) -> None:
        try:
            await self._socket.send(bytes([channel]) + data)
        except ConnectionClosed:
            return  # it has ended; receive tells how


def _exit_code(data: bytes) -> int:
    outcome = decode(data, _Outcome)
    if outcome.status == "Success":
        return 0
    for cause in outcome.details.causes if outcome.details is not None else ():
        if cause.reason == "ExitCode":
            return int(cause.message)
    raise PoolUnreachableError(f"The command could not be run: {outcome.message}.")
