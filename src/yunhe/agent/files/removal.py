"""Removing what tasks have left, whatever its depth, by a process with limits of its own."""

from __future__ import annotations

import contextlib
import os
from typing import Any

from yunhe.agent.files.mounts import detach_below
from yunhe.agent.limits.limits import LimitsBackend

CPU_MILLIS = 500
MEMORY_MIB = 64
"""What removing one directory may use."""


def clean_job(order: dict[str, Any], _handles: list[int]) -> None:
    """Remove the directory of *order*, in a control group that goes with it."""
    group = LimitsBackend(order["kind"], order["paths"]).group(os.path.basename(order["path"]))
    group.create(CPU_MILLIS, MEMORY_MIB)
    pid = os.fork()
    if pid == 0:
        try:
            group.join()
            detach_below(order["path"])
            remove_tree(order["path"])
        finally:
            os._exit(0)
    os.waitpid(pid, 0)
    group.remove()


def remove_tree(path: str) -> None:
    """Remove *path* and everything below it; what may not be removed stays.

    No path becomes long and nothing recurses: a directory in a directory is moved up before it is emptied.
    """
    try:
        top = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except FileNotFoundError:
        return
    try:
        moved, prefix = 0, os.urandom(8).hex()
        while True:
            with os.scandir(top) as entries:
                folders = [entry.name for entry in entries if not _unlinked(entry, top)]
            before = moved
            for name in folders:
                with contextlib.suppress(OSError):
                    moved += _empty(top, name, f"{prefix}-{moved}")
                    os.rmdir(name, dir_fd=top)
                    moved += 1
            if moved == before:
                break
    finally:
        os.close(top)
    with contextlib.suppress(OSError):
        os.rmdir(path)


def _unlinked(entry: os.DirEntry[str], folder: int) -> bool:
    """Unlink *entry* unless it is a directory; return whether it is none."""
    if entry.is_dir(follow_symlinks=False):
        return False
    with contextlib.suppress(OSError):
        os.unlink(entry.name, dir_fd=folder)
    return True


def _empty(top: int, name: str, prefix: str) -> int:
    """Unlink the files of the directory *name* and move its directories to the top; return how many were moved."""
    if os.geteuid() != 0:
        os.chmod(name, 0o700, dir_fd=top)
    folder = os.open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=top)
    moved = 0
    try:
        with os.scandir(folder) as entries:
            for entry in entries:
                if not _unlinked(entry, folder):
                    if os.geteuid() != 0:
                        os.chmod(entry.name, 0o700, dir_fd=folder)
                    moved += 1
                    os.rename(entry.name, f"{prefix}-{moved}", src_dir_fd=folder, dst_dir_fd=top)
    finally:
        os.close(folder)
    return moved
