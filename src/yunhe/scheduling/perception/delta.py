"""What changed between two snapshots: small enough to send, enough to bring the older one up to date."""

from dataclasses import replace

import msgspec
import numpy as np

from yunhe.kernel.errors import ConflictError
from yunhe.kernel.ids import NodeId, PoolId
from yunhe.scheduling.perception.model import NodeFacts, PoolFacts
from yunhe.scheduling.perception.network import build_network
from yunhe.scheduling.perception.snapshot import IntArray, Snapshot, SnapshotContext, build_snapshot


class SnapshotDelta(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """Facts that replace older ones of the same ID or come anew, and what has gone."""

    base_version: int
    version: int
    taken_at: float
    pools: tuple[PoolFacts, ...] = ()
    gone_pools: tuple[PoolId, ...] = ()
    nodes: tuple[NodeFacts, ...] = ()
    """A node that changed, with what is free now; reservations on it are taken off again."""
    gone_nodes: tuple[NodeId, ...] = ()
    surroundings: SnapshotContext | None = None
    """Replaces all of them; None: as before."""


def apply_delta(snapshot: Snapshot, delta: SnapshotDelta) -> Snapshot:
    """Return *snapshot* brought up to date; columns that did not change are shared, not copied."""
    if delta.base_version != snapshot.version:
        raise ConflictError(
            f"The delta is from version {delta.base_version}, the snapshot is version {snapshot.version}.",
            remedy="Fetch a whole snapshot and go on from there.",
        )
    around = delta.surroundings or snapshot.surroundings
    merged = {pool.id: pool for pool in (*snapshot.pools, *delta.pools) if pool.id not in delta.gone_pools}
    pools = sorted(merged.values(), key=lambda pool: (pool.name, pool.id))
    fresh = build_snapshot(
        pools, delta.nodes, version=delta.version, taken_at=delta.taken_at, surroundings=around
    )
    if delta.surroundings is None and not delta.pools and not delta.gone_pools:
        fresh = replace(fresh, network=snapshot.network)
    else:
        fresh = replace(fresh, network=build_network(pools, around.sites, around.links))
    return _joined(snapshot, fresh, _kept(snapshot, delta))


def _kept(snapshot: Snapshot, delta: SnapshotDelta) -> IntArray:
    """Return the rows that stay as they are; a pool that hides its nodes shows them anew with its facts."""
    keep = np.ones(len(snapshot.node_ids), dtype=np.bool_)
    for node in (*delta.gone_nodes, *(facts.id for facts in delta.nodes)):
        row = snapshot.row_of_node.get(node)
        if row is not None:
            keep[row] = False
    for pool in delta.gone_pools:
        keep[snapshot.node_pool == snapshot.row_of_pool[pool]] = False
    for row, pool in enumerate(snapshot.pools):
        if pool.shapes:
            keep[snapshot.pool_start[row] : snapshot.pool_start[row + 1]] = False
    return np.flatnonzero(keep)


def _joined(old: Snapshot, new: Snapshot, kept: IntArray) -> Snapshot:
    """Return the kept rows of *old* and all rows of *new*, in order of their pools."""
    new_pool_of = np.array([new.row_of_pool.get(pool.id, -1) for pool in old.pools], dtype=np.int64)
    classes = dict.fromkeys((*old.classes, *new.classes))
    kinds = tuple(sorted({*old.device_kinds, *new.device_kinds}))
    code = {one: number for number, one in enumerate(classes)}
    node_pool = np.concatenate([new_pool_of[old.node_pool[kept]], new.node_pool])
    order = np.argsort(node_pool, kind="stable")
    rows = [*kept.tolist(), *range(len(old.node_ids), len(old.node_ids) + len(new.node_ids))]
    ids = (*old.node_ids, *new.node_ids)

    def column(name: str) -> IntArray:
        return np.concatenate([getattr(old, name)[kept], getattr(new, name)])[order]

    old_class = np.array([code[one] for one in old.classes], dtype=np.int64)
    new_class = np.array([code[one] for one in new.classes], dtype=np.int64)
    device_start, devices = _device_rows(old, new, np.array(rows, dtype=np.int64)[order])
    old_kind = np.array([kinds.index(kind) for kind in old.device_kinds], dtype=np.int64)
    new_kind = np.array([kinds.index(kind) for kind in new.device_kinds], dtype=np.int64)
    row_now = {rows[place]: number for number, place in enumerate(order.tolist())}
    return replace(
        new,
        node_ids=tuple(ids[rows[place]] for place in order.tolist()),
        node_pool=node_pool[order],
        pool_start=np.searchsorted(node_pool[order], np.arange(len(new.pools) + 1)).astype(np.int64),
        classes=tuple(classes),
        node_class=np.concatenate([old_class[old.node_class[kept]], new_class[new.node_class]])[order],
        cpu_total_millis=column("cpu_total_millis"),
        cpu_free_millis=column("cpu_free_millis"),
        memory_total_mib=column("memory_total_mib"),
        memory_free_mib=column("memory_free_mib"),
        disk_free_mib=column("disk_free_mib"),
        device_kinds=kinds,
        device_start=device_start,
        device_kind=np.concatenate([old_kind[old.device_kind], new_kind[new.device_kind]])[devices],
        device_free_milli=np.concatenate([old.device_free_milli, new.device_free_milli])[devices],
        device_memory_free_mib=np.concatenate([old.device_memory_free_mib, new.device_memory_free_mib])[
            devices
        ],
        groups=_joined_groups(old, new, row_now),
    )


def _device_rows(old: Snapshot, new: Snapshot, rows: IntArray) -> tuple[IntArray, IntArray]:
    """Return where each node's devices start, and which device rows (new ones after old) come in which order."""
    first = np.concatenate([old.device_start[:-1], new.device_start[:-1] + old.device_start[-1]])[rows]
    count = np.concatenate([np.diff(old.device_start), np.diff(new.device_start)])[rows]
    start = np.concatenate([[0], np.cumsum(count)]).astype(np.int64)
    return start, np.repeat(first - start[:-1], count) + np.arange(start[-1])


def _joined_groups(old: Snapshot, new: Snapshot, row_now: dict[int, int]) -> dict[str, IntArray]:
    shift = len(old.node_ids)
    groups: dict[str, list[int]] = {}
    for group, rows in old.groups.items():
        groups[group] = [row_now[row] for row in rows.tolist() if row in row_now]
    for group, rows in new.groups.items():
        groups.setdefault(group, []).extend(row_now[row + shift] for row in rows.tolist())
    return {group: np.array(sorted(rows), dtype=np.int64) for group, rows in groups.items() if rows}
