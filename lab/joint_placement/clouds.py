"""Three clouds as pools: prices from a catalogue of instances, links as measured between their regions."""

from collections import defaultdict
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

import pyarrow.parquet as pq

from yunhe.kernel.ids import JobId, NodeId, PoolId, ProjectId
from yunhe.kernel.money import MICROS, Prices, Tier
from yunhe.kernel.resources import Accelerators, Resources
from yunhe.scheduling.decision.model import Alternative, DataNeed, Demand
from yunhe.scheduling.perception.model import DatasetFacts, LinkFacts, NodeFacts, PoolFacts
from yunhe.scheduling.perception.snapshot import Snapshot, SnapshotContext, build_snapshot

CLOUDS = ("aws", "azure", "gcp")
SIZES_GB = (0, 10, 50, 100, 250, 500, 1000, 2000, 5000)
RUN_HOURS = (1, 4, 12)


class Machine(NamedTuple):
    """What a job needs: a size of machine, and which accelerators of the catalogue will do."""

    kind: str
    cores: int
    memory_gib: int
    accelerators: tuple[tuple[str, float], ...]


MACHINES = (
    Machine("8 cores", 8, 32, (("", 0),)),
    Machine("T4", 4, 15, (("T4", 1.0),)),
    Machine("8 × A100", 8, 32, (("A100", 8.0), ("A100-80GB", 8.0))),
)
"""Each is modelled as one device of its kind, priced as the whole machine."""


def newest(folder: Path, pattern: str) -> Path:
    """Return the last file of a pattern, by name."""
    found = sorted(folder.glob(pattern))
    if not found:
        raise FileNotFoundError(f"{folder} has no {pattern}; give the folder with --data")
    return found[-1]


def rows(path: Path) -> list[dict[str, Any]]:
    """Return the rows of a parquet file."""
    return pq.read_table(path).to_pylist()


def region_of(name: str) -> str:
    """Return ``gcp:us-east1`` for the zone ``gcp:us-east1-b``; other clouds name regions as they are."""
    return name.rpartition("-")[0] if name.startswith("gcp:") else name


def machine_prices(catalog: list[dict[str, Any]], machine: Machine) -> dict[str, float]:
    """Return region → the least hourly price of a machine that is large enough."""
    best: dict[str, float] = {}
    for row in catalog:
        accelerator = (row["AcceleratorName"] or "", row["AcceleratorCount"] or 0)
        if (
            row["cloud"] in CLOUDS
            and row["Price"]
            and accelerator in machine.accelerators
            and (row["vCPUs"] or 0) >= machine.cores
            and (row["MemoryGiB"] or 0) >= machine.memory_gib
        ):
            region = f"{row['cloud']}:{row['Region']}"
            best[region] = min(best.get(region, float("inf")), float(row["Price"]))
    return best


def measured_links(network: Path, regions: set[str]) -> list[LinkFacts]:
    """Return a line each way for every measured pair and network tier."""
    price = {
        (region_of(r["src"]), region_of(r["dest"])): float(r["cost"])
        for r in rows(newest(network, "egress_cost_*.parquet"))
    }
    rtt: dict[tuple[str, str], list[float]] = defaultdict(list)
    for row in rows(newest(network, "latency_*.parquet")):
        if row["avg_rtt"] is not None:
            rtt[region_of(row["src_region"]), region_of(row["dst_region"])].append(float(row["avg_rtt"]))
    speed: dict[tuple[str, str, str], float] = {}
    for row in rows(newest(network, "throughput_*.parquet")):
        key = (
            region_of(row["src_region"]),
            region_of(row["dst_region"]),
            f"{row['src_tier']}-{row['dst_tier']}",
        )
        if row["success"] and row["recv_gbps"]:
            speed[key] = max(speed.get(key, 0.0), 1000 * float(row["recv_gbps"]))
    return [
        LinkFacts(
            source=source,
            target=target,
            bandwidth_mbps=mbps,
            latency_ms=min(rtt[source, target]) if rtt[source, target] else None,
            price_micros_per_gib=round(price[source, target] * 1.073741824 * MICROS),
            both_ways=False,
        )
        for (source, target, _), mbps in sorted(speed.items())
        if source in regions and target in regions and source != target and (source, target) in price
    ]


def clouds(catalog: Path, network: Path) -> Snapshot:
    """Return the clouds' regions as pools with room for everything."""
    catalogue = rows(newest(catalog, "catalog_*.parquet"))
    listed = {machine.kind: machine_prices(catalogue, machine) for machine in MACHINES}
    measured = {region_of(r["src_region"]) for r in rows(newest(network, "throughput_*.parquet"))}
    regions = sorted(set(listed[MACHINES[0].kind]) & measured)
    pools: list[PoolFacts] = []
    nodes: list[NodeFacts] = []
    for region in regions:
        price = {kind: round(by[region] * MICROS) for kind, by in listed.items() if region in by}
        pools.append(
            PoolFacts(
                id=PoolId(region),
                name=region,
                prices=dict.fromkeys(Tier, Prices(accelerator_hour_micros=price)),
                speed=1.0,
                wait_s=0.0,
                labels={"cloud": region.partition(":")[0]},
            )
        )
        has = Resources(accelerators=tuple(Accelerators(kind, 1000) for kind in price))
        nodes.append(NodeFacts(id=NodeId(region), pool_id=PoolId(region), total=has, free=has))
    datasets = [
        DatasetFacts(name=f"{region}/{size}", size_mib=round(size * 1e9 / 2**20), replicas=(region,))
        for region in regions
        for size in SIZES_GB
    ]
    around = SnapshotContext(links=tuple(measured_links(network, set(regions))), datasets=tuple(datasets))
    return build_snapshot(pools, nodes, version=1, taken_at=0.0, surroundings=around)


def jobs(snapshot: Snapshot, size_gb: int, count: int, seed: int) -> list[Demand]:
    """Return jobs of every kind of machine whose input of *size_gb* lies in some region, short and long ones."""
    rng = Random(f"{seed}/{size_gb}")
    return [
        Demand(
            job_id=JobId(f"job_{number}"),
            project_id=ProjectId("lab"),
            alternatives=(Alternative(_one(MACHINES[number % len(MACHINES)])),),
            run_s=3600.0 * rng.choice(RUN_HOURS),
            data=(DataNeed(dataset=f"{rng.choice(snapshot.pools).name}/{size_gb}"),) if size_gb else (),
        )
        for number in range(count)
    ]


def _one(machine: Machine) -> Resources:
    return Resources(accelerators=(Accelerators(machine.kind, 1000),))
