"""The clock as a value, so that what judges by time can be replayed."""

import logging
import time
from collections.abc import Callable

Clock = Callable[[], float]
"""Returns seconds since the epoch, UTC."""

system_clock: Clock = time.time

MOST_AHEAD_S = 86_400.0
"""A clock that was set back by more was wrong before: then the new time is taken."""
NOTED_S = 1.0

log = logging.getLogger(__name__)


class SteadyClock:
    """The system's clock, except that it never goes back: when that one is set back, time goes on from where it was.

    *floor* is a moment that is surely over: the newest that was written down before this process began.
    """

    def __init__(
        self, wall: Clock = system_clock, *, floor: float = 0.0, monotonic: Clock = time.monotonic
    ) -> None:
        self._wall = wall
        self._monotonic = monotonic
        self._read = (floor, monotonic())
        self._is_ahead = False

    def __call__(self) -> float:
        """Return seconds since the epoch, no fewer than ever before."""
        told, passed = self._wall(), self._monotonic()
        before, at = self._read
        steady = before + max(0.0, passed - at)
        ahead_s = steady - told
        now = told if ahead_s <= 0 or ahead_s > MOST_AHEAD_S else steady
        self._read = (now, passed)
        if (ahead_s > NOTED_S) != self._is_ahead:
            self._is_ahead = not self._is_ahead
            log.warning(
                "system clock was set back" if self._is_ahead else "system clock is right again",
                extra={"ahead_s": round(ahead_s, 3)},
            )
        return now
