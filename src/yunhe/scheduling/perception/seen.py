"""Pools and nodes as last seen, as the facts that snapshots are made of."""

from collections.abc import Mapping, Sequence

from yunhe.control.pools.model import FactChanges, Pool, PoolNode, PoolState
from yunhe.kernel.carbon import CarbonSeries
from yunhe.kernel.ids import PoolId
from yunhe.kernel.money import Prices, Tier
from yunhe.kernel.resources import Resources
from yunhe.scheduling.perception.freshness import DEFAULT_BOUNDS, age_against, too_old
from yunhe.scheduling.perception.model import EnergyFacts, FactBounds, NodeFacts, PoolFacts
from yunhe.scheduling.perception.snapshot import Snapshot, build_snapshot

NOTHING = Resources()


def pool_facts(
    pool: Pool,
    prices: dict[Tier, Prices] | None,
    bounds: FactBounds = DEFAULT_BOUNDS,
    now: float | None = None,
) -> PoolFacts:
    """Return a pool as decisions know it at *now*: without prices and facts that are too old; None: at no time."""
    old = {} if now is None else too_old(pool.facts, bounds, now)
    known = FactChanges.of({name: fact for name, fact in pool.facts.items() if name not in old})
    why_not = _why_not(pool) or ("" if now is None else _why_unseen(pool, bounds, now))
    return PoolFacts(
        id=pool.id,
        name=pool.spec.name,
        kind=pool.spec.kind,
        place=known.place,
        prices=prices,
        only_project=pool.spec.only_project,
        accepts=not why_not,
        why_not=why_not,
        powers=pool.powers,
        missing=pool.missing,
        speed=known.speed,
        reliability=known.reliability,
        wait_s=known.wait_s,
        energy=_energy(pool, known),
        labels=known.labels or {},
        taints=known.taints or (),
        site=known.site or "",
        too_old=old,
    )


def _energy(pool: Pool, known: FactChanges) -> EnergyFacts | None:
    """Return what running work costs in power; a core draws its share of what a busy node draws on top of an idle one."""
    cores = sum(node.total.cpu_millis for node in pool.nodes) / 1000
    carbon = known.carbon or CarbonSeries()
    energy = EnergyFacts(
        watts_per_core=(known.watts_full - (known.watts_idle or 0.0)) * len(pool.nodes) / cores
        if known.watts_full is not None and cores
        else None,
        watts_idle=known.watts_idle,
        pue=known.pue or 1.0,
        price_micros_per_kwh=known.energy_price_micros_per_kwh,
        carbon_from=carbon.starts_at,
        carbon_g_per_kwh=carbon.g_per_kwh,
    )
    return None if energy == EnergyFacts() else energy


def _why_not(pool: Pool) -> str:
    """Say why a pool takes no new work; empty: it does."""
    if pool.state is not PoolState.READY or pool.unfit:
        return f"{'unfit' if pool.unfit else pool.state}: {pool.reason}".removesuffix(": ")
    if pool.drained:
        return "drained by an operator"
    if pool.nodes and all(node.cordoned for node in pool.nodes):
        return "every node is cordoned"
    return ""


def _why_unseen(pool: Pool, bounds: FactBounds, now: float) -> str:
    """Say that nothing is known of a pool that nobody has looked at for too long; empty: somebody has."""
    age_s = now - (pool.seen_at or 0.0)
    return f"was looked at {age_against(age_s, bounds.look_s)}" if age_s > bounds.look_s else ""


def node_facts(node: PoolNode, promised: Resources, groups: tuple[str, ...] = ()) -> NodeFacts:
    """Return a node as decisions know it: what it has, less what is promised there, and the groups that run there."""
    free = node.total if promised is NOTHING else _less(node.total, promised)
    return NodeFacts(
        id=node.id,
        pool_id=node.pool_id,
        total=node.total,
        free=free,
        isa=node.about.isa,
        labels=_labels(node),
        taints=node.about.taints,
        groups=groups,
    )


def _less(total: Resources, promised: Resources) -> Resources:
    return Resources(
        cpu_millis=total.cpu_millis - promised.cpu_millis,
        memory_mib=total.memory_mib - promised.memory_mib,
        disk_mib=total.disk_mib - promised.disk_mib,
        accelerators=tuple(
            type(a)(a.kind, a.milli - promised.accelerator_milli(a.kind), a.memory_mib)
            for a in total.accelerators
        ),
    )


def _labels(node: PoolNode) -> dict[str, str]:
    """Return a node's labels, with what its system is among them."""
    system = node.about.system
    if system is None:
        return node.about.labels
    known = {"node/os": system.os, "node/kernel": system.kernel, "node/cpu": system.cpu_model}
    return {**{name: value for name, value in known.items() if value}, **node.about.labels}


def world_of(pools: Sequence[Pool], prices: Mapping[PoolId, dict[Tier, Prices]]) -> Snapshot:
    """Return the world of *pools* with nothing on them."""
    facts = [pool_facts(pool, prices.get(pool.id)) for pool in pools]
    nodes = [node_facts(node, NOTHING) for pool in pools for node in pool.nodes if node.ready]
    return build_snapshot(facts, nodes, version=1, taken_at=0.0)
