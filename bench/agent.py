"""What an agent costs, and how fast its first line comes: memory, cpu, and submit → first log line.

Run as root with ``python -m bench.agent`` (it needs openssh-server for the SSH rows and podman for the container row,
and skips them without).
"""

import argparse
import os
import statistics
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import anyio

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests"))

from integration.infrastructure.host.orders import launched, order_for, running
from integration.infrastructure.host.sshd import ssh_server
from support.agent_roots import agent_root, daemon_pid
from support.containers import IMAGE, container_store, why_no_containers
from yunhe.agent.runs.processes import read_stat
from yunhe.infrastructure.contract.model import LaunchOrder
from yunhe.infrastructure.host.engine import HostEngine
from yunhe.infrastructure.host.target import HostTarget, LocalHost

AGENT_PSS_MIB = 35.0
AGENT_CPU_PERCENT = 1.0
FIRST_LINE_LOCAL_S = 1.0
FIRST_LINE_SSH_S = 2.0
FIRST_LINE_CONTAINER_S = 2.0


def pss_mib(pid: int) -> float:
    """Return the proportional memory of a process."""
    lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("Pss:")) / 1024


def cpu_s(pids: list[int]) -> float:
    """Return the cpu time of processes so far."""
    return sum(stat.cpu_us for stat in map(read_stat, pids) if stat) / 1e6


def family(root: Path) -> tuple[int, list[int], list[int]]:
    """Return the daemon, its spawner, and the wrappers of its tasks."""
    daemon = daemon_pid(root)
    assert daemon is not None
    spawners = list(_children(daemon))
    wrappers = [pid for spawner in spawners for pid in _children(spawner)]
    return daemon, spawners, wrappers


def _children(pid: int) -> Iterator[int]:
    return map(int, Path(f"/proc/{pid}/task/{pid}/children").read_text().split())


async def footprint(engine: HostEngine, root: Path, tasks: int, over_s: float) -> None:
    """Print memory and cpu of an agent with *tasks* running."""
    orders = [await launched(engine, "exec sleep 1000", cpu_millis=10) for _ in range(tasks)]
    for order in orders:
        await running(engine, order.allocation_id)
    await anyio.sleep(2)
    daemon, spawners, wrappers = family(root)
    assert len(wrappers) == tasks, "not every task runs"
    before = cpu_s([daemon, *spawners])
    wrappers_before = cpu_s(wrappers)
    await anyio.sleep(over_s)
    used = (cpu_s([daemon, *spawners]) - before) / over_s * 100
    wrapping = (cpu_s(wrappers) - wrappers_before) / over_s * 100
    bridges = list(_children(os.getpid()))
    own = pss_mib(daemon) + sum(map(pss_mib, [*spawners, *bridges]))
    each = statistics.mean(map(pss_mib, wrappers)) if wrappers else 0.0
    print(
        f"{tasks:4d} tasks  agent {own:5.1f} MiB PSS (daemon {pss_mib(daemon):.1f}, bridge {sum(map(pss_mib, bridges)):.1f}), {used:.2f} % of a core; "
        f"wrappers {each:.2f} MiB PSS each, {wrapping:.2f} % of a core together"
    )
    if tasks == 0:
        judge("idle PSS, MiB", own, AGENT_PSS_MIB)
        judge("idle cpu, % of a core", used, AGENT_CPU_PERCENT)
    for order in orders:
        await engine.stop(order.allocation_id, 1, grace_s=0)


async def first_line(name: str, target: HostTarget, rounds: int, limit_s: float) -> None:
    """Print how long the first line of output takes, over a connection that is open."""
    async with HostEngine(target) as engine:
        times = [
            await one_first_line(engine, await order_for(engine, "echo first; sleep 30"))
            for _ in range(rounds)
        ]
    times.sort()
    p50 = statistics.median(times)
    print(
        f"{name:16s} submit → first line: p50 {p50 * 1000:.0f} ms, max {times[-1] * 1000:.0f} ms of {rounds}"
    )
    judge(f"{name} p50, s", p50, limit_s)


async def container_line(rounds: int) -> None:
    """Print the same for a container beside a process, turn by turn, so that both meet the same machine."""
    images = {"process": "", "container": IMAGE}
    times: dict[str, list[float]] = {name: [] for name in images}
    with container_store() as store, agent_root() as root:
        async with HostEngine(LocalHost(root=str(root), environment=store.environment)) as engine:
            for _ in range(rounds):
                for name, image in images.items():
                    order = await order_for(engine, "echo first; sleep 30", image=image)
                    times[name].append(await one_first_line(engine, order))
    process, container = (statistics.median(times[name]) for name in images)
    print(
        f"container        submit → first line: p50 {container * 1000:.0f} ms, "
        f"max {max(times['container']) * 1000:.0f} ms of {rounds}; a process beside it {process * 1000:.0f} ms"
    )
    judge("container p50, s", container, FIRST_LINE_CONTAINER_S)


async def one_first_line(engine: HostEngine, order: LaunchOrder) -> float:
    """Return seconds from the launch to the first byte of output."""
    began = time.perf_counter()
    await engine.launch(order)
    async for chunk in engine.logs(order.allocation_id, follow=True):
        assert chunk.data.startswith(b"first")
        break
    took = time.perf_counter() - began
    await engine.stop(order.allocation_id, 1, grace_s=0)
    return took


over: list[str] = []
"""What was beyond its limit."""


def judge(what: str, value: float, limit: float) -> None:
    """Print whether a value is within its range, and remember if it is not."""
    print(f"     {'ok  ' if value <= limit else 'OVER'} {what}: {value:.2f} ≤ {limit:g}")
    if value > limit:
        over.append(what)


def main() -> None:
    """Run every measurement."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tasks", type=int, nargs="*", default=[0, 50, 200])
    parser.add_argument("--over-s", type=float, default=20.0)
    parser.add_argument("--rounds", type=int, default=20)
    anyio.run(measure, parser.parse_known_args()[0])
    if over:
        sys.exit(f"over its limit: {', '.join(over)}")


async def measure(options: argparse.Namespace) -> None:
    """Print what an agent costs and how fast it is."""
    for tasks in options.tasks:
        with agent_root() as root:
            async with HostEngine(LocalHost(root=str(root))) as engine:
                await footprint(engine, root, tasks, options.over_s)
    with agent_root() as root:
        await first_line("local", LocalHost(root=str(root)), options.rounds, FIRST_LINE_LOCAL_S)
    if not why_no_containers():
        await container_line(options.rounds)
    if os.geteuid() == 0:
        with ssh_server() as server:
            for user in ("root", "member"):
                target = server.target(user)
                await first_line(f"ssh {user}", target, options.rounds, FIRST_LINE_SSH_S)


if __name__ == "__main__":
    main()
