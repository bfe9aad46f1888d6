"""The Snapshot: an immutable view of the world at a moment, as a struct of arrays."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from yunhe.kernel.errors import InvalidInputError
from yunhe.kernel.ids import NodeId, PoolId
from yunhe.kernel.resources import Resources
from yunhe.scheduling.perception.model import (
    DatasetFacts,
    Device,
    ExternalScore,
    FreeSize,
    LinkFacts,
    NodeFacts,
    PoolFacts,
    Reservation,
    SiteFacts,
    TypicalAsk,
)
from yunhe.scheduling.perception.network import Network, build_network

SCHEMA = 2
WHOLE_MILLI = 1000

IntArray = NDArray[np.int64]


class NodeClass(NamedTuple):
    """What nodes have in common however full they are: rules look at classes, not at nodes."""

    isa: str
    labels: tuple[tuple[str, str], ...]
    taints: tuple[str, ...]


class SnapshotContext(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """What a snapshot knows beside pools and nodes; all of it may be empty."""

    sites: tuple[SiteFacts, ...] = ()
    links: tuple[LinkFacts, ...] = ()
    datasets: tuple[DatasetFacts, ...] = ()
    external: tuple[ExternalScore, ...] = ()
    reservations: tuple[Reservation, ...] = ()
    typical: tuple[TypicalAsk, ...] = ()


@dataclass(frozen=True, eq=False)
class Snapshot:
    """Pools as records, nodes as columns; row i of every column is the same node.

    Pools are in order of their names, and the nodes of pool p are rows ``pool_start[p]:pool_start[p + 1]``. The
    accelerators of node i are rows ``device_start[i]:device_start[i + 1]`` of the device columns.
    """

    schema: int
    version: int
    taken_at: float
    pools: tuple[PoolFacts, ...]
    node_ids: tuple[NodeId, ...]
    """Empty for a node that its pool does not show: there, the pool's own engine chooses."""
    node_pool: IntArray
    pool_start: IntArray
    classes: tuple[NodeClass, ...]
    node_class: IntArray
    cpu_total_millis: IntArray
    cpu_free_millis: IntArray
    memory_total_mib: IntArray
    memory_free_mib: IntArray
    disk_free_mib: IntArray
    device_kinds: tuple[str, ...]
    device_start: IntArray
    device_kind: IntArray
    device_free_milli: IntArray
    device_memory_free_mib: IntArray
    network: Network
    groups: Mapping[str, IntArray] = field(default_factory=dict[str, IntArray])
    """Group → the row of the node of each member."""
    surroundings: SnapshotContext = field(default_factory=SnapshotContext)

    @cached_property
    def row_of_node(self) -> Mapping[NodeId, int]:
        """Node → its row; nodes that hide have none."""
        return {node: row for row, node in enumerate(self.node_ids) if node}

    @cached_property
    def row_of_pool(self) -> Mapping[PoolId, int]:
        """Pool → its row."""
        return {pool.id: row for row, pool in enumerate(self.pools)}

    @cached_property
    def dataset(self) -> Mapping[str, DatasetFacts]:
        """Name → what is known of the dataset."""
        return {dataset.name: dataset for dataset in self.surroundings.datasets}

    @cached_property
    def accelerators_free_milli(self) -> Mapping[str, IntArray]:
        """Kind → thousandths of accelerators free, node by node."""
        owner = np.repeat(np.arange(len(self.node_ids)), np.diff(self.device_start))
        return {
            kind: np.bincount(
                owner[self.device_kind == code],
                weights=self.device_free_milli[self.device_kind == code],
                minlength=len(self.node_ids),
            ).astype(np.int64)
            for code, kind in enumerate(self.device_kinds)
        }

    def after(self, node: int, taken: Resources, devices: tuple[int, ...] = ()) -> "Snapshot":
        """Return the world once *taken* is promised on the node at row *node*."""
        return self.after_all([(node, taken, devices)])

    def after_all(self, promises: Iterable[tuple[int, Resources, tuple[int, ...]]]) -> "Snapshot":
        """Return the world once every promise (row, amount, which devices) is made."""
        cpu, memory, disk = (
            column.copy() for column in (self.cpu_free_millis, self.memory_free_mib, self.disk_free_mib)
        )
        free, device_memory = self.device_free_milli.copy(), self.device_memory_free_mib.copy()
        for node, taken, devices in promises:
            cpu[node] -= taken.cpu_millis
            memory[node] -= taken.memory_mib
            disk[node] -= taken.disk_mib
            for device, milli, mib in self.shares(node, taken, devices, free):
                free[device] -= milli
                device_memory[device] -= mib
        return replace(
            self,
            cpu_free_millis=cpu,
            memory_free_mib=memory,
            disk_free_mib=disk,
            device_free_milli=free,
            device_memory_free_mib=device_memory,
        )

    def shares(
        self, node: int, taken: Resources, devices: tuple[int, ...], free: IntArray
    ) -> list[tuple[int, int, int]]:
        """Return (device row, thousandths, MiB) for each device that *taken* uses: as named, else the tightest fit."""
        first, last = int(self.device_start[node]), int(self.device_start[node + 1])
        named = [first + index for index in devices]
        left = free[first:last].copy()
        shares: list[tuple[int, int, int]] = []
        for ask in taken.accelerators:
            codes = matching_kinds(ask.kind, self.device_kinds)
            for milli in device_shares(ask.milli):
                if named:  # in the order of what was asked: kinds may overlap
                    row = named.pop(0)
                else:
                    pool = [row for row in range(first, last) if self.device_kind[row] in codes]
                    able = [row for row in pool if left[row - first] >= milli]
                    row = min(able or pool, key=lambda r: (left[r - first], r), default=-1)
                if row < 0:
                    break
                left[row - first] -= milli
                shares.append((row, milli, ask.memory_mib))
        return shares


