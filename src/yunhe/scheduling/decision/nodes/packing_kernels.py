"""Packing accelerators: what a node is still good for, and which node loses least of it to an ask.

Plain Python that numba can compile; see ``compiling``. A node's worth is judged by what usually comes, in two ways.
For itself: sequences of typical asks are drawn once, and what stays free on the node after each sequence has filled it
as far as it goes is stranded. Beside all others: holes of a size are worth the less the more of them there are and the
fewer asks will come that fill them. Holes are what is left of a device, and the whole devices left on a node.
"""

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from yunhe.scheduling.decision.nodes.kernels import WHOLE, Ask, Room, fits

KERNELS = ("stranded", "priced", "hole_values", "count_holes", "is_part", "lose", "best_packed")

HOLE_WEIGHT, GROUP_WEIGHT = 10.0, 3.0
"""What a thousandth lost in the value of holes in devices and of whole devices on nodes counts, against one stranded."""
IDLE_CORE_MILLI = 2.0
"""What a core left idle beside the ask counts: full nodes first, so that empty ones stay whole."""
SCARCITY_WEIGHT = 0.3
"""What a thousandth of a scarce kind counts, at a pressure of one ask for each that is free."""
GRAIN = 10
"""Holes in devices are told apart by so many thousandths."""
ROUNDS = 40
FIRST_BLUR, LAST_BLUR = 0.1, 0.005
"""Values are first sought with choices blurred by this part of the largest hole, so that few rounds suffice."""

IntArray = NDArray[np.int64]
FloatArray = NDArray[np.float64]
ByteArray = NDArray[np.uint8]


class Typical(NamedTuple):
    """What usually comes: K asks, how often, and drawn sequences of them."""

    cpu: IntArray
    memory: IntArray
    whole: IntArray
    part: IntArray
    kind_ok: ByteArray
    share: FloatArray
    sequences: IntArray


class PackingCache(NamedTuple):
    """What was worked out and still holds; NaN: not known."""

    stranded: FloatArray
    loss: FloatArray
    """Of one ask: a row for each node, and a column for each device where the ask is a part of one."""


class PackingValues(NamedTuple):
    """What the state of all nodes together says."""

    pressure: FloatArray
    """By kind."""
    hole: FloatArray
    """By grains left of a device: what they are worth, in thousandths."""
    group: FloatArray
    """By whole devices left on a node: what they are worth beyond what as many single ones are."""


def stranded(cpu: int, memory: int, free: IntArray, kinds: IntArray, typical: Typical) -> float:
    """Return the mean of what stays free after each drawn sequence has filled the node as far as it goes."""
    devices = free.shape[0]
    sequences, length = typical.sequences.shape
    total = 0
    for device in range(devices):
        total += free[device]
    if total == 0:
        return 0.0
    rest, sum_left = np.empty(devices, np.int64), 0.0
    for sequence in range(sequences):
        rest[:] = free
        cpu_left, memory_left, left = cpu, memory, total
        for step in range(length):
            ask = typical.sequences[sequence, step]
            if cpu_left < typical.cpu[ask] or memory_left < typical.memory[ask]:
                continue
            wanted, need = typical.whole[ask], WHOLE
            if wanted == 0:
                wanted, need = 1, typical.part[ask]
            able, best = 0, -1
            for device in range(devices):
                if rest[device] >= need and typical.kind_ok[ask, kinds[device]]:
                    able += 1
                    if best < 0 or rest[device] < rest[best]:
                        best = device
            if able < wanted:
                continue
            if wanted == 1:
                rest[best] -= need
            else:
                taken = 0
                for device in range(devices):
                    if taken < wanted and rest[device] >= need and typical.kind_ok[ask, kinds[device]]:
                        rest[device] -= need
                        taken += 1
            left -= wanted * need
            cpu_left -= typical.cpu[ask]
            memory_left -= typical.memory[ask]
            if left == 0:
                break
        sum_left += left
    return sum_left / sequences


def priced(value: FloatArray, chance: FloatArray, pieces: FloatArray, price: FloatArray, blur: float) -> None:
    """Write what a hole of each size is worth when pieces have a price, and the chance of each piece to be put there.

    A piece is worth its size, less its price, plus what the smaller hole is worth that it leaves.
    """
    value[0] = 0.0
    for hole in range(1, value.shape[0]):
        most = 0.0
        for piece in range(1, hole + 1):
            if pieces[piece] > 0.0:
                most = max(most, piece - price[piece] + value[hole - piece])
        total = math.exp(-most / blur)
        for piece in range(1, hole + 1):
            chance[hole, piece] = 0.0
            if pieces[piece] > 0.0:
                worth = piece - price[piece] + value[hole - piece]
                chance[hole, piece] = math.exp((worth - most) / blur)
                total += chance[hole, piece]
        for piece in range(1, hole + 1):
            chance[hole, piece] /= total
        value[hole] = most + blur * math.log(total)


