"""The Snapshot: an immutable view of the world at a moment, as a struct of arrays."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import msgspec
import numpy as np
from numpy.typing import NDArray

from yunhe.kernel.errors import InvalidInputError
from yunhe.kernel.ids import NodeId, PoolId, ProjectId
from yunhe.kernel.money import Prices, Tier
from yunhe.kernel.places import Place
from yunhe.kernel.resources import Resources

SCHEMA = 1

IntArray = NDArray[np.int64]


class PoolFacts(msgspec.Struct, frozen=True, kw_only=True):
    """What is known of one pool; what is unknown is None, never zero."""

    id: PoolId
    name: str
    place: Place | None = None
    prices: dict[Tier, Prices] | None = None
    only_project: ProjectId | None = None
    """Set where the pool cannot keep projects apart and so serves just one."""
    accepts: bool = True
    """False while the pool drains or does not answer."""
    why_not: str = ""


class NodeFacts(msgspec.Struct, frozen=True, kw_only=True):
    """What is known of one node: what it has and what is not promised to anybody yet."""

    id: NodeId
    pool_id: PoolId
    total: Resources
    free: Resources


@dataclass(frozen=True, slots=True, eq=False)
class Snapshot:
    """Pools as records, nodes as columns; row i of every column is the same node."""

    schema: int
    version: int
    taken_at: float
    pools: tuple[PoolFacts, ...]
    node_ids: tuple[NodeId, ...]
    node_pool: IntArray
    cpu_total_millis: IntArray
    cpu_free_millis: IntArray
    memory_total_mib: IntArray
    memory_free_mib: IntArray
    disk_free_mib: IntArray
    accelerators_free_milli: Mapping[str, IntArray]

    def after(self, node: int, taken: Resources) -> "Snapshot":
        """Return the world once *taken* is promised on the node at row *node*."""
        cpu, memory, disk = (
            column.copy() for column in (self.cpu_free_millis, self.memory_free_mib, self.disk_free_mib)
        )
        cpu[node] -= taken.cpu_millis
        memory[node] -= taken.memory_mib
        disk[node] -= taken.disk_mib
        accelerators = {kind: column.copy() for kind, column in self.accelerators_free_milli.items()}
        for ask in taken.accelerators:
            accelerators[ask.kind][node] -= ask.milli
        return Snapshot(
            schema=self.schema,
            version=self.version,
            taken_at=self.taken_at,
            pools=self.pools,
            node_ids=self.node_ids,
            node_pool=self.node_pool,
            cpu_total_millis=self.cpu_total_millis,
            cpu_free_millis=cpu,
            memory_total_mib=self.memory_total_mib,
            memory_free_mib=memory,
            disk_free_mib=disk,
            accelerators_free_milli=accelerators,
        )


def build_snapshot(
    pools: Sequence[PoolFacts], nodes: Sequence[NodeFacts], *, version: int, taken_at: float
) -> Snapshot:
    """Encapsulate what is known into the one form that decisions accept."""
    row_of_pool = {pool.id: row for row, pool in enumerate(pools)}
    strangers = sorted({node.pool_id for node in nodes} - set(row_of_pool))
    if strangers:
        raise InvalidInputError(f"Nodes name pools that are not in the snapshot: {', '.join(strangers)}.")
    kinds = sorted({a.kind for node in nodes for a in node.total.accelerators})

    def column(values: Sequence[int]) -> IntArray:
        return np.asarray(values, dtype=np.int64)

    return Snapshot(
        schema=SCHEMA,
        version=version,
        taken_at=taken_at,
        pools=tuple(pools),
        node_ids=tuple(node.id for node in nodes),
        node_pool=column([row_of_pool[node.pool_id] for node in nodes]),
        cpu_total_millis=column([node.total.cpu_millis for node in nodes]),
        cpu_free_millis=column([node.free.cpu_millis for node in nodes]),
        memory_total_mib=column([node.total.memory_mib for node in nodes]),
        memory_free_mib=column([node.free.memory_mib for node in nodes]),
        disk_free_mib=column([node.free.disk_mib for node in nodes]),
        accelerators_free_milli={
            kind: column([node.free.accelerator_milli(kind) for node in nodes]) for kind in kinds
        },
    )


def check_snapshot(snapshot: object) -> Snapshot:
    """Return *snapshot* if it has the form that encapsulation produces; refuse it otherwise."""
    if not isinstance(snapshot, Snapshot) or snapshot.schema != SCHEMA:
        raise InvalidInputError(
            "This is not a snapshot of this schema.",
            remedy=f"Build it with build_snapshot (schema {SCHEMA}).",
        )
    columns = {
        "node_pool": snapshot.node_pool,
        "cpu_total_millis": snapshot.cpu_total_millis,
        "cpu_free_millis": snapshot.cpu_free_millis,
        "memory_total_mib": snapshot.memory_total_mib,
        "memory_free_mib": snapshot.memory_free_mib,
        "disk_free_mib": snapshot.disk_free_mib,
        **{f"accelerators[{kind}]": column for kind, column in snapshot.accelerators_free_milli.items()},
    }
    nodes = len(snapshot.node_ids)
    wrong = [name for name, column in columns.items() if column.shape != (nodes,) or column.dtype != np.int64]
    if wrong:
        raise InvalidInputError(
            f"The snapshot's columns {', '.join(wrong)} are not {nodes} whole numbers.",
            remedy="Build it with build_snapshot.",
        )
    return snapshot
