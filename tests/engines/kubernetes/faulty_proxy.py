"""A loopback proxy before an API server that can behave as networks and overloaded servers do.

It ends TLS with a certificate of the cluster's authority and opens its own connection to the API server, so it can
count and answer requests. Users with tokens pass; a client certificate does not get through.
"""

import contextlib
import re
import ssl
import time
from collections.abc import Generator
from dataclasses import dataclass, field
from typing import NamedTuple

import anyio
import anyio.abc
from anyio.from_thread import BlockingPortal, start_blocking_portal
from anyio.streams.buffered import BufferedByteReceiveStream
from anyio.streams.tls import TLSListener, TLSStream

from engines.kubernetes.cluster import Cluster, free_ports

HEAD_BYTES = 65536
GONE = (
    OSError,
    anyio.BrokenResourceError,
    anyio.ClosedResourceError,
    anyio.EndOfStream,
    anyio.IncompleteRead,
)


class Request(NamedTuple):
    """One request that a client made."""

    at_s: float
    method: str
    path: str


@dataclass
class Answer:
    """What the proxy says itself to requests whose ``METHOD path?query`` the pattern is found in."""

    pattern: str
    status: str
    headers: dict[str, str] = field(default_factory=dict[str, str])
    body: bytes = b""
    times: int = 1
    """How many more requests it answers."""

    def as_bytes(self) -> bytes:
        """Return the whole response."""
        headers = {"content-type": "application/json", **self.headers, "content-length": str(len(self.body))}
        lines = [f"HTTP/1.1 {self.status}", *(f"{name}: {value}" for name, value in headers.items()), "", ""]
        return "\r\n".join(lines).encode() + self.body


def too_many_requests(pattern: str, *, retry_after_s: int, times: int = 1) -> Answer:
    """Return what an API server says when its priority levels are full."""
    body = (
        b'{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"TooManyRequests","code":429,'
        b'"message":"Too many requests, please try again later."}'
    )
    headers = {"retry-after": str(retry_after_s)}
    return Answer(pattern, "429 Too Many Requests", headers, body, times)


class FaultyProxy:
    """Relays connections in a thread of its own; faults are switched on and off from any other."""

    def __init__(self, cluster: Cluster, portal: BlockingPortal) -> None:
        self._cluster, self._portal = cluster, portal
        self._outbound = ssl.create_default_context(cafile=str(cluster.authority.pair.certificate))
        self._connections: set[_Connection] = set()
        self.requests: list[Request] = []
        self.answers: list[Answer] = []
        self.delay_s = 0.0
        """How long each request waits before it is passed on."""
        self.is_silent = False
        """Take connections and requests and say nothing: a network that lost its way."""
        (self._port,) = free_ports(1)
        self.url = f"https://127.0.0.1:{self._port}"

    def count(self, pattern: str) -> int:
        """Return how many requests so far match: a hot loop shows here."""
        said = (f"{request.method} {request.path}" for request in list(self.requests))
        return sum(re.search(pattern, request) is not None for request in said)

    def half_open(self) -> None:
        """Make every connection of now dead without a word: nothing passes again, and nobody is told.

        New connections work, unless ``is_silent`` is set too.
        """
        for connection in list(self._connections):
            connection.is_dead = True

    def hang_up(self) -> None:
        """Close every connection of now."""
        for connection in list(self._connections):
            self._portal.call(connection.scope.cancel)

    async def listen(self, *, task_status: anyio.abc.TaskStatus[None]) -> None:
        """Take connections until cancelled."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(*map(str, self._cluster.server_pair))
        plain = await anyio.create_tcp_listener(local_host="127.0.0.1", local_port=self._port)
        async with TLSListener(plain, context, standard_compatible=False) as listener:
            task_status.started()
            await listener.serve(self._serve)

    async def _serve(self, client: TLSStream) -> None:
        try:
            server = await anyio.connect_tcp(
                "127.0.0.1", self._cluster.port, ssl_context=self._outbound, tls_standard_compatible=False
            )
            async with client, server, anyio.create_task_group() as tasks:
                connection = _Connection(client, server, tasks.cancel_scope)
                self._connections.add(connection)
                try:
                    tasks.start_soon(connection.relay_answers)
                    await self._relay_requests(connection)
                finally:
                    self._connections.discard(connection)
                    tasks.cancel_scope.cancel()
        except* GONE:
            await client.aclose()

    async def _relay_requests(self, connection: "_Connection") -> None:
        while head := await connection.read_head():
            method, path, *_ = head.split(b"\r\n", 1)[0].decode().split(" ")
            body = await connection.read_body(head)
            self.requests.append(Request(time.monotonic(), method, path))
            await anyio.sleep(self.delay_s)
            if self.is_silent:
                connection.is_dead = True
            answer = self._answer_to(f"{method} {path}")
            if answer is not None:
                await connection.say(answer.as_bytes())
                continue
            await connection.pass_on(head + body)
            if b"\r\nupgrade:" in head.lower():
                await connection.relay_rest()

    def _answer_to(self, request: str) -> Answer | None:
        for answer in self.answers:
            if answer.times > 0 and re.search(answer.pattern, request):
                answer.times -= 1
                return answer
        return None


class _Connection:
    """A client's line and the one to the API server that belongs to it."""

    def __init__(self, client: TLSStream, server: TLSStream, scope: anyio.CancelScope) -> None:
        self._client, self._server = client, server
        self._requests = BufferedByteReceiveStream(client)
        self.scope = scope
        self.is_dead = False

    async def read_head(self) -> bytes:
        """Return the next request up to its body; empty once the client has hung up."""
        try:
            return await self._requests.receive_until(b"\r\n\r\n", HEAD_BYTES) + b"\r\n\r\n"
        except (anyio.IncompleteRead, anyio.EndOfStream):
            return b""

    async def read_body(self, head: bytes) -> bytes:
        """Return the body that the head announces, as it stands on the wire."""
        if re.search(rb"\r\ntransfer-encoding: *chunked", head, re.IGNORECASE):
            return await self._read_chunks()
        found = re.search(rb"\r\ncontent-length: *(\d+)", head, re.IGNORECASE)
        return await self._requests.receive_exactly(int(found.group(1))) if found else b""

    async def _read_chunks(self) -> bytes:
        body = b""
        size = -1
        while size:
            line = await self._requests.receive_until(b"\r\n", HEAD_BYTES)
            size = int(line, 16)
            body += line + b"\r\n" + await self._requests.receive_exactly(size + 2)
        return body

    async def relay_rest(self) -> None:
        """Pass on bytes as they come: after an upgrade they are no requests."""
        async for data in self._requests:
            await self.pass_on(data)

    async def relay_answers(self) -> None:
        """Pass on what the API server says; when it hangs up, so do we, unless the client is not to know."""
        async for data in self._server:
            await self.say(data)
        if not self.is_dead:
            self.scope.cancel()

    async def say(self, data: bytes) -> None:
        """Tell the client."""
        if not self.is_dead:
            await self._client.send(data)

    async def pass_on(self, data: bytes) -> None:
        """Tell the API server."""
        if not self.is_dead:
            await self._server.send(data)


@contextlib.contextmanager
def faulty_proxy(cluster: Cluster) -> Generator[FaultyProxy]:
    """Run a proxy before *cluster*."""
    with start_blocking_portal() as portal:
        proxy = FaultyProxy(cluster, portal)
        listening, _ = portal.start_task(proxy.listen)
        try:
            yield proxy
        finally:
            listening.cancel()
