"""One limiter for each cluster: as many requests at once as the API server takes without complaint.

It grows by one for each round of requests that went well and halves when the server says 429, and nobody sends
anything before the time the server named. A fixed rate would be wrong for every cluster but one.
"""

from collections import deque
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import anyio

FIRST_LIMIT = 32
MOST = 128
LEAST = 1
HALVE_AT_MOST_EVERY_S = 0.5


class Limiter:
    """Hands out places among the requests in flight."""

    def __init__(self, *, first: int = FIRST_LIMIT, most: int = MOST) -> None:
        self._limit = float(first)
        self._most = most
        self._in_flight = 0
        self._waiting: deque[anyio.Event] = deque()
        self._not_before = 0.0
        self._halved_at = float("-inf")

    @property
    def limit(self) -> int:
        """How many may be in flight now."""
        return int(self._limit)

    @asynccontextmanager
    async def place(self) -> AsyncGenerator[None]:
        """Hold a place among the requests in flight."""
        await self._take()
        try:
            yield
        finally:
            self._in_flight -= 1
            self._wake()

    def went_well(self) -> None:
        """Grow a little."""
        self._limit = min(self._most, self._limit + 1 / self._limit)

    def overloaded(self, retry_after_s: float) -> None:
        """Send nothing for *retry_after_s*, and half as much from then on; one burst of refusals counts once."""
        now = anyio.current_time()
        self._not_before = max(self._not_before, now + retry_after_s)
        if now - self._halved_at >= HALVE_AT_MOST_EVERY_S:
            self._halved_at = now
            self._limit = max(LEAST, self._limit / 2)

    async def _take(self) -> None:
        while True:
            wait_s = self._not_before - anyio.current_time()
            if wait_s > 0:
                await anyio.sleep(wait_s)
            elif self._in_flight < int(self._limit):
                self._in_flight += 1
                return
            else:
                turn = anyio.Event()
                self._waiting.append(turn)
                try:
                    await turn.wait()
                except BaseException:
                    self._give_up(turn)
                    raise

    def _give_up(self, turn: anyio.Event) -> None:
        """Leave the line; a turn that had come already goes to the next."""
        if turn.is_set():
            self._wake()
        else:
            self._waiting.remove(turn)

    def _wake(self) -> None:
        if self._waiting:
            self._waiting.popleft().set()
