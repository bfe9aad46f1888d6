"""Processes of the host: every host has them."""

from __future__ import annotations

from typing import Any

from yunhe.agent.runtimes.guards import Guard, no_namespaces
from yunhe.agent.runtimes.interface import NO_OPTIONS, HostOptions, Runtime


class ProcessRuntime(Runtime):
    """Runs tasks among the host's own files, each in namespaces of its own."""

    name = "process"

    def __init__(self, agent: str, options: HostOptions = NO_OPTIONS) -> None:
        super().__init__(agent, options)
        self._no_namespaces = no_namespaces()

    def accepts(self, body: dict[str, Any]) -> bool:
        """Accept every task that no other runtime has accepted."""
        return True

    def order(self, body: dict[str, Any], total: dict[str, Any]) -> dict[str, Any]:
        """Return which guards the task has."""
        return {
            **super().order(body, total),
            "namespaces": not self._no_namespaces,
            "writable": list(self.options.writable),
        }

    def guards(self) -> list[Guard]:
        """Return what keeps a task to itself on this host."""
        names = ("private /tmp and /dev/shm", "hidden processes", "read-only system")
        return [Guard(name, self._no_namespaces) for name in names]
