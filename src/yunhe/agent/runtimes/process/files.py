"""The host's files as a task sees them: the system read-only, directories and devices of its own.

Other file systems of the host (``/home``, ``/data`` …) are as they are: what a task may write there is for their owners
to say.
"""

from __future__ import annotations

import glob
import os
import stat
from typing import Any

from yunhe.agent.runs.directory import Run
from yunhe.agent.runs.users import named
from yunhe.agent.runtimes.namespaces import (
    MS_BIND,
    MS_NO_DEVICES,
    MS_NO_PROGRAMS,
    MS_NO_SETUID,
    MS_READ_ONLY,
    MS_RECURSIVE,
    MS_REMOUNT,
    MS_SLAVE,
    mount,
)
from yunhe.agent.runtimes.network import TaskNetwork, close_ipv6, hide_sockets

_SYSTEM = ("/", "/boot", "/etc", "/opt", "/run", "/sys", "/usr", "/usr/local", "/var", "/var/lib", "/var/log")
_TEMPORARY = ("/tmp", "/var/tmp")
_DEVICES = (
    "null",
    "zero",
    "full",
    "random",
    "urandom",
    "tty",
    "nvidia*",
    "nvidia-caps/*",
    "kfd",
    "dri/*",
    "infiniband/*",
)
_LARGEST_BYTES = 24 * 1024
"""Of a list of users: two of them have room in a task's ``/dev``, which only holds them while it is made."""
_LINKS = {"fd": "/proc/self/fd", "stdin": "/proc/self/fd/0", "stdout": "/proc/self/fd/1"}
_LINKS.update({"stderr": "/proc/self/fd/2", "ptmx": "pts/ptmx"})


def arrange(run: Run, order: dict[str, Any], network: TaskNetwork) -> None:
    """Give the calling process, which has a file name space of its own, the files of the task of *order*."""
    os.umask(0o022)
    mount("", "/", "", MS_RECURSIVE | MS_SLAVE)  # what the host unmounts must not stay mounted here
    if network.apart:
        close_ipv6()
        hide_sockets(network.resolver)
    pythons: dict[str, bool] = order.get("shown", {})
    _show_own(run, [*order["runtime"]["writable"], *pythons])
    for point in (path for path, is_built in pythons.items() if not is_built):
        mount("", point, "", MS_REMOUNT | MS_BIND | MS_READ_ONLY | MS_NO_SETUID | MS_NO_DEVICES)
    privileged = order["runtime"]["privileged"]
    if not privileged:
        for point in filter(os.path.ismount, _SYSTEM):
            mount("", point, "", MS_REMOUNT | MS_BIND | MS_READ_ONLY | MS_NO_SETUID)
    mount("proc", "/proc", "proc", MS_NO_SETUID | MS_NO_DEVICES | MS_NO_PROGRAMS, "hidepid=2")
    if not privileged:
        _make_devices()
        _name_user(order["uid"], run.work)
    _share_memory(order["memory_mib"])


def _show_own(run: Run, writable: list[str]) -> None:
    """Show the directory of *run* alone where those of all runs are, its own for temporary files, and what is writable."""
    temporary = os.open(run.at("tmp"), os.O_PATH | os.O_DIRECTORY)
    shown = {path: os.open(path, os.O_PATH) for path in (run.path, *filter(os.path.isdir, writable))}
    runs = os.path.dirname(run.path)
    if not _is_temporary(runs):
        mount("tmpfs", runs, "tmpfs", MS_NO_SETUID | MS_NO_DEVICES, "mode=0711,size=64k")
        os.mkdir(run.path, 0o711)
    for path in filter(_is_temporary, shown):
        below = path.split("/tmp/", 1)[1]
        os.makedirs(f"/proc/self/fd/{temporary}/{below}", 0o711, exist_ok=True)
    for point in _TEMPORARY:
        _bind(temporary, point)
    for path, handle in shown.items():
        _bind(handle, path)
        os.close(handle)
    os.close(temporary)


def _is_temporary(path: str) -> bool:
    return path.startswith(tuple(f"{point}/" for point in _TEMPORARY))


def _bind(handle: int, point: str) -> None:
    """Show the directory of *handle* at *point*, writable."""
    mount(f"/proc/self/fd/{handle}", point, "", MS_BIND | MS_RECURSIVE)
    mount("", point, "", MS_REMOUNT | MS_BIND | MS_NO_SETUID | MS_NO_DEVICES)


def _make_devices() -> None:
    """Make the devices that every task may use, and the host's accelerators, which their owner and mode protect."""
    found = {path: os.stat(path) for name in _DEVICES for path in glob.glob(f"/dev/{name}")}
    mount("tmpfs", "/dev", "tmpfs", MS_NO_SETUID | MS_NO_PROGRAMS, "mode=0755,size=64k")
    for path, status in found.items():
        if stat.S_ISCHR(status.st_mode):
            os.makedirs(os.path.dirname(path), 0o755, exist_ok=True)
            os.mknod(path, status.st_mode, status.st_rdev)
            os.chown(path, status.st_uid, status.st_gid)
            os.chmod(path, stat.S_IMODE(status.st_mode))
    for name, leads_to in _LINKS.items():
        os.symlink(leads_to, f"/dev/{name}")
    os.mkdir("/dev/pts")
    mount(
        "devpts", "/dev/pts", "devpts", MS_NO_SETUID | MS_NO_PROGRAMS, "newinstance,ptmxmode=0666,mode=0620"
    )


def _name_user(uid: int, home: str) -> None:
    """Let the task's user have a name, without which databases do not start; the host's own files are not touched."""
    for path, line in named(uid, home).items():
        own = f"/dev/{os.path.basename(path)}"
        if not os.path.isfile(path) or os.path.getsize(path) > _LARGEST_BYTES:
            continue
        with open(path, "rb") as source, open(own, "wb") as target:
            target.write(source.read() + line.encode())
        mount(own, path, "", MS_BIND)
        mount("", path, "", MS_REMOUNT | MS_BIND | MS_READ_ONLY | MS_NO_SETUID)
        os.unlink(own)


def _share_memory(memory_mib: int) -> None:
    """Mount shared memory of the task's own: what lies there is part of the task's memory, and is gone with it."""
    os.makedirs("/dev/shm", exist_ok=True)
    size = f",size={memory_mib}m" if memory_mib else ""
    mount("tmpfs", "/dev/shm", "tmpfs", MS_NO_SETUID | MS_NO_DEVICES, f"mode=1777{size}")
