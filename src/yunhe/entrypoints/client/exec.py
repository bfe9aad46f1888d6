"""A command beside a running job: bytes both ways over a WebSocket."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING

import msgspec

from yunhe.control.pools.model import ExecRequest
from yunhe.entrypoints.client.errors import error_of, unreachable
from yunhe.entrypoints.client.transport import Address

if TYPE_CHECKING:
    from websockets.asyncio.client import ClientConnection


class _Ending(msgspec.Struct, frozen=True):
    exit: int | None = None
    problem: msgspec.Raw = msgspec.Raw()


class ExecStream:
    """A command that runs beside a job."""

    def __init__(self, socket: "ClientConnection", url: str) -> None:
        self._socket = socket
        self._url = url
        self.exit_code: int | None = None
        """Set once ``receive`` has returned nothing."""

    async def send(self, data: bytes) -> None:
        """Write to its standard input; empty closes it."""
        await self.tell(data or '{"eof":true}')

    async def resize(self, rows: int, columns: int) -> None:
        """Tell its terminal the new size."""
        await self.tell(msgspec.json.encode({"resize": (rows, columns)}).decode())

    async def tell(self, message: str | bytes) -> None:
        """Send *message*; where the server has already ended the command or refused it, ``receive`` says how."""
        from websockets.exceptions import ConnectionClosed  # noqa: PLC0415 - loaded by now

        with suppress(ConnectionClosed):
            await self._socket.send(message)

    async def receive(self) -> bytes:
        """Return some of its output; empty once it has ended."""
        from websockets.exceptions import ConnectionClosed  # noqa: PLC0415 - loaded by now

        if self.exit_code is not None:
            return b""
        try:
            message = await self._socket.recv()
        except ConnectionClosed as error:
            raise unreachable(self._url, error) from error
        if isinstance(message, bytes):
            return message
        ending = msgspec.json.decode(message, type=_Ending)
        if ending.exit is None:
            raise error_of(500, bytes(ending.problem))
        self.exit_code = ending.exit
        return b""


@asynccontextmanager
async def open_exec(address: Address, path: str, request: ExecRequest) -> AsyncGenerator[ExecStream, None]:
    """Run a command; leaving the block ends it."""
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
        stream = ExecStream(socket, address.url)
        await stream.tell(msgspec.json.encode(request).decode())
        yield stream
