"""Containers of this host: whether an engine works, and how what it leaves is removed."""

from __future__ import annotations

import os
import shutil
import signal
from typing import Any

from yunhe.agent.runs.directory import Run
from yunhe.agent.runs.environment import PATH
from yunhe.agent.runs.processes import is_alive
from yunhe.agent.runtimes.container import engine
from yunhe.agent.runtimes.container.sandbox import recorded_first
from yunhe.agent.runtimes.interface import NO_OPTIONS, HostOptions, Runtime


class ContainerRuntime(Runtime):
    """Runs tasks in containers, by podman or docker."""

    name = "container"
    power = "images"
    outlives = True

    def __init__(self, agent: str, options: HostOptions = NO_OPTIONS) -> None:
        super().__init__(agent, options)
        self._program = ""
        self.probed = False
        self.reason = "Whether this host has a container engine is not known yet."

    def accepts(self, body: dict[str, Any]) -> bool:
        """Accept tasks that name an image."""
        return bool(body.get("image"))

    def probe(self) -> None:
        """Find an engine that works; may take as long as each engine has to answer."""
        self.reason = self._find()
        self.probed = True

    def _find(self) -> str:
        if os.geteuid() != 0:
            return "Only an agent that is root can enter containers."
        reasons: list[str] = []
        for name in engine.ENGINES:
            program = shutil.which(name, path=f"{os.environ.get('PATH', '')}:{PATH}")
            if program is None:
                continue
            said = engine.ask([program, "info"])
            if said.code == 0:
                self._program = program
                return ""
            reasons.append(f"{name} does not work here: {said.last_line}")
        return "; ".join(reasons) or "This host has neither podman nor docker."

    def order(self, body: dict[str, Any], total: dict[str, Any]) -> dict[str, Any]:
        """Return which image to run by which engine."""
        return {
            **super().order(body, total),
            "image": body["image"],
            "program": self._program,
            "agent": self.agent,
            # Only a bound: what is used of it counts as the task's memory, whose limit is the real one.
            "shared_memory_mib": body["resources"].get("memory_mib", 0) or total["memory_mib"],
        }

    def kill(self, run: Run) -> None:
        """End the container that a lost wrapper may have left."""
        first = recorded_first(run)
        if first is not None and is_alive(first):
            os.kill(first.pid, signal.SIGKILL)

    def leftovers(self) -> list[str]:
        """Return the allocations that have a container of this agent."""
        return engine.allocations(self._program, self.agent) if self._program else []

    def remove(self, allocation_id: str) -> None:
        """Remove the container of an allocation, if there is one."""
        if self._program:
            engine.ask(engine.removal(self._program, allocation_id))
