"""A request under way on a connection: its answer, its streams in both directions, and their credit."""

from __future__ import annotations

import asyncio
from typing import Any, Callable

from yunhe.agent.protocol.frames import INITIAL_CREDIT, Frame, encode
from yunhe.agent.protocol.refusals import INVALID, Refusal

IDLE_INPUT_S = 300.0
"""How long an upload or a stalled reader may say nothing before the request is given up."""


class Call:
    """One request; the handler of its verb talks to the platform through this."""

    def __init__(self, number: int, verb: str, body: dict[str, Any], send: Callable[[bytes], Any]) -> None:
        self.number = number
        self.verb = verb
        self.body = body
        self._send = send
        self._credit = INITIAL_CREDIT
        self._more_credit = asyncio.Event()
        self._input: asyncio.Queue[bytes] = asyncio.Queue()
        self._granted = 0
        self.on_window: Callable[[int, int], None] = lambda _rows, _columns: None

    def take(self, frame: Frame) -> None:
        """Take a later frame of the same request."""
        header = frame.header
        if "credit" in header:
            self._credit += _whole(header["credit"], "credit")
            self._more_credit.set()
        elif "data" in header:
            if self._granted <= 0 and frame.payload:
                raise Refusal(INVALID, "More input was sent than was asked for.")
            self._granted -= 1
            self._input.put_nowait(frame.payload)
        elif "window" in header:
            size = header["window"]
            if not isinstance(size, list) or len(size) != 2:
                raise Refusal(INVALID, "window must be rows and columns.")
            self.on_window(_whole(size[0], "window", 65_535), _whole(size[1], "window", 65_535))

    async def answer(self, body: dict[str, Any]) -> None:
        """Send the answer; nothing follows it."""
        await self._send(encode({"id": self.number, "ok": body}))

    async def refuse(self, refusal: Refusal) -> None:
        """Send the refusal; nothing follows it."""
        await self._send(encode({"id": self.number, "error": refusal.as_body()}))

    async def part(self, body: dict[str, Any], payload: bytes = b"") -> None:
        """Send a piece of a stream, once the reader has room for it."""
        while self._credit <= 0:
            self._more_credit.clear()
            await asyncio.wait_for(self._more_credit.wait(), IDLE_INPUT_S)
        self._credit -= 1
        await self._send(encode({"id": self.number, "part": body}, payload))

    async def grant(self, pieces: int) -> None:
        """Let the platform send that many more pieces of input."""
        self._granted += pieces
        await self._send(encode({"id": self.number, "credit": pieces}))

    async def receive(self) -> bytes:
        """Return the next piece of input; empty at its end."""
        return await asyncio.wait_for(self._input.get(), IDLE_INPUT_S)

    async def receive_patiently(self) -> bytes:
        """Return the next piece of input of somebody who may think for as long as they like."""
        return await self._input.get()


def _whole(value: Any, field: str, most: int = 1_000_000) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= most:
        raise Refusal(
            INVALID, f"{field} must be a whole number.", fields=[{"field": field, "problem": "is not one"}]
        )
    return value
