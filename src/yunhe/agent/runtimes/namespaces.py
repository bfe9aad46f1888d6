"""Namespaces of a task: how they are made around a first process of ours, and how a step is put among them.

A step or a command is forked by us and then enters. So its output, exit code, environment, user and control group are
the same as those of a task without namespaces.
"""

from __future__ import annotations

import ctypes
import errno
import os
import signal
from typing import Callable

from yunhe.agent.runs.processes import Identity, is_alive
from yunhe.agent.runs.users import end_with_parent

NEW_FILES, NEW_NAMES, NEW_MESSAGES = 0x00020000, 0x04000000, 0x08000000
NEW_PROCESSES, NEW_NETWORK = 0x20000000, 0x40000000
_ENTERED = ("ipc", "uts", "net", "cgroup", "mnt")  # the file system last: the paths of the others are outside
_READY = b"."
_libc = ctypes.CDLL(None, use_errno=True)


class Namespaces:
    """The namespaces of a running process."""

    def __init__(self, first: Identity) -> None:
        self._first = first
        proc = f"/proc/{first.pid}/ns"
        if not is_alive(first):
            raise OSError(errno.ESRCH, "the first process of its namespaces has ended")
        if os.stat(f"{proc}/user").st_ino != os.stat("/proc/self/ns/user").st_ino:
            raise OSError(errno.EPERM, "its users are mapped, so the project's user is not inside")
        self._processes = _open(f"{proc}/pid")
        self._own_processes = _open("/proc/self/ns/pid")
        self._others = [
            _open(f"{proc}/{name}")
            for name in _ENTERED
            if os.stat(f"{proc}/{name}").st_ino != os.stat(f"/proc/self/ns/{name}").st_ino
        ]

    def fork(self) -> int:
        """Fork a process that is among those inside, and still sees our files; return as ``os.fork`` does."""
        _enter(self._processes)
        try:
            pid = os.fork()
        except OSError as fault:
            _enter(self._own_processes)
            if not is_alive(self._first):
                raise OSError(errno.ESRCH, "the first process of its namespaces has ended") from fault
            raise
        if pid != 0:
            _enter(self._own_processes)
        return pid

    def enter(self) -> None:
        """Leave our files for those inside; for a process that ``fork`` has made."""
        for handle in self._others:
            _enter(handle)


def begin(flags: int, arrange: Callable[[], None]) -> int:
    """Start the first process of new namespaces, of processes and of *flags*; return its ID once *arrange* is done.

    It reaps what others leave behind, and ends with us: the kernel then ends everything in its namespace.
    """
    own = _open("/proc/self/ns/pid")
    heard, told = os.pipe()
    unshare(NEW_PROCESSES)
    try:
        pid = os.fork()
        if pid == 0:
            _be_first(flags, arrange, told)
    finally:
        _enter(own)
        os.close(own)
        os.close(told)
    answer = os.read(heard, 400)
    os.close(heard)
    if answer != _READY:
        os.waitpid(pid, 0)
        number, _, text = answer.decode(errors="replace").partition(" ")
        raise OSError(int(number or 0), text or "the first process of its namespaces ended at once")
    return pid


def _be_first(flags: int, arrange: Callable[[], None], told: int) -> None:
    try:
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGCHLD})
        end_with_parent()
        os.setsid()
        os.closerange(3, told)
        os.closerange(told + 1, 1024)
        try:
            unshare(flags)
            arrange()
        except OSError as fault:
            os.write(told, f"{fault.errno or 0} {fault.strerror or fault}".encode()[:400])
            return
        os.write(told, _READY)  # fails where whoever started us is gone already
        os.close(told)
        while True:
            signal.sigwait({signal.SIGCHLD})
            _reap()
    finally:
        os._exit(1)


def _reap() -> None:
    try:
        while os.waitpid(-1, os.WNOHANG)[0] != 0:
            continue
    except ChildProcessError:
        return


def can_unshare(flags: int) -> str:
    """Return why namespaces of *flags* cannot be made here; empty if they can."""
    heard, told = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            unshare(flags)
            mount("", "/", "", MS_RECURSIVE | MS_SLAVE)
        except OSError as fault:
            os.write(told, (os.strerror(fault.errno or 0)).encode())
        finally:
            os._exit(0)
    os.close(told)
    why = os.read(heard, 400).decode(errors="replace")
    os.close(heard)
    os.waitpid(pid, 0)
    return why


def join_network(pid: int) -> None:
    """Move the calling process into the network of another."""
    handle = _open(f"/proc/{pid}/ns/net")
    _enter(handle)
    os.close(handle)


def unshare(flags: int) -> None:
    """Move the calling process into new namespaces."""
    if _libc.unshare(flags) != 0:
        raise OSError(ctypes.get_errno(), f"unshare: {os.strerror(ctypes.get_errno())}")


MS_READ_ONLY, MS_NO_SETUID, MS_NO_DEVICES, MS_NO_PROGRAMS, MS_NO_ATIME = 0x1, 0x2, 0x4, 0x8, 0x400
MS_REMOUNT, MS_BIND, MS_RECURSIVE, MS_SLAVE = 0x20, 0x1000, 0x4000, 0x80000


def mount(source: str, target: str, kind: str, flags: int, options: str = "") -> None:
    """Mount as the system call does; raise what kept it from it, with the place."""
    words = [word.encode() if word else None for word in (source, target, kind)]
    if _libc.mount(*words, ctypes.c_ulong(flags), options.encode() or None) != 0:
        raise OSError(ctypes.get_errno(), f"{target} cannot be mounted: {os.strerror(ctypes.get_errno())}")


def _open(path: str) -> int:
    return os.open(path, os.O_RDONLY | os.O_CLOEXEC)


def _enter(handle: int) -> None:
    if _libc.setns(handle, 0) != 0:
        raise OSError(ctypes.get_errno(), f"setns: {os.strerror(ctypes.get_errno())}")
