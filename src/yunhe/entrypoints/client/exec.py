"""A command beside a running job, or a connection into it: bytes both ways over a WebSocket."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING

import msgspec

from yunhe.control.pools.model import ExecRequest
from yunhe.entrypoints.client.errors import error_of, unreachable
from yunhe.entrypoints.client.transport import Address

if TYPE_CHECKING:
    from websockets.asyncio.client import ClientConnection


class _Word(msgspec.Struct, frozen=True):
    """What a text message of the server may say."""

    connected: bool = False
    eof: bool = False
    exit: int | None = None
    problem: msgspec.Raw = msgspec.Raw(b"{}")


class _SocketStream:
    """One WebSocket to the server."""

    def __init__(self, socket: "ClientConnection", url: str) -> None:
        self._socket = socket
        self._url = url

    async def send(self, data: bytes) -> None:
        """Send to the far side; empty tells it that nothing more will come."""
        await self.tell(data or '{"eof":true}')

    async def tell(self, message: str | bytes) -> None:
        """Send *message*; where the server has already ended the command or refused it, ``receive`` says how."""
        from websockets.exceptions import ConnectionClosed  # noqa: PLC0415 - loaded by now

        with suppress(ConnectionClosed):
            await self._socket.send(message)

    async def hear(self) -> bytes | _Word:
        """Return the next message; raise what the server refuses, or that it is gone."""
        from websockets.exceptions import ConnectionClosed  # noqa: PLC0415 - loaded by now

        try:
            message = await self._socket.recv()
        except ConnectionClosed as error:
            raise unreachable(self._url, error) from error
        if isinstance(message, bytes):
            return message
        word = msgspec.json.decode(message, type=_Word)
        if word == _Word(problem=word.problem):
            raise error_of(500, bytes(word.problem))
        return word


class ExecStream(_SocketStream):
    """A command that runs beside a job; sending nothing closes its standard input."""

    exit_code: int | None = None
    """Set once ``receive`` has returned nothing."""

    async def resize(self, rows: int, columns: int) -> None:
        """Tell its terminal the new size."""
        await self.tell(msgspec.json.encode({"resize": (rows, columns)}).decode())

    async def receive(self) -> bytes:
        """Return some of its output; empty once it has ended."""
        if self.exit_code is not None:
            return b""
        said = await self.hear()
        if isinstance(said, bytes):
            return said
        self.exit_code = said.exit
        return b""


class ForwardStream(_SocketStream):
    """A connection to a port inside a job."""

    async def receive(self) -> bytes:
        """Return some of what the program has sent; empty once it has said all."""
        said = await self.hear()
        return said if isinstance(said, bytes) else b""


@asynccontextmanager
async def open_exec(address: Address, path: str, request: ExecRequest) -> AsyncGenerator[ExecStream, None]:
    """Run a command; leaving the block ends it."""
    async with _open_socket(address, path) as socket:
        stream = ExecStream(socket, address.url)
        await stream.tell(msgspec.json.encode(request).decode())
        yield stream


@asynccontextmanager
async def open_forward(address: Address, path: str) -> AsyncGenerator[ForwardStream, None]:
    """Connect to a port; leaving the block hangs up."""
    async with _open_socket(address, path) as socket:
        stream = ForwardStream(socket, address.url)
        await stream.hear()
        yield stream


@asynccontextmanager
async def _open_socket(address: Address, path: str) -> AsyncGenerator["ClientConnection", None]:
    from websockets.asyncio.client import connect  # noqa: PLC0415 - 70 ms that nothing but this needs
    from websockets.exceptions import WebSocketException  # noqa: PLC0415 - likewise

    try:
        opening = await connect(
            "ws" + address.url.removeprefix("http") + path,
            additional_headers=address.headers(),
            ssl=address.tls(),
            proxy=None if address.is_loopback() else True,
            max_size=None,
            compression=None,
        )
    except (OSError, WebSocketException) as error:
        raise unreachable(address.url, error) from error
    async with opening as socket:
        yield socket
