"""Connections to one server, each used by one request at a time and taken from the top of a pile.

The pool that httpx brings looks at every connection for every request, which is more work than the requests
themselves once there are thirty. Here the last one that was used is the next one to be used, and nobody looks at the
others; the limiter bounds how many there are.
"""

import ssl
from collections.abc import AsyncIterator
from typing import cast

import anyio
import httpx

IDLE_S = 60.0


class ConnectionPool(httpx.AsyncBaseTransport):
    """Sends each request over the connection that was free last."""

    def __init__(self, tls: ssl.SSLContext | None, proxy_url: str = "") -> None:
        self._tls = tls
        self._proxy = httpx.Proxy(proxy_url) if proxy_url else None
        self._idle: list[httpx.AsyncHTTPTransport] = []
        self._closed = False

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        """Send a request; its connection is free again once the answer has been read or let go."""
        connection = self._idle.pop() if self._idle else self._open()
        try:
            response = await connection.handle_async_request(request)
        except BaseException:
            with anyio.CancelScope(shield=True):
                await connection.aclose()
            raise
        response.stream = _Returning(cast("httpx.AsyncByteStream", response.stream), self, connection)
        return response

    async def aclose(self) -> None:
        """Close every connection that is free; those in use close when they are let go."""
        self._closed = True
        while self._idle:
            await self._idle.pop().aclose()

    async def take_back(self, connection: httpx.AsyncHTTPTransport) -> None:
        """Have a connection again that somebody is done with."""
        if self._closed:
            await connection.aclose()
        else:
            self._idle.append(connection)

    def _open(self) -> httpx.AsyncHTTPTransport:
        limits = httpx.Limits(max_connections=1, max_keepalive_connections=1, keepalive_expiry=IDLE_S)
        return httpx.AsyncHTTPTransport(
            verify=self._tls or True, limits=limits, proxy=self._proxy, trust_env=False
        )


class _Returning(httpx.AsyncByteStream):
    """An answer that gives its connection back when it is closed."""

    def __init__(
        self, stream: httpx.AsyncByteStream, pool: ConnectionPool, connection: httpx.AsyncHTTPTransport
    ) -> None:
        self._stream = stream
        self._pool = pool
        self._connection: httpx.AsyncHTTPTransport | None = connection

    async def __aiter__(self) -> AsyncIterator[bytes]:
        async for data in self._stream:
            yield data

    async def aclose(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            try:
                await self._stream.aclose()
            finally:
                await self._pool.take_back(connection)
