"""How an allocation's limits are kept: control groups where we may write them, else rlimits and nice."""

from __future__ import annotations

import hashlib
import os
from typing import Any, Protocol

from yunhe.agent.limits.cgroup_v1 import REQUIRED as V1_REQUIRED
from yunhe.agent.limits.cgroup_v1 import GroupV1
from yunhe.agent.limits.cgroup_v2 import REQUIRED as V2_REQUIRED
from yunhe.agent.limits.cgroup_v2 import GroupV2, open_subtree
from yunhe.agent.limits.ungrouped import Ungrouped


class LimitGroup(Protocol):
    """The processes of one allocation and what they may use."""

    def create(self, cpu_millis: int, memory_mib: int) -> None:
        """Make the group with its limits; making it again changes nothing else."""
        ...

    def join(self) -> None:
        """Put the calling process into the group; what it starts stays there."""
        ...

    def processes(self) -> list[int]:
        """Return the living members."""
        ...

    def kill(self) -> None:
        """Kill every member; none can escape by forking."""
        ...

    def is_crowded(self) -> bool:
        """Return whether the members are so many that asking each to end would take too long."""
        ...

    def freeze(self) -> None:
        """Stop every member where it stands."""
        ...

    def thaw(self) -> None:
        """Let the members go on."""
        ...

    def set_cpu(self, cpu_millis: int) -> None:
        """Let the members use this much together; 0: all there is."""
        ...

    def set_memory(self, memory_mib: int) -> None:
        """Let the members hold this much together; 0: all there is."""
        ...

    def set_processes(self, most: int) -> None:
        """Let the members be this many processes and threads together."""
        ...

    def set_cores(self, cores: list[int]) -> None:
        """Bind the members to *cores*; empty: to all."""
        ...

    def cpu_us(self) -> int | None:
        """Return the kernel's count of cpu time of everything that ever ran in the group; None without one."""
        ...

    def memory_kib(self) -> int:
        """Return the memory resident now: anonymous and mapped."""
        ...

    def memory_peak_kib(self) -> int | None:
        """Return the most the members ever held, as the kernel counted it; None without such a count."""
        ...

    def oom_kills(self) -> int:
        """Return how often the kernel killed a member for want of memory."""
        ...

    def shown_as(self) -> list[tuple[str, str]]:
        """Return the group's directories, each with where a task with files of its own should see it."""
        ...

    def remove(self) -> None:
        """Remove the group."""
        ...


class LimitsBackend:
    """Makes groups below one parent that belongs to this agent alone."""

    def __init__(self, kind: str, paths: dict[str, str]) -> None:
        self.kind = kind
        self.paths = paths

    @property
    def words(self) -> str:
        """Say how limits are kept."""
        return {"v1": "cgroup v1", "v2": "cgroup v2"}.get(self.kind, "rlimits and nice")

    @property
    def grouped(self) -> bool:
        """Return whether there are groups at all."""
        return self.kind in ("v1", "v2")

    @property
    def pins(self) -> bool:
        """Return whether members can be bound to cores."""
        return "cpuset" in self.paths

    def as_body(self) -> dict[str, Any]:
        """Return this keeper as plain values, for a wrapper to open the same groups."""
        return {"kind": self.kind, "paths": self.paths}

    def group(self, name: str, *, ancestor: int = 0) -> LimitGroup:
        """Return the group called *name*; without control groups its members are what descends from *ancestor*."""
        if self.kind == "v1":
            return GroupV1({controller: f"{path}/{name}" for controller, path in self.paths.items()})
        if self.kind == "v2":
            return GroupV2(f"{self.paths['unified']}/{name}")
        return Ungrouped(name, ancestor)

    def leftovers(self) -> list[str]:
        """Return the names of the groups that exist now."""
        names: set[str] = set()
        for path in self.paths.values():
            names.update(entry.name for entry in os.scandir(path) if entry.is_dir())
        return sorted(names)

    def remove(self) -> None:
        """Remove the parent, if nothing is left below it."""
        for path in self.paths.values():
            try:
                os.rmdir(path)
            except OSError:
                continue


def agent_name(root: str) -> str:
    """Return a name that only the agent of *root* has on this host."""
    return "yunhe-" + hashlib.sha256(os.path.realpath(root).encode()).hexdigest()[:12]


def find_backend(root: str, *, mountinfo: str = "/proc/self/mountinfo") -> LimitsBackend:
    """Return the best keeper there is for the agent that lives in *root*."""
    name = agent_name(root)
    v1, v2 = _mounts(mountinfo)
    if all(controller in v1 for controller in V1_REQUIRED):
        paths = {controller: f"{path}/{name}" for controller, path in v1.items()}
        if GroupV1(paths).try_parent():
            return LimitsBackend("v1", paths)
    if v2 is not None and open_subtree(v2, name):
        paths = {"unified": f"{v2}/{name}"}
        with open(f"{v2}/cgroup.controllers") as file:
            if "cpuset" in file.read().split():
                paths["cpuset"] = f"{v2}/{name}"
        return LimitsBackend("v2", paths)
    return LimitsBackend("rlimits", {})


def _mounts(mountinfo: str) -> tuple[dict[str, str], str | None]:
    """Return where each v1 controller is mounted, and the v2 tree if it has the controllers we need."""
    v1: dict[str, str] = {}
    v2: str | None = None
    with open(mountinfo) as file:
        for line in file:
            before, _, after = line.partition(" - ")
            kind, _, options = after.split(" ", 2)
            point = before.split()[4].replace("\\040", " ")
            if kind == "cgroup":
                for controller in options.strip().split(","):
                    if controller in (*V1_REQUIRED, "cpuset", "pids"):
                        v1[controller] = point
            elif kind == "cgroup2" and _has_controllers(point):
                v2 = point
    return v1, v2


def _has_controllers(point: str) -> bool:
    try:
        with open(f"{point}/cgroup.controllers") as file:
            return set(V2_REQUIRED) <= set(file.read().split())
    except OSError:
        return False
