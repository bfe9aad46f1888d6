"""Fake pools as a kind of engine, so that a whole platform can stand on them."""

from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from yunhe.infrastructure.contract.engine import Engine
from yunhe.infrastructure.contract.kind import Check, Target
from yunhe.infrastructure.fake.engine import FakeEngine
from yunhe.infrastructure.fake.faults import Faults
from yunhe.infrastructure.fake.pool import FakePool
from yunhe.infrastructure.fake.timeline import RealTime, Timeline
from yunhe.kernel.ids import NodeId
from yunhe.kernel.resources import Resources
from yunhe.kernel.units import parse_cpu_millis, parse_memory_mib


@dataclass(frozen=True, slots=True)
class FakeSite:
    """A fake pool and the network in front of it."""

    pool: FakePool
    faults: Faults = field(default_factory=Faults)


class FakeKind:
    """Connects to fake pools by address; an address that is new is a new pool, and lives as long as this object."""

    def __init__(self, time: Timeline | None = None) -> None:
        self._time = time or RealTime()
        self._sites: dict[str, FakeSite] = {}

    def site(self, target: Target) -> FakeSite:
        """Return the pool at an address, for a test to look into and to break."""
        if target.address not in self._sites:
            node = Resources(
                cpu_millis=parse_cpu_millis(target.options.get("cpus", "8")),
                memory_mib=parse_memory_mib(target.options.get("memory", "16GB")),
                disk_mib=102_400,
            )
            names = [NodeId(f"fake-{n}") for n in range(1, int(target.options.get("nodes", "1")) + 1)]
            pool = FakePool(nodes=dict.fromkeys(names, node), time=self._time)
            if "price_micros" in target.options:
                pool.price_micros_per_hour = int(target.options["price_micros"])
            self._sites[target.address] = FakeSite(pool)
        return self._sites[target.address]

    async def onboard(self, target: Target) -> AsyncIterator[Check]:
        """Yield the one step there is: to make the pool."""
        try:
            self.site(target)
        except ValueError as error:
            yield Check(step="pool made", ok=False, detail=str(error), remedy="Correct the option.")
        else:
            yield Check(step="pool made", ok=True)

    @asynccontextmanager
    async def connect(self, target: Target) -> AsyncGenerator[Engine, None]:
        """Hold a connection with every power."""
        site = self.site(target)
        engine = FakeEngine(site.pool, site.faults)
        try:
            yield engine
        finally:
            await engine.close()
