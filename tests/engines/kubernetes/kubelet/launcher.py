"""Become a container's process: a file system, processes and host name of its own, then the command.

Run by the test kubelet as a script, with a description of what to be in a file. The host's files are the image;
what the container writes goes to a layer of its own, so nothing of a test is left on the host.

Two ways: make a new container, or (``enter``: the PID of its first process) go into one that runs. What is
written to the report is the PID of the command, and why it could not be started if so.
"""

import contextlib
import ctypes
import fcntl
import json
import os
import signal
import stat
import sys
import termios
from pathlib import Path
from typing import Any

CLONE_NEWNS, CLONE_NEWUTS, CLONE_NEWPID = 0x20000, 0x4000000, 0x20000000
MS_RDONLY, MS_REMOUNT, MS_BIND, MS_REC, MS_PRIVATE = 1, 32, 4096, 16384, 1 << 18
PR_SET_PDEATHSIG = 1
START_ERROR = 128
"""The exit code that container runtimes give to what could not be started."""

libc = ctypes.CDLL(None, use_errno=True)


def main() -> None:
    """Start the command in a child and end as it ended."""
    spec: dict[str, Any] = json.loads(Path(sys.argv[1]).read_text())
    report = int(sys.argv[2])
    enter = int(spec.get("enter", 0))
    root = os.open(f"/proc/{enter}/root", os.O_PATH | os.O_DIRECTORY) if enter else -1
    _enter(enter) if enter else _check(libc.unshare(CLONE_NEWNS | CLONE_NEWUTS | CLONE_NEWPID), "unshare")
    child = os.fork()
    if child == 0:
        _be(spec, report, root)
    os.write(report, f"pid {child}\n".encode())
    os.close(report)
    _, status = os.waitpid(child, 0)
    code = os.waitstatus_to_exitcode(status)
    os._exit(code if code >= 0 else 128 - code)


def _be(spec: dict[str, Any], report: int, root: int) -> None:
    """Never return: run the command, or say why not."""
    try:
        libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        for group in spec["groups"]:
            Path(group, "cgroup.procs").write_text("0")
        if root >= 0:
            os.fchdir(root)
            os.chroot(".")
        else:
            _build_root(spec)
        Path(spec["directory"]).mkdir(parents=True, exist_ok=True)
        os.chdir(spec["directory"])
        os.setsid()  # as container runtimes do: a signal to its own group must not reach us
        if spec["terminal"]:
            fcntl.ioctl(0, termios.TIOCSCTTY, 0)
        _become(spec["user"])
        os.set_inheritable(report, False)
        os.execvpe(spec["command"][0], spec["command"], spec["environment"])
    except (OSError, RuntimeError, KeyError) as why:
        with contextlib.suppress(OSError):
            os.write(report, f"error {why}\n".encode())
    os._exit(START_ERROR)


def _build_root(spec: dict[str, Any]) -> None:
    """Lay the container's own layer over the host's files, then bring in its volumes."""
    root, layers = Path(spec["root"]), Path(spec["layers"])
    for folder in (root, layers / "upper", layers / "work"):
        folder.mkdir(parents=True, exist_ok=True)
    _mount("none", "/", "", MS_REC | MS_PRIVATE)
    _mount(
        "overlay",
        str(root),
        "overlay",
        0,
        f"lowerdir=/,upperdir={layers / 'upper'},workdir={layers / 'work'}",
    )
    _mount("proc", str(root / "proc"), "proc", 0)
    for shared in ("dev", "sys"):
        _mount(f"/{shared}", str(root / shared), "", MS_BIND | MS_REC)
    sources = [os.open(volume["source"], os.O_PATH) for volume in spec["mounts"]]
    os.chroot(
        root
    )  # before any target is made: /var/run and others are links, and must not lead back to the host
    for source, volume in zip(sources, spec["mounts"], strict=True):
        _bind(source, Path(volume["target"]), read_only=volume["read_only"])
        os.close(source)
    name = spec["host_name"].encode()
    _check(libc.sethostname(name, len(name)), "sethostname")


def _bind(source: int, target: Path, *, read_only: bool) -> None:
    """Show an open folder or file of the host at *target*."""
    if stat.S_ISDIR(os.fstat(source).st_mode):
        target.mkdir(parents=True, exist_ok=True)
    else:
        target.parent.mkdir(parents=True, exist_ok=True)
        target.touch()
    _mount(f"/proc/self/fd/{source}", str(target), "", MS_BIND)
    if read_only:
        _mount("none", str(target), "", MS_BIND | MS_REMOUNT | MS_RDONLY)


def _become(user: dict[str, int]) -> None:
    """Give up root where the pod names another user."""
    group = user.get("group", user.get("user", 0))
    if user.get("user", 0) or group:
        os.setgroups([group])
        os.setgid(group)
        os.setuid(user.get("user", 0))


def _enter(pid: int) -> None:
    for namespace in ("pid", "uts", "mnt"):
        handle = os.open(f"/proc/{pid}/ns/{namespace}", os.O_RDONLY)
        _check(libc.setns(handle, 0), f"setns {namespace}")
        os.close(handle)


def _mount(source: str, target: str, kind: str, flags: int, data: str = "") -> None:
    done = libc.mount(source.encode(), target.encode(), kind.encode(), ctypes.c_ulong(flags), data.encode())
    _check(done, f"mount {target}")


def _check(result: int, what: str) -> None:
    if result:
        raise OSError(ctypes.get_errno(), f"{what}: {os.strerror(ctypes.get_errno())}")


if __name__ == "__main__":
    main()
