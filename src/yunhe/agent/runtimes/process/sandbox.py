"""A task among the host's own files, in namespaces of its own where the agent may make them."""

from __future__ import annotations

import errno
import os
import signal
from typing import Any

from yunhe.agent.limits.limits import LimitGroup
from yunhe.agent.runs.directory import Run
from yunhe.agent.runs.processes import Identity, identify, is_alive
from yunhe.agent.runs.users import adopt_orphans
from yunhe.agent.runtimes.interface import RunHelper, Sandbox
from yunhe.agent.runtimes.namespaces import NEW_FILES, NEW_MESSAGES, NEW_NAMES, NEW_NETWORK, Namespaces, begin
from yunhe.agent.runtimes.process.files import arrange

_RECORD = "first"


class ProcessSandbox(Sandbox):
    """The host itself, less what a task has no business with."""

    def __init__(self, order: dict[str, Any], run: Run) -> None:
        super().__init__(order, run)
        self._apart: bool = order["runtime"].get("namespaces", False)
        self._first: Identity | None = None
        self._namespaces: Namespaces | None = None

    def prepare(self, group: LimitGroup, run_helper: RunHelper) -> None:
        """Make the namespaces, or let what a step leaves behind become the wrapper's child: its counters reach it."""
        if not self._apart:
            adopt_orphans()
            return
        flags = NEW_FILES | NEW_MESSAGES | NEW_NAMES | (NEW_NETWORK if self.network.apart else 0)
        pid = begin(flags, lambda: arrange(self.run, self.order, self.network))
        self._first = identify(pid)
        self.first_pid = pid
        self.network.connect(pid)
        self._namespaces = Namespaces(self._first)
        self.run.write_record(_RECORD, self._first._asdict())

    def attach(self) -> None:
        """Open the namespaces whose first process is recorded."""
        if not self._apart:
            return
        first = self.run.record(_RECORD)
        if first is None:
            raise OSError(errno.ESRCH, "its namespaces have not been made yet")
        self._namespaces = Namespaces(Identity(**first))

    def fork(self) -> int:
        """Fork a process that is among those of the task."""
        return os.fork() if self._namespaces is None else self._namespaces.fork()

    def enter(self) -> None:
        """Leave the host's files for the task's view of them."""
        if self._namespaces is not None:
            self._namespaces.enter()

    def kill(self) -> None:
        """Kill the first process, and with it whatever is left in its namespaces."""
        if self._first is not None and is_alive(self._first):
            os.kill(self._first.pid, signal.SIGKILL)
