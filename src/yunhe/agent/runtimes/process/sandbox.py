"""A task among the host's own processes and files."""

from __future__ import annotations

from yunhe.agent.limits.limits import LimitGroup
from yunhe.agent.runs.users import adopt_orphans
from yunhe.agent.runtimes.interface import RunHelper, Sandbox


class ProcessSandbox(Sandbox):
    """The host itself."""

    def prepare(self, group: LimitGroup, run_helper: RunHelper) -> None:
        """Let what a step leaves behind become the wrapper's child, so that its counters reach it."""
        adopt_orphans()
