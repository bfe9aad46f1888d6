"""What others may ask of perception."""

from typing import Protocol

from yunhe.control.pools.model import FactList, UsageMinute
from yunhe.kernel.ids import AllocationId, NodeId, PoolId
from yunhe.kernel.money import Prices, Tier
from yunhe.kernel.resources import Resources
from yunhe.scheduling.perception.model import ResourceGraph
from yunhe.scheduling.perception.snapshot import Snapshot


class Perception(Protocol):
    """Owns what is known of the world: snapshots for decisions, usage for everybody."""

    async def snapshot(
        self, promised: dict[NodeId, Resources], groups: dict[NodeId, tuple[str, ...]]
    ) -> Snapshot:
        """Encapsulate the world as known now, less what is promised on each node, with the groups that run there."""
        ...

    async def graph(self, pool: str = "") -> ResourceGraph:
        """Return how clusters, nodes and resources belong together; of one pool by name or ID, or of all."""
        ...

    async def facts(self, pool: str) -> FactList:
        """Return what is known of a pool and its nodes, each fact with its source and age."""
        ...

    async def set_prices(self, pool_id: PoolId, tiers: dict[Tier, Prices]) -> None:
        """Take note of what a pool charges, for decisions to weigh."""
        ...

    async def usage(self, allocation_id: AllocationId, *, since: float = 0.0) -> tuple[UsageMinute, ...]:
        """Return an allocation's use, minute by minute, as far as it is kept."""
        ...
