"""Who in a task only passes on what others print: ``tee`` in ``python3 train.py | tee train.log``.

Such a process must not be the first to end. The one before it would find its output closed, and fail in the middle of
saving its work. It ends by itself when nobody writes to it any more.
"""

from __future__ import annotations

import os
import signal
from typing import Iterable

from yunhe.agent.runs.processes import catches


def read_only_others(pids: Iterable[int]) -> set[int]:
    """Return those of *pids* that read a pipe in which others of them write, and do not handle the polite signal."""
    members = list(pids)
    written: dict[str, set[int]] = {}
    for pid in members:
        for handle in (1, 2):
            written.setdefault(_pipe(pid, handle), set()).add(pid)
    written.pop("", None)
    return {
        pid
        for pid in members
        if written.get(_pipe(pid, 0), set()) - {pid} and not catches(pid, signal.SIGTERM)
    }


def _pipe(pid: int, handle: int) -> str:
    """Return the pipe that a process has as *handle*; empty if that is something else."""
    try:
        target = os.readlink(f"/proc/{pid}/fd/{handle}")
    except OSError:
        return ""
    return target if target.startswith("pipe:") else ""
