"""Pools and nodes as last seen, as the facts that snapshots are made of."""

from collections.abc import Mapping, Sequence

from yunhe.control.pools.model import Pool, PoolNode, PoolState
from yunhe.kernel.ids import PoolId
from yunhe.kernel.money import Prices, Tier
from yunhe.kernel.resources import Resources
from yunhe.scheduling.perception.model import NodeFacts, PoolFacts
from yunhe.scheduling.perception.snapshot import Snapshot, build_snapshot

NOTHING = Resources()


def pool_facts(pool: Pool, prices: dict[Tier, Prices] | None) -> PoolFacts:
    """Return a pool as decisions know it; no prices: unknown."""
    why_not = _why_not(pool)
    return PoolFacts(
        id=pool.id,
        name=pool.spec.name,
        place=pool.spec.place,
        prices=prices,
        only_project=pool.spec.only_project,
        accepts=not why_not,
        why_not=why_not,
        powers=pool.powers,
        missing=pool.missing,
    )


def _why_not(pool: Pool) -> str:
    """Say why a pool takes no new work; empty: it does."""
    if pool.state is not PoolState.READY or pool.unfit:
        return f"{'unfit' if pool.unfit else pool.state}: {pool.reason}".removesuffix(": ")
    if pool.drained:
        return "drained by an operator"
    if pool.nodes and all(node.cordoned for node in pool.nodes):
        return "every node is cordoned"
    return ""


def node_facts(node: PoolNode, promised: Resources) -> NodeFacts:
    """Return a node as decisions know it: what it has, less what is promised there."""
    if promised is NOTHING:
        return NodeFacts(id=node.id, pool_id=node.pool_id, total=node.total, free=node.total)
    free = Resources(
        cpu_millis=node.total.cpu_millis - promised.cpu_millis,
        memory_mib=node.total.memory_mib - promised.memory_mib,
        disk_mib=node.total.disk_mib - promised.disk_mib,
        accelerators=tuple(
            type(a)(a.kind, a.milli - promised.accelerator_milli(a.kind), a.memory_mib)
            for a in node.total.accelerators
        ),
    )
    return NodeFacts(id=node.id, pool_id=node.pool_id, total=node.total, free=free)


def world_of(pools: Sequence[Pool], prices: Mapping[PoolId, dict[Tier, Prices]]) -> Snapshot:
    """Return the world of *pools* with nothing on them."""
    facts = [pool_facts(pool, prices.get(pool.id)) for pool in pools]
    nodes = [node_facts(node, NOTHING) for pool in pools for node in pool.nodes if node.ready]
    return build_snapshot(facts, nodes, version=1, taken_at=0.0)
