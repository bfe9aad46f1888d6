"""The Python environments that a node keeps: found, built by one, shared, and removed when room is needed.

``pythons/lock``             held for the short time in which anything below changes
``pythons/KEY/build``        held by the wrapper that builds this content
``pythons/KEY/NAME/``        an environment; whoever builds or uses it holds a shared lock on this directory
``pythons/KEY/ready.json``   the name and size of the one that is whole; its time is that of the last use

Locks are the kernel's: they end with their process. What no record names and nobody holds is half-built, and is removed.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import stat
from typing import Generator

from yunhe.agent.durable import read_json, replace_json

DEFAULT_LIMIT_MIB = 10 * 1024
"""How much all environments of a node may take, where its owner does not say."""
_PLACE = "pythons"
_READY = "ready.json"
_BUILD = "build"


class HeldPython:
    """An environment, finished or still to be built, that cannot be removed while this process holds it."""

    def __init__(self, entry: str, name: str, builder: int | None) -> None:
        self.entry = entry
        self.name = name
        self.path = os.path.join(entry, name)
        self._handle = os.open(self.path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        fcntl.flock(self._handle, fcntl.LOCK_SH)
        self._builder = builder
        self.ready = builder is None
        """Whether it is whole, and others may use it."""

    def end_build(self) -> None:
        """Let others see whether it is whole now."""
        if self._builder is not None:
            os.close(self._builder)
            self._builder = None

    def release(self) -> None:
        """Hold it no longer."""
        self.end_build()
        os.close(self._handle)


class PythonCache:
    """The environments below the agent's root; each process has a cache of its own, and locks keep them apart."""

    def __init__(self, root: str, limit_bytes: int) -> None:
        self._place = os.path.join(root, _PLACE)
        self._trash = os.path.join(root, "trash")
        self._limit_bytes = limit_bytes
        self.removed: list[str] = []
        """Where what was taken out of the cache lies, for somebody to remove at leisure."""

    @contextlib.contextmanager
    def _alone(self) -> Generator[None, None, None]:
        os.makedirs(self._place, 0o711, exist_ok=True)
        os.chmod(self._place, 0o711)
        handle = os.open(os.path.join(self._place, "lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX)
            yield
        finally:
            os.close(handle)

    def take(self, key: str, uid: int) -> HeldPython | None:
        """Return the environment of *key*, or a directory of *uid* to build it in; None while another process builds it."""
        entry = os.path.join(self._place, key)
        with self._alone():
            os.makedirs(entry, 0o711, exist_ok=True)
            os.chmod(entry, 0o711)
            name = self._whole(entry)
            if name:
                os.utime(os.path.join(entry, _READY))
                return HeldPython(entry, name, None)
            builder = _lock(os.path.join(entry, _BUILD))
            if builder is None:
                return None
            self._sweep(entry)
            name = os.urandom(8).hex()
            path = os.path.join(entry, name)
            os.mkdir(path, 0o700)
            if os.geteuid() == 0:
                os.chown(path, uid, uid)
            return HeldPython(entry, name, builder)

    def _whole(self, entry: str) -> str:
        """Return the name of the environment that can be used; what lost its interpreter cannot, and is forgotten."""
        ready = read_json(os.path.join(entry, _READY))
        if ready is None:
            return ""
        name = str(ready["name"])
        if os.path.exists(os.path.join(entry, name, "bin", "python")):
            return name
        os.unlink(os.path.join(entry, _READY))
        return ""

    def publish(self, held: HeldPython, size_bytes: int) -> bool:
        """Let others use what was built, after room is made; return False, and share nothing, where there is none."""
        with self._alone():
            if not self._make_room(size_bytes):
                return False
            replace_json(os.path.join(held.entry, _READY), {"name": held.name, "bytes": size_bytes})
        held.ready = True
        held.end_build()
        return True

    def discard(self, held: HeldPython) -> None:
        """Remove an environment that was not published."""
        with self._alone():
            held.release()
            self._drop(held.entry, held.name)
            self._forget(held.entry)

    def sweep(self) -> None:
        """Remove what no record names and nobody holds, of all."""
        if not os.path.isdir(self._place):
            return
        with self._alone():
            for entry in self._entries():
                self._sweep(entry)
                self._forget(entry)

    def _entries(self) -> list[str]:
        return [found.path for found in os.scandir(self._place) if found.is_dir(follow_symlinks=False)]

    def _ready(self) -> list[tuple[float, int, str]]:
        """Return last use, bytes and place of each shared environment, the one used longest ago first."""
        found: list[tuple[float, int, str]] = []
        for entry in self._entries():
            path = os.path.join(entry, _READY)
            ready = read_json(path)
            if ready is not None:
                found.append((os.stat(path).st_mtime, int(ready["bytes"]), entry))
        return sorted(found)

    def _make_room(self, size_bytes: int) -> bool:
        found = self._ready()
        total = size_bytes + sum(size for _, size, _ in found)
        if size_bytes > self._limit_bytes:
            return False
        for _, size, entry in found:
            if total <= self._limit_bytes:
                break
            total -= size if self._evict(entry) else 0
        return total <= self._limit_bytes

    def _evict(self, entry: str) -> bool:
        """Remove a shared environment unless somebody uses it; return whether it is gone."""
        ready = os.path.join(entry, _READY)
        name = str((read_json(ready) or {})["name"])
        holder = _lock(os.path.join(entry, name), os.O_RDONLY | os.O_DIRECTORY)
        if holder is None:
            return False
        os.close(holder)
        os.unlink(ready)
        self._drop(entry, name)
        self._forget(entry)
        return True

    def _sweep(self, entry: str) -> None:
        """Remove the directories of an entry that no record names and nobody holds."""
        kept = (read_json(os.path.join(entry, _READY)) or {}).get("name")
        for found in list(os.scandir(entry)):
            if not found.is_dir(follow_symlinks=False) or found.name == kept:
                continue
            holder = _lock(found.path, os.O_RDONLY | os.O_DIRECTORY)
            if holder is not None:
                os.close(holder)
                self._drop(entry, found.name)

    def _drop(self, entry: str, name: str) -> None:
        gone = os.path.join(self._trash, f"python-{name}")
        os.makedirs(self._trash, 0o700, exist_ok=True)
        os.rename(os.path.join(entry, name), gone)
        self.removed.append(gone)

    @staticmethod
    def _forget(entry: str) -> None:
        """Remove an entry that holds no environment and that nobody builds; whoever would lock it waits for us."""
        names = set(os.listdir(entry))
        if names - {_BUILD}:
            return
        build = os.path.join(entry, _BUILD)
        if names:
            builder = _lock(build)
            if builder is None:
                return
            os.unlink(build)
            os.close(builder)
        os.rmdir(entry)


def _lock(path: str, flags: int = os.O_RDWR | os.O_CREAT) -> int | None:
    """Return a handle that locks *path* for this process alone, or None if somebody else holds it."""
    handle = os.open(path, flags | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(handle)
        return None
    return handle


def seal(path: str, uid: int) -> int:
    """Take what *uid* has built below *path* out of its hands: it may read it and no more; return the bytes on disk.

    Raise ``OSError`` for what may be somebody else's too: a second name for a file, or another owner.
    """
    total = 0
    for place, _, names, folder in os.fwalk(path):
        for name in names:
            total += _seal_file(folder, name, uid)
        _give(folder, uid, 0o755 if place == path else 0o555)  # only who may write to it may move it
    return total


def _seal_file(folder: int, name: str, uid: int) -> int:
    status = os.stat(name, dir_fd=folder, follow_symlinks=False)
    if stat.S_ISLNK(status.st_mode):
        if os.geteuid() == 0:
            os.chown(name, 0, uid, dir_fd=folder, follow_symlinks=False)
        return 0
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    handle = os.open(name, flags, dir_fd=folder)
    try:
        status = os.fstat(handle)
        if not stat.S_ISREG(status.st_mode) or status.st_nlink != 1 or status.st_uid != uid:
            raise OSError(errno.EPERM, f"{name} is not a file of its own")
        _give(handle, uid, 0o555 if status.st_mode & 0o111 else 0o444)
        return status.st_blocks * 512
    finally:
        os.close(handle)


def _give(handle: int, uid: int, mode: int) -> None:
    """Let the group of *uid* read what *handle* is; as a file of root, where the agent is."""
    if os.geteuid() == 0:
        os.fchown(handle, 0, uid)
    os.fchmod(handle, mode & ~0o007)
