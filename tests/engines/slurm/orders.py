"""Short words for launching and watching in the tests of Slurm."""

from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio

from engines.slurm.cluster import SlurmCluster
from yunhe.infrastructure.contract.model import LaunchOrder, Observed, Phase, Step
from yunhe.infrastructure.slurm.engine import SlurmEngine
from yunhe.kernel.clock import system_clock
from yunhe.kernel.errors import PoolUnreachableError
from yunhe.kernel.ids import AllocationId, NodeId, ProjectId, new_id
from yunhe.kernel.resources import Resources

PATIENCE_S = 60.0
OVER = frozenset({Phase.EXITED, Phase.UNKNOWN})


@asynccontextmanager
async def site(cluster: SlurmCluster, **options: Any) -> AsyncGenerator[SlurmEngine]:
    """Hold an engine on the cluster; whatever a test leaves running there is stopped."""
    async with SlurmEngine(cluster.target(**options)) as engine:
        yield engine
        for seen in (await engine.observe()).allocations:
            if seen.phase not in OVER:
                await engine.stop(seen.allocation_id, 1000, grace_s=0)


def order(*scripts: str, node: str = "n1", **fields: Any) -> LaunchOrder:
    """Return an order with one step for each script."""
    chosen: dict[str, Any] = {
        "allocation_id": AllocationId(new_id("alloc", system_clock())),
        "token": 1,
        "project_id": ProjectId("p1"),
        "resources": Resources(cpu_millis=1000, memory_mib=200),
        **fields,
    }
    steps = tuple(Step(name=f"step-{n}", script=f"{text}\n") for n, text in enumerate(scripts, start=1))
    return LaunchOrder(node_id=NodeId(node), steps=steps, **chosen)


async def launch(engine: SlurmEngine, *scripts: str, **fields: Any) -> LaunchOrder:
    """Launch an order and return it."""
    made = order(*scripts, **fields)
    await engine.launch(made)
    return made


async def until(engine: SlurmEngine, made: LaunchOrder, happened: Callable[[Observed], bool]) -> Observed:
    """Wait until *happened* is true of an allocation; a connection that is cut on the way is waited out."""
    seen: Observed | None = None
    with anyio.move_on_after(PATIENCE_S):
        while True:
            try:
                observation = await engine.observe()
            except PoolUnreachableError:
                await anyio.sleep(0.3)
                continue
            seen = next((s for s in observation.allocations if s.allocation_id == made.allocation_id), None)
            if seen is not None and happened(seen):
                return seen
            await anyio.sleep(0.1)
    raise AssertionError(f"not in {PATIENCE_S} s: {seen}")


async def running(engine: SlurmEngine, made: LaunchOrder) -> Observed:
    """Wait until an allocation runs."""
    return await until(engine, made, lambda seen: seen.phase is Phase.RUNNING)


async def ended(engine: SlurmEngine, made: LaunchOrder) -> Observed:
    """Wait until an allocation is over."""
    return await until(engine, made, lambda seen: seen.phase in OVER)


def marking(path: Path, *then: str) -> str:
    """Return a script that leaves a line in *path* each time it runs."""
    return "\n".join([f"echo ran >> {path}", *then])


def runs(path: Path) -> int:
    """Return how often a marking script has run."""
    return len(path.read_text().splitlines()) if path.exists() else 0
