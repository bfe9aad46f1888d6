"""Limits without control groups: rlimits and nice on each process; members are found by descent and environment."""

from __future__ import annotations

import os
import resource
import signal
import time

from yunhe.agent.protocol.refusals import UNSUPPORTED, Refusal
from yunhe.agent.runs.processes import descendants, most_processes, read_stat, resident_kib, signal_all

MARK = "YUNHE_ALLOCATION_ID"
NICENESS = 5


class Ungrouped:
    """The processes of one allocation on a host where we may not make control groups."""

    def __init__(self, name: str, ancestor: int) -> None:
        self._mark = f"{MARK}={name}".encode()
        self._ancestor = ancestor
        self._memory_mib = 0

    def create(self, cpu_millis: int, memory_mib: int) -> None:
        """Keep the limits for those who join."""
        self._memory_mib = memory_mib

    def join(self) -> None:
        """Limit the calling process and what it starts: each may map this much, and all are nice."""
        os.nice(NICENESS)
        if self._memory_mib:
            limit = self._memory_mib * 1024 * 1024
            resource.setrlimit(resource.RLIMIT_DATA, (limit, limit))

    def processes(self) -> list[int]:
        """Return what descends from the wrapper, and what bears the allocation's name in its environment."""
        found = set(descendants(self._ancestor) if self._ancestor else ())
        for name in os.listdir("/proc"):
            if name.isdigit() and int(name) not in found and self._bears_mark(name):
                found.add(int(name))
        return sorted(found)

    def _bears_mark(self, pid: str) -> bool:
        try:
            with open(f"/proc/{pid}/environ", "rb") as file:
                return self._mark in file.read().split(b"\0")
        except OSError:
            return False

    def kill(self) -> None:
        """Kill until none is left; a fork in between is caught in the next round."""
        until = time.monotonic() + 10.0
        while time.monotonic() < until:
            left = [pid for pid in self.processes() if (stat := read_stat(pid)) and stat.state not in "ZX"]
            if not left:
                return
            signal_all(left, signal.SIGKILL)
            time.sleep(0.01)

    def is_crowded(self) -> bool:
        """Return whether the members are half as many as a group could have."""
        return len(self.processes()) > most_processes(0, 0) // 2

    def freeze(self) -> None:
        """Refuse: there is no freezer."""
        raise self._refusal()

    def thaw(self) -> None:
        """Do nothing: nothing is ever frozen."""

    def set_cpu(self, cpu_millis: int) -> None:
        """Refuse: the limits of a running process cannot be changed from outside."""
        raise self._refusal()

    def set_memory(self, memory_mib: int) -> None:
        """Refuse: the limits of a running process cannot be changed from outside."""
        raise self._refusal()

    def set_processes(self, most: int) -> None:
        """Refuse: the limits of a running process cannot be changed from outside."""
        raise self._refusal()

    def set_cores(self, cores: list[int]) -> None:
        """Refuse: there is no core set."""
        raise self._refusal()

    def _refusal(self) -> Refusal:
        return Refusal(
            UNSUPPORTED,
            "This node keeps limits by rlimits and nice, which cannot be changed while a task runs.",
            remedy="Run the agent as root, or give its user a writable control group.",
        )

    def cpu_us(self) -> int | None:
        """Return None: the kernel keeps no counter for processes without a group."""
        return None

    def memory_kib(self) -> int:
        """Return the sum over the members; pages they share count more than once."""
        return sum(map(resident_kib, self.processes()))

    def memory_peak_kib(self) -> int | None:
        """Return None: nobody keeps count."""
        return None

    def oom_kills(self) -> int:
        """Return zero: nobody counts."""
        return 0

    def shown_as(self) -> list[tuple[str, str]]:
        """Return nothing: there is no group to show."""
        return []

    def remove(self) -> None:
        """Do nothing: there is no group."""
