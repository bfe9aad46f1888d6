"""What a runtime is: ``Runtime`` is what the daemon asks of it, ``Sandbox`` what the wrapper of one task does.

What a method does here is right for a runtime that makes nothing beyond the processes in the task's control group.
"""

from __future__ import annotations

import os
import signal
from typing import Any, NamedTuple, Protocol

from yunhe.agent.limits.limits import LimitGroup
from yunhe.agent.pythons.cache import DEFAULT_LIMIT_MIB
from yunhe.agent.runs.directory import Run
from yunhe.agent.runs.processes import signal_all
from yunhe.agent.runs.users import become
from yunhe.agent.runtimes import seccomp
from yunhe.agent.runtimes.guards import Guard, no_filter
from yunhe.agent.runtimes.network import TaskNetwork

STARTED = "."
"""What a step says on its report once it runs, where that is later than its process becomes a program."""


class RunHelper(Protocol):
    """Runs a helper program; returns its exit code and the end of its output.

    It is outside the task's limits and bill, or *inside* them and among the task's files, for what stays there.
    """

    def __call__(self, command: list[str], *, inside: bool = False) -> tuple[int, str]:
        """Run *command* to its end; raise ``CalledOffError`` if the task is to end meanwhile."""
        ...


class CalledOffError(Exception):
    """The task is to end, so the helper program was ended and its runtime need not be prepared."""


class HostOptions(NamedTuple):
    """What the pool's owner says of the host, for whatever runs tasks there."""

    writable: tuple[str, ...] = ()
    """Directories of the host that tasks see, and write where their owner and mode let them."""
    forwarding: str = ""
    """``on``: have the host forward packets of tasks; ``off``: tasks share the host's network."""
    pythons_mib: int = DEFAULT_LIMIT_MIB
    """How much the Python environments that are kept may take."""


NO_OPTIONS = HostOptions()


class Runtime:
    """One way to run tasks, on this host."""

    name = ""
    power = ""
    """What only a host with this runtime can do, as ``describe`` calls it."""
    permit = ""
    """What tasks may ask for by name where this runtime works, as ``describe`` calls it."""
    outlives = False
    """Whether what it makes may outlive its wrapper: ``leftovers`` finds it and ``remove`` removes it."""

    def __init__(self, agent: str, options: HostOptions = NO_OPTIONS) -> None:
        self.agent = agent
        """The name of the agent, for what it makes on a host that has several."""
        self.options = options
        self.probed = True
        """Whether it is known if this runtime works here; ``probe`` finds out."""
        self.reason = ""
        """Why this runtime cannot be used here; empty when it can."""

    def accepts(self, body: dict[str, Any]) -> bool:
        """Return whether the task of this launch body or claim is for this runtime."""
        raise NotImplementedError

    def probe(self) -> None:
        """Find out whether this runtime works here; may take some time."""

    def order(self, body: dict[str, Any], total: dict[str, Any]) -> dict[str, Any]:
        """Return what the sandbox of a task must be told beyond what every one is; *total* is what the host has."""
        privileged = body.get("privileged", False)
        return {"privileged": privileged, "filtered": not privileged and not no_filter()}

    def guards(self) -> list[Guard]:
        """Return what this runtime keeps between tasks, beyond what every one does, and what it cannot keep here."""
        return []

    def kill(self, run: Run) -> None:
        """End what the lost wrapper of *run* may have left running outside the task's control group."""

    def leftovers(self) -> list[str]:
        """Return the allocations of which this runtime keeps anything on the host."""
        return []

    def remove(self, allocation_id: str) -> None:
        """Remove what this runtime keeps of an allocation, if anything."""


class Sandbox:
    """Where the steps of one task, and commands beside them, run."""

    hides = False
    """Whether the processes of the control group are not the task's own, which nobody sees from outside."""

    def __init__(self, order: dict[str, Any], run: Run) -> None:
        self.order = order
        self.run = run
        self.environment: dict[str, str] = order["environment"]
        """What a step or command sees; final after ``prepare`` or ``attach``."""
        self.disk_paths: list[str] = []
        """What counts as the task's disk beyond the directories of its allocation."""
        self.network = TaskNetwork(order["runtime"].get("network", {}))
        self.first_pid = 0
        """The first process of its namespaces, which is ours and not the task's; 0 where there is none."""

    def prepare(self, group: LimitGroup, run_helper: RunHelper) -> None:
        """Make it for a task in *group*; raise ``OSError`` if that fails and ``CalledOffError`` if the task is to end."""

    def attach(self) -> None:
        """Find what another process has prepared; raise ``OSError`` if it is not there."""

    def fork(self) -> int:
        """Fork a process among those of the task, which still sees the host's files; return as ``os.fork`` does."""
        return os.fork()

    def enter(self) -> None:
        """Leave the host's files for the task's; for a process that ``fork`` has made."""

    def confine(self) -> None:
        """Become the task's user, for whom the calls that no task needs are closed; nothing but execution may follow."""
        become(self.order["uid"], for_good=not self.order["runtime"].get("privileged", False))
        if self.order["runtime"].get("filtered", False):
            seccomp.install()

    def execute(self, program: str, argv: list[str], report: int | None = None) -> None:
        """Become a program of the task; for a process that ``confine`` has confined, in the task's directory.

        Whoever waits for it to begin sees the pipe *report* closed, or reads ``STARTED`` from it.
        """
        os.execve(program, argv, self.environment)

    def ask_to_end(self, pids: list[int]) -> None:
        """Ask the task, whose control group has *pids*, to end by itself."""
        signal_all(pids, signal.SIGTERM)

    def inside(self) -> set[int]:
        """Return who of the task lives, by numbers of its own, where it ``hides``; commands beside it do not count."""
        return set()

    def end_command(self, pid: int) -> None:
        """End what is left of a command beside the task that ``fork`` made as *pid*, and we have no process of."""

    def kill(self) -> None:
        """End what this sandbox itself runs outside the task's control group."""

    def clean_up(self) -> None:
        """Remove what ``prepare`` made, after the exit is recorded."""
