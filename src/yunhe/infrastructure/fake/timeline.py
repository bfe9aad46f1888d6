"""The time a fake pool lives in: the real one, or one that a test moves."""

import time
from typing import Protocol

import anyio
import anyio.lowlevel


class Timeline(Protocol):
    """A clock that can be waited on."""

    def now(self) -> float:
        """Return seconds since the epoch."""
        ...

    async def wait(self, change: anyio.Event, until: float) -> None:
        """Return once *change* is set or it is *until*; it may return earlier, so callers look again."""
        ...


class RealTime:
    """Time as it passes."""

    def now(self) -> float:
        """Return seconds since the epoch."""
        return time.time()

    async def wait(self, change: anyio.Event, until: float) -> None:
        """Return once *change* is set or it is *until*."""
        with anyio.move_on_after(max(0.0, until - self.now())):
            await change.wait()


class ScriptedTime:
    """Time that stands still until ``advance``."""

    def __init__(self, start_s: float = 1_700_000_000.0) -> None:
        self._now = start_s
        self._sleepers: set[anyio.Event] = set()

    def now(self) -> float:
        """Return the time the script has come to."""
        return self._now

    def advance(self, seconds: float) -> None:
        """Let *seconds* pass and wake everybody who waits."""
        self._now += seconds
        for sleeper in self._sleepers:
            sleeper.set()

    async def wait(self, change: anyio.Event, until: float) -> None:
        """Return once *change* is set or time has moved."""
        if until <= self._now:
            await anyio.lowlevel.checkpoint()
            return
        self._sleepers.add(change)
        try:
            await change.wait()
        finally:
            self._sleepers.discard(change)
