"""Snapshots as bytes: whole ones, and the room that changed since the one before."""

import zlib
from dataclasses import fields, is_dataclass, replace
from typing import Any

import msgspec
import numpy as np

from yunhe.kernel.errors import InvalidInputError
from yunhe.scheduling.perception.snapshot import IntArray, Snapshot

ROOM_OF_NODES = ("cpu_free_millis", "memory_free_mib", "disk_free_mib")
ROOM_OF_DEVICES = ("device_free_milli", "device_memory_free_mib")
_ROOM = {*ROOM_OF_NODES, *ROOM_OF_DEVICES, "version", "taken_at"}


class RoomChange(msgspec.Struct, frozen=True, array_like=True):
    """Rows of nodes and devices whose room changed, with what is free there now."""

    version: int
    taken_at: float
    nodes: IntArray
    node_room: IntArray
    devices: IntArray
    device_room: IntArray


def pack(value: Any) -> bytes:
    """Return a value that may hold arrays as compressed bytes."""
    return zlib.compress(msgspec.msgpack.encode(value, enc_hook=_array_to_plain), 1)


def unpack(data: bytes, kind: Any) -> Any:
    """Return the value of type *kind* that ``pack`` made *data* of; refuse other bytes."""
    try:
        return msgspec.msgpack.decode(zlib.decompress(data), type=kind, dec_hook=_plain_to_array)
    except (zlib.error, msgspec.DecodeError) as error:
        raise InvalidInputError(f"This is no packed {kind}: {error}.") from error


def differ_in_room_only(before: Snapshot, now: Snapshot) -> bool:
    """Return whether two snapshots have the same pools, nodes, network and groups, however full they are."""
    return _same(before, now, _ROOM)


def _same(before: Any, now: Any, leave_out: set[str]) -> bool:
    return all(
        _equal(getattr(before, field.name), getattr(now, field.name))
        for field in fields(before)
        if field.name not in leave_out
    )


def _equal(one: Any, other: Any) -> bool:
    if is_dataclass(one):
        return _same(one, other, set())
    if isinstance(one, np.ndarray):
        return np.array_equal(one, other, equal_nan=one.dtype.kind == "f")
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(_equal(one[key], other[key]) for key in one)
    return one is other or one == other


def room_of_nodes(snapshot: Snapshot) -> IntArray:
    """Return what is free, a row for each node."""
    return np.stack([getattr(snapshot, name) for name in ROOM_OF_NODES], axis=1)


def _room_of_devices(snapshot: Snapshot) -> IntArray:
    return np.stack([getattr(snapshot, name) for name in ROOM_OF_DEVICES], axis=1)


def room_change(before: Snapshot, now: Snapshot) -> RoomChange:
    """Return what brings the room of *before* to that of *now*; the two differ in room only."""
    node_room, device_room = room_of_nodes(now), _room_of_devices(now)
    nodes = np.flatnonzero((node_room != room_of_nodes(before)).any(axis=1))
    devices = np.flatnonzero((device_room != _room_of_devices(before)).any(axis=1))
    return RoomChange(now.version, now.taken_at, nodes, node_room[nodes], devices, device_room[devices])


def with_room(snapshot: Snapshot, changes: list[RoomChange]) -> Snapshot:
    """Return *snapshot* with *changes* applied in their order."""
    node_room, device_room = room_of_nodes(snapshot), _room_of_devices(snapshot)
    version, taken_at = snapshot.version, snapshot.taken_at
    for change in changes:
        version, taken_at = change.version, change.taken_at
        node_room[change.nodes] = change.node_room
        device_room[change.devices] = change.device_room
    room = dict(zip(ROOM_OF_NODES, node_room.T.copy(), strict=True))
    room |= dict(zip(ROOM_OF_DEVICES, device_room.T.copy(), strict=True))
    return replace(snapshot, version=version, taken_at=taken_at, **room)


def _array_to_plain(value: Any) -> Any:
    if isinstance(value, np.ndarray):
        return (value.dtype.str, value.shape, value.tobytes())
    raise NotImplementedError(f"{type(value).__name__} cannot be packed")


def _plain_to_array(_kind: Any, value: Any) -> Any:
    kind, shape, data = value
    return np.frombuffer(data, dtype=kind).reshape(shape).copy()
