"""Answers that go on: server-sent events, and files that are never whole in memory."""

from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing
from typing import Any, TypeVar

import anyio
import msgspec
from litestar.types import Message, Receive, Scope, Send

from yunhe.entrypoints.api.problems import as_yunhe_error, logger, problem_of
from yunhe.entrypoints.api.request_ids import request_id_of
from yunhe.kernel.errors import YunheError

T = TypeVar("T")

KEEP_ALIVE_S = 15.0
"""How often a silent stream says that it lives, so that both ends notice a dead connection."""
_KEEP_ALIVE = b": still here\n\n"


def event(name: str, value: object) -> bytes:
    """Return one server-sent event; JSON has no raw newlines, so one data line is enough."""
    return b"event: " + name.encode() + b"\ndata: " + msgspec.json.encode(value) + b"\n\n"


async def begun(source: AsyncIterator[T]) -> AsyncGenerator[T, None]:
    """Return *source* after its first item is there, so that what is refused at once is answered as an error."""
    try:
        first = [await anext(source)]
    except StopAsyncIteration:
        first = []
    return _resumed(first, source)


async def _resumed(first: list[T], source: AsyncIterator[T]) -> AsyncGenerator[T, None]:
    try:
        for item in first:
            yield item
        async for item in source:
            yield item
    finally:
        await close(source)


async def close(source: AsyncIterator[Any]) -> None:
    """End a generator that may not have been read to its end."""
    if isinstance(source, AsyncGenerator):
        await source.aclose()


class StreamAnswer:
    """An answer whose body is sent as it comes; it ends early when the caller leaves or the server stops."""

    def __init__(
        self,
        body: AsyncGenerator[bytes, None],
        media_type: str,
        stopping: anyio.Event,
        *,
        events: bool = False,
    ) -> None:
        self._body = body
        self._media_type = media_type
        self._stopping = stopping
        self._events = events
        self._whole = False

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the answer."""
        await send(self._start())
        async with anyio.create_task_group() as group:
            group.start_soon(self._watch_caller, receive, group.cancel_scope)
            if self._events:
                group.start_soon(self._watch_server, group.cancel_scope)
                group.start_soon(self._keep_alive, send)
            await self._send_body(send, request_id_of(scope))
            group.cancel_scope.cancel()
        if self._stopping.is_set() and not self._whole:
            await send({"type": "http.response.body", "body": b"", "more_body": False})

    def _start(self) -> Message:
        headers = [(b"content-type", self._media_type.encode())]
        if self._events:
            headers += [(b"cache-control", b"no-store"), (b"x-accel-buffering", b"no")]
        return {"type": "http.response.start", "status": 200, "headers": headers}

    async def _send_body(self, send: Send, request_id: str) -> None:
        async with aclosing(self._body):
            try:
                async for chunk in self._body:
                    await send({"type": "http.response.body", "body": chunk, "more_body": True})
            except Exception as error:
                if not self._events:
                    raise  # a file cut short must not look whole: the connection breaks
                known = as_yunhe_error(error)
                if type(known) is YunheError:
                    logger.exception("stream failed")
                last = event("problem", problem_of(known, request_id))
                await send({"type": "http.response.body", "body": last, "more_body": True})
        self._whole = True
        await send({"type": "http.response.body", "body": b"", "more_body": False})

    async def _watch_caller(self, receive: Receive, scope: anyio.CancelScope) -> None:
        while (await receive())["type"] != "http.disconnect":
            pass
        scope.cancel()

    async def _watch_server(self, scope: anyio.CancelScope) -> None:
        await self._stopping.wait()
        scope.cancel()

    async def _keep_alive(self, send: Send) -> None:
        while True:
            await anyio.sleep(KEEP_ALIVE_S)
            await send({"type": "http.response.body", "body": _KEEP_ALIVE, "more_body": True})
