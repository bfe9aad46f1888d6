"""Mounts, by system calls where those are simple."""

from __future__ import annotations

import ctypes
import errno
import fcntl
import os
import struct

from yunhe.agent.runtimes.namespaces import MS_BIND, mount

_MNT_DETACH = 2
_LOOP_CONFIGURE, _LOOP_GET_FREE = 0x4C0A, 0x4C82
_AUTOCLEAR = 4
_LOOP = struct.Struct("<II 5Q 4I 64s 64s 32s 2Q 8Q")
"""``loop_config`` of the kernel: the file, its block size, what is known of the device, and room."""
_TRIES = 64
_libc = ctypes.CDLL(None, use_errno=True)


def bind(source: str, target: str) -> None:
    """Show the directory *source* at *target* as well."""
    mount(source, target, "", MS_BIND)


def mount_image(image: str, target: str, kind: str, flags: int, options: str) -> None:
    """Mount the file system in the file *image*; its loop device goes with the last mount of it. Needs Linux 5.8."""
    file = os.open(image, os.O_RDWR | os.O_CLOEXEC)
    try:
        device, path = _loop_over(file, image)
        try:
            mount(path, target, kind, flags, options)
        finally:
            os.close(device)
    finally:
        os.close(file)


def _loop_over(file: int, name: str) -> tuple[int, str]:
    """Return a loop device over *file*, open, and its path; whoever closes it last, mounts included, gives it back."""
    known = (0, 0, 0, 0, 0, 0, 0, 0, _AUTOCLEAR, os.fsencode(name)[-63:], b"", b"", 0, 0)
    wanted = _LOOP.pack(file, 0, *known, *(0,) * 8)
    control = os.open("/dev/loop-control", os.O_RDWR | os.O_CLOEXEC)
    try:
        for _ in range(_TRIES):
            path = f"/dev/loop{fcntl.ioctl(control, _LOOP_GET_FREE)}"
            device = os.open(path, os.O_RDWR | os.O_CLOEXEC)
            try:
                fcntl.ioctl(device, _LOOP_CONFIGURE, wanted)
            except OSError as fault:
                os.close(device)
                if fault.errno != errno.EBUSY:  # somebody else was faster
                    raise
            else:
                return device, path
    finally:
        os.close(control)
    raise OSError(errno.EBUSY, "no loop device could be had")


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
