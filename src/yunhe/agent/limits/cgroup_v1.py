"""Limits by control groups, version 1: one directory per controller."""

from __future__ import annotations

import errno
import os
import re
import signal
import time

from yunhe.agent.runs.processes import most_processes, signal_all

REQUIRED = ("cpu", "cpuacct", "memory", "freezer")
PERIOD_US = 100_000
_UNLIMITED = -1
_RESIDENT = re.compile(r"^total_(?:rss|mapped_file) (\d+)$", re.MULTILINE)


class GroupV1:
    """One group, as a directory below each controller."""

    def __init__(self, paths: dict[str, str]) -> None:
        self._paths = paths

    def try_parent(self) -> bool:
        """Make the parent of an agent's groups; return whether we may."""
        try:
            for path in self._paths.values():
                os.makedirs(path, exist_ok=True)
            self._inherit_cpuset()
        except OSError:
            return False
        return all(os.access(path, os.W_OK) for path in self._paths.values())

    def create(self, cpu_millis: int, memory_mib: int) -> None:
        """Make the group with its limits."""
        for path in self._paths.values():
            os.makedirs(path, exist_ok=True)
        self._inherit_cpuset()
        self.set_cpu(cpu_millis)
        self.set_memory(memory_mib)
        self.set_processes(most_processes(cpu_millis, memory_mib))

    def _inherit_cpuset(self) -> None:
        """Copy cores and memory nodes from the parent: a new cpuset has none and lets nobody in."""
        path = self._paths.get("cpuset")
        if path is None:
            return
        for name in ("cpuset.cpus", "cpuset.mems"):
            if not _read(f"{path}/{name}").strip():
                _write(f"{path}/{name}", _read(f"{os.path.dirname(path)}/{name}").strip())

    def join(self) -> None:
        """Put the calling process into the group."""
        for path in self._paths.values():
            _write(f"{path}/cgroup.procs", "0")

    def processes(self) -> list[int]:
        """Return the living members."""
        try:
            return [int(pid) for pid in _read(f"{self._paths['freezer']}/cgroup.procs").split()]
        except OSError as error:
            if error.errno not in (errno.ENOENT, errno.ENODEV):  # removed before, or while it was read
                raise
            return []

    def kill(self) -> None:
        """Freeze, so that nothing can fork away, kill all, thaw; until none is left.

        What waits for its share of the CPU can neither be frozen nor end, so the quota is lifted first.
        """
        if self.processes():
            self._write("cpu", "cpu.cfs_quota_us", _UNLIMITED)
            self.set_processes(0)
        until = time.monotonic() + 10.0
        while self.processes() and time.monotonic() < until:
            self._freeze_for(0.2)
            signal_all(self.processes(), signal.SIGKILL)
            self.thaw()
            time.sleep(0.005)

    def is_crowded(self) -> bool:
        """Return whether the members are about as many as there may be."""
        if "pids" not in self._paths:
            return False
        most = self._read("pids", "pids.max").strip()
        return most.isdigit() and len(self.processes()) >= int(most) * 7 // 8

    def _freeze_for(self, wait_s: float) -> None:
        self._write("freezer", "freezer.state", "FROZEN")
        until = time.monotonic() + wait_s
        while time.monotonic() < until and "FROZEN" not in self._read("freezer", "freezer.state"):
            time.sleep(0.002)

    def freeze(self) -> None:
        """Stop every member where it stands."""
        self._freeze_for(5.0)

    def thaw(self) -> None:
        """Let the members go on."""
        self._write("freezer", "freezer.state", "THAWED")

    def set_cpu(self, cpu_millis: int) -> None:
        """Set the quota, and the share for when the machine is full."""
        quota_us = max(1000, cpu_millis * PERIOD_US // 1000) if cpu_millis else _UNLIMITED
        self._write("cpu", "cpu.cfs_period_us", PERIOD_US)
        self._write("cpu", "cpu.cfs_quota_us", quota_us)
        self._write("cpu", "cpu.shares", max(2, cpu_millis * 1024 // 1000) if cpu_millis else 1024)

    def set_memory(self, memory_mib: int) -> None:
        """Set the limit; fails if the members hold more than that and it cannot be reclaimed."""
        self._write("memory", "memory.limit_in_bytes", memory_mib * 1024 * 1024 if memory_mib else _UNLIMITED)

    def set_processes(self, most: int) -> None:
        """Set how many processes and threads there may be, where the host has such a limit."""
        if "pids" in self._paths:
            self._write("pids", "pids.max", most)

    def set_cores(self, cores: list[int]) -> None:
        """Bind the members to *cores*; empty: to all the parent has."""
        parent = os.path.dirname(self._paths["cpuset"])
        text = ",".join(map(str, cores)) or _read(f"{parent}/cpuset.cpus").strip()
        self._write("cpuset", "cpuset.cpus", text)

    def cpu_us(self) -> int | None:
        """Return the group's cpu time."""
        return int(self._read("cpuacct", "cpuacct.usage")) // 1000

    def memory_kib(self) -> int:
        """Return anonymous and mapped memory; page cache that nobody maps is the kernel's to give back."""
        text = self._read("memory", "memory.stat")
        return sum(map(int, _RESIDENT.findall(text))) // 1024

    def memory_peak_kib(self) -> int | None:
        """Return the most the group was ever charged, what it cached of files included: what the limit judges."""
        return int(self._read("memory", "memory.max_usage_in_bytes")) // 1024

    def oom_kills(self) -> int:
        """Return how often the kernel killed a member for want of memory."""
        for line in self._read("memory", "memory.oom_control").splitlines():
            if line.startswith("oom_kill "):
                return int(line.split()[1])
        return 0

    def shown_as(self) -> list[tuple[str, str]]:
        """Return each controller's directory with where that controller is mounted, as if the group were all there is."""
        return sorted({(path, os.path.dirname(os.path.dirname(path))) for path in self._paths.values()})

    def remove(self) -> None:
        """Remove the group's directories; the kernel may take a moment to let go of dead members."""
        for path in self._paths.values():
            _remove(path)

    def _read(self, controller: str, name: str) -> str:
        return _read(f"{self._paths[controller]}/{name}")

    def _write(self, controller: str, name: str, value: object) -> None:
        _write(f"{self._paths[controller]}/{name}", str(value))


def _read(path: str) -> str:
    with open(path) as file:
        return file.read()


def _write(path: str, value: str) -> None:
    handle = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
    try:
        os.write(handle, value.encode())
    finally:
        os.close(handle)


def _remove(path: str) -> None:
    for _ in range(100):
        try:
            os.rmdir(path)
        except FileNotFoundError:
            return
        except OSError as fault:
            if fault.errno != errno.EBUSY:
                raise
            time.sleep(0.01)
        else:
            return
