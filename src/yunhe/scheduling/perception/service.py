"""Perception: what is known of the world, encapsulated for decisions and kept for everybody."""

import logging

import anyio

from yunhe.control.pools.interface import Pools
from yunhe.control.pools.model import FactList, PoolState, UsageMinute
from yunhe.kernel.clock import Clock
from yunhe.kernel.errors import YunheError
from yunhe.kernel.ids import AllocationId, NodeId, PoolId
from yunhe.kernel.money import Prices, Tier
from yunhe.kernel.resources import Resources
from yunhe.observability.failpoints import failpoint
from yunhe.scheduling.perception import store
from yunhe.scheduling.perception.freshness import DEFAULT_BOUNDS, list_facts
from yunhe.scheduling.perception.graph import build_graph
from yunhe.scheduling.perception.model import FactBounds, ResourceGraph
from yunhe.scheduling.perception.seen import NOTHING, node_facts, pool_facts
from yunhe.scheduling.perception.snapshot import Snapshot, build_snapshot
from yunhe.storage.database import Connection, Database

FEED_EVERY_S = 15.0
LEASE_S = 60.0

log = logging.getLogger(__name__)


class PerceptionService:
    """Implements ``Perception``."""

    def __init__(
        self, database: Database, pools: Pools, clock: Clock, bounds: FactBounds = DEFAULT_BOUNDS
    ) -> None:
        self._database = database
        self._pools = pools
        self._clock = clock
        self._bounds = bounds

    async def snapshot(
        self, promised: dict[NodeId, Resources], groups: dict[NodeId, tuple[str, ...]]
    ) -> Snapshot:
        """Encapsulate the world as known now, less what is promised on each node, with the groups that run there."""
        pools = await self._pools.pools()
        prices = await self._database.read(store.read_prices)
        now = self._clock()
        return build_snapshot(
            [pool_facts(pool, prices.get(pool.id), self._bounds, now) for pool in pools],
            [
                node_facts(node, promised.get(node.id, NOTHING), groups.get(node.id, ()))
                for pool in pools
                for node in pool.nodes
                if node.ready and not node.cordoned
            ],
            version=int(now * 1000),
            taken_at=now,
        )

    async def graph(self, pool: str = "") -> ResourceGraph:
        """Return how clusters, nodes and resources belong together."""
        pools = (await self._pools.pool(pool),) if pool else await self._pools.pools()
        return build_graph(pools, taken_at=self._clock())

    async def facts(self, pool: str) -> FactList:
        """Return what is known of a pool and its nodes, each fact with its source and age."""
        return list_facts(await self._pools.pool(pool), self._bounds, self._clock())

    async def set_prices(self, pool_id: PoolId, tiers: dict[Tier, Prices]) -> None:
        """Take note of what a pool charges."""
        await self._database.write(lambda connection: store.write_prices(connection, pool_id, tiers))

    async def usage(self, allocation_id: AllocationId, *, since: float = 0.0) -> tuple[UsageMinute, ...]:
        """Return an allocation's use, minute by minute."""
        return await self._database.read(
            lambda connection: store.read_usage(connection, allocation_id, since)
        )


class UsageFeed:
    """Brings every pool's minutes of use home; each pool is read by one process at a time."""

    def __init__(self, database: Database, pools: Pools, clock: Clock, *, owner: str) -> None:
        self._database = database
        self._pools = pools
        self._clock = clock
        self._owner = owner

    async def run(self) -> None:
        """Read pools until cancelled."""
        async with store.feeds_held_until_end(self._database, self._owner):
            while True:
                await self._read_all()
                await anyio.sleep(FEED_EVERY_S)

    async def _read_all(self) -> None:
        pools = [pool.id for pool in await self._pools.pools() if pool.state is not PoolState.CONNECTING]
        for pool_id, seq in (await self._database.write(lambda c: self._claim(c, pools))).items():
            await self._read(pool_id, seq)

    def _claim(self, connection: Connection, pools: list[PoolId]) -> dict[PoolId, int]:
        now = self._clock()
        return store.claim_feeds(connection, pools, owner=self._owner, now=now, ttl_s=LEASE_S)

    async def _read(self, pool_id: PoolId, seq: int) -> None:
        try:
            minutes = await self._pools.usage(pool_id, beyond=seq)
        except YunheError as error:
            log.info("usage waits on the pool", extra={"pool": pool_id, "problem": str(error)})
            return
        if not minutes:
            return

        def keep(connection: Connection) -> None:
            store.write_usage(connection, minutes)
            store.advance_feed(connection, pool_id, max(minute.seq for minute in minutes))

        failpoint("usage-before-commit")
        await self._database.write(keep, uses_reserve=False)
