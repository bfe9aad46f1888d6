"""Which limits of tasks are kept on this host so that nothing escapes them, and which are not and why."""

from __future__ import annotations

from yunhe.agent.files import scratch
from yunhe.agent.limits.limits import LimitsBackend
from yunhe.agent.runtimes.guards import Guard


def limit_guards(keeper: LimitsBackend) -> list[Guard]:
    """Return the guards that are about what a task may use."""
    no_groups = "" if keeper.grouped else "the agent may not write control groups; it keeps rlimits and nice"
    no_pids = "" if keeper.kind == "v2" or "pids" in keeper.paths else "the host has no pids controller"
    return [
        Guard("limits of CPU and memory", no_groups),
        Guard("limit of processes", no_groups or no_pids),
        Guard("file system of the disk limit's size", scratch.unusable()),
    ]
