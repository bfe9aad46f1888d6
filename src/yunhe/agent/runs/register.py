"""The allocations this agent knows, and the marks of those it has let go; what is saved here survives a crash."""

from __future__ import annotations

import contextlib
import time
from itertools import islice
from typing import Any, Iterator

from yunhe.agent.protocol.refusals import CONFLICT, FENCED, NOT_FOUND, Refusal
from yunhe.agent.runs.directory import Run
from yunhe.agent.runs.journal import Journal
from yunhe.agent.runs.meters import Meter

PREPARING = "preparing"
STARTING = "starting"
RUNNING = "running"
PAUSED = "paused"
EXITED = "exited"
UNKNOWN = "unknown"
LIVE = (STARTING, RUNNING, PAUSED)

MAX_MARKS = 20_000
MARK_AGE_S = 30 * 86_400.0
"""How many marks are kept, the newest, and for how long: an order that comes later than that is not known as old."""
_MARKED_EVERY_S = 60.0
_SHARED = 64
_COMPACT_AFTER = 2000
_LINE_BYTES = 512
_LINES_AHEAD = 64


class Allocation:
    """One allocation: what was commanded, which is saved, and what has been seen of it, which is not."""

    def __init__(self, run: Run, token: int, project: str, uid: int) -> None:
        self.run = run
        self.token = token
        self.project = project
        self.uid = uid
        self.claimed = False
        self.stopped = False
        """Stopped before it was ever launched."""
        self.resources: dict[str, Any] = {}
        self.cores: list[int] = []
        self.paused = False
        self.phase = PREPARING
        self.step = ""
        self.detail = ""
        self.start: dict[str, Any] = {}
        self.exit: dict[str, Any] = {}
        self.wrapper_pid = 0
        self.meter: Meter | None = None
        self.totals: dict[str, int] = {}
        self.link = ""
        """Its link to the host's network, whose bytes are counted."""
        self.carried: dict[str, int] = {}

    @property
    def id(self) -> str:
        """Return the allocation's ID."""
        return self.run.id

    def as_entry(self) -> dict[str, Any]:
        """Return what must not be forgotten."""
        return {
            "id": self.id,
            "token": self.token,
            "project": self.project,
            "uid": self.uid,
            "claimed": self.claimed,
            "stopped": self.stopped,
            "resources": self.resources,
            "cores": self.cores,
            "paused": self.paused,
        }


class Register:
    """Every allocation and mark, backed by the journal."""

    def __init__(self, path: str, runs: str) -> None:
        self._runs = runs
        self.allocations: dict[str, Allocation] = {}
        self.marks: dict[str, tuple[int, float]] = {}
        """Token and minute of each, oldest first."""
        self._shared: dict[tuple[int, float], tuple[int, float]] = {}
        self._journal = Journal(path, self._replay)
        self.notice = self._journal.notice
        self._forget_marks()

    def _replay(self, entry: dict[str, Any]) -> None:
        name = entry["id"]
        if "mark" in entry:
            self._keep_mark(name, entry["mark"], entry["at"])
            return
        allocation = Allocation(Run(self._runs, name), entry["token"], entry["project"], entry["uid"])
        allocation.claimed = entry["claimed"]
        allocation.stopped = entry["stopped"]
        allocation.resources = entry["resources"]
        allocation.cores = entry["cores"]
        allocation.paused = entry["paused"]
        self.allocations[name] = allocation

    def fence(self, name: str, token: int) -> Allocation | None:
        """Return the allocation, if there is one; refuse whoever has been superseded."""
        allocation = self.allocations.get(name)
        seen = allocation.token if allocation is not None else self.marks.get(name, (token, 0.0))[0]
        if token < seen:
            raise Refusal(FENCED, f"{name} is commanded with token {seen} now; {token} is older.")
        return allocation

    def known(self, name: str) -> Allocation:
        """Return an allocation that is still known."""
        allocation = self.allocations.get(name)
        if allocation is None:
            raise Refusal(NOT_FOUND, f"This node knows no allocation {name}.", remedy="It may be released.")
        return allocation

    def live(self, name: str) -> Allocation:
        """Return an allocation that has processes."""
        allocation = self.known(name)
        if allocation.phase not in (RUNNING, PAUSED):
            raise Refusal(CONFLICT, f"{name} is {allocation.phase}, not running.")
        return allocation

    def reserve(self) -> None:
        """Have room for a line more of each allocation, and some; raise ``OSError`` where there is none."""
        self._journal.reserve(_LINE_BYTES * (len(self.allocations) + _LINES_AHEAD))

    def save(self, allocation: Allocation, *, sync: bool = True) -> None:
        """Make what was commanded durable, before it has any effect."""
        self._journal.append(allocation.as_entry(), sync=sync)
        self.allocations[allocation.id] = allocation
        self._compact()

    def mark(self, name: str, token: int) -> None:
        """Leave only the mark that *name* was; forget the oldest marks when there are too many."""
        if self.marks.get(name, (-1, 0.0))[0] == token:
            return
        at = time.time()
        self._journal.append({"id": name, "mark": token, "at": at})
        self._keep_mark(name, token, at)
        oldest = next(iter(self.marks))
        if len(self.marks) > MAX_MARKS or self.marks[oldest][1] < at - MARK_AGE_S:
            del self.marks[oldest]
        self._compact()

    def _keep_mark(self, name: str, token: int, at: float) -> None:
        """Hold the mark as the newest; those of one minute and token share what is held of them."""
        if len(self._shared) > _SHARED:
            self._shared.clear()
        mark = (token, at // _MARKED_EVERY_S * _MARKED_EVERY_S)
        self.allocations.pop(name, None)
        self.marks.pop(name, None)
        self.marks[name] = self._shared.setdefault(mark, mark)

    def _forget_marks(self) -> None:
        oldest, extra = time.time() - MARK_AGE_S, max(0, len(self.marks) - MAX_MARKS)
        newest = islice(self.marks.items(), extra, None)
        self.marks = {name: mark for name, mark in newest if mark[1] > oldest}

    def _compact(self) -> None:
        if self._journal.lines < 2 * (len(self.allocations) + len(self.marks)) + _COMPACT_AFTER:
            return
        self._forget_marks()
        with contextlib.suppress(OSError):  # there is room for it another time
            self._journal.rewrite(self._entries())
            self.reserve()

    def _entries(self) -> Iterator[dict[str, Any]]:
        for name, (token, at) in self.marks.items():
            yield {"id": name, "mark": token, "at": at}
        for allocation in self.allocations.values():
            yield allocation.as_entry()

    def close(self) -> None:
        """Let go of the journal."""
        self._journal.close()
