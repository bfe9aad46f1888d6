"""The allocations this agent knows, and the marks of those it has let go; what is saved here survives a crash."""

from __future__ import annotations

import contextlib
import time
from typing import Any

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

    def __init__(self, journal: Journal, runs: str) -> None:
        self._journal = journal
        self._runs = runs
        self.allocations: dict[str, Allocation] = {}
        self.marks: dict[str, tuple[int, float]] = {}
        for entry in journal.entries:
            self._replay(entry)
        journal.entries = []

    def _replay(self, entry: dict[str, Any]) -> None:
        name = entry["id"]
        if "mark" in entry:
            self.allocations.pop(name, None)
            self.marks[name] = (entry["mark"], entry["at"])
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
        self.allocations.pop(name, None)
        self.marks[name] = (token, at)
        if len(self.marks) > MAX_MARKS:
            del self.marks[next(iter(self.marks))]
        self._compact()

    def _compact(self) -> None:
        if self._journal.lines < 2 * (len(self.allocations) + len(self.marks)) + _COMPACT_AFTER:
            return
        oldest = time.time() - MARK_AGE_S
        self.marks = {name: mark for name, mark in self.marks.items() if mark[1] > oldest}
        marks = [{"id": name, "mark": token, "at": at} for name, (token, at) in self.marks.items()]
        with contextlib.suppress(OSError):  # there is room for it another time
            self._journal.rewrite(marks + [allocation.as_entry() for allocation in self.allocations.values()])
            self.reserve()

    def close(self) -> None:
        """Let go of the journal."""
        self._journal.close()
