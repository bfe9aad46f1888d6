"""The runtimes by name; a new one is a folder and an entry here."""

from __future__ import annotations

from typing import Any, Callable, NamedTuple

from yunhe.agent.runs.directory import Run
from yunhe.agent.runtimes.container.runtime import ContainerRuntime
from yunhe.agent.runtimes.container.sandbox import ContainerSandbox
from yunhe.agent.runtimes.interface import Runtime, Sandbox
from yunhe.agent.runtimes.process.runtime import ProcessRuntime
from yunhe.agent.runtimes.process.sandbox import ProcessSandbox


class RuntimeEntry(NamedTuple):
    """One runtime."""

    runtime: Callable[[str], Runtime]
    """Makes it for the agent of this name."""
    sandbox: Callable[["dict[str, Any]", Run], Sandbox]


RUNTIMES: dict[str, RuntimeEntry] = {
    ContainerRuntime.name: RuntimeEntry(ContainerRuntime, ContainerSandbox),
    ProcessRuntime.name: RuntimeEntry(ProcessRuntime, ProcessSandbox),
}
"""The first that accepts a task runs it."""


def sandbox_of(order: dict[str, Any], run: Run) -> Sandbox:
    """Return the sandbox, not prepared yet, of the runtime that *order* names."""
    return RUNTIMES[order["runtime"]["name"]].sandbox(order, run)


class Runtimes:
    """The runtimes of this host."""

    def __init__(self, agent: str) -> None:
        self._all = [entry.runtime(agent) for entry in RUNTIMES.values()]

    def of(self, body: dict[str, Any]) -> Runtime:
        """Return the runtime for the task of a launch body or claim."""
        return next(runtime for runtime in self._all if runtime.accepts(body))

    def probe(self) -> None:
        """Find out which runtimes work here."""
        for runtime in self._all:
            runtime.probe()

    def missing_powers(self) -> dict[str, str]:
        """Return the powers of the runtimes that do not work here, each with the reason."""
        return {runtime.power: runtime.reason for runtime in self._all if runtime.reason}

    def kill(self, run: Run) -> None:
        """End what the lost wrapper of *run* may have left running."""
        for runtime in self._all:
            runtime.kill(run)

    def leftovers(self) -> list[str]:
        """Return the allocations of which any runtime keeps anything."""
        return [name for runtime in self._all for name in runtime.leftovers()]

    def remove(self, allocation_id: str) -> None:
        """Remove what the runtimes keep of an allocation."""
        for runtime in self._all:
            runtime.remove(allocation_id)
