"""What an agent keeps between tasks, and between a task and its host; where it cannot, why not."""

from __future__ import annotations

import functools
import os
from typing import Any, NamedTuple

from yunhe.agent.runs.users import give_up_privileges
from yunhe.agent.runtimes import seccomp
from yunhe.agent.runtimes.namespaces import (
    NEW_FILES,
    NEW_MESSAGES,
    NEW_NAMES,
    NEW_NETWORK,
    NEW_PROCESSES,
    can_unshare,
)


class Guard(NamedTuple):
    """One promise of isolation on this host."""

    name: str
    missing: str
    """Why it is not kept here; empty where it is."""

    def as_body(self) -> dict[str, Any]:
        """Return it as ``describe`` tells it."""
        return {"name": self.name, "kept": not self.missing, "reason": self.missing}


@functools.lru_cache(maxsize=1)
def no_filter() -> str:
    """Return why system calls cannot be filtered here; empty if they can."""
    if not seccomp.FILTER:
        return f"there is no filter for {os.uname().machine}"
    pid = os.fork()
    if pid == 0:
        try:
            give_up_privileges()
            seccomp.install()
        except OSError:
            os._exit(1)
        finally:
            os._exit(0)
    return "" if os.waitpid(pid, 0)[1] == 0 else "the host's kernel does not take the filter"


@functools.lru_cache(maxsize=1)
def no_namespaces() -> str:
    """Return why a task cannot have namespaces of its own here; empty if it can."""
    if os.geteuid() != 0:
        return "the agent is not root"
    why = can_unshare(NEW_FILES | NEW_MESSAGES | NEW_NAMES | NEW_NETWORK | NEW_PROCESSES)
    return f"the host does not let the agent make namespaces: {why}" if why else ""
