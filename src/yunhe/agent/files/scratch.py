"""The file system of one allocation: as large as its disk limit, and all that the task may write to.

It is a sparse file in the allocation's directory, ``scratch.img``, mounted at ``scratch``; ``work`` and ``tmp`` of it
are shown where they are without it. So whatever the task writes counts, open files without a name and paths of any
length too, and nobody walks a tree to count it. It goes with the directory: unmounted and unlinked, whatever is in it.
Whoever needs it calls ``ensure``: the first makes it, and after a restart of the host it is mounted again.
"""

from __future__ import annotations

import errno
import fcntl
import os
import shutil
import subprocess
from typing import Any

from yunhe.agent.files.mounts import bind, mount_image
from yunhe.agent.runs.directory import OWN, Run
from yunhe.agent.runs.environment import PATH
from yunhe.agent.runtimes.namespaces import MS_NO_ATIME, MS_NO_DEVICES, MS_NO_SETUID

SLACK_BYTES = 1024 * 1024
"""What fits beyond the limit, so that a task that passed it can be told from one that did not."""
_INODE_EVERY = 16_384
_FORMAT = (
    *("-q", "-F", "-b", "4096", "-I", "256", "-i", str(_INODE_EVERY), "-m", "0"),
    # No journal: after a crash it is checked before it is mounted again.
    *("-O", "^has_journal,^resize_inode,sparse_super2,uninit_bg"),
    *("-E", "lazy_itable_init=1,nodiscard"),
)
_LOOKED_AFTER = "nosuid,nodev,noatime,noinit_itable"
_SPARE = "spare"
_CAP_SYS_ADMIN = 21
_WITHIN_S = 30.0


def unusable() -> str:
    """Return why an allocation cannot have a file system of its own on this host; nothing if it can."""
    if os.geteuid() != 0:
        return "only an agent that is root can mount file systems"
    with open("/proc/self/status") as file:
        capabilities = next(line.split()[1] for line in file if line.startswith("CapEff:"))
    if not int(capabilities, 16) >> _CAP_SYS_ADMIN & 1:
        return "this agent lacks the capability CAP_SYS_ADMIN"
    if not os.access("/dev/loop-control", os.R_OK | os.W_OK):
        return "this host has no loop devices"
    for name in ("mkfs.ext4", "e2fsck", "mount"):
        if _program(name) is None:
            return f"this host has no {name}"
    return ""


def is_meant_for(run: Run, limit_bytes: int) -> bool:
    """Return whether *run* has, or should get, a file system.

    One with files in its plain directory must not, nor one that the host has no room for: what the file system takes
    and the host then cannot keep is lost without a word to the task.
    """
    if os.path.exists(run.at("scratch.img")):
        return True
    if run.record("uploads") or run.record("start"):
        return False
    host = os.statvfs(run.path)
    return host.f_bavail * host.f_frsize >= limit_bytes


def ensure(run: Run, uid: int, limit_bytes: int) -> None:
    """Have the file system of *run* made and mounted; raise ``OSError`` where the host cannot."""
    handle = os.open(run.path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        if not os.path.ismount(run.scratch):
            _mount(run, limit_bytes)
        run.make_scratch(uid)
        for name in OWN:
            if not os.path.ismount(run.at(name)):
                bind(run.at("scratch", name), run.at(name))
    finally:
        os.close(handle)


def _mount(run: Run, limit_bytes: int) -> None:
    image = run.at("scratch.img")
    if os.path.exists(image):
        # A crash came in between, or the host was restarted.
        _run("e2fsck", "-p", image, good=(0, 1))
    else:
        _make(image, limit_bytes)
    os.makedirs(run.scratch, exist_ok=True)
    try:
        mount_image(image, run.scratch, "ext4", MS_NO_SETUID | MS_NO_DEVICES | MS_NO_ATIME, "noinit_itable")
    except OSError:
        # An older kernel, or a host without the device's file yet: the program knows more ways.
        _run("mount", "-t", "ext4", "-o", f"loop,{_LOOKED_AFTER}", image, run.scratch)


def has_spare(root: str, limit_bytes: int) -> bool:
    """Return whether there is a file system made ahead, for an allocation with this limit."""
    return os.path.exists(_spare(root, limit_bytes))


def spare_job(order: dict[str, Any], _handles: list[int]) -> None:
    """Make a file system ahead: a task that has just that limit need not wait for one."""
    spare = _spare(order["root"], order["limit_bytes"])
    os.makedirs(os.path.dirname(spare), 0o700, exist_ok=True)
    handle = os.open(os.path.dirname(spare), os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        if not os.path.exists(spare):
            _format(spare, order["limit_bytes"])
    finally:
        os.close(handle)


def _spare(root: str, limit_bytes: int) -> str:
    return os.path.join(root, _SPARE, f"{_size(limit_bytes)}.img")


def _make(image: str, limit_bytes: int) -> None:
    """Take the one that was made ahead, or make one."""
    root = os.path.dirname(os.path.dirname(os.path.dirname(image)))
    try:
        os.rename(_spare(root, limit_bytes), image)
    except OSError:
        _format(image, limit_bytes)


def _format(image: str, limit_bytes: int) -> None:
    fresh = f"{image}.new"
    handle = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    try:
        os.ftruncate(handle, _size(limit_bytes))
    finally:
        os.close(handle)
    _run("mkfs.ext4", *_FORMAT, fresh)
    os.rename(fresh, image)


def _size(limit_bytes: int) -> int:
    """Return how large a file must be for a file system with room for *limit_bytes*: tables take the rest."""
    tables = limit_bytes * 256 // _INODE_EVERY + limit_bytes // 8192
    return (limit_bytes + tables + 8 * SLACK_BYTES) & ~4095


def used_bytes(run: Run) -> int:
    """Return how much of the file system of *run* is in use; all of it where no further file can be made."""
    state = os.statvfs(run.scratch)
    free = state.f_bfree if state.f_ffree else 0
    return (state.f_blocks - free) * state.f_frsize


def is_mounted(run: Run) -> bool:
    """Return whether *run* has a file system of its own now."""
    return os.path.ismount(run.scratch)


def _program(name: str) -> str | None:
    return shutil.which(name, path=f"{os.environ.get('PATH', '')}:{PATH}")


def _run(name: str, *arguments: str, good: tuple[int, ...] = (0,)) -> None:
    program = _program(name)
    if program is None:
        raise OSError(errno.EIO, f"this host has no {name}")
    try:
        done = subprocess.run(
            [program, *arguments],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=_WITHIN_S,
            check=False,
        )
    except subprocess.TimeoutExpired as fault:
        raise OSError(errno.EIO, f"{name} did not end within {_WITHIN_S:g} s") from fault
    if done.returncode not in good:
        said = done.stdout.decode(errors="replace").strip().splitlines()
        raise OSError(errno.EIO, f"{name}: {said[-1][:200] if said else done.returncode}")
