"""Short words for launching and watching in the tests of hosts."""

import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import anyio

from yunhe.infrastructure.contract.model import LaunchOrder, Observed, Phase, Step
from yunhe.infrastructure.host.engine import HostEngine
from yunhe.kernel.errors import PoolUnreachableError
from yunhe.kernel.ids import AllocationId, NodeId, ProjectId, new_id
from yunhe.kernel.resources import Resources


async def order_for(
    engine: HostEngine, *scripts: str, project: str = "p1", cpu_millis: int = 1000, **fields: object
) -> LaunchOrder:
    """Return an order for *engine*'s node."""
    node = (await engine.inventory()).nodes[0]
    chosen: dict[str, object] = {"token": 1, **fields}
    return LaunchOrder(
        allocation_id=AllocationId(new_id("all", time.time())),
        project_id=ProjectId(project),
        node_id=NodeId(node.id),
        resources=Resources(cpu_millis=cpu_millis, memory_mib=256),
        steps=tuple(Step(name=f"step-{index + 1}", script=text) for index, text in enumerate(scripts)),
        **chosen,  # pyright: ignore[reportArgumentType]
    )


async def launched(engine: HostEngine, *scripts: str, **fields: object) -> LaunchOrder:
    """Launch and return the order."""
    order = await order_for(engine, *scripts, **fields)  # pyright: ignore[reportArgumentType]
    await engine.launch(order)
    return order


async def look(engine: HostEngine, allocation_id: AllocationId) -> Observed:
    """Return what is known of an allocation now."""
    observation = await engine.observe()
    return next(seen for seen in observation.allocations if seen.allocation_id == allocation_id)


async def ended(engine: HostEngine, allocation_id: AllocationId, within_s: float = 30.0) -> Observed:
    """Return what is known of an allocation once it has ended; a cut connection on the way is waited out."""
    with anyio.fail_after(within_s):
        while True:
            try:
                seen = await look(engine, allocation_id)
            except PoolUnreachableError:
                await anyio.sleep(0.1)
                continue
            if seen.phase in {Phase.EXITED, Phase.UNKNOWN}:
                return seen
            await anyio.sleep(0.05)


async def until(
    engine: HostEngine, allocation_id: AllocationId, holds: Callable[[Observed], bool], within_s: float = 20.0
) -> Observed:
    """Return what is known of an allocation once *holds* does."""
    with anyio.fail_after(within_s):
        while not holds(seen := await look(engine, allocation_id)):
            await anyio.sleep(0.02)
        return seen


async def running(engine: HostEngine, allocation_id: AllocationId) -> Observed:
    """Return what is known of an allocation once it runs."""
    return await until(engine, allocation_id, lambda seen: seen.phase is Phase.RUNNING)


def processes_of(pattern: str) -> list[str]:
    """Return the processes whose command line matches *pattern*."""
    return subprocess.run(
        ["pgrep", "-f", pattern], capture_output=True, text=True, check=False
    ).stdout.split()


def files_with(text: str, directory: Path) -> str:
    """Return the files below *directory* that hold *text*; a task's file system is read where it is mounted, if it is yet."""
    command = ["grep", "-rla", "--exclude=scratch.img", "--exclude-dir=spare", text, str(directory)]
    return subprocess.run(command, capture_output=True, text=True, check=False).stdout


async def log_of(engine: HostEngine, allocation_id: AllocationId, *, follow: bool = False) -> bytes:
    """Return the output of an allocation."""
    return b"".join([chunk.data async for chunk in engine.logs(allocation_id, follow=follow)])
