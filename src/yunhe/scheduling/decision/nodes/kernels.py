"""The loops over nodes: which of a pool's nodes takes an ask, and what is left when it has.

Plain Python that numba can compile; see ``compiling``. Columns of ``free`` are cpu, memory, disk and thousandths of
accelerators. ``block_free`` and ``pool_free`` hold the most that any node of a block or pool has free in each column:
bounds by which whole blocks and pools are passed over unseen.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

KERNELS = (
    "match_devices",
    "choose_devices",
    "fits",
    "best_node",
    "refresh",
    "shift",
    "place_members",
    "pick",
    "pick_and_take",
    "take_each",
)

BLOCK = 64
COLUMNS = 4
WHOLE = 1000
KEY_SHIFT = 36
"""Free accelerators stand above free cpu in the key that nodes are compared by."""
TIGHTEST_OF_ALL = 1 << 62

IntArray = NDArray[np.int64]
FloatArray = NDArray[np.float64]
ByteArray = NDArray[np.uint8]


class Room(NamedTuple):
    """What is free, as arrays that a cycle changes in place."""

    free: IntArray
    node_class: IntArray
    pool_start: IntArray
    block_start: IntArray
    block_free: IntArray
    pool_free: IntArray
    device_start: IntArray
    device_kind: IntArray
    device_free: IntArray
    device_memory: IntArray
    given_back: IntArray
    """By pool: how often something was given back there."""


class Ask(NamedTuple):
    """One member's amount, and which nodes may give it."""

    amount: IntArray
    """cpu, memory, disk, thousandths of accelerators."""
    accelerators: IntArray
    """One row per kind asked for: whole devices, thousandths of one more, MiB on each."""
    kind_ok: ByteArray
    """Row per row of ``accelerators``: which kinds of device would do."""
    class_ok: ByteArray
    node_ok: ByteArray
    """By node, or empty: all."""
    per_node: int
    """At most so many members on one node."""
    full: IntArray
    """By pool: the count of give-backs at which it had no room for this ask; room only shrinks in between."""


def match_devices(room: Room, row: int, ask: Ask, chosen: IntArray) -> int:
    """Do what ``choose_devices`` does where one ask's favourite may be all that another can use.

    Each share in turn takes a device; one that finds all of its own taken sends their holders on to others (augmenting
    paths), so a device is lacking only where no choice at all would do.
    """
    first, last = room.device_start[row], room.device_start[row + 1]
    count = 0
    holder = np.full(last - first, -1, dtype=np.int64)
    wanted_of = np.zeros(last - first, dtype=np.int64)
    reached_by = np.zeros(last - first, dtype=np.int64)
    queue = np.zeros(last - first, dtype=np.int64)
    for wanted in range(ask.accelerators.shape[0]):
        whole, part = ask.accelerators[wanted, 0], ask.accelerators[wanted, 1]
        for step in range(whole + (1 if part > 0 else 0)):
            if count >= last - first:
                return -1
            wanted_of[count] = wanted
            chosen[count, 0] = -1
            chosen[count, 1] = WHOLE if step < whole else part
            chosen[count, 2] = ask.accelerators[wanted, 2]
            reached_by[:] = -1
            queue[0], at, end, free_device = count, 0, 1, -1
            while at < end and free_device < 0:
                share = queue[at]
                at += 1
                for device in range(last - first):
                    if (
                        reached_by[device] >= 0
                        or room.device_free[first + device] < chosen[share, 1]
                        or room.device_memory[first + device] < chosen[share, 2]
                        or ask.kind_ok[wanted_of[share], room.device_kind[first + device]] == 0
                    ):
                        continue
                    reached_by[device] = share
                    if holder[device] < 0:
                        free_device = device
                        break
                    queue[end] = holder[device]
                    end += 1
            if free_device < 0:
                return -1
            while free_device >= 0:
                share = reached_by[free_device]
                before = chosen[share, 0]
                chosen[share, 0] = first + free_device
                holder[free_device] = share
                free_device = before - first if before >= 0 else -1
            count += 1
    return count


