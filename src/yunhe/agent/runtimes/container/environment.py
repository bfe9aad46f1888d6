"""The environment inside a container: the engine makes the container, and steps enter it without its help."""

from __future__ import annotations

import os

from yunhe.agent.runs.environment import PATH

MARK = "YUNHE_CONTAINER"
"""In the environment of a container's first process: its name, by which we know that the process is ours."""

_OURS = frozenset({MARK, "HOME", "HOSTNAME", "LOGNAME", "TERM", "TMPDIR", "USER"})


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
