"""gVisor's ``runsc``: the commands it is given, and the sandbox it is told to make.

A sandbox is made inside the namespaces of a task of the host, so its files, its network and its end are those of such a
task; its processes are in the task's control group. What the task itself calls is answered by a kernel in the sandbox.
"""

from __future__ import annotations

import json
import os
import shutil
from typing import Any

from yunhe.agent.runs.directory import Run
from yunhe.agent.runs.environment import PATH

PLACE = "/dev/sandbox"
"""Where the sandbox's records lie, in the namespaces: the task sees other devices, which the sandbox makes itself."""
NAME = "task"
_IDLE = "trap : TERM; while :; do sleep 2147483647; done"
_NOBODY = 65534
_OPTIONS = (
    f"--root={PLACE}/state",
    "--platform=systrap",
    "--network=host",  # of the namespace it is started in
    "--ignore-cgroups",  # it is started in the task's own
    "--overlay2=none",
)


def find() -> str:
    """Return where ``runsc`` lies on this host; empty where it does not."""
    return shutil.which("runsc", path=f"{os.environ.get('PATH', '')}:{PATH}") or ""


def command(program: str, *words: str) -> list[str]:
    """Return a command about the sandbox."""
    return [program, *_OPTIONS, *words]


def trial(program: str, place: str) -> list[str]:
    """Return a command that runs a program in a sandbox of its own, to see whether that works here."""
    options = (f"--root={place}", "--platform=systrap", "--network=none", "--ignore-cgroups")
    return [program, *options, "do", "/bin/true"]


def process(argv: list[str], environment: dict[str, str], uid: int, directory: str) -> dict[str, Any]:
    """Return a process inside, as ``runsc`` is told: an ordinary one of *uid* that never gains privileges."""
    return {
        "args": argv,
        "env": [f"{name}={value}" for name, value in environment.items()],
        "cwd": directory,
        "user": {"uid": uid, "gid": uid},
        "capabilities": {},
        "noNewPrivileges": True,
        "rlimits": [{"type": "RLIMIT_CORE", "hard": 0, "soft": 0}],
    }


def bundle(order: dict[str, Any], run: Run) -> str:
    """Return the description of the sandbox of *order*: the namespaces' files, read-only but for what is the task's."""
    writable = ["/tmp", "/var/tmp", run.at("tmp"), run.work]
    writable += [path for path in order["runtime"]["writable"] if os.path.isdir(path)]
    writable += [path for path, is_built in order.get("shown", {}).items() if is_built]
    size = [f"size={order['memory_mib']}m"] if order["memory_mib"] else []
    mounts: list[dict[str, Any]] = [{"destination": "/proc", "type": "proc", "source": "proc"}]
    mounts.append(
        {"destination": "/dev/shm", "type": "tmpfs", "source": "tmpfs", "options": ["mode=1777", *size]}
    )
    mounts += [
        {"destination": path, "type": "bind", "source": path, "options": ["rbind", "rw", "nosuid", "nodev"]}
        for path in sorted(writable)
    ]
    return json.dumps(
        {
            "ociVersion": "1.0.0",
            "hostname": os.uname().nodename,
            "root": {"path": "/", "readonly": True},
            "process": process(["/bin/sh", "-c", _IDLE], {"PATH": PATH}, _NOBODY, "/"),
            "mounts": mounts,
            "linux": {"namespaces": [{"type": kind} for kind in ("pid", "ipc", "uts", "mount")]},
        }
    )


def last_words(text: str) -> str:
    """Return what ``runsc`` complained of last, at most 300 characters of it."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1][:300] if lines else ""
