"""The processes of an agent, found by what the kernel and the agent's own records say of them."""

from pathlib import Path

from support.agent_roots import daemon_pid
from yunhe.agent.durable import read_json
from yunhe.agent.limits.limits import find_backend
from yunhe.agent.runs.node import identity_of
from yunhe.agent.runs.processes import is_alive, read_stat


def daemon(root: Path) -> list[int]:
    pid = daemon_pid(root)
    return [] if pid is None else [pid]


def spawner(root: Path) -> list[int]:
    return [pid for pid in _named(root, "spawner") if _parent(pid) in daemon(root)]


def bridges(root: Path) -> list[int]:
    return _named(root, "bridge")


def wrappers(root: Path) -> list[int]:
    """Return the wrappers of tasks that have begun and not ended."""
    starts = [read_json(str(path)) for path in (root / "runs").glob("*/start.json")]
    identities = [identity_of(start) for start in starts if start is not None]
    return [identity.pid for identity in identities if identity is not None and is_alive(identity)]


def helpers(root: Path) -> list[int]:
    """Return who packs, unpacks or runs a task now: the children of the spawner."""
    return [pid for pid in _named(root, "spawner") if _parent(pid) in spawner(root)]


def left_behind(root: Path) -> list[str]:
    """Return what is still there of any allocation: directories, groups, processes."""
    found = [
        f"{folder}/{path.name}"
        for folder in ("runs", "trash", "incoming")
        for path in (root / folder).glob("*")
    ]
    found += [f"group {name}" for name in find_backend(str(root)).leftovers()]
    expected = {*daemon(root), *spawner(root), *bridges(root)}
    found += [f"process {pid}" for pid in _named(root, "spawner") if pid not in expected]
    return found


def processes_of(allocations: set[str]) -> list[int]:
    """Return every living process that has one of *allocations* in its environment."""
    found: list[int] = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            variables = (folder / "environ").read_bytes().split(b"\0")
        except OSError:
            continue
        for variable in variables:
            name, _, value = variable.partition(b"=")
            if name == b"YUNHE_ALLOCATION_ID" and value.decode() in allocations:
                found.append(int(folder.name))
    return found


def _named(root: Path, word: str) -> list[int]:
    """Return the processes of this agent's file that were started as *word*; a wrapper looks like its spawner."""
    found: list[int] = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            arguments = (folder / "cmdline").read_bytes().decode(errors="replace").split("\0")
        except OSError:
            continue
        ours = any(argument.startswith(f"{root}/agent-") for argument in arguments)
        stat = read_stat(int(folder.name))
        if ours and word in arguments and stat is not None and stat.state not in "ZX":
            found.append(int(folder.name))
    return found


def _parent(pid: int) -> int:
    stat = read_stat(pid)
    return 0 if stat is None else stat.parent


def members_of(allocation_id: str) -> list[int]:
    """Return the processes in the control group of an allocation, whatever they are called."""
    tasks = (
        Path(line.split()[4])
        for line in Path("/proc/self/mountinfo").read_text().splitlines()
        if " cgroup" in line
    )
    groups = [group for mount in tasks for group in mount.glob(f"*/{allocation_id}/cgroup.procs")]
    return sorted({int(word) for group in groups for word in group.read_text().split()})