def choose_devices(room: Room, row: int, ask: Ask, chosen: IntArray) -> int:
    """Write (device, thousandths, MiB) of each device that would be used; return how many, or -1 when they lack.

    Each share takes the tightest that fits; shares of one kind can only ever lack a device together, those of several
    are matched with care where that fails.
    """
    first, last = room.device_start[row], room.device_start[row + 1]
    count = 0
    for wanted in range(ask.accelerators.shape[0]):
        whole, part, memory = (
            ask.accelerators[wanted, 0],
            ask.accelerators[wanted, 1],
            ask.accelerators[wanted, 2],
        )
        for step in range(whole + (1 if part > 0 else 0)):
            need = WHOLE if step < whole else part
            best, best_free = -1, WHOLE + 1
            for device in range(first, last):
                free = room.device_free[device]
                if free < need or free >= best_free or room.device_memory[device] < memory:
                    continue
                if ask.kind_ok[wanted, room.device_kind[device]] == 0:
                    continue
                taken = False
                for earlier in range(count):
                    if chosen[earlier, 0] == device:
                        taken = True
                if not taken:
                    best, best_free = device, free
            if best < 0:
                return match_devices(room, row, ask, chosen) if ask.accelerators.shape[0] > 1 else -1
            chosen[count, 0], chosen[count, 1], chosen[count, 2] = best, need, memory
            count += 1
    return count


def fits(room: Room, row: int, ask: Ask, chosen: IntArray) -> bool:
    """Return whether the node at *row* can take one member."""
    for column in range(COLUMNS):
        if room.free[row, column] < ask.amount[column]:
            return False
    if ask.class_ok[room.node_class[row]] == 0:
        return False
    if ask.node_ok.shape[0] > 0 and ask.node_ok[row] == 0:
        return False
    return ask.accelerators.shape[0] == 0 or choose_devices(room, row, ask, chosen) >= 0


def best_node(room: Room, pool: int, ask: Ask, chosen: IntArray) -> int:
    """Return the tightest node of *pool* that fits, -1 when none does.

    Tightest: fewest accelerators left, then least cpu, then least memory, so that large holes stay for large asks and
    work without accelerators keeps off the nodes that have them.
    """
    best, best_key = -1, TIGHTEST_OF_ALL
    first, last = room.pool_start[pool], room.pool_start[pool + 1]
    free = room.free
    cpu, memory, disk, devices = ask.amount[0], ask.amount[1], ask.amount[2], ask.amount[3]
    for block in range(room.block_start[pool], room.block_start[pool + 1]):
        over = False
        for column in range(COLUMNS):
            if room.block_free[block, column] < ask.amount[column]:
                over = True
        if over:
            continue
        begin = first + (block - room.block_start[pool]) * BLOCK
        for row in range(begin, min(begin + BLOCK, last)):
            key = (free[row, 3] << KEY_SHIFT) + free[row, 0]
            # One condition without short cuts: it is rarely true, and processors guess that well.
            if (
                (key <= best_key)
                & (free[row, 0] >= cpu)
                & (free[row, 1] >= memory)
                & (free[row, 2] >= disk)
                & (free[row, 3] >= devices)
            ):
                tie = best >= 0 and key == best_key and free[row, 1] >= free[best, 1]
                if not tie and fits(room, row, ask, chosen):
                    best, best_key = row, key
    return best


