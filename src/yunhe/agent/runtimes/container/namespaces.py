"""The inside of a container: how a process of ours is put there.

The container engine makes the container; a step or a command is forked by us and then enters it. So its output, exit
code, environment, user and control group are the same as those of a task without an image, and nothing of them passes
through the engine.
"""

from __future__ import annotations

import ctypes
import errno
import os

from yunhe.agent.runs.environment import PATH
from yunhe.agent.runs.processes import Identity, is_alive

MARK = "YUNHE_CONTAINER"
"""In the environment of a container's first process: its name, by which we know that the process is ours."""

_ENTERED = ("ipc", "uts", "net", "cgroup", "mnt")  # the file system last: the paths of the others are outside
_OURS = frozenset({MARK, "HOME", "HOSTNAME", "LOGNAME", "TERM", "TMPDIR", "USER"})
_libc = ctypes.CDLL(None, use_errno=True)


class Namespaces:
    """The namespaces of a running container."""

    def __init__(self, first: Identity) -> None:
        self._first = first
        proc = f"/proc/{first.pid}/ns"
        if not is_alive(first):
            raise OSError(errno.ESRCH, "its container has ended")
        if os.stat(f"{proc}/user").st_ino != os.stat("/proc/self/ns/user").st_ino:
            raise OSError(errno.EPERM, "the container engine maps users, so the project's user is not inside")
        self._processes = _open(f"{proc}/pid")
        self._own_processes = _open("/proc/self/ns/pid")
        self._others = [
            _open(f"{proc}/{name}")
            for name in _ENTERED
            if os.stat(f"{proc}/{name}").st_ino != os.stat(f"/proc/self/ns/{name}").st_ino
        ]

    def fork(self) -> int:
        """Fork a process that is among the container's, and still sees our files; return as ``os.fork`` does."""
        _enter(self._processes)
        try:
            pid = os.fork()
        except OSError as fault:
            _enter(self._own_processes)
            if not is_alive(self._first):
                raise OSError(errno.ESRCH, "its container has ended") from fault
            raise
        if pid != 0:
            _enter(self._own_processes)
        return pid

    def enter(self) -> None:
        """Leave our files for the container's; for a process that ``fork`` has made."""
        for handle in self._others:
            _enter(handle)


def first_environment(pid: int) -> dict[str, str]:
    """Return what the first process of a container was started with: the image's variables and our mark."""
    with open(f"/proc/{pid}/environ", "rb") as file:
        pairs = (os.fsdecode(entry).partition("=") for entry in file.read().split(b"\0") if entry)
        return {name: value for name, _, value in pairs}


def environment_inside(pid: int, environment: dict[str, str], chosen: list[str]) -> dict[str, str]:
    """Return *environment* with the image's variables in it, less those that are *chosen* or ours to say."""
    image = first_environment(pid)
    kept = {name: value for name, value in image.items() if name not in chosen and name not in _OURS}
    return {**environment, "PATH": environment.get("PATH", PATH), **kept}


def _open(path: str) -> int:
    return os.open(path, os.O_RDONLY | os.O_CLOEXEC)


def _enter(handle: int) -> None:
    if _libc.setns(handle, 0) != 0:
        raise OSError(ctypes.get_errno(), "setns")
