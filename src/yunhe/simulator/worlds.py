"""Worlds to simulate in: made up from a seed, or read from files."""

from pathlib import Path
from random import Random

from yunhe.kernel.ids import NodeId, PoolId
from yunhe.kernel.money import MICROS, Prices, Tier
from yunhe.kernel.places import Level, Place
from yunhe.kernel.resources import Resources
from yunhe.scheduling.perception.files import read_snapshot
from yunhe.scheduling.perception.model import EnergyFacts, NodeFacts, PoolFacts
from yunhe.scheduling.perception.snapshot import Snapshot, build_snapshot

NODE_CORES = (32, 64, 96)


def made_up(pools: int, nodes: int, seed: int) -> Snapshot:
    """Return *nodes* machines in *pools* pools that differ in price, speed, reliability, place and power."""
    rng = Random(seed)  # noqa: S311 - chance, not secrets
    facts = [
        PoolFacts(
            id=PoolId(f"pool-{i:03d}"),
            name=f"pool-{i:03d}",
            place=Place(
                f"region-{i % 7}", rng.uniform(-50, 60), rng.uniform(-180, 180), rng.choice(list(Level))
            ),
            prices=dict.fromkeys(
                Tier,
                Prices(
                    cpu_core_hour_micros=round(rng.uniform(0.02, 0.09) * MICROS),
                    memory_gib_hour_micros=round(rng.uniform(0.002, 0.009) * MICROS),
                ),
            ),
            speed=round(rng.uniform(0.7, 1.5), 2),
            reliability=round(rng.uniform(0.995, 1.0), 4),
            wait_s=round(rng.uniform(0.0, 20.0), 1),
            energy=EnergyFacts(
                watts_per_core=rng.uniform(3, 9),
                pue=rng.uniform(1.05, 1.6),
                carbon_g_per_kwh=tuple(rng.uniform(30, 700) for _ in range(24)),
            ),
        )
        for i in range(pools)
    ]
    machines: list[NodeFacts] = []
    for number in range(nodes):
        cores = NODE_CORES[number % len(NODE_CORES)]
        amount = Resources(cores * 1000, cores * 4096, 2_000_000)
        machines.append(
            NodeFacts(
                id=NodeId(f"node-{number:06d}"),
                pool_id=facts[number % pools].id,
                total=amount,
                free=amount,
            )
        )
    return build_snapshot(facts, machines, version=1, taken_at=0.0)


def read_world(folder: Path) -> Snapshot:
    """Return the world that snapshot files describe."""
    return read_snapshot(folder)
