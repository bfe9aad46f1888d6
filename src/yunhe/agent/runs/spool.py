"""Minutes of usage, kept on disk until the platform has them."""

from __future__ import annotations

import contextlib
from collections import deque
from typing import Any

from yunhe.agent.runs.journal import Journal

MAX_MINUTES = 100_000
_REWRITE_AFTER = 4096
_MINUTE_BYTES = 1024


class Spool:
    """Numbered minutes; reading beyond a number acknowledges everything up to it."""

    def __init__(self, path: str) -> None:
        self._minutes: deque[dict[str, Any]] = deque()
        self._next = 0
        self._journal = Journal(path, self._replay)
        self.notice = self._journal.notice
        self.dropped = 0
        """Minutes lost because nobody fetched them in time."""

    def _replay(self, entry: dict[str, Any]) -> None:
        self._next = max(self._next, int(entry.get("next", 0)), int(entry.get("seq", -1)) + 1)
        if "minute" in entry:
            self._minutes.append(entry)

    def reserve(self, minutes: int) -> None:
        """Have room on the disk for so many minutes; raise ``OSError`` where there is none."""
        self._journal.reserve(minutes * _MINUTE_BYTES)

    def add(self, minutes: list[dict[str, Any]]) -> bool:
        """Number and keep *minutes*, the oldest make room when there are too many; return whether all are on disk."""
        written = True
        for minute in minutes:
            entry = {"seq": self._next, **minute}
            try:
                self._journal.append(entry, sync=False)
            except OSError:
                written = False
            self._next += 1
            self._minutes.append(entry)
        while len(self._minutes) > MAX_MINUTES:
            self._minutes.popleft()
            self.dropped += 1
        return written

    def beyond(self, seq: int) -> list[dict[str, Any]]:
        """Return every minute after *seq*, and forget those up to it."""
        while self._minutes and self._minutes[0]["seq"] <= seq:
            self._minutes.popleft()
        self._next = max(self._next, seq + 1)  # numbers that found no room on the disk before a crash
        if self._journal.lines > len(self._minutes) + _REWRITE_AFTER:
            with contextlib.suppress(OSError):  # there is room for it another time
                self._journal.rewrite([{"next": self._next}, *self._minutes])
        return list(self._minutes)

    def folded(self) -> dict[str, int]:
        """Return up to when the minutes of each allocation are here, for meters that missed being told."""
        until: dict[str, int] = {}
        for minute in self._minutes:
            name = minute["allocation_id"]
            until[name] = max(until.get(name, 0), minute["until_ms"])
        return until

    def close(self) -> None:
        """Let go of the file."""
        self._journal.close()
