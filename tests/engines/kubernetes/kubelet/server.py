"""The kubelet's own API, which the API server calls for logs, exec and statistics."""

import json
import ssl
from collections.abc import AsyncIterator
from http import HTTPStatus
from urllib.parse import parse_qs, urlsplit

import anyio
import anyio.abc
from anyio.streams.buffered import BufferedByteReceiveStream
from anyio.streams.stapled import StapledByteStream
from anyio.streams.tls import TLSListener, TLSStream

from engines.kubernetes.kubelet.exec import ExecQuery, SpdyChannels, WebsocketChannels, execute
from engines.kubernetes.kubelet.forward import forward
from engines.kubernetes.kubelet.logs import log_query, read_log
from engines.kubernetes.kubelet.node import Node
from engines.kubernetes.kubelet.statuses import Container
from engines.kubernetes.kubelet.usage import metrics, summary

HEAD_BYTES = 65536
GONE = (
    OSError,
    anyio.BrokenResourceError,
    anyio.ClosedResourceError,
    anyio.EndOfStream,
    anyio.IncompleteRead,
)
SPDY_ANSWER = (
    b"HTTP/1.1 101 Switching Protocols\r\nconnection: Upgrade\r\nupgrade: SPDY/3.1\r\n"
    b"x-stream-protocol-version: v4.channel.k8s.io\r\n\r\n"
)


class RefusedError(Exception):
    """A request that cannot be served, with the status to answer."""

    def __init__(self, status: HTTPStatus, why: str) -> None:
        super().__init__(why)
        self.status = status


class Server:
    """Answers for one node; only the cluster's own API server is let in."""

    def __init__(self, node: Node, context: ssl.SSLContext) -> None:
        self._node, self._context = node, context

    async def serve(self, address: str, *, task_status: anyio.abc.TaskStatus[int]) -> None:
        """Answer until cancelled; the port is the start value."""
        plain = await anyio.create_tcp_listener(local_host=address, local_port=0)
        async with TLSListener(plain, self._context, standard_compatible=False) as listener:
            task_status.started(plain.extra(anyio.abc.SocketAttribute.local_port))
            await listener.serve(self._connection)

    async def _connection(self, line: TLSStream) -> None:
        """Answer one request and hang up: few come, and none is in a hurry."""
        try:
            reader = BufferedByteReceiveStream(line)
            head = await reader.receive_until(b"\r\n\r\n", HEAD_BYTES) + b"\r\n\r\n"
            await self._answer(head, StapledByteStream(line, reader))
        except* GONE:
            print("a caller hung up before it had its answer", flush=True)
        finally:
            await line.aclose()

    async def _answer(self, head: bytes, line: StapledByteStream) -> None:
        url = urlsplit(head.split(b" ", 2)[1].decode())
        query = parse_qs(url.query)
        workers = self._node.workers()
        try:
            match url.path.strip("/").split("/"):
                case ["healthz"]:
                    await _say(line, "text/plain", _one(b"ok"))
                case ["stats", "summary"]:
                    body = json.dumps(summary(self._node.name, workers)).encode()
                    await _say(line, "application/json", _one(body))
                case ["metrics", "resource"]:
                    await _say(line, "text/plain; version=0.0.4", _one(metrics(workers).encode()))
                case ["containerLogs", namespace, pod, container]:
                    await self._logs(line, self._container(namespace, pod, container), query)
                case ["exec", namespace, pod, *_, container]:
                    await self._exec(line, head, self._container(namespace, pod, container), query)
                case ["portForward", namespace, pod, *_]:
                    await self._forward(line, head, namespace, pod, int(query["port"][0]))
                case _:
                    await _say(line, "text/plain", _one(b"no such path"), HTTPStatus.NOT_FOUND)
        except RefusedError as refusal:
            await _say(line, "text/plain", _one(str(refusal).encode()), refusal.status)

    def _container(self, namespace: str, pod: str, name: str) -> Container:
        worker = self._node.find(namespace, pod)
        container = worker.container(name) if worker is not None else None
        if container is None:
            raise RefusedError(HTTPStatus.NOT_FOUND, f"container {name} of pod {namespace}/{pod} not found")
        return container

    async def _logs(self, line: StapledByteStream, container: Container, query: dict[str, list[str]]) -> None:
        parameters = {key: values[-1] for key, values in query.items()}
        run = container.last if parameters.get("previous") == "true" else container.run
        if run is None or not run.log.exists():
            raise RefusedError(
                HTTPStatus.BAD_REQUEST, f"container {container.spec['name']} is waiting to start"
            )
        await _say(line, "text/plain", read_log(run.log, log_query(parameters), run.ended.is_set))

    async def _exec(
        self, line: StapledByteStream, head: bytes, container: Container, query: dict[str, list[str]]
    ) -> None:
        if container.run is None or not container.is_running:
            raise RefusedError(HTTPStatus.BAD_REQUEST, f"container {container.spec['name']} is not running")
        has = {key: query.get(key, ["0"])[-1] in ("1", "true") for key in ("input", "output", "error", "tty")}
        wanted = ExecQuery(query.get("command", []), stdin=has["input"], tty=has["tty"])
        if b"\r\nupgrade: websocket" in head.lower():
            channels = WebsocketChannels(line)
            await channels.open(head)
        else:
            await line.send(SPDY_ANSWER)
            channels = SpdyChannels(line, expected=1 + sum(has.values()))
            await channels.open()
        await execute(container.run, wanted, channels)

    async def _forward(
        self, line: StapledByteStream, head: bytes, namespace: str, pod: str, port: int
    ) -> None:
        if self._node.find(namespace, pod) is None:
            raise RefusedError(HTTPStatus.NOT_FOUND, f"pod {namespace}/{pod} not found")
        channels = WebsocketChannels(line)
        await channels.open(head)
        await forward(port, channels)


async def _say(
    line: StapledByteStream, kind: str, body: AsyncIterator[bytes], status: HTTPStatus = HTTPStatus.OK
) -> None:
    """Send a response whose end is the end of the connection, piece by piece."""
    head = f"HTTP/1.1 {status.value} {status.phrase}\r\ncontent-type: {kind}\r\ntransfer-encoding: chunked\r\nconnection: close\r\n\r\n"
    await line.send(head.encode())
    async for piece in body:
        await line.send(f"{len(piece):x}\r\n".encode() + piece + b"\r\n")
    await line.send(b"0\r\n\r\n")


async def _one(body: bytes) -> AsyncIterator[bytes]:
    yield body
