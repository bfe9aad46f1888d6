"""A made-up federation in which files for any cloud can be placed: a pool of each kind, with accelerators of each kind."""

from yunhe.kernel.ids import NodeId, PoolId
from yunhe.kernel.places import Place
from yunhe.kernel.resources import Accelerators, Resources
from yunhe.scheduling.perception.model import NodeFacts, PoolFacts
from yunhe.scheduling.perception.snapshot import Snapshot, build_snapshot
from yunhe.trading.demand.skypilot.cases import KINDS

CLOUDS = ("aws", "gcp", "azure", "lambda", "nebius", "ibm", "oci", "runpod", "vast", "together", "coreweave")
OWN = ("kubernetes", "slurm", "ssh")
NODES_OF_A_KIND = 4
POWERS = ("images", "files")


def federation(regions: list[str]) -> Snapshot:
    """Return pools of every cloud, in every one of *regions* that files name and one more, and pools of one's own."""
    pools = [
        PoolFacts(id=PoolId(f"{cloud}-{region}"), name=f"{cloud}-{region}", kind="vm", place=Place(region), labels={"cloud": cloud}, powers=POWERS)
        for cloud in CLOUDS
        for region in sorted({*regions, "anywhere"})
    ]  # fmt: skip
    pools += [PoolFacts(id=PoolId(kind), name=kind, kind=kind, powers=POWERS) for kind in OWN]
    nodes = [
        NodeFacts(
            id=NodeId(f"{pool.id}/{kind}-{number}"),
            pool_id=pool.id,
            total=_size(kind),
            free=_size(kind),
            isa="amd64",
            taints=("spot",) if number % 2 else (),
        )
        for pool in pools
        for kind in KINDS
        for number in range(NODES_OF_A_KIND)
    ]
    return build_snapshot(pools, nodes, version=1, taken_at=0.0)


def _size(kind: str) -> Resources:
    return Resources(192_000, 2 * 1024 * 1024, 16 * 1024 * 1024, (Accelerators(kind, 16_000),))
