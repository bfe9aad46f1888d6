"""The environment of a task, built from nothing: the agent's own never reaches it."""

from __future__ import annotations

from typing import Any

from yunhe.agent.runs.directory import Run

PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


BESIDE = "YUNHE_COMMAND"
"""Set for a command that somebody runs beside a task: the task's end does not wait for it."""
DEFAULT_GRACE_S = 10.0
"""How long a task has to end after the polite signal, where its order does not say."""


def is_beside(pid: int) -> bool:
    """Return whether *pid* belongs to a command beside its task."""
    try:
        with open(f"/proc/{pid}/environ", "rb") as file:
            return f"{BESIDE}=1".encode() in file.read().split(b"\0")
    except OSError:
        return False


def environment_of(run: Run, order: dict[str, Any], secrets: dict[str, str]) -> dict[str, str]:
    """Return the variables a task of *order* sees."""
    resources = order.get("resources", {})
    return {
        "PATH": f"{run.work}/.local/bin:{PATH}",  # where pip puts the programs of what a task installs
        "PIP_BREAK_SYSTEM_PACKAGES": "1",  # it cannot: the system is read-only, the task's home is its own
        "HOME": run.work,
        "USER": "task",
        "LOGNAME": "task",
        "SHELL": "/bin/sh",
        "LANG": "C.UTF-8",
        "TMPDIR": run.at("tmp"),
        **order.get("envs", {}),
        **secrets,
        "YUNHE_ALLOCATION_ID": run.id,
        "YUNHE_PROJECT_ID": order["project_id"],
        "YUNHE_NODE_ID": order["node_id"],
        "YUNHE_CPU_MILLIS": str(resources.get("cpu_millis", 0)),
        "YUNHE_MEMORY_MIB": str(resources.get("memory_mib", 0)),
        "YUNHE_GRACE_S": f"{order.get('grace_s', DEFAULT_GRACE_S):g}",
    }
