"""One connection to an agent: requests and streams over the frames of a bridge.

There is no task in the background. Whoever waits for an answer reads for everybody while it waits, and hands the
reading on when its own answer has come; so a link may be opened in one task, used in others and closed in a third.
"""

import os
from collections import deque
from collections.abc import AsyncIterator, Callable
from typing import IO, Any

import anyio
import msgspec
from anyio.abc import Process

from yunhe.agent.protocol.frames import CHUNK_BYTES, INITIAL_CREDIT, Decoder, Frame, encode
from yunhe.agent.protocol.refusals import Refusal
from yunhe.kernel.errors import BY_CODE, FieldProblem, PoolUnreachableError, YunheError

SEND_WITHIN_S = 20.0
QUIET_S = 20.0
"""How long a stream may say nothing before we ask whether the agent is still there."""
END_WITHIN_S = 2.0

Body = dict[str, Any]

REQUESTS, TRANSFERS, SESSIONS, FORWARDS = 64, 48, 112, 128
"""How many calls of each kind may be under way on one link; more wait for their turn here.

Together they stay below the number at which an agent refuses (``MAX_CALLS``), with some to spare for calls that we have
left and the agent has yet to. Each kind has its own, so that neither long transfers nor open sessions hold up a command.
"""
SESSION_WITHIN_S = 10.0
"""How long a session waits for its turn: others may stay open for days."""
_TRANSFERS = frozenset({"logs", "usage", "get_archive", "put_archive", "upgrade"})


