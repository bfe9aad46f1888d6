"""What the two transports share: ``BlockingTransport`` (http.client) and ``HttpxTransport`` (an event loop).

The client's methods are written once, as coroutines over ``Transport``. ``BlockingTransport`` never suspends, so a
coroutine over it runs to its end in one step (see ``run``): that is the whole sync client, without a thread.
"""

import contextlib
from collections.abc import AsyncGenerator, AsyncIterator, Coroutine, Generator, Mapping
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeVar
from urllib.parse import SplitResult, urlsplit

import msgspec

from yunhe.kernel.errors import InvalidInputError

if TYPE_CHECKING:
    from ssl import SSLContext

T = TypeVar("T")

CONNECT_S = 5.0
ANSWER_S = 60.0
SILENCE_S = 45.0
"""A stream says at least ``still here`` every 15 s; three missed ones mean the connection is dead."""
IDLE_S = 20.0
"""A connection nobody has used for so long is not used again: something between may have forgotten it."""
CHUNK_BYTES = 256 * 1024


class TransportError(Exception):
    """The exchange broke off; whether the server heard the call is not known."""


class NoConnectionError(TransportError):
    """No connection was made: the server has heard nothing."""


class Address(msgspec.Struct, frozen=True):
    """A server, the key to it, and how its certificate is checked."""

    url: str
    key: str = ""
    verify: bool | str | Path = True
    """Whether to check, or the file of the authority that signed the certificate."""

    def __repr__(self) -> str:
        return f"Address({self.url!r})"  # the key stays out of tracebacks

    def headers(self) -> dict[str, str]:
        """Return what every request carries."""
        return {"Authorization": f"Bearer {self.key}"} if self.key else {}

    def parts(self) -> SplitResult:
        """Return the address in its parts; raise when it is none."""
        try:
            parts = urlsplit(self.url)
            valid = parts.scheme in {"http", "https"} and bool(parts.hostname) and parts.port != 0
        except ValueError:
            valid, parts = False, urlsplit("")
        if not valid:
            raise InvalidInputError(
                f"{self.url!r} is not an address.", remedy="Write it like https://host:8600."
            )
        return parts

    def is_loopback(self) -> bool:
        """Return whether the server is on this machine."""
        return self.parts().hostname in {"127.0.0.1", "localhost", "::1"}

    def tls(self) -> "SSLContext | None":
        """Return how to check the server's certificate; None: there is none to check."""
        if self.parts().scheme != "https":
            return None
        import ssl  # noqa: PLC0415 - reading the system's authorities takes a while, and most servers are local

        context = ssl.create_default_context(cafile=None if isinstance(self.verify, bool) else self.verify)
        if self.verify is False:
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
        return context


class ApiCall(msgspec.Struct, frozen=True, kw_only=True):
    """One request, before anything is sent."""

    method: str
    path: str
    query: tuple[tuple[str, str], ...] = ()
    headers: dict[str, str] = {}
    body: bytes | None = None

    def own_headers(self) -> dict[str, str]:
        """Return the headers of this call: its own, and what its body says of itself."""
        described = dict[str, str]()
        if self.body is not None:
            described["Content-Type"] = "application/json"
        return described | self.headers


class Answer(Protocol):
    """What came back: all of it, or so far only its head."""

    @property
    def status(self) -> int:
        """Return the HTTP status."""
        ...

    @property
    def headers(self) -> Mapping[str, str]:
        """Return the headers, their names in lower case."""
        ...

    async def read(self) -> bytes:
        """Return the whole body."""
        ...

    def chunks(self) -> AsyncIterator[bytes]:
        """Yield the body as it comes."""
        ...


class Transport(Protocol):
    """Sends calls; what goes wrong on the way is a ``TransportError``."""

    def send(self, call: ApiCall, *, stream: bool = False) -> AbstractAsyncContextManager[Answer]:
        """Send *call*; the answer's body is read inside the block."""
        ...

    async def sleep(self, seconds: float) -> None:
        """Wait before another try."""
        ...

    async def close(self) -> None:
        """Let go of connections."""
        ...


def run(coroutine: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine over ``BlockingTransport`` to its end."""
    try:
        coroutine.send(None)
    except StopIteration as done:
        return done.value
    coroutine.close()
    raise RuntimeError("a coroutine over the blocking transport suspended")


def iterate(source: AsyncGenerator[T, None]) -> Generator[T, None, None]:
    """Yield what an async generator over ``BlockingTransport`` yields, and close it when the reader stops."""
    try:
        with contextlib.suppress(StopAsyncIteration):
            while True:
                yield run(_next(source))
    finally:
        run(source.aclose())


async def _next(source: AsyncGenerator[T, None]) -> T:
    return await anext(source)
