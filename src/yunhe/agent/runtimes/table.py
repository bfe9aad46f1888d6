"""The runtimes by name; a new one is a folder and an entry here."""

from __future__ import annotations

from typing import Any, Callable, NamedTuple

from yunhe.agent.limits.limits import agent_name
from yunhe.agent.runs.directory import Run
from yunhe.agent.runtimes.container.runtime import ContainerRuntime
from yunhe.agent.runtimes.container.sandbox import ContainerSandbox
from yunhe.agent.runtimes.guards import Guard, no_filter
from yunhe.agent.runtimes.interface import NO_OPTIONS, HostOptions, Runtime, Sandbox
from yunhe.agent.runtimes.network import TaskNetworks
from yunhe.agent.runtimes.process.runtime import ProcessRuntime
from yunhe.agent.runtimes.process.sandbox import ProcessSandbox
from yunhe.agent.runtimes.sandboxed.runtime import SandboxedRuntime
from yunhe.agent.runtimes.sandboxed.sandbox import SandboxedSandbox


class RuntimeEntry(NamedTuple):
    """One runtime."""

    runtime: Callable[[str, HostOptions], Runtime]
    """Makes it for the agent of this name."""
    sandbox: Callable[["dict[str, Any]", Run], Sandbox]


RUNTIMES: dict[str, RuntimeEntry] = {
    SandboxedRuntime.name: RuntimeEntry(SandboxedRuntime, SandboxedSandbox),
    ContainerRuntime.name: RuntimeEntry(ContainerRuntime, ContainerSandbox),
    ProcessRuntime.name: RuntimeEntry(ProcessRuntime, ProcessSandbox),
}
"""The first that accepts a task runs it."""


def sandbox_of(order: dict[str, Any], run: Run) -> Sandbox:
    """Return the sandbox, not prepared yet, of the runtime that *order* names."""
    return RUNTIMES[order["runtime"]["name"]].sandbox(order, run)


class AbsentRuntime(Runtime):
    """A runtime that tasks ask for by name and this agent does not have."""

    def __init__(self, name: str) -> None:
        super().__init__("")
        self.reason = f"This agent does not run such a task with runtime {name}."


class Runtimes:
    """The runtimes of this host."""

    def __init__(self, root: str, options: HostOptions = NO_OPTIONS) -> None:
        agent = agent_name(root)
        self._all = [entry.runtime(agent, options) for entry in RUNTIMES.values()]
        self.network = TaskNetworks(root, forwarding=options.forwarding)

    def of(self, body: dict[str, Any]) -> Runtime:
        """Return the runtime for the task of a launch body or claim."""
        chosen = next(runtime for runtime in self._all if runtime.accepts(body))
        wanted = body.get("runtime") or chosen.name
        return chosen if chosen.name == wanted else AbsentRuntime(wanted)

    def confinement(self, body: dict[str, Any], total: dict[str, Any]) -> dict[str, Any]:
        """Return what keeps the task of a launch body apart from the others and from the host."""
        return {**self.of(body).order(body, total), "network": self.network.order(body)}

    def probe(self) -> None:
        """Find out which runtimes work here."""
        for runtime in self._all:
            runtime.probe()

    def missing_powers(self) -> dict[str, str]:
        """Return the powers of the runtimes that do not work here, each with the reason."""
        return {runtime.power: runtime.reason for runtime in self._all if runtime.power and runtime.reason}

    def permits(self) -> list[str]:
        """Return what tasks may ask for here beyond the usual, as far as it is for the host to say."""
        runtimes = [runtime.permit for runtime in self._all if runtime.permit and not runtime.reason]
        return ["python", *([] if self.network.missing else ["network"]), *runtimes]

    def guards(self) -> list[Guard]:
        """Return what is kept between tasks here, and what cannot be."""
        everywhere = [Guard("system call filter", no_filter()), Guard("no new privileges", "")]
        everywhere.append(Guard("network of its own", self.network.missing))
        return [*everywhere, *(guard for runtime in self._all for guard in runtime.guards())]

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
