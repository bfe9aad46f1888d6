"""Notices: wakes whoever waits for a fact, in this process or another's, soon after it was written."""

from collections.abc import Callable

import anyio

from yunhe.storage import outbox
from yunhe.storage.database import Database

POLL_S = 0.2
_PAGE = 1000
_WAITERS = 10_000

Listener = Callable[[outbox.Event], None]


class Notices:
    """Reads the outbox as it grows and calls listeners; what was written before it began is not told."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._listeners: dict[str, list[Listener]] = {}
        self._waiting: dict[str, anyio.Event] = {}
        self._poked = anyio.Event()
        self._seen: int | None = None

    def listen(self, topic: str, listener: Listener) -> None:
        """Call *listener* with every fact on *topic* from now on."""
        self._listeners.setdefault(topic, []).append(listener)

    def poke(self) -> None:
        """Say that this process has just written a fact, so that nobody waits for the next poll."""
        self._poked.set()

    def waiter(self, key: str) -> anyio.Event:
        """Return an event that is set at the next fact about *key*; take it before reading what it may change."""
        if len(self._waiting) > _WAITERS:
            # Those who stopped waiting leave their events behind; waking everybody early does no harm.
            for waiter in self._waiting.values():
                waiter.set()
            self._waiting.clear()
        return self._waiting.setdefault(key, anyio.Event())

    async def run(self) -> None:
        """Tell of facts until cancelled; run again after a failure, it goes on where it was."""
        if self._seen is None:
            self._seen = await self._database.read(outbox.newest)
        while True:
            self._poked = anyio.Event()
            events = await self._database.read(lambda c, after=self._seen: outbox.read_all(c, after, _PAGE))
            for event in events:
                self._seen = event.seq
                for listener in self._listeners.get(event.topic, ()):
                    listener(event)
                waiter = self._waiting.pop(event.key, None)
                if waiter is not None:
                    waiter.set()
            if len(events) < _PAGE:
                with anyio.move_on_after(POLL_S):
                    await self._poked.wait()
