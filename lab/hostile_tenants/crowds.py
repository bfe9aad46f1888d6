"""Two crowds with the same reservations on one host, and the rate of a stream of jobs beside each."""

import time
from collections.abc import Sequence
from itertools import cycle

import anyio

from yunhe.infrastructure.contract.model import LaunchOrder, Phase, Step
from yunhe.infrastructure.host.engine import HostEngine
from yunhe.kernel.errors import YunheError
from yunhe.kernel.ids import AllocationId, NodeId, ProjectId, new_id
from yunhe.kernel.resources import Resources

RESERVED = Resources(cpu_millis=100, memory_mib=64, disk_mib=64)
STREAMED = Resources(cpu_millis=500, memory_mib=64, disk_mib=64)
AGAIN_AFTER_S = 1.0
SETTLE_S = 4.0
JOB = "i=0; while [ $i -lt 5000 ]; do i=$((i+1)); done"

HOSTILE = (
    *(["b() { b | b & }; while :; do b; sleep 0.1; done"] * 10),
    "while :; do head -c 1G /dev/zero > f$RANDOM; done",
    "yes a line of output that nobody wants to read",
    "python3 -c 'a = []\nwhile True: a.append(bytearray(1 << 20))'",
)
"""Ten fork bombs, a disk filler, a log flooder and a memory bomb."""
BEHAVING = (
    *(["while :; do :; done"] * 10),
    "while :; do head -c 48M /dev/zero > f; done",
    "while :; do echo a line of output; done",
    "python3 -c 'a = bytearray(40 << 20)\nwhile True: a[::4096] = bytes(len(a) // 4096)'",
)
"""As many tenants that use the same reservations fully: CPU, disk, output and memory."""
CROWDS: dict[str, Sequence[str]] = {"behaving": BEHAVING, "hostile": HOSTILE}


async def rate_beside(engine: HostEngine, crowd: str, window_s: float) -> float:
    """Return how many jobs a second of a stream end well beside *crowd*."""
    rate = 0.0
    async with anyio.create_task_group() as tasks:
        for number, script in enumerate(CROWDS[crowd]):
            tasks.start_soon(_keep_running, engine, f"{crowd}-{number}", script)
        await anyio.sleep(SETTLE_S)
        began, done = time.monotonic(), 0
        while time.monotonic() < began + window_s:
            done += await _run_one(engine)
        rate = done / (time.monotonic() - began)
        tasks.cancel_scope.cancel()
    await _clear(engine)
    return rate


async def _order(engine: HostEngine, project: str, script: str, resources: Resources) -> LaunchOrder:
    (node,) = (await engine.inventory()).nodes
    return LaunchOrder(
        allocation_id=AllocationId(new_id("all", time.time())),
        token=1,
        project_id=ProjectId(project),
        node_id=NodeId(node.id),
        resources=resources,
        steps=(Step(name="run", script=script),),
        disk_limit_bytes=resources.disk_mib << 20,
        log_limit_bytes=1 << 20,
    )


async def _ended(engine: HostEngine, allocation_id: AllocationId) -> int | None:
    version = -1
    while True:
        seen = await engine.observe(beyond=version, wait_s=5.0)
        version = seen.version
        for one in seen.allocations:
            if one.allocation_id == allocation_id and one.phase in {Phase.EXITED, Phase.UNKNOWN}:
                return one.exit_code


async def _run_one(engine: HostEngine) -> int:
    order = await _order(engine, "steady", JOB, STREAMED)
    await engine.launch(order)
    code = await _ended(engine, order.allocation_id)
    await engine.release(order.allocation_id, 1)
    return int(code == 0)


async def _keep_running(engine: HostEngine, project: str, script: str) -> None:
    """Launch *script* again whenever it has ended."""
    for _ in cycle((0,)):
        try:
            order = await _order(engine, project, script, RESERVED)
            await engine.launch(order)
            await _ended(engine, order.allocation_id)
            await engine.release(order.allocation_id, 1)
        except YunheError:
            pass
        await anyio.sleep(AGAIN_AFTER_S)


async def _clear(engine: HostEngine) -> None:
    """Stop and release whatever is left."""
    while known := (await engine.observe()).allocations:
        for one in known:
            if one.phase in {Phase.EXITED, Phase.UNKNOWN}:
                await engine.release(one.allocation_id, 1)
            else:
                await engine.stop(one.allocation_id, 1, grace_s=0.0)
        await anyio.sleep(0.2)