def hole_values(holes: FloatArray, pieces: FloatArray) -> FloatArray:
    """Return what a hole of each size is worth, in units of size, when *pieces* are likely to come.

    The values are dual to the problem of filling all *holes* (how many there are of each size) as far as pieces in these
    proportions, as many as would fill them exactly, can. The price of a piece rises while more of it is wanted to fill
    the best ways than will come, and falls while less is: what rarely comes does not make a hole worth much.
    """
    sizes = holes.shape[0]
    value, price, used = np.zeros(sizes), np.zeros(sizes), np.zeros(sizes)
    room, asked = 0.0, 0.0
    for size in range(sizes):
        room += holes[size] * size
        asked += pieces[size] * size
    if room == 0.0 or asked == 0.0:
        return value
    chance, flow = np.zeros((sizes, sizes)), np.zeros(sizes)
    for step in range(ROUNDS):
        cooling = min(1.0, step / (0.75 * ROUNDS))
        blur = (sizes - 1) * FIRST_BLUR * (LAST_BLUR / FIRST_BLUR) ** cooling
        priced(value, chance, pieces, price, blur)
        flow[:] = holes
        used[:] = 0.0
        for hole in range(sizes - 1, 0, -1):
            for piece in range(1, hole + 1):
                put = flow[hole] * chance[hole, piece]
                used[piece] += put
                flow[hole - piece] += put
        for piece in range(1, sizes):
            if pieces[piece] > 0.0:
                come = pieces[piece] * room / asked
                change = 0.5 * blur * math.log((used[piece] + 1e-9) / (come + 1e-9))
                price[piece] = min(max(price[piece] + change, 0.0), float(piece))
    return value


def count_holes(room: Room, in_devices: FloatArray, in_nodes: FloatArray) -> None:
    """Count devices by the grains they have left, and nodes by the whole devices they have left."""
    for row in range(room.device_start.shape[0] - 1):
        whole = 0
        for device in range(room.device_start[row], room.device_start[row + 1]):
            in_devices[room.device_free[device] // GRAIN] += 1.0
            if room.device_free[device] == WHOLE:
                whole += 1
        in_nodes[whole] += 1.0


def is_part(ask: Ask) -> bool:
    """Return whether the ask is for part of one device and nothing else."""
    return ask.accelerators.shape[0] == 1 and ask.accelerators[0, 0] == 0


def lose(room: Room, row: int, ask: Ask, typical: Typical, memo: PackingCache, chosen: IntArray) -> None:
    """Note what taking one member on *row* strands there, for a part by device; infinite where it does not fit."""
    memo.loss[row, :] = np.inf
    if not fits(room, row, ask, chosen):
        return
    first, last = room.device_start[row], room.device_start[row + 1]
    free, kinds = room.device_free[first:last].copy(), room.device_kind[first:last]
    cpu, memory = room.free[row, 0], room.free[row, 1]
    if math.isnan(memo.stranded[row]):
        memo.stranded[row] = stranded(cpu, memory, free, kinds, typical)
    cpu, memory = cpu - ask.amount[0], memory - ask.amount[1]
    beside = IDLE_CORE_MILLI * cpu / 1000.0 - memo.stranded[row]
    if not is_part(ask):
        taken = 0
        for index in range(ask.accelerators.shape[0]):
            taken += ask.accelerators[index, 0] + (1 if ask.accelerators[index, 1] > 0 else 0)
        for index in range(taken):  # the devices that ``fits`` has chosen
            free[chosen[index, 0] - first] -= chosen[index, 1]
        memo.loss[row, 0] = stranded(cpu, memory, free, kinds, typical) + beside
        return
    part, mib = ask.accelerators[0, 1], ask.accelerators[0, 2]
    for device in range(free.shape[0]):
        before = free[device]
        if before < part or room.device_memory[first + device] < mib or ask.kind_ok[0, kinds[device]] == 0:
            continue
        seen = False
        for other in range(device):
            if free[other] == before and kinds[other] == kinds[device] and memo.loss[row, other] != np.inf:
                seen = True
        if not seen:
            free[device] = before - part
            memo.loss[row, device] = stranded(cpu, memory, free, kinds, typical) + beside
            free[device] = before


def best_packed(
    room: Room, pool: int, ask: Ask, typical: Typical, memo: PackingCache, values: PackingValues
) -> tuple[int, int]:
    """Return the node of *pool* that loses least to the ask, and the device (from 0) of a part; (-1, -1): none fits."""
    best, best_device, best_loss = -1, -1, np.inf
    chosen = np.zeros((64, 3), dtype=np.int64)
    part, whole = ask.accelerators[0, 1] if is_part(ask) else 0, 0
    for index in range(ask.accelerators.shape[0]):
        whole += ask.accelerators[index, 0]
    for row in range(room.pool_start[pool], room.pool_start[pool + 1]):
        if math.isnan(memo.loss[row, 0]):
            lose(room, row, ask, typical, memo, chosen)
        first, last, left = room.device_start[row], room.device_start[row + 1], 0
        for device in range(first, last):
            if room.device_free[device] == WHOLE:
                left += 1
        for device in range(memo.loss.shape[1]):
            lost = memo.loss[row, device]
            if lost == np.inf:
                continue
            if ask.amount[3] > 0:
                lost += SCARCITY_WEIGHT * values.pressure[room.device_kind[first]] * ask.amount[3]
            opened = whole
            if part > 0:
                free = room.device_free[first + device]
                lost += HOLE_WEIGHT * (values.hole[free // GRAIN] - values.hole[(free - part) // GRAIN])
                opened = 1 if free == WHOLE else 0
            lost += GROUP_WEIGHT * (values.group[left] - values.group[left - opened])
            if lost < best_loss:
                best, best_device, best_loss = row, device if part > 0 else -1, lost
    return best, best_device
