"""Processes as the kernel shows them: who is who, who descends from whom, what each has read and written."""

from __future__ import annotations

import functools
import os
import signal
import time
from typing import NamedTuple

_FEWEST = 64
_TICK_US = 1_000_000 // os.sysconf("SC_CLK_TCK")


class Identity(NamedTuple):
    """A process that cannot be mistaken for a later one with the same number."""

    pid: int
    start_ticks: int
    boot_id: str


class Stat(NamedTuple):
    """What we need of ``/proc/PID/stat``."""

    state: str
    parent: int
    cpu_us: int
    """Own and reaped children's."""
    start_ticks: int


@functools.lru_cache(maxsize=1)
def boot_id() -> str:
    """Return the kernel's random name for this boot."""
    with open("/proc/sys/kernel/random/boot_id") as file:
        return file.read().strip()


def most_processes(cpu_millis: int, memory_mib: int) -> int:
    """Return how many processes and threads one task may have: one for each thousandth of a core and each MiB it has.

    Whoever forks without end holds up everybody else's forks, and the more processes there are, the longer
    (``python -m lab.hostile_tenants``). What a task reserved bounds what it can do to others.
    """
    return min([_most_processes(), *(max(_FEWEST, share) for share in (cpu_millis, memory_mib) if share)])


@functools.lru_cache(maxsize=1)
def _most_processes() -> int:
    """Return a small part of the processes that the kernel has numbers for."""
    with open("/proc/sys/kernel/pid_max") as file:
        return min(4096, max(256, int(file.read()) // 32))


def read_stat(pid: int) -> Stat | None:
    """Return the state of *pid*, or None if there is no such process."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            # The name, in parentheses, may hold spaces and parentheses itself.
            fields = file.read().rpartition(b")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return None
    ticks = sum(int(field) for field in fields[11:15])
    return Stat(fields[0].decode(), int(fields[1]), ticks * _TICK_US, int(fields[19]))


def identify(pid: int) -> Identity:
    """Return the identity of a process that is known to exist, such as oneself."""
    stat = read_stat(pid)
    return Identity(pid, stat.start_ticks if stat else 0, boot_id())


def is_alive(identity: Identity) -> bool:
    """Return whether that very process still runs; one that only waits to be reaped does not."""
    if identity.boot_id != boot_id():
        return False
    stat = read_stat(identity.pid)
    return stat is not None and stat.start_ticks == identity.start_ticks and stat.state not in "ZX"


def descendants(ancestor: int) -> list[int]:
    """Return every living process below *ancestor*, wherever in the tree."""
    children: dict[int, list[int]] = {}
    for name in os.listdir("/proc"):
        if name.isdigit():
            stat = read_stat(int(name))
            if stat is not None and stat.state not in "ZX":
                children.setdefault(stat.parent, []).append(int(name))
    found: list[int] = []
    queue = [ancestor]
    while queue:
        below = children.get(queue.pop(), [])
        found += below
        queue += below
    return found


def io_bytes(pid: int) -> tuple[int, int]:
    """Return bytes read from and written to disks by *pid* and the children it has reaped."""
    try:
        with open(f"/proc/{pid}/io", "rb") as file:
            lines = dict(line.split(b": ") for line in file.read().splitlines())
    except (OSError, ValueError):
        return 0, 0
    return int(lines.get(b"read_bytes", 0)), int(lines.get(b"write_bytes", 0))


def resident_kib(pid: int) -> int:
    """Return the resident memory of *pid*."""
    try:
        with open(f"/proc/{pid}/statm", "rb") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE") // 1024
    except (OSError, IndexError):
        return 0


def ancestors_first(pids: set[int]) -> list[int]:
    """Return *pids* so that nobody comes before the one that started it."""
    parents = {pid: stat.parent for pid in pids if (stat := read_stat(pid)) is not None}

    def depth(pid: int) -> int:
        seen = {pid}
        while (pid := parents.get(pid, 0)) in pids and pid not in seen:
            seen.add(pid)
        return len(seen)

    return sorted(pids, key=lambda pid: (depth(pid), pid))


def catches(pid: int, number: int) -> bool:
    """Return whether *pid* has a handler of its own for a signal."""
    try:
        with open(f"/proc/{pid}/status", "rb") as file:
            lines = dict(line.split(b":\t", 1) for line in file.read().splitlines() if b":\t" in line)
    except (FileNotFoundError, ProcessLookupError):
        return False
    return bool(int(lines.get(b"SigCgt", b"0"), 16) >> (number - 1) & 1)


def signal_all(pids: list[int], number: int) -> None:
    """Send *number* to each of *pids* that still exists."""
    for pid in pids:
        try:
            os.kill(pid, number)
        except (ProcessLookupError, PermissionError):
            continue


def kill_descendants(ancestor: int, *, within_s: float = 5.0) -> None:
    """Kill everything below *ancestor* until nothing is left; a fork in between is caught in the next round."""
    until = time.monotonic() + within_s
    while time.monotonic() < until:
        left = descendants(ancestor)
        if not left:
            return
        signal_all(left, signal.SIGKILL)
        time.sleep(0.01)
