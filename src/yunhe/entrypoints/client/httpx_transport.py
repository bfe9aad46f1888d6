"""Reaching a server from a program that runs an event loop."""

from collections.abc import AsyncGenerator, Generator
from contextlib import asynccontextmanager, contextmanager
from typing import TYPE_CHECKING

from yunhe.entrypoints.client.transport import (
    ANSWER_S,
    CONNECT_S,
    IDLE_S,
    SILENCE_S,
    Address,
    Answer,
    ApiCall,
    NoConnectionError,
    TransportError,
)

if TYPE_CHECKING:  # httpx and anyio are loaded by programs with an event loop, not by the command line
    import httpx


class HttpxTransport:
    """For programs that run an event loop."""

    def __init__(self, address: Address) -> None:
        import httpx  # noqa: PLC0415 - as said above

        self._http = httpx.AsyncClient(
            base_url=address.url,
            headers=address.headers(),
            verify=address.tls() or True,
            trust_env=not address.is_loopback(),  # a proxy has nothing to do with this machine's own server
            limits=httpx.Limits(max_connections=100, max_keepalive_connections=20, keepalive_expiry=IDLE_S),
        )

    @asynccontextmanager
    async def send(self, call: ApiCall, *, stream: bool = False) -> AsyncGenerator[Answer, None]:
        """Send *call*; the answer's body is read inside the block."""
        import httpx  # noqa: PLC0415 - loaded by now

        request = self._http.build_request(
            call.method,
            call.path,
            params=list(call.query),
            headers=call.own_headers(),
            content=call.body,
            timeout=httpx.Timeout(SILENCE_S if stream else ANSWER_S, connect=CONNECT_S),
        )
        with _as_transport_error():
            response = await self._http.send(request, stream=True)
        try:
            yield _HttpxAnswer(response)
        finally:
            await response.aclose()

    async def sleep(self, seconds: float) -> None:
        """Wait before another try."""
        import anyio  # noqa: PLC0415 - as said above

        await anyio.sleep(seconds)

    async def close(self) -> None:
        """Let go of connections."""
        await self._http.aclose()


class _HttpxAnswer:
    def __init__(self, response: "httpx.Response") -> None:
        self._response = response
        self.status = response.status_code
        self.headers = {name.lower(): value for name, value in response.headers.items()}

    async def read(self) -> bytes:
        with _as_transport_error():
            return await self._response.aread()

    async def chunks(self) -> AsyncGenerator[bytes, None]:
        with _as_transport_error():
            async for chunk in self._response.aiter_bytes():
                yield chunk


@contextmanager
def _as_transport_error() -> Generator[None]:
    import httpx  # noqa: PLC0415 - loaded by now

    try:
        yield
    except (httpx.ConnectError, httpx.ConnectTimeout) as error:
        raise NoConnectionError(str(error)) from error
    except httpx.TransportError as error:
        raise TransportError(str(error) or type(error).__name__) from error