def refresh(room: Room, pool: int, row: int) -> None:
    """Bring the bounds of the block and pool of *row* up to date."""
    block = room.block_start[pool] + (row - room.pool_start[pool]) // BLOCK
    begin = room.pool_start[pool] + (block - room.block_start[pool]) * BLOCK
    end = min(begin + BLOCK, room.pool_start[pool + 1])
    for column in range(COLUMNS):
        most = room.free[begin, column]
        for other in range(begin + 1, end):
            most = max(most, room.free[other, column])
        before = room.block_free[block, column]
        room.block_free[block, column] = most
        if most > room.pool_free[pool, column]:
            room.pool_free[pool, column] = most
        elif before == room.pool_free[pool, column]:
            most_of_all = most
            for other in range(room.block_start[pool], room.block_start[pool + 1]):
                most_of_all = max(most_of_all, room.block_free[other, column])
            room.pool_free[pool, column] = most_of_all


def shift(room: Room, pool: int, row: int, amount: IntArray, devices: IntArray, sign: int) -> None:
    """Take *amount* from the node at *row* (sign -1) or give it back (1).

    The rows of *devices* are (device, thousandths, MiB).
    """
    for column in range(COLUMNS):
        room.free[row, column] += sign * amount[column]
    for index in range(devices.shape[0]):
        room.device_free[devices[index, 0]] += sign * devices[index, 1]
        room.device_memory[devices[index, 0]] += sign * devices[index, 2]
    if sign > 0:
        room.given_back[pool] += 1
    refresh(room, pool, row)


def place_members(room: Room, pool: int, ask: Ask, rows: IntArray, devices: IntArray) -> int:
    """Take up to ``len(rows)`` members in *pool*; return how many found room.

    ``devices[member]`` has one row (device, thousandths, MiB) per device that the member uses.
    """
    for member in range(rows.shape[0]):
        row = best_node(room, pool, ask, devices[member])
        if row < 0:
            return member
        used = choose_devices(room, row, ask, devices[member])
        shift(room, pool, row, ask.amount, devices[member, :used], -1)
        rows[member] = row
        on_node = 0
        for other in range(member + 1):
            if rows[other] == row:
                on_node += 1
        if on_node >= ask.per_node:
            ask.node_ok[row] = 0
    return rows.shape[0]


def pick(room: Room, scores: FloatArray, ask: Ask, chosen: IntArray) -> tuple[int, int]:
    """Return the pool of least score that has a node for the ask, and that node; (-1, -1) when none has.

    A score of infinity says that a pool is no candidate. Of equal scores, the first wins.
    """
    pools = scores.shape[0]
    tried = np.zeros(pools, dtype=np.uint8)
    while True:
        best = -1
        for pool in range(pools):
            if tried[pool] == 0 and scores[pool] != np.inf and (best < 0 or scores[pool] < scores[best]):
                best = pool
        if best < 0:
            return -1, -1
        tried[best] = 1
        over = ask.full[best] == room.given_back[best]
        for column in range(COLUMNS):
            if room.pool_free[best, column] < ask.amount[column]:
                over = True
        if not over:
            row = best_node(room, best, ask, chosen)
            if row >= 0:
                return best, row
            ask.full[best] = room.given_back[best]


def pick_and_take(room: Room, scores: FloatArray, ask: Ask, chosen: IntArray) -> tuple[int, int]:
    """Do what ``pick`` does for an ask without accelerators, and take it there."""
    pool, row = pick(room, scores, ask, chosen)
    if pool >= 0:
        shift(room, pool, row, ask.amount, chosen[:0], -1)
    return pool, row


class Asks(NamedTuple):
    """Several asks without accelerators, one in each row."""

    scores: FloatArray
    amounts: IntArray
    class_ok: ByteArray
    full: IntArray


def take_each(room: Room, asks: Asks, like: Ask, places: IntArray) -> None:
    """Pick and take for each ask, one after another; write (pool, node) or (-1, -1)."""
    chosen = np.zeros((1, 3), dtype=np.int64)
    for index in range(places.shape[0]):
        ask = Ask(
            asks.amounts[index],
            like.accelerators,
            like.kind_ok,
            asks.class_ok[index],
            like.node_ok,
            like.per_node,
            asks.full[index],
        )
        pool, row = pick_and_take(room, asks.scores[index], ask, chosen)
        places[index, 0], places[index, 1] = pool, row