def device_shares(milli: int) -> list[int]:
    """Return what an amount takes from each device: whole ones, then at most one part."""
    whole, part = divmod(milli, WHOLE_MILLI)
    return [WHOLE_MILLI] * whole + [part] * (part > 0)


def matching_kinds(wanted: str, kinds: Sequence[str]) -> set[int]:
    """Return the codes of the kinds that ``A100``, ``A100|H100`` or ``*`` mean."""
    names = set(wanted.split("|"))
    return {code for code, kind in enumerate(kinds) if kind in names or wanted == "*"}


def build_snapshot(
    pools: Sequence[PoolFacts],
    nodes: Sequence[NodeFacts],
    *,
    version: int,
    taken_at: float,
    surroundings: SnapshotContext | None = None,
) -> Snapshot:
    """Encapsulate what is known into the one form that decisions accept.

    Reservations that have not expired at *taken_at* are taken off what is free: nothing is promised twice between a
    decision and the moment its pool shows it.
    """
    around = surroundings or SnapshotContext()
    pools = sorted(pools, key=lambda pool: (pool.name, pool.id))
    row_of_pool = {pool.id: row for row, pool in enumerate(pools)}
    strangers = sorted({node.pool_id for node in nodes} - set(row_of_pool))
    if strangers:
        raise InvalidInputError(f"Nodes name pools that are not in the snapshot: {', '.join(strangers)}.")
    shown = [*nodes, *(hidden for pool in pools for hidden in _hidden_nodes(pool))]
    shown.sort(key=lambda node: row_of_pool[node.pool_id])
    node_pool = _column(row_of_pool[node.pool_id] for node in shown)
    kinds = tuple(sorted({a.kind for node in shown for a in node.total.accelerators}))
    devices = [devices_of(node) for node in shown]
    flat = [device for own in devices for device in own]
    class_of: dict[NodeClass, int] = {}
    labels = {pool.id: pool.labels for pool in pools}
    node_class = _column(
        class_of.setdefault(class_of_node(node, labels[node.pool_id]), len(class_of)) for node in shown
    )
    snapshot = Snapshot(
        schema=SCHEMA,
        version=version,
        taken_at=taken_at,
        pools=tuple(pools),
        node_ids=tuple(node.id for node in shown),
        node_pool=node_pool,
        pool_start=np.searchsorted(node_pool, np.arange(len(pools) + 1)).astype(np.int64),
        classes=tuple(class_of),
        node_class=node_class,
        cpu_total_millis=_column(node.total.cpu_millis for node in shown),
        cpu_free_millis=_column(node.free.cpu_millis for node in shown),
        memory_total_mib=_column(node.total.memory_mib for node in shown),
        memory_free_mib=_column(node.free.memory_mib for node in shown),
        disk_free_mib=_column(node.free.disk_mib for node in shown),
        device_kinds=kinds,
        device_start=np.cumsum([0, *map(len, devices)], dtype=np.int64),
        device_kind=_column(kinds.index(device.kind) for device in flat),
        device_free_milli=_column(device.free_milli for device in flat),
        device_memory_free_mib=_column(device.memory_free_mib for device in flat),
        network=build_network(pools, around.sites, around.links),
        groups=_groups(shown),
        surroundings=around,
    )
    return _less_reserved(snapshot)


