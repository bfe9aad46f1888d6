"""What a change costs to hear of when few and when many allocations are known: the work must not grow with them.

``python -m bench.observe`` (as root). An observer waits for changes while one allocation after another changes: a newer
token takes it over. Counted is cpu time per change: of this process for the watcher on a fake pool, of the agent's
daemon for a real one. Beside it, in the same run, an observer that asks for everything each time.
"""

import argparse
import itertools
import statistics
import sys
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, cast

import anyio
import msgspec

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests"))

from integration.infrastructure.host.orders import order_for
from support.agent_roots import agent_root, daemon_pid
from yunhe.control.pools.interface import Pools
from yunhe.infrastructure.contract.engine import Engine
from yunhe.infrastructure.contract.model import LaunchOrder, Observation, Phase, Step
from yunhe.infrastructure.fake.engine import FakeEngine
from yunhe.infrastructure.fake.pool import FakePool
from yunhe.infrastructure.host.engine import HostEngine
from yunhe.infrastructure.host.target import LocalHost
from yunhe.kernel.ids import AllocationId, NodeId, PoolId, ProjectId
from yunhe.kernel.resources import Resources
from yunhe.scheduling.orchestration.jobs import watcher

FEW = 10
ROUNDS = 5
CHANGES = 50
"""In each round."""
MOST_GROWTH = 2.0
"""How much more a change may cost with many allocations than with few."""
POOL = PoolId("pool")
TOKENS = itertools.count(2)

over: list[str] = []
"""What was beyond its limit."""


class OneEngine:
    """What the watcher asks, answered by one engine."""

    def __init__(self, engine: Engine, *, changes: bool) -> None:
        self._engine = engine
        self._changes = changes
        self.heard = anyio.Event()
        self.version = -1

    async def observe(self, _pool_id: PoolId, *, beyond: int, wait_s: float) -> Observation:
        """Return what the watcher is told: changes, or everything."""
        if self.version >= 0:
            self.heard.set()  # what came before has been folded in
        seen = await self._engine.observe(beyond=beyond, wait_s=wait_s)
        if not self._changes:
            seen = await self._engine.observe()
        self.version = seen.version
        return seen


async def cost_ms(
    engine: Engine, orders: list[LaunchOrder], cpu_s: Callable[[], float], *, changes: bool
) -> float:
    """Return the cpu time in milliseconds that each change takes to happen and be heard of."""
    pools = OneEngine(engine, changes=changes)
    watching = watcher.Watcher(cast("Pools", cast("Any", pools)), lambda _allocation_id: None)
    spent = 0.0
    async with anyio.create_task_group() as tasks:
        watching.want(tasks, POOL)
        await pools.heard.wait()
        before = cpu_s()
        for order in orders:
            pools.heard = anyio.Event()
            await engine.launch(order)
            with anyio.fail_after(30):
                await pools.heard.wait()
            seen = watching.seen(POOL, order.allocation_id)
            assert seen is not None, "a change was not heard of"
            assert seen.token == order.token, "a change was not heard of"
        spent = cpu_s() - before
        watching.unwant(POOL)
        tasks.cancel_scope.cancel()
    return spent * 1000 / len(orders)


async def compare(
    name: str, engine: Engine, orders: list[LaunchOrder], cpu_s: Callable[[], float]
) -> tuple[float, float]:
    """Print and return what a change costs: heard as a change, and by asking for everything."""
    costs: dict[bool, list[float]] = {True: [], False: []}
    for _ in range(ROUNDS):
        for changes, found in costs.items():
            newer = [
                msgspec.structs.replace(order, token=next(TOKENS))
                for order in itertools.islice(itertools.cycle(orders), CHANGES)
            ]
            found.append(await cost_ms(engine, newer, cpu_s, changes=changes))
    known = len((await engine.observe()).allocations)
    told, everything = statistics.median(costs[True]), statistics.median(costs[False])
    print(
        f"{name:12s} {known:5d} known: {told:7.3f} ms a change; {everything:7.3f} ms when everything is asked for"
    )
    return told, everything


async def grow(engine: Engine, order: Callable[[], Awaitable[LaunchOrder]], count: int) -> list[LaunchOrder]:
    """Launch *count* orders and wait until all of them have ended; return them."""
    orders = [await order() for _ in range(count)]
    limit = anyio.CapacityLimiter(16)

    async def launch(one: LaunchOrder) -> None:
        async with limit:
            await engine.launch(one)

    async with anyio.create_task_group() as tasks:
        for one in orders:
            tasks.start_soon(launch, one)
    with anyio.fail_after(300):
        whole = await engine.observe()
        while any(seen.phase is not Phase.EXITED for seen in whole.allocations):
            await engine.observe(beyond=whole.version, wait_s=5)
            whole = await engine.observe()
    return orders


async def measure(
    name: str,
    engine: Engine,
    order: Callable[[], Awaitable[LaunchOrder]],
    cpu_s: Callable[[], float],
    many: int,
) -> None:
    """Measure with few and with many, and judge the growth."""
    changing = await grow(engine, order, FEW)
    few, _ = await compare(name, engine, changing, cpu_s)
    await grow(engine, order, many - FEW)
    lots, everything = await compare(name, engine, changing, cpu_s)
    growth = lots / few
    good = growth <= MOST_GROWTH
    print(
        f"     {'ok  ' if good else 'OVER'} {name}: {growth:.2f} × with {many / FEW:.0f} × as many ≤ {MOST_GROWTH:g};"
        f" asking for everything costs {everything / lots:.0f} × that"
    )
    if not good:
        over.append(name)


async def fake(many: int) -> None:
    """Measure the watcher on a fake pool, in this process."""
    pool = FakePool(nodes={NodeId("n"): Resources(cpu_millis=10**9, memory_mib=10**9)})
    numbers = iter(range(10**9))

    async def order() -> LaunchOrder:
        return LaunchOrder(
            allocation_id=AllocationId(f"a{next(numbers)}"),
            token=1,
            project_id=ProjectId("p"),
            node_id=NodeId("n"),
            resources=Resources(cpu_millis=1, memory_mib=1),
            steps=(Step(name="run", script="true"),),
        )

    await measure("fake pool", FakeEngine(pool), order, time.process_time, many)


async def host(many: int) -> None:
    """Measure an agent's daemon."""
    with agent_root() as root:
        async with HostEngine(LocalHost(root=str(root))) as engine:
            like = await order_for(engine, "true", cpu_millis=10)
            numbers = iter(range(10**9))

            async def order() -> LaunchOrder:
                return msgspec.structs.replace(like, allocation_id=AllocationId(f"a{next(numbers)}"))

            def cpu_s() -> float:
                pid = daemon_pid(root)
                assert pid is not None, "the agent has ended"
                threads = Path(f"/proc/{pid}/task").glob("*/schedstat")  # nanoseconds; stat counts hundredths
                return sum(int(one.read_text().split()[0]) for one in threads) / 1e9

            await measure("agent", engine, order, cpu_s, many)


def main() -> None:
    """Run both."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--allocations", type=int, default=2000)
    many = parser.parse_known_args()[0].allocations
    anyio.run(fake, many)
    anyio.run(host, many)
    if over:
        raise SystemExit(f"beyond its limit: {', '.join(over)}")


if __name__ == "__main__":
    main()
