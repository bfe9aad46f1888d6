"""The first contact with a cluster, one named check after the other, up to a job that has really run."""

import re
import time
from collections.abc import AsyncIterator

import anyio

from yunhe.infrastructure.contract.kind import Check
from yunhe.infrastructure.contract.model import LaunchOrder, Observed, Phase, Step
from yunhe.infrastructure.ray.client import RayClient
from yunhe.infrastructure.ray.engine import RayEngine
from yunhe.infrastructure.ray.target import RayTarget
from yunhe.kernel.errors import (
    ForbiddenError,
    PoolUnreachableError,
    UnauthenticatedError,
    UnsupportedError,
    YunheError,
)
from yunhe.kernel.ids import AllocationId, NodeId, ProjectId, new_id
from yunhe.kernel.resources import Resources
from yunhe.kernel.units import show_cpu, show_memory

OLDEST_VERSION = (2, 46)
"""The first whose dashboard tells a log that cannot be read from one that says so."""
TRIAL_WITHIN_S = 120.0
_STEPS = ("reachable", "token accepted", "version", "nodes", "a job runs")


async def onboard(target: RayTarget) -> AsyncIterator[Check]:
    """Try everything from the first contact to a job that has really run, and yield each result; stop at the first that fails."""
    client = RayClient(target)
    passed = 0
    try:
        async for detail in _try_everything(client):
            yield Check(step=_STEPS[passed], ok=True, detail=detail)
            passed += 1
    except YunheError as error:
        failed = _STEPS[max(passed, _step_of(error))]
        yield Check(step=failed, ok=False, detail=error.problem, remedy=error.remedy)
    finally:
        await client.close()


def _step_of(error: YunheError) -> int:
    """Return the first step that *error* can come from: who refuses our token has been reached."""
    if isinstance(error, UnauthenticatedError | ForbiddenError):
        return 1
    return 2 if isinstance(error, UnsupportedError) else 0


async def _try_everything(client: RayClient) -> AsyncIterator[str]:
    """Do each step in turn and yield what came of it."""
    version = await client.version()
    yield client.url
    await client.jobs()
    asks = await client.asks_for_token()
    yield "" if asks else "none is asked for: whoever reaches the dashboard may run jobs"
    if _number(version.ray_version) < OLDEST_VERSION:
        wanted = ".".join(map(str, OLDEST_VERSION))
        raise UnsupportedError(
            f"The cluster runs Ray {version.ray_version}; {wanted} or newer is needed.",
            remedy="Upgrade Ray on every node of the cluster.",
        )
    yield f"Ray {version.ray_version}"
    engine = RayEngine(client)
    nodes = (await engine.inventory()).nodes
    if not nodes:
        raise UnsupportedError(
            "The cluster has no living node.", remedy="Start one with ray start --address=…"
        )
    total = Resources()
    for node in nodes:
        total = total.plus(node.total)
    yield f"{len(nodes)}: {show_cpu(total.cpu_millis)} cores, {show_memory(total.memory_mib)}"
    seen = await _run_trial(engine, nodes[0].id)
    yield f"in {(seen.ended_at or 0) - (seen.started_at or 0):.1f} s on node {str(seen.node_id)[:12]}"


async def _run_trial(engine: RayEngine, node_id: NodeId) -> Observed:
    """Run a task of one step through everything a real one goes through."""
    order = LaunchOrder(
        allocation_id=AllocationId(new_id("check", time.time())),
        token=1,
        project_id=ProjectId("check"),
        node_id=node_id,
        resources=Resources(),
        steps=(Step(name="check", script="true\n"),),
        timeout_s=TRIAL_WITHIN_S,
    )
    await engine.launch(order)
    seen: Observed | None = None
    with anyio.move_on_after(TRIAL_WITHIN_S):
        while seen is None or seen.phase not in (Phase.EXITED, Phase.UNKNOWN):
            await anyio.sleep(0.2)
            observation = await engine.observe()
            seen = next(one for one in observation.allocations if one.allocation_id == order.allocation_id)
    if seen is None or seen.phase not in (Phase.EXITED, Phase.UNKNOWN):
        await engine.stop(order.allocation_id, 2, grace_s=0)
        raise PoolUnreachableError(
            f"A trial job did not end within {TRIAL_WITHIN_S:.0f} s: {seen.detail if seen else 'not seen'}.",
            remedy="See ray job list and ray status on the head node for what keeps it.",
        )
    await engine.release(order.allocation_id, 2)
    if seen.exit_code != 0:
        raise UnsupportedError(
            f"A trial job failed on the cluster: {seen.detail or seen.exit_code}",
            remedy="Jobs need python3 (3.8 or newer) on the PATH of every node and a log directory Ray may write to.",
        )
    return seen


def _number(version: str) -> tuple[int, ...]:
    """Return the first two numbers of a version; 3.0.0.dev0 is 3.0."""
    return tuple(int(part) for part in re.findall(r"\d+", version)[:2])
