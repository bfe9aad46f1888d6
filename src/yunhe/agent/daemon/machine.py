"""The machine: what it has for us, and how much of it is in use."""

from __future__ import annotations

import os
import socket
import time
from typing import Any, NamedTuple


class DeclaredMachine(NamedTuple):
    """What the operator says this agent may use; None: what is found."""

    node_id: str
    cpu_millis: int | None
    memory_mib: int | None


class Machine:
    """Capacity and water level of the node."""

    def __init__(self, root: str, declared: DeclaredMachine) -> None:
        self._root = root
        self._declared = declared
        self._cores = sorted(os.sched_getaffinity(0))
        self._last = (time.monotonic(), _busy_us())
        self._busy_millis = 0
        self._own_last: tuple[float, int] | None = None
        self._own_millis = 0
        self._own_mib = 0

    @property
    def node_id(self) -> str:
        """Return the node's name."""
        return self._declared.node_id or socket.gethostname()

    @property
    def cores(self) -> list[int]:
        """Return the cores we may use."""
        return self._cores

    def total(self) -> dict[str, Any]:
        """Return the capacity: what is declared, else what this process may use of what there is."""
        cpu_millis = self._declared.cpu_millis
        memory_mib = self._declared.memory_mib
        disk = os.statvfs(self._root)
        return {
            "cpu_millis": cpu_millis if cpu_millis is not None else len(self._cores) * 1000,
            "memory_mib": memory_mib if memory_mib is not None else _meminfo()["MemTotal"] // 1024,
            "disk_mib": disk.f_blocks * disk.f_frsize >> 20,
        }

    def used(self) -> dict[str, Any]:
        """Return measured use: of the whole machine, or of our tasks alone where only a part of it is ours."""
        total = self.total()
        memory = _meminfo()
        disk = os.statvfs(self._root)
        cpu_millis = self._own_millis if self._declared.cpu_millis is not None else self._busy_millis
        used_mib = (memory["MemTotal"] - memory["MemAvailable"]) // 1024
        memory_mib = self._own_mib if self._declared.memory_mib is not None else used_mib
        return {
            "cpu_millis": min(total["cpu_millis"], cpu_millis),
            "memory_mib": min(total["memory_mib"], memory_mib),
            "disk_mib": total["disk_mib"] - (disk.f_bavail * disk.f_frsize >> 20),
        }

    def tick(self, own_cpu_us: int, own_memory_kib: int) -> None:
        """Take this second's measurement; *own* is what our running tasks have used and hold."""
        now = time.monotonic()
        then, busy_us = self._last
        if now - then < 0.2:
            return
        self._last = (now, _busy_us())
        self._busy_millis = max(0, round((self._last[1] - busy_us) / (now - then) / 1000))
        if self._own_last is not None and own_cpu_us >= self._own_last[1]:
            self._own_millis = round((own_cpu_us - self._own_last[1]) / (now - self._own_last[0]) / 1000)
        self._own_last = (now, own_cpu_us)
        self._own_mib = own_memory_kib // 1024

    def free_disk_bytes(self) -> int:
        """Return the room left where allocations live."""
        disk = os.statvfs(self._root)
        return disk.f_bavail * disk.f_frsize


def _busy_us() -> int:
    """Return the time all cores have spent on something other than idling, waiting and being elsewhere."""
    with open("/proc/stat", "rb") as file:
        ticks = [int(field) for field in file.readline().split()[1:9]]
    user, nice, system, _idle, _wait, interrupt, soft_interrupt, _stolen = ticks
    return (user + nice + system + interrupt + soft_interrupt) * 1_000_000 // os.sysconf("SC_CLK_TCK")


def _meminfo() -> dict[str, int]:
    with open("/proc/meminfo") as file:
        pairs = (line.split(":") for line in file)
        return {name: int(value.split()[0]) for name, value in pairs}