class _Slot:
    """What has come for one request."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.frames: deque[Frame] = deque()
        self.credit = 0
        self.wake = anyio.Event()


class AgentLink:
    """A bridge that is open."""

    def __init__(self, process: Process, words: IO[bytes]) -> None:
        assert process.stdin is not None  # noqa: S101 - the bridge is started with both ends piped
        assert process.stdout is not None  # noqa: S101
        self._process = process
        self._input = process.stdin
        self._output = process.stdout
        self._words = words
        self._decoder = Decoder()
        self._slots: dict[int, _Slot] = {}
        self._number = 0
        self._reading = False
        self._sending = anyio.Lock()
        self._broken: str | None = None
        self._requests = anyio.Semaphore(REQUESTS)
        self._transfers = anyio.Semaphore(TRANSFERS)
        self._sessions = anyio.Semaphore(SESSIONS)
        self._forwards = anyio.Semaphore(FORWARDS)

    @property
    def broken(self) -> bool:
        """Return whether nothing can come over this link any more."""
        return self._broken is not None

    async def request(self, verb: str, body: Body, *, timeout_s: float) -> Body:
        """Send a request and return its answer."""
        exchange = self.exchange(verb, body)
        try:
            await exchange.take_turn()
            with anyio.move_on_after(timeout_s):
                await exchange.begin()
                return await exchange.answer()
        finally:
            await exchange.leave()
        await self.close()
        raise PoolUnreachableError(
            f"The agent did not answer {verb} within {timeout_s:g} s.",
            remedy="It is tried again with the next call.",
        )

    async def stream(self, verb: str, body: Body, *, quiet_s: float = QUIET_S) -> AsyncIterator[Frame]:
        """Send a request and yield the parts of its answer; the last frame is the answer itself."""
        exchange = self.exchange(verb, body)
        try:
            await exchange.begin()
            while True:
                frame = await exchange.next(quiet_s)
                yield frame
                if "part" not in frame.header:
                    return
        finally:
            await exchange.leave()

    def exchange(self, verb: str, body: Body) -> "Exchange":
        """Return a request that has yet to begin."""
        self._number += 1
        return Exchange(self, _Slot(self._number), verb, body)

    async def close(self) -> None:
        """Hang up; whoever still waits is told."""
        self._break("The connection was closed.")
        with anyio.CancelScope(shield=True), anyio.move_on_after(END_WITHIN_S):
            await self._input.aclose()
            await self._process.wait()
        with anyio.CancelScope(shield=True):
            if self._process.returncode is None:
                self._process.kill()
            await self._process.aclose()
        self._words.close()

    # For exchanges

    async def take_turn(self, verb: str, body: Body) -> anyio.Semaphore:
        """Wait until there is room for one more call of its kind; return what to release after it."""
        if verb == "forward":
            return await _turn_in_time(
                self._forwards, f"{FORWARDS} connections into jobs are open on this host."
            )
        if verb == "exec" or body.get("follow") or body.get("wait_s"):
            return await _turn_in_time(
                self._sessions, f"{SESSIONS} commands and followed logs are open on this host."
            )
        turn = self._transfers if verb in _TRANSFERS else self._requests
        await turn.acquire()
        return turn

    def open_slot(self, slot: _Slot) -> None:
        """Let frames come for *slot*."""
        self._slots[slot.number] = slot

    def drop_slot(self, slot: _Slot) -> bool:
        """Let nothing more come for *slot*; return whether the agent may still be at it."""
        return self._slots.pop(slot.number, None) is not None and not self.broken

    async def send(self, header: Body, payload: bytes = b"") -> None:
        """Send one frame, whole: a frame that is cut in the middle would end the link."""
        data = _encoded(header, payload)
        if self._broken is not None:
            raise PoolUnreachableError(self._broken)
        with anyio.CancelScope(shield=True), anyio.move_on_after(SEND_WITHIN_S):
            async with self._sending:
                try:
                    await self._input.send(data)
                except (anyio.BrokenResourceError, anyio.ClosedResourceError, OSError):
                    self._break(self._reason())
                else:
                    return
        self._break("The agent takes nothing more.")
        raise PoolUnreachableError(self._broken or "")

    async def next(self, slot: _Slot) -> Frame:
        """Return the next frame for *slot*, reading for everybody while waiting."""
        while not slot.frames:
            if self._broken is not None:
                raise PoolUnreachableError(self._broken, remedy="It is tried again with the next call.")
            if self._reading:
                await slot.wake.wait()
                slot.wake = anyio.Event()
                continue
            self._reading = True
            try:
                await self._read_some()
            finally:
                self._reading = False
                self._wake_all()
        return slot.frames.popleft()

    async def _read_some(self) -> None:
        try:
            for frame in self._decoder.feed(await self._output.receive(CHUNK_BYTES * 4)):
                slot = self._slots.get(frame.header.get("id", -1))
                if slot is not None:
                    slot.frames.append(frame)
                elif "id" not in frame.header:
                    self._break(frame.header.get("error", {}).get("problem", "The agent hung up."))
        except (anyio.EndOfStream, anyio.BrokenResourceError, anyio.ClosedResourceError, OSError):
            with anyio.CancelScope(shield=True), anyio.move_on_after(0.5):
                await self._process.wait()  # so that its last words are there to read
            self._break(self._reason())
        except Refusal as refusal:
            self._break(f"The agent sends no frames: {refusal.problem}")

    def _reason(self) -> str:
        words = last_words(self._words)
        return (
            f"The connection to the agent was cut: {words}"
            if words
            else "The connection to the agent was cut."
        )

    def _break(self, reason: str) -> None:
        if self._broken is None:
            self._broken = reason
        self._wake_all()

    def _wake_all(self) -> None:
        for slot in self._slots.values():
            slot.wake.set()


async def _turn_in_time(turns: anyio.Semaphore, full: str) -> anyio.Semaphore:
    with anyio.move_on_after(SESSION_WITHIN_S):
        await turns.acquire()
        return turns
    raise PoolUnreachableError(full, remedy="Close some of them.")


class Exchange:
    """One request and everything that belongs to it."""

    def __init__(self, link: AgentLink, slot: _Slot, verb: str, body: Body) -> None:
        self._link = link
        self._slot = slot
        self._verb = verb
        self._body = body
        self._used = 0
        self.paced = False
        """Whether room for more parts is granted as the caller says ``used``, instead of as they come."""
        self._answered = False
        self._turn: anyio.Semaphore | None = None

    async def take_turn(self) -> None:
        """Wait until the agent has room for the request."""
        if self._turn is None:
            self._turn = await self._link.take_turn(self._verb, self._body)

    async def begin(self) -> None:
        """Send the request, when it is its turn."""
        await self.take_turn()
        self._link.open_slot(self._slot)
        await self._link.send({"id": self._slot.number, "verb": self._verb, "body": self._body})

    async def answer(self) -> Body:
        """Return the answer; parts before it are let go."""
        while True:
            frame = await self._take()
            if "ok" in frame.header:
                return frame.header["ok"]

    async def next(self, quiet_s: float = QUIET_S) -> Frame:
        """Return the next part, or the answer; a long silence is broken by asking whether the agent is there."""
        while True:
            with anyio.move_on_after(quiet_s):
                return await self._take()
            await self._link.request("describe", {}, timeout_s=quiet_s)

    async def _take(self) -> Frame:
        frame = await self._link.next(self._slot)
        if "error" in frame.header:
            self._answered = True
            raise error_of(frame.header["error"])
        if "credit" in frame.header:
            self._slot.credit += frame.header["credit"]
            return frame
        if "part" in frame.header:
            if not self.paced:
                await self.used()
        else:
            self._answered = True
        return frame

    async def used(self) -> None:
        """Count that a part needs no room any more."""
        self._used += 1
        if self._used >= INITIAL_CREDIT // 2:
            await self._link.send({"id": self._slot.number, "credit": self._used})
            self._used = 0

    @property
    def has_room(self) -> bool:
        """Whether a piece of input may be sent now."""
        return self._slot.credit > 0

    async def wait_for_room(self, otherwise: Callable[[Frame], None] = lambda _frame: None) -> bool:
        """Wait until input may be sent; return False if the answer came instead.

        What arrives while waiting is given to *otherwise*.
        """
        while self._slot.credit <= 0 and not self._answered:
            frame = await self.next()
            if "credit" not in frame.header:
                otherwise(frame)
        return not self._answered

    async def send_input(self, data: bytes, otherwise: Callable[[Frame], None] = lambda _frame: None) -> bool:
        """Send a piece of input once there is room for it; return False if the answer came instead."""
        if not await self.wait_for_room(otherwise):
            return False
        self._slot.credit -= 1
        await self._link.send({"id": self._slot.number, "data": True}, data)
        return True

    async def send_window(self, rows: int, columns: int) -> None:
        """Tell the agent the size of the terminal."""
        await self._link.send({"id": self._slot.number, "window": [rows, columns]})

    async def leave(self) -> None:
        """Let go of the request; the agent need not go on with it."""
        turn, self._turn = self._turn, None
        if turn is None:
            return
        try:
            await self._cancel()
        finally:
            turn.release()

    async def _cancel(self) -> None:
        if self._link.drop_slot(self._slot) and not self._answered:
            with anyio.CancelScope(shield=True):
                try:
                    await self._link.send({"id": self._slot.number, "cancel": True})
                except PoolUnreachableError:
                    return  # it is gone, and the request with it


def last_words(words: IO[bytes]) -> str:
    """Return the end of what a process said on its standard error."""
    if words.closed:
        return ""
    size = os.fstat(words.fileno()).st_size
    return os.pread(words.fileno(), 2000, max(0, size - 2000)).decode(errors="replace").strip()


def error_of(body: Body) -> YunheError:
    """Return the error an agent's refusal stands for."""
    kind = BY_CODE.get(body.get("code", ""), YunheError)
    fields = tuple(msgspec.convert(field, FieldProblem) for field in body.get("fields", ()))
    return kind(body.get("problem", "The agent refused."), remedy=body.get("remedy", ""), fields=fields)


def _encoded(header: Body, payload: bytes) -> bytes:
    try:
        return encode(header, payload)
    except Refusal as refusal:
        raise error_of(refusal.as_body()) from None
