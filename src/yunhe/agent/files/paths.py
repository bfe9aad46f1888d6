"""Paths of a host: a short one for sockets, and how much lies below one."""

from __future__ import annotations

import os

_BLOCK_BYTES = 512


class ShortPath:
    """A short path to a directory, for socket names that must not be longer than 107 bytes."""

    def __init__(self, path: str) -> None:
        self._handle = os.open(path, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)

    def __enter__(self) -> str:
        return f"/proc/self/fd/{self._handle}"

    def __exit__(self, *_: object) -> None:
        os.close(self._handle)


def bytes_below(path: str) -> int:
    """Return the bytes on disk of everything below *path*; a file with many names counts once."""
    total = 0
    seen: set[tuple[int, int]] = set()
    queue = [path]
    while queue:
        try:
            entries = list(os.scandir(queue.pop()))
        except OSError:
            continue
        for entry in entries:
            try:
                status = entry.stat(follow_symlinks=False)
            except OSError:
                continue
            if entry.is_dir(follow_symlinks=False):
                queue.append(entry.path)
            elif status.st_nlink == 1 or (status.st_dev, status.st_ino) not in seen:
                seen.add((status.st_dev, status.st_ino))
                total += status.st_blocks * _BLOCK_BYTES
    return total
