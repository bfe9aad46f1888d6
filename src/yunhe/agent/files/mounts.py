"""Mounts, by system calls where those are simple."""

from __future__ import annotations

import ctypes
import os

from yunhe.agent.runtimes.namespaces import MS_BIND, mount

_MNT_DETACH = 2
_libc = ctypes.CDLL(None, use_errno=True)


def bind(source: str, target: str) -> None:
    """Show the directory *source* at *target* as well."""
    mount(source, target, "", MS_BIND)


def detach(path: str) -> None:
    """Take what is mounted at *path* out of sight; the kernel lets go of it with its last user."""
    if _libc.umount2(path.encode(), _MNT_DETACH) != 0:
        fault = ctypes.get_errno()
        raise OSError(fault, f"unmount {path}: {os.strerror(fault)}")


def flush(path: str) -> None:
    """Write what the file system of *path* holds in memory to its disk; raise ``OSError`` for what was ever lost."""
    handle = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        if _libc.syncfs(handle) != 0:
            fault = ctypes.get_errno()
            raise OSError(fault, f"flush {path}: {os.strerror(fault)}")
    finally:
        os.close(handle)


def mounts_below(path: str, *, mountinfo: str = "/proc/self/mountinfo") -> list[str]:
    """Return where anything is mounted below *path*, the innermost and latest first."""
    top = os.path.realpath(path) + "/"
    with open(mountinfo, encoding="utf-8", errors="surrogateescape") as file:
        points = [_unescaped(line.split(" ", 5)[4]) for line in file]
    return [point for point in reversed(points) if point.startswith(top)]


def detach_below(path: str) -> None:
    """Take everything that is mounted below *path* out of sight."""
    for point in mounts_below(path):
        detach(point)


def _unescaped(point: str) -> str:
    """Return a path of ``mountinfo``, where blanks and the like are three octal digits."""
    return (
        point.encode("utf-8", "surrogateescape")
        .decode("unicode_escape")
        .encode("latin-1")
        .decode("utf-8", "surrogateescape")
    )
