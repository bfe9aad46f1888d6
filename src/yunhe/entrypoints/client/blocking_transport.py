"""Reaching a server from a script or the command line, with the standard library: it is there at once."""

import select
import time
from collections.abc import AsyncGenerator, Generator, Mapping
from contextlib import asynccontextmanager, contextmanager, suppress
from http.client import HTTPConnection, HTTPException, HTTPResponse, HTTPSConnection
from typing import NamedTuple
from urllib.parse import urlencode

from yunhe.entrypoints.client.proxies import proxy_for
from yunhe.entrypoints.client.transport import (
    ANSWER_S,
    CHUNK_BYTES,
    CONNECT_S,
    IDLE_S,
    SILENCE_S,
    Address,
    Answer,
    ApiCall,
    NoConnectionError,
    TransportError,
    run,
)

PROBE_S = 5.0


class _Idle(NamedTuple):
    connection: HTTPConnection
    since_s: float


class ProbeAnswer(NamedTuple):
    """What a server says of itself to whoever asks without a key."""

    status: int
    headers: Mapping[str, str]
    body: bytes


def probe(url: str, *, verify: bool | str = True, direct: bool = False) -> ProbeAnswer:
    """Ask once whether the server at *url* is ready; raise a ``TransportError`` when it does not answer soon."""
    return run(_ask_ready(BlockingTransport(Address(url, verify=verify), answer_s=PROBE_S, direct=direct)))


async def _ask_ready(transport: "BlockingTransport") -> ProbeAnswer:
    async with transport.send(ApiCall(method="GET", path="/ready")) as answer:
        heard = ProbeAnswer(answer.status, answer.headers, await answer.read())
    await transport.close()
    return heard


class BlockingTransport:
    """Nothing here ever suspends. Connections that are free are used again; threads may share a transport."""

    def __init__(self, address: Address, *, answer_s: float = ANSWER_S, direct: bool = False) -> None:
        self._parts = address.parts()
        self._tls = address.tls()
        self._headers = address.headers()
        self._proxy = None if direct else proxy_for(address)
        self._answer_s = answer_s
        self._idle: list[_Idle] = []

    @asynccontextmanager
    async def send(self, call: ApiCall, *, stream: bool = False) -> AsyncGenerator[Answer, None]:
        """Send *call*; the answer's body is read inside the block."""
        connection = self._connection()
        answer: _BlockingAnswer | None = None
        try:
            connection.sock.settimeout(SILENCE_S if stream else self._answer_s)
            with _as_transport_error():
                answer = _BlockingAnswer(self._exchange(connection, call))
            yield answer
        finally:
            if answer is not None and answer.finish():
                self._idle.append(_Idle(connection, time.monotonic()))
            else:
                connection.close()

    async def sleep(self, seconds: float) -> None:
        """Wait before another try."""
        time.sleep(seconds)  # noqa: ASYNC251 - this transport blocks by design

    async def close(self) -> None:
        """Let go of connections."""
        while self._idle:
            self._idle.pop().connection.close()

    def _connection(self) -> HTTPConnection:
        with suppress(IndexError):  # until none is free
            while True:
                connection, since_s = self._idle.pop()
                if time.monotonic() - since_s < IDLE_S and not _has_been_closed(connection):
                    return connection
                connection.close()
        return self._connect()

    def _connect(self) -> HTTPConnection:
        host = self._parts.hostname or ""
        port = self._parts.port or (80 if self._tls is None else 443)
        to, at = (host, port) if self._proxy is None else (self._proxy.host, self._proxy.port)
        if self._tls is None:
            connection = HTTPConnection(to, at, timeout=CONNECT_S, blocksize=CHUNK_BYTES)
        else:
            connection = HTTPSConnection(to, at, timeout=CONNECT_S, blocksize=CHUNK_BYTES, context=self._tls)
            if self._proxy is not None:
                connection.set_tunnel(host, port, self._proxy.headers)
        try:
            connection.connect()
        except (OSError, HTTPException, ValueError) as error:  # the last: a name that no host can have
            connection.close()
            raise NoConnectionError(str(error)) from error
        return connection

    def _exchange(self, connection: HTTPConnection, call: ApiCall) -> HTTPResponse:
        path = self._parts.path.rstrip("/") + call.path
        target = f"{path}?{urlencode(call.query)}" if call.query else path
        headers = self._headers | call.own_headers()
        if self._proxy is not None and self._tls is None:
            target, headers = f"http://{self._parts.netloc}{target}", headers | self._proxy.headers
        with suppress(BrokenPipeError, ConnectionResetError):  # refused before all was sent: hear why
            connection.request(call.method, target, call.body, headers)
        response = connection.getresponse()
        if response.length is None and not response.chunked:  # a cut could not be told from the end
            response.close()
            raise TransportError("the answer does not say where it ends")
        return response


class _BlockingAnswer:
    def __init__(self, response: HTTPResponse) -> None:
        self._response = response
        self._left_bytes = response.length
        self.status = response.status
        self.headers = {name.lower(): value for name, value in response.getheaders()}
        if self._left_bytes == 0:
            response.close()  # nothing to read, and the connection is free

    def finish(self) -> bool:
        """Let go of the answer; return whether another call may use the connection: all was read, and it stays open."""
        all_was_read = self._response.isclosed()
        self._response.close()
        return all_was_read and not self._response.will_close

    async def read(self) -> bytes:
        with _as_transport_error():
            return self._response.read()

    async def chunks(self) -> AsyncGenerator[bytes, None]:
        with _as_transport_error():
            while chunk := self._next_chunk():
                yield chunk

    def _next_chunk(self) -> bytes:
        """Return what has come; empty at the end. The length is counted here, as not every Python's ``read1`` does."""
        if self._left_bytes is None:
            return self._response.read1(CHUNK_BYTES)
        chunk = self._response.read1(min(self._left_bytes, CHUNK_BYTES)) if self._left_bytes else b""
        if self._left_bytes and not chunk:
            raise TransportError(f"the answer broke off {self._left_bytes} bytes before its end")
        self._left_bytes -= len(chunk)
        if not self._left_bytes:
            self._response.close()
        return chunk


@contextmanager
def _as_transport_error() -> Generator[None]:
    try:
        yield
    except (OSError, HTTPException) as error:
        raise TransportError(str(error) or type(error).__name__) from error


def _has_been_closed(connection: HTTPConnection) -> bool:
    """Return whether the server closed a connection meanwhile: it has nothing else to say to one that is free."""
    poll = select.poll()
    poll.register(connection.sock, select.POLLIN)
    return bool(poll.poll(0))
