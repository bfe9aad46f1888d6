"""The two ways to reach a server: one that waits, one that awaits; both speak the same small protocol.

The client's methods are written once, as coroutines over ``Transport``. ``WaitingTransport`` never suspends, so a
coroutine over it runs to its end in one step (see ``run``): that is the whole sync client, without a thread.
"""

import contextlib
import ssl
import time
from collections.abc import AsyncGenerator, AsyncIterator, Coroutine, Generator, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol, TypeVar

import anyio
import httpx

T = TypeVar("T")

CONNECT_S = 5.0
ANSWER_S = 60.0
SILENCE_S = 45.0
"""A stream says at least ``still here`` every 15 s; three missed ones mean the connection is dead."""
CHUNK_BYTES = 256 * 1024


@dataclass(frozen=True, slots=True)
class Address:
    """A server, the key to it, and how its certificate is checked."""

    url: str
    key: str = field(default="", repr=False)
    verify: bool | str | Path = True
    """Whether to check, or the file of the authority that signed the certificate."""

    def headers(self) -> dict[str, str]:
        """Return what every request carries."""
        return {"Authorization": f"Bearer {self.key}"} if self.key else {}

    def is_loopback(self) -> bool:
        """Return whether the server is on this machine."""
        return httpx.URL(self.url).host in {"127.0.0.1", "localhost", "::1"}

    def tls(self) -> ssl.SSLContext | None:
        """Return how to check the server's certificate; None: there is none to check."""
        if not self.url.startswith("https"):
            return None
        context = ssl.create_default_context(cafile=None if isinstance(self.verify, bool) else self.verify)
        if self.verify is False:
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
        return context


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """One request, before anything is sent."""

    method: str
    path: str
    query: tuple[tuple[str, str], ...] = ()
    headers: dict[str, str] = field(default_factory=dict[str, str])
    body: bytes | None = None
    file: Path | None = None
    """Sent as the body, in chunks."""


class Answer(Protocol):
    """What came back: all of it, or so far only its head."""

    @property
    def status(self) -> int:
        """Return the HTTP status."""
        ...

    @property
    def headers(self) -> httpx.Headers:
        """Return the headers."""
        ...

    async def read(self) -> bytes:
        """Return the whole body."""
        ...

    def chunks(self) -> AsyncIterator[bytes]:
        """Yield the body as it comes."""
        ...


class Transport(Protocol):
    """Sends calls."""

    def send(self, call: Call, *, stream: bool = False) -> AbstractAsyncContextManager[Answer]:
        """Send *call*; the answer's body is read inside the block."""
        ...

    async def sleep(self, seconds: float) -> None:
        """Wait before another try."""
        ...

    async def close(self) -> None:
        """Let go of connections."""
        ...


def _options(address: Address) -> dict[str, Any]:
    return {
        "base_url": address.url,
        "headers": address.headers(),
        "verify": address.tls() or True,
        "trust_env": not address.is_loopback(),  # a proxy has nothing to do with this machine's own server
        "limits": httpx.Limits(max_connections=100, max_keepalive_connections=20, keepalive_expiry=20.0),
    }


def _chunks_of(path: Path) -> Iterator[bytes]:
    with path.open("rb") as source:
        while chunk := source.read(CHUNK_BYTES):
            yield chunk


def _request_options(call: Call, content: Any, *, stream: bool) -> dict[str, Any]:
    headers = dict(call.headers)
    if call.body is not None:
        headers.setdefault("Content-Type", "application/json")
    if call.file is not None:
        headers.setdefault("Content-Length", str(call.file.stat().st_size))
    return {
        "method": call.method,
        "url": call.path,
        "params": list(call.query),
        "headers": headers,
        "content": content,
        "timeout": httpx.Timeout(SILENCE_S if stream else ANSWER_S, connect=CONNECT_S),
    }


class _AwaitedAnswer:
    def __init__(self, response: httpx.Response) -> None:
        self._response = response
        self.status = response.status_code
        self.headers = response.headers

    async def read(self) -> bytes:
        return await self._response.aread()

    async def chunks(self) -> AsyncGenerator[bytes, None]:
        async for chunk in self._response.aiter_bytes():
            yield chunk


class AwaitingTransport:
    """For programs that run an event loop."""

    def __init__(self, address: Address) -> None:
        self._http = httpx.AsyncClient(**_options(address))

    @asynccontextmanager
    async def send(self, call: Call, *, stream: bool = False) -> AsyncGenerator[Answer, None]:
        """Send *call*; the answer's body is read inside the block."""
        content = _chunks_in_turn(call.file) if call.file is not None else call.body
        async with self._http.stream(**_request_options(call, content, stream=stream)) as response:
            yield _AwaitedAnswer(response)

    async def sleep(self, seconds: float) -> None:
        """Wait before another try."""
        await anyio.sleep(seconds)

    async def close(self) -> None:
        """Let go of connections."""
        await self._http.aclose()


async def _chunks_in_turn(path: Path) -> AsyncGenerator[bytes, None]:
    async with await anyio.open_file(path, "rb") as source:
        while chunk := await source.read(CHUNK_BYTES):
            yield chunk


class _WaitedAnswer:
    def __init__(self, response: httpx.Response) -> None:
        self._response = response
        self.status = response.status_code
        self.headers = response.headers

    async def read(self) -> bytes:
        return self._response.read()

    async def chunks(self) -> AsyncGenerator[bytes, None]:
        for chunk in self._response.iter_bytes():
            yield chunk


class WaitingTransport:
    """For scripts and the command line: nothing here ever suspends."""

    def __init__(self, address: Address) -> None:
        self._http = httpx.Client(**_options(address))

    @asynccontextmanager
    async def send(self, call: Call, *, stream: bool = False) -> AsyncGenerator[Answer, None]:
        """Send *call*; the answer's body is read inside the block."""
        content = _chunks_of(call.file) if call.file is not None else call.body
        with self._http.stream(**_request_options(call, content, stream=stream)) as response:
            yield _WaitedAnswer(response)

    async def sleep(self, seconds: float) -> None:
        """Wait before another try."""
        time.sleep(seconds)  # noqa: ASYNC251 - this transport is the one that waits

    async def close(self) -> None:
        """Let go of connections."""
        self._http.close()


def run(coroutine: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine over ``WaitingTransport`` to its end."""
    try:
        coroutine.send(None)
    except StopIteration as done:
        return done.value
    coroutine.close()
    raise RuntimeError("a coroutine over the waiting transport suspended")


def iterate(source: AsyncGenerator[T, None]) -> Generator[T, None, None]:
    """Yield what an async generator over ``WaitingTransport`` yields, and close it when the reader stops."""
    try:
        with contextlib.suppress(StopAsyncIteration):
            while True:
                yield run(_next(source))
    finally:
        run(source.aclose())


async def _next(source: AsyncGenerator[T, None]) -> T:
    return await anext(source)
