"""How a plugin's process is confined: a user of its own, bounds on what it takes, and no way to more rights.

Run as a program by the supervisor, before the plugin's own; with the standard library alone.
"""

import ctypes
import json
import os
import resource
import sys
from pathlib import Path

PR_SET_NO_NEW_PRIVS = 38
CANNOT_RUN = 126
FIRST_UID = 690_000
"""The first user of a plugin; those of projects on hosts are above."""
MOST_PROCESSES = 256
MOST_FILES = 4096
MOST_FILE_MIB = 1024
DATA_FACTOR = 4
DATA_BASE_MIB = 1024
"""Memory that is merely reserved, by threads above all, counts here; what is used, the supervisor watches."""


CLONE_NEWNS = 0x20000
MS_RDONLY, MS_NOSUID, MS_NODEV, MS_REMOUNT, MS_BIND, MS_REC, MS_PRIVATE = 1, 2, 4, 32, 4096, 16384, 1 << 18


def confined(words: list[str], folder: Path, *, uid: int | None, memory_mib: int) -> list[str]:
    """Return the command that runs *words* confined; as *uid*, or as who asks where that is not for us to choose.

    Python, the platform's package and the plugin's *folder* may lie where only the server's user can go. The plugin sees
    them there, and nothing beside them.
    """
    mib = 1 << 20
    bounds = {
        "RLIMIT_CORE": 0,
        "RLIMIT_NOFILE": MOST_FILES,
        "RLIMIT_FSIZE": MOST_FILE_MIB * mib,
        "RLIMIT_DATA": (DATA_FACTOR * memory_mib + DATA_BASE_MIB) * mib,
        **({"RLIMIT_NPROC": MOST_PROCESSES} if uid is not None else {}),
    }
    seen = sorted(
        {sys.base_prefix, sys.prefix, str(Path(__file__).resolve().parents[3]), str(folder.resolve())}
    )
    told = json.dumps({"uid": uid, "bounds": bounds, "seen": seen})
    return [sys.executable, "-I", "-S", str(Path(__file__).resolve()), told, *words]


def main(told: str, words: list[str]) -> int:
    """Give up what the plugin shall not have, and become it."""
    wanted = json.loads(told)
    for name, bound in wanted["bounds"].items():
        which = getattr(resource, name)
        _, most = resource.getrlimit(which)
        least = bound if most == resource.RLIM_INFINITY else min(bound, most)
        resource.setrlimit(which, (least, least))
    if wanted["uid"] is not None:
        _show([Path(path) for path in wanted["seen"]])
        os.setgroups([])
        os.setgid(wanted["uid"])
        os.setuid(wanted["uid"])
    ctypes.CDLL(None).prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
    os.umask(0o077)
    try:
        os.execvp(words[0], words)  # noqa: S606 - a list from an administrator's folder, and no shell
    except OSError as error:
        sys.stderr.write(
            f"{words[0]} cannot be run by user {os.getuid()}: {error.strerror}. A plugin and what it runs on must be"
            " readable by every user.\n"
        )
        return CANNOT_RUN


def _show(paths: list[Path]) -> None:
    """Show *paths* to everybody, in this process's own view of the file system, where a folder above them is closed."""
    hidden: dict[Path, list[Path]] = {}
    for path in paths:
        closed = [above for above in path.parents if not above.stat().st_mode & 0o001]
        if closed:
            hidden.setdefault(closed[-1], []).append(path)
    if not hidden:
        return
    here, libc = Path.cwd(), ctypes.CDLL(None, use_errno=True)

    def mount(what: str, where: Path, kind: str, flags: int, more: str = "") -> None:
        words = (what.encode(), str(where).encode(), kind.encode())
        if libc.mount(*words, ctypes.c_ulong(flags), more.encode()) != 0:
            number = ctypes.get_errno()
            raise OSError(number, os.strerror(number), str(where))

    if libc.unshare(CLONE_NEWNS) != 0:
        raise OSError(ctypes.get_errno(), "unshare")
    mount("none", Path("/"), "", MS_REC | MS_PRIVATE)
    handles = {path: os.open(path, os.O_PATH) for inside in hidden.values() for path in inside}
    for above, inside in hidden.items():
        mount("tmpfs", above, "tmpfs", MS_NOSUID | MS_NODEV, "mode=0755,size=1m")
        for path in sorted(inside):
            path.mkdir(parents=True, exist_ok=True)
            mount(f"/proc/self/fd/{handles[path]}", path, "", MS_BIND)
            mount("none", path, "", MS_REMOUNT | MS_BIND | MS_RDONLY | MS_NOSUID | MS_NODEV)
    for handle in handles.values():
        os.close(handle)
    os.chdir(here)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2:]))
