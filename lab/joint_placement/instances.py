"""Random joint instances: demands that compete for nodes and links, with data to be brought."""

from random import Random
from typing import NamedTuple

from yunhe.kernel.ids import JobId, NodeId, PoolId, ProjectId
from yunhe.kernel.money import MICROS, Prices, Tier
from yunhe.kernel.resources import Resources
from yunhe.scheduling.decision.model import Alternative, DataNeed, Demand
from yunhe.scheduling.perception.model import DatasetFacts, LinkFacts, NodeFacts, PoolFacts, SiteFacts
from yunhe.scheduling.perception.snapshot import Snapshot, SnapshotContext, build_snapshot

PROJECT = ProjectId("lab")


class Instance(NamedTuple):
    """A world and what is wanted of it at once."""

    demands: tuple[Demand, ...]
    snapshot: Snapshot


def instance(seed: int) -> Instance:
    """Return an instance of 5 to 8 demands over 4 pools, tight in nodes and in links."""
    rng = Random(seed)
    pools = [
        PoolFacts(
            id=PoolId(f"p{i}"),
            name=f"p{i}",
            prices=dict.fromkeys(Tier, Prices(cpu_core_hour_micros=round(rng.uniform(0.02, 0.3) * MICROS))),
            speed=rng.choice((0.8, 1.0, 1.5)),
            wait_s=rng.choice((0.0, 60.0, 600.0)),
        )
        for i in range(4)
    ]
    nodes = [
        NodeFacts(id=NodeId(f"{pool.name}-{n}"), pool_id=pool.id, total=amount, free=amount)
        for pool in pools
        for n in range(rng.randint(1, 2))
        for amount in [Resources(rng.choice((8, 12, 16)) * 1000, rng.choice((32, 64)) * 1024, 10**6)]
    ]
    relays = [SiteFacts("x0"), SiteFacts("x1")]
    ends = [pool.name for pool in pools]
    links = [_link(rng, a, b) for a in ends for b in ("x0", "x1") if rng.random() < 0.85]
    apart = set(ends) - {link.source for link in links}
    links += [
        _link(rng, name, "x0") for name in sorted(apart)
    ]  # what is unknown, the exact model cannot weigh
    links += [_link(rng, "x0", "x1")]
    links += [_link(rng, a, b) for i, a in enumerate(ends) for b in ends[i + 1 :] if rng.random() < 0.3]
    datasets = [
        DatasetFacts(
            name=f"d{i}",
            size_mib=rng.choice((10, 50, 200, 800)) * 1024,
            replicas=tuple(rng.sample(ends, rng.randint(1, 2))),
        )
        for i in range(4)
    ]
    demands = tuple(_demand(rng, i) for i in range(rng.randint(5, 8)))
    around = SnapshotContext(sites=tuple(relays), links=tuple(links), datasets=tuple(datasets))
    return Instance(demands, build_snapshot(pools, nodes, version=seed, taken_at=0.0, surroundings=around))


def _link(rng: Random, a: str, b: str) -> LinkFacts:
    return LinkFacts(
        source=a,
        target=b,
        bandwidth_mbps=rng.choice((200.0, 400.0, 1000.0)),
        latency_ms=rng.uniform(1, 60),
        price_micros_per_gib=rng.choice((0, 5_000, 20_000, 80_000)),
    )


def _demand(rng: Random, number: int) -> Demand:
    amount = Resources(rng.choice((2, 4, 6, 8)) * 1000, rng.choice((4, 16, 24)) * 1024, 0)
    needs = [
        DataNeed(dataset=f"d{i}", rate_mbps=rng.choice((100.0, 200.0, 300.0, None)))
        for i in rng.sample(range(4), rng.choice((0, 1, 1, 2)))
    ]
    return Demand(
        job_id=JobId(f"job_{number}"),
        project_id=PROJECT,
        alternatives=(Alternative(amount),),
        run_s=rng.choice((1800.0, 7200.0, 36_000.0)),
        data=tuple(needs),
    )
