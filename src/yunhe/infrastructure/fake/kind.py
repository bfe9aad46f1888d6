"""The fake as a kind of engine: one pool in memory per address, shared by everybody in this process."""

from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager

from yunhe.infrastructure.contract.engine import Engine
from yunhe.infrastructure.contract.kind import Check, Target
from yunhe.infrastructure.fake.engine import FakeEngine
from yunhe.infrastructure.fake.faults import Faults
from yunhe.infrastructure.fake.pool import FakePool
from yunhe.kernel.ids import NodeId
from yunhe.kernel.resources import Resources


class FakeKind:
    """Connects to fakes."""

    def __init__(self) -> None:
        self.pools: dict[str, FakePool] = {}
        self.faults: dict[str, Faults] = {}

    @property
    def options(self) -> dict[str, str]:
        """What a fake may be told."""
        return {"cpus": "cores it pretends to have", "memory_mib": "memory it pretends to have"}

    def engine(self, target: Target) -> FakeEngine:
        """Return a connection to the pool at the target's address."""
        if target.address not in self.pools:
            has = Resources(
                cpu_millis=int(float(target.options.get("cpus", "4")) * 1000),
                memory_mib=int(target.options.get("memory_mib", "16384")),
                disk_mib=1024 * 1024,
            )
            self.pools[target.address] = FakePool(nodes={NodeId("node-1"): has})
            self.faults[target.address] = Faults()
        return FakeEngine(self.pools[target.address], self.faults[target.address])

    async def onboard(self, target: Target) -> AsyncIterator[Check]:
        """Yield the one check there is."""
        inventory = await self.engine(target).inventory()
        yield Check(step="reachable", ok=True, detail=f"{len(inventory.nodes)} nodes")

    @asynccontextmanager
    async def connect(self, target: Target) -> AsyncGenerator[Engine]:
        """Hold a connection."""
        engine = self.engine(target)
        try:
            yield engine
        finally:
            await engine.close()