def class_of_node(node: NodeFacts, pool_labels: Mapping[str, str]) -> NodeClass:
    """Return what a node has in common with others like it; a pool's labels are its nodes' too."""
    labels = {**pool_labels, **node.labels} if node.labels else pool_labels
    return NodeClass(node.isa, tuple(sorted(labels.items())) if labels else (), node.taints)


def devices_of(node: NodeFacts) -> tuple[Device, ...]:
    """Return each accelerator of a node; where only sums are known, free parts are taken to lie together."""
    if node.devices:
        return node.devices
    devices: list[Device] = []
    for total in node.total.accelerators:
        left = max(0, node.free.accelerator_milli(total.kind))
        for whole in device_shares(total.milli):
            free = min(left, whole)
            left -= free
            devices.append(Device(total.kind, free, total.memory_mib * free // WHOLE_MILLI))
    return tuple(devices)


def check_snapshot(snapshot: object) -> Snapshot:
    """Return *snapshot* if it has the form that encapsulation produces; refuse it otherwise."""
    if not isinstance(snapshot, Snapshot) or snapshot.schema != SCHEMA:
        raise InvalidInputError(
            "This is not a snapshot of this schema.",
            remedy=f"Build it with build_snapshot (schema {SCHEMA}).",
        )
    nodes, devices = len(snapshot.node_ids), snapshot.device_kind.shape[0]
    columns = {
        "node_pool": (snapshot.node_pool, nodes),
        "node_class": (snapshot.node_class, nodes),
        "cpu_total_millis": (snapshot.cpu_total_millis, nodes),
        "cpu_free_millis": (snapshot.cpu_free_millis, nodes),
        "memory_total_mib": (snapshot.memory_total_mib, nodes),
        "memory_free_mib": (snapshot.memory_free_mib, nodes),
        "disk_free_mib": (snapshot.disk_free_mib, nodes),
        "device_start": (snapshot.device_start, nodes + 1),
        "device_free_milli": (snapshot.device_free_milli, devices),
        "device_memory_free_mib": (snapshot.device_memory_free_mib, devices),
        "pool_start": (snapshot.pool_start, len(snapshot.pools) + 1),
    }
    wrong = [
        f"{name} ({length})"
        for name, (column, length) in columns.items()
        if column.shape != (length,) or column.dtype != np.int64
    ]
    if wrong:
        raise InvalidInputError(
            f"The snapshot's columns {', '.join(wrong)} are not that many whole numbers.",
            remedy="Build it with build_snapshot.",
        )
    return snapshot


def _hidden_nodes(pool: PoolFacts) -> list[NodeFacts]:
    """Return the nodes that a histogram of free sizes stands for; they have no name."""

    def node(shape: FreeSize) -> NodeFacts:
        return NodeFacts(
            id=NodeId(""), pool_id=pool.id, total=shape.free, free=shape.free, isa=shape.isa, labels={}
        )

    return [node(shape) for shape in pool.shapes for _ in range(shape.count)]


def _groups(nodes: Sequence[NodeFacts]) -> dict[str, IntArray]:
    rows: dict[str, list[int]] = {}
    for row, node in enumerate(nodes):
        for group in node.groups:
            rows.setdefault(group, []).append(row)
    return {group: _column(members) for group, members in rows.items()}


def _less_reserved(snapshot: Snapshot) -> Snapshot:
    for reservation in snapshot.surroundings.reservations:
        if reservation.expires_at > snapshot.taken_at:
            row = _row_of(snapshot, reservation)
            if row >= 0:
                snapshot = snapshot.after(row, reservation.resources, reservation.devices)
    return snapshot


def _row_of(snapshot: Snapshot, reservation: Reservation) -> int:
    """Return the row a reservation is held on, -1 when its node has gone; among hidden nodes, the tightest fit."""
    if reservation.node_id:
        return snapshot.row_of_node.get(reservation.node_id, -1)
    pool = snapshot.row_of_pool.get(reservation.pool_id)
    if pool is None:
        return -1
    first, last = int(snapshot.pool_start[pool]), int(snapshot.pool_start[pool + 1])
    ask = reservation.resources
    able = [
        row
        for row in range(first, last)
        if snapshot.cpu_free_millis[row] >= ask.cpu_millis and snapshot.memory_free_mib[row] >= ask.memory_mib
    ]
    return min(able, key=lambda row: (int(snapshot.cpu_free_millis[row]), row), default=-1)


def _column(values: Iterable[int]) -> IntArray:
    return np.fromiter(values, dtype=np.int64)
