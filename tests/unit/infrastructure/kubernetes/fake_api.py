"""An API server in this process, strict about versions: what has been forgotten is 410, what has changed is 409."""

import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

import anyio
from anyio.abc import SocketAttribute, SocketStream
from anyio.streams.buffered import BufferedByteReceiveStream

Body = dict[str, Any]


class FakeApi:
    """Objects by path, a history of what happened to them, and switches for what may go wrong."""

    def __init__(self) -> None:
        self.url = ""
        self.version = 100
        self.objects: dict[str, Body] = {}
        self.history: list[tuple[int, str, str, Body]] = []
        self.forgotten = 0
        """Versions up to this one have expired."""
        self.requests: list[str] = []
        self.connections = 0
        self.delay_s = 0.0
        self.answers: list[tuple[str, int, dict[str, str], Body | bytes]] = []
        """Answers for requests that contain a text, each given once."""
        self.lists_as_watches = True
        self.broken_streaming_list = False
        self.expired_in_stream = True
        """Whether an expired version is told inside the stream, or as the status of the answer."""
        self.closes_at_once = False
        self.silent = False
        self.page_expires = False
        self.heads: list[dict[str, str]] = []
        self._news = anyio.Event()
        self._hang_up = anyio.Event()

    # What a test does to it

    def put(self, path: str, body: Body) -> Body:
        """Create or change an object."""
        self.version += 1
        kind = "MODIFIED" if path in self.objects else "ADDED"
        held = self.objects.get(path, {})
        metadata = {"uid": f"uid-{self.version}"} | held.get("metadata", {}) | body.get("metadata", {})
        folder, _, name = path.rpartition("/")
        metadata |= {"name": name, "resourceVersion": str(self.version)}
        parts = folder.split("/")
        if "namespaces" in parts[:-1]:
            metadata["namespace"] = parts[parts.index("namespaces") + 1]
        body = self.objects[path] = held | body | {"metadata": metadata}
        self._happened(kind, path, body)
        return body

    def remove(self, path: str) -> None:
        """Delete an object."""
        self.version += 1
        body = self.objects.pop(path)
        body = body | {"metadata": body["metadata"] | {"resourceVersion": str(self.version)}}
        self._happened("DELETED", path, body)

    def send_bookmark(self, collection: str) -> None:
        """Tell every watch of a collection which version it is at."""
        body = {"metadata": {"resourceVersion": str(self.version)}}
        self._happened("BOOKMARK", f"{collection}/-", body)

    def forget(self) -> None:
        """Expire every version so far."""
        self.version += 1
        self.forgotten = self.version

    def hang_up(self) -> None:
        """Close every watch, as a server does that restarts or has held them long enough."""
        self._hang_up.set()
        self._hang_up = anyio.Event()

    def count(self, text: str) -> int:
        """Return how many requests contain a text."""
        return sum(text in request for request in self.requests)

    def _happened(self, kind: str, path: str, body: Body) -> None:
        self.history.append((self.version, kind, path, body))
        self._news.set()
        self._news = anyio.Event()

    # HTTP

    async def serve(self, stream: SocketStream) -> None:
        self.connections += 1
        reader = BufferedByteReceiveStream(stream)
        async with stream:
            try:
                while True:
                    head = (await reader.receive_until(b"\r\n\r\n", 65536)).decode()
                    first, *lines = head.split("\r\n")
                    method, target, _ = first.split(" ", 2)
                    headers = {
                        name.lower(): text.strip()
                        for name, _, text in (line.partition(":") for line in lines)
                    }
                    length = int(headers.get("content-length", "0"))
                    body = json.loads(await reader.receive_exactly(length)) if length else {}
                    self.requests.append(f"{method} {unquote(target)}")
                    self.heads.append(headers)
                    url = urlsplit(target)
                    query = {name: values[-1] for name, values in parse_qs(url.query).items()}
                    if not await self._handle(stream, method, url.path, query, body):
                        return
            except (
                anyio.EndOfStream,
                anyio.IncompleteRead,
                anyio.BrokenResourceError,
                anyio.ClosedResourceError,
            ):
                return

    async def _handle(
        self, stream: SocketStream, method: str, path: str, query: dict[str, str], body: Body
    ) -> bool:
        whole = self.requests[-1]
        await anyio.sleep(self.delay_s)
        for answer in self.answers:
            if answer[0] in whole:
                self.answers.remove(answer)
                await say(stream, answer[1], answer[3], answer[2])
                return True
        if query.get("watch"):
            await self._watch(stream, path, query)
            return False
        status, answer_body = self._answer(method, path, query, body)
        await say(stream, status, answer_body)
        return True

    def _answer(self, method: str, path: str, query: dict[str, str], body: Body) -> tuple[int, Body]:
        if method == "GET":
            if path in self.objects:
                return 200, self.objects[path]
            if path.rpartition("/")[2] in ("pods", "configmaps", "nodes", "secrets"):
                return self._list(path, query)
            return failure(404, "NotFound")
        if method == "POST":
            target = f"{path}/{body['metadata']['name']}"
            if target in self.objects:
                return failure(409, "AlreadyExists")
            return 201, self.put(target, body)
        if method == "PATCH":
            held = self.objects.get(path, {"metadata": {}})
            wanted = body.get("metadata", {}).pop("resourceVersion", None)
            if wanted is not None and wanted != held["metadata"].get("resourceVersion"):
                return failure(409, "Conflict")
            return 200, self.put(path, merge(held, body))
        if path not in self.objects:
            return failure(404, "NotFound")
        uid = body.get("preconditions", {}).get("uid")
        if uid is not None and uid != self.objects[path]["metadata"]["uid"]:
            return failure(409, "Conflict")
        self.remove(path)
        return 200, {"kind": "Status", "status": "Success"}

    def _list(self, path: str, query: dict[str, str]) -> tuple[int, Body]:
        items = [body for name, body in sorted(self.objects.items()) if belongs(name, path)]
        limit = int(query.get("limit", "0")) or len(items)
        start = int(query.get("continue", "0"))
        if start and self.page_expires:
            self.page_expires = False
            return failure(410, "Expired")
        more = str(start + limit) if start + limit < len(items) else ""
        metadata = {"resourceVersion": str(self.version), "continue": more}
        return 200, {"kind": "List", "metadata": metadata, "items": items[start : start + limit]}

    async def _watch(self, stream: SocketStream, path: str, query: dict[str, str]) -> None:
        initial = query.get("sendInitialEvents") == "true"
        since = int(query.get("resourceVersion", "0"))
        if initial and not self.lists_as_watches:
            await say(stream, *failure(422, "Invalid"))
            return
        expired = not initial and since < self.forgotten
        if expired and not self.expired_in_stream:
            await say(stream, *failure(410, "Expired"))
            return
        await stream.send(
            b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ntransfer-encoding: chunked\r\n\r\n"
        )
        if self.closes_at_once:
            await stream.send(b"0\r\n\r\n")
            return
        if expired:
            await event(stream, "ERROR", failure(410, "Expired")[1])
        elif initial and self.broken_streaming_list:
            await event(stream, "ERROR", failure(500, "InternalError")[1])
        else:
            await self._follow(stream, path, since, initial=initial)
        await stream.send(b"0\r\n\r\n")

    async def _follow(self, stream: SocketStream, path: str, since: int, *, initial: bool) -> None:
        hang_up = self._hang_up
        if initial:
            for name, body in sorted(self.objects.items()):
                if belongs(name, path):
                    await event(stream, "ADDED", body)
            since = self.version
            await self.bookmark(stream, since, complete=True)
        while not hang_up.is_set():
            news = self._news
            if not self.silent:
                for version, kind, name, body in list(self.history):
                    if version > since and belongs(name, path):
                        await event(stream, kind, body)
                        since = version
            async with anyio.create_task_group() as group:
                for one in (news, hang_up):
                    group.start_soon(first_of, one, group.cancel_scope)

    async def bookmark(self, stream: SocketStream, version: int, *, complete: bool = False) -> None:
        annotations = {"k8s.io/initial-events-end": "true"} if complete else {}
        metadata = {"resourceVersion": str(version), "annotations": annotations}
        await event(stream, "BOOKMARK", {"metadata": metadata})


