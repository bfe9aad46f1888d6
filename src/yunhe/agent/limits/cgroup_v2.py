"""Limits by control groups, version 2: one directory for everything."""

from __future__ import annotations

import errno
import os
import signal
import time

from yunhe.agent.runs.processes import most_processes, signal_all

REQUIRED = ("cpu", "memory")
PERIOD_US = 100_000


def open_subtree(mount: str, name: str) -> bool:
    """Make the parent group *name* and hand the controllers down to it; return whether we may."""
    parent = f"{mount}/{name}"
    try:
        wanted = set(_read(f"{mount}/cgroup.controllers").split()) & {"cpu", "memory", "pids", "cpuset"}
        text = " ".join(f"+{controller}" for controller in sorted(wanted))
        _write(f"{mount}/cgroup.subtree_control", text)
        os.makedirs(parent, exist_ok=True)
        _write(f"{parent}/cgroup.subtree_control", text)
    except OSError:
        return False
    return True


class GroupV2:
    """One group, as a directory of the unified tree."""

    def __init__(self, path: str) -> None:
        self._path = path

    def create(self, cpu_millis: int, memory_mib: int) -> None:
        """Make the group with its limits."""
        os.makedirs(self._path, exist_ok=True)
        self.set_cpu(cpu_millis)
        self.set_memory(memory_mib)
        self.set_processes(most_processes(cpu_millis, memory_mib))

    def join(self) -> None:
        """Put the calling process into the group."""
        self._write("cgroup.procs", "0")

    def processes(self) -> list[int]:
        """Return the living members."""
        try:
            return [int(pid) for pid in self._read("cgroup.procs").split()]
        except OSError as error:
            if error.errno not in (errno.ENOENT, errno.ENODEV):  # removed before, or while it was read
                raise
            return []

    def kill(self) -> None:
        """Kill all members in one step where the kernel can (5.14 or newer), else frozen and one by one.

        What waits for its share of the CPU can neither be frozen nor end, so the quota is lifted first.
        """
        if self.processes():
            for name, value in (("cpu.max", f"max {PERIOD_US}"), ("pids.max", "0")):
                if os.path.exists(f"{self._path}/{name}"):
                    self._write(name, value)
        until = time.monotonic() + 10.0
        while self.processes() and time.monotonic() < until:
            try:
                self._write("cgroup.kill", 1)
            except FileNotFoundError:
                self._freeze_for(0.2)
                signal_all(self.processes(), signal.SIGKILL)
                self.thaw()
            time.sleep(0.005)

    def is_crowded(self) -> bool:
        """Return whether the members are about as many as there may be."""
        try:
            most = self._read("pids.max").strip()
        except FileNotFoundError:
            return False
        return most.isdigit() and len(self.processes()) >= int(most) * 7 // 8

    def _freeze_for(self, wait_s: float) -> None:
        self._write("cgroup.freeze", 1)
        until = time.monotonic() + wait_s
        while time.monotonic() < until and "frozen 1" not in self._read("cgroup.events"):
            time.sleep(0.002)

    def freeze(self) -> None:
        """Stop every member where it stands."""
        self._freeze_for(5.0)

    def thaw(self) -> None:
        """Let the members go on."""
        self._write("cgroup.freeze", 0)

    def set_cpu(self, cpu_millis: int) -> None:
        """Set the quota, and the weight for when the machine is full."""
        quota = str(max(1000, cpu_millis * PERIOD_US // 1000)) if cpu_millis else "max"
        self._write("cpu.max", f"{quota} {PERIOD_US}")
        self._write("cpu.weight", min(10_000, max(1, cpu_millis // 10)) if cpu_millis else 100)

    def set_memory(self, memory_mib: int) -> None:
        """Set the limit; refuse one below what the members hold, where the kernel would kill one of them."""
        limit = memory_mib * 1024 * 1024
        if limit and self.memory_kib() * 1024 > limit:
            raise OSError(errno.EBUSY, "more than that is resident")
        self._write("memory.max", limit or "max")

    def set_processes(self, most: int) -> None:
        """Set how many processes and threads there may be, where the host has such a limit."""
        if os.path.exists(f"{self._path}/pids.max"):
            self._write("pids.max", most)

    def set_cores(self, cores: list[int]) -> None:
        """Bind the members to *cores*; empty: to all the parent has."""
        # Emptying the file is refused while there are members, so "all" is spelled out.
        parent = os.path.dirname(self._path)
        self._write(
            "cpuset.cpus", ",".join(map(str, cores)) or _read(f"{parent}/cpuset.cpus.effective").strip()
        )

    def cpu_us(self) -> int | None:
        """Return the group's cpu time."""
        return self._number("cpu.stat", "usage_usec")

    def memory_kib(self) -> int:
        """Return anonymous and mapped memory."""
        return (self._number("memory.stat", "anon") + self._number("memory.stat", "file_mapped")) // 1024

    def memory_peak_kib(self) -> int | None:
        """Return the most the group was ever charged, what it cached of files included; needs Linux 5.19."""
        try:
            return int(self._read("memory.peak")) // 1024
        except FileNotFoundError:
            return None

    def oom_kills(self) -> int:
        """Return how often the kernel killed a member for want of memory."""
        return self._number("memory.events", "oom_kill")

    def shown_as(self) -> list[tuple[str, str]]:
        """Return the group's directory with where the tree is mounted, as if the group were all there is."""
        return [(self._path, os.path.dirname(os.path.dirname(self._path)))]

    def remove(self) -> None:
        """Remove the group; the kernel may take a moment to let go of dead members."""
        for _ in range(100):
            try:
                os.rmdir(self._path)
            except FileNotFoundError:
                return
            except OSError as fault:
                if fault.errno != errno.EBUSY:
                    raise
                time.sleep(0.01)
            else:
                return

    def _number(self, file: str, name: str) -> int:
        for line in self._read(file).splitlines():
            key, _, value = line.partition(" ")
            if key == name:
                return int(value)
        return 0

    def _read(self, name: str) -> str:
        return _read(f"{self._path}/{name}")

    def _write(self, name: str, value: object) -> None:
        _write(f"{self._path}/{name}", str(value))


def _read(path: str) -> str:
    with open(path) as file:
        return file.read()


def _write(path: str, value: str) -> None:
    handle = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
    try:
        os.write(handle, value.encode())
    finally:
        os.close(handle)
