"""The machine: what it has for us, and how much of it is in use."""

from __future__ import annotations

import os
import re
import socket
import time
from typing import Any, NamedTuple

DEFAULT_DISK_MIB = 20 * 1024
MOST_FILE_SYSTEMS = 32
SECTOR_BYTES = 512
_ISA = {"x86_64": "amd64", "aarch64": "arm64", "armv7l": "arm", "i686": "386"}
_VIRTUAL = re.compile(r"(loop|ram|dm-|md|zram)")
"""Disks whose bytes are those of others too."""


class DeclaredMachine(NamedTuple):
    """What the operator says this agent may use; None: what is found."""

    node_id: str
    cpu_millis: int | None
    memory_mib: int | None
    default_disk_mib: int = DEFAULT_DISK_MIB
    """The disk limit of a task that names none."""


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
        self._system = _system()
        self._counted = (time.monotonic(), _counters())
        self._throughput: dict[str, float] = {}

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

    def disk_limit_bytes(self, limit_bytes: int | None) -> int:
        """Return the disk limit of a task: what it has, or what one that names none gets."""
        return limit_bytes or min(self._declared.default_disk_mib, self.total()["disk_mib"]) << 20

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
        counted, self._counted = self._counted, (now, _counters())
        self._throughput = {
            f"{name}_bytes_per_s": round(max(0, count - counted[1][name]) / (now - counted[0]), 1)
            for name, count in self._counted[1].items()
            if name in counted[1]
        }
        self._busy_millis = max(0, round((self._last[1] - busy_us) / (now - then) / 1000))
        if self._own_last is not None and own_cpu_us >= self._own_last[1]:
            self._own_millis = round((own_cpu_us - self._own_last[1]) / (now - self._own_last[0]) / 1000)
        self._own_last = (now, own_cpu_us)
        self._own_mib = own_memory_kib // 1024

    def about(self) -> dict[str, Any]:
        """Return what the machine is, its file systems and what goes through its network and disks."""
        return {
            "isa": _ISA.get(os.uname().machine, os.uname().machine),
            "system": self._system,
            "file_systems": _file_systems(self._root),
            "throughput": self._throughput,
        }

    def free_disk_bytes(self) -> int:
        """Return the room left where allocations live."""
        disk = os.statvfs(self._root)
        return disk.f_bavail * disk.f_frsize


def _system() -> dict[str, Any]:
    """Return what does not change until the machine is booted anew."""
    processor = _fields("/proc/cpuinfo")
    booted = re.search(r"^btime (\d+)$", _read("/proc/stat"), re.MULTILINE)
    return {
        "os": os.uname().sysname.lower(),
        "kernel": os.uname().release,
        "cpu_model": processor.get("model name") or processor.get("uarch") or processor.get("Model", ""),
        "cpu_flags": processor.get("flags") or processor.get("Features") or processor.get("isa", ""),
        "booted_at": float(booted[1]) if booted else None,
    }


def _file_systems(root: str) -> list[dict[str, Any]]:
    """Return the file systems of this machine's disks; one of the network might never answer, and is not asked."""
    found: dict[str, dict[str, Any]] = {}
    for line in _read("/proc/mounts").splitlines():
        source, path, kind = line.split()[:3]
        own = source.startswith("/dev/") and not source.startswith(
            "/dev/loop"
        )  # a loop's room is that of its file
        if own and not path.startswith(root) and len(found) < MOST_FILE_SYSTEMS:
            try:
                room = os.statvfs(path)
            except OSError:
                continue  # not ours to see
            if room.f_blocks and os.path.isdir(path):
                found.setdefault(source, _room(path, kind, room))
    if not found:
        found[root] = _room(root, "", os.statvfs(root))
    return list(found.values())


def _room(path: str, kind: str, room: os.statvfs_result) -> dict[str, Any]:
    total, free = room.f_blocks * room.f_frsize >> 20, room.f_bavail * room.f_frsize >> 20
    return {"path": path, "type": kind, "total_mib": total, "free_mib": free}


def _counters() -> dict[str, int]:
    """Return the bytes that have gone through the network, loopback aside, and through whole disks."""
    counted: dict[str, int] = {}
    for line in _read("/proc/net/dev").splitlines()[2:]:
        name, _, numbers = line.partition(":")
        if name.strip() != "lo":
            counted["received"] = counted.get("received", 0) + int(numbers.split()[0])
            counted["sent"] = counted.get("sent", 0) + int(numbers.split()[8])
    for line in _read("/proc/diskstats").splitlines():
        fields = line.split()
        if len(fields) > 9 and os.path.isdir(f"/sys/block/{fields[2]}") and not _VIRTUAL.match(fields[2]):
            counted["read"] = counted.get("read", 0) + int(fields[5]) * SECTOR_BYTES
            counted["written"] = counted.get("written", 0) + int(fields[9]) * SECTOR_BYTES
    return counted


def _fields(path: str) -> dict[str, str]:
    """Return the ``name: value`` lines of a file; of a name that comes again, the first."""
    found: dict[str, str] = {}
    for line in _read(path).splitlines():
        name, _, value = line.partition(":")
        found.setdefault(name.strip(), value.strip())
    return found


def _read(path: str) -> str:
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read()
    except OSError:
        return ""  # a kernel or a sandbox without it


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