async def first_of(one: anyio.Event, scope: anyio.CancelScope) -> None:
    await one.wait()
    scope.cancel()


async def event(stream: SocketStream, kind: str, body: Body) -> None:
    line = json.dumps({"type": kind, "object": body}).encode() + b"\n"
    await stream.send(b"%x\r\n%s\r\n" % (len(line), line))


async def say(
    stream: SocketStream, status: int, body: Body | bytes, headers: dict[str, str] | None = None
) -> None:
    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    lines = [f"HTTP/1.1 {status} Said", f"content-length: {len(content)}"]
    lines += [f"{name}: {text}" for name, text in (headers or {}).items()]
    await stream.send("\r\n".join([*lines, "", ""]).encode() + content)


def failure(code: int, reason: str) -> tuple[int, Body]:
    return code, {"kind": "Status", "status": "Failure", "code": code, "reason": reason, "message": reason}


def belongs(name: str, path: str) -> bool:
    """Return whether an object is in a collection: of a namespace, or of all."""
    folder = name.rpartition("/")[0]
    return folder == path or (
        folder.startswith("/api/v1/namespaces/")
        and folder.rpartition("/")[2] == path.rpartition("/")[2]
        and path.count("/") == 3
    )


def merge(held: Body, body: Body) -> Body:
    out = dict(held)
    for name, value in body.items():
        if value is None:
            out.pop(name, None)
        elif isinstance(value, dict) and isinstance(out.get(name), dict):
            out[name] = merge(out[name], value)
        else:
            out[name] = value
    return out


@asynccontextmanager
async def fake_api() -> AsyncGenerator[FakeApi]:
    """Serve one on loopback."""
    api = FakeApi()
    listener = await anyio.create_tcp_listener(local_host="127.0.0.1")
    port = listener.extra(SocketAttribute.local_port)
    api.url = f"http://127.0.0.1:{port}"
    async with listener, anyio.create_task_group() as group:
        group.start_soon(listener.serve, api.serve)
        yield api
        group.cancel_scope.cancel()
