"""Packing accelerators: what a node is still good for, and which node loses least of it to an ask.

Plain Python that numba can compile; see ``compiling``. A node's worth is judged by what usually comes: sequences of
typical asks are drawn once, and what stays free on the node after each sequence has filled it as far as it goes is
stranded. Beside that, what single typical asks could not use right now is fragmented (Weng et al., USENIX ATC 2023).
"""

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from yunhe.scheduling.orchestration.kernels import WHOLE, Ask, Room, fits

KERNELS = ("stranded", "fragmented", "potential", "cheapest_device", "loss", "best_packed")

FRAGMENT_WEIGHT = 0.3
"""What a thousandth that is fragmented now counts, against one that will be stranded."""
IDLE_CORE_MILLI = 2.0
"""What a core left idle beside the ask counts: full nodes first, so that empty ones stay whole."""
SCARCITY_WEIGHT = 0.3
"""What a thousandth of a scarce kind counts, at a pressure of one ask for each that is free."""

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


class Memo(NamedTuple):
    """What was worked out and still holds; NaN: not known. ``loss`` and ``device`` are of one ask."""

    potential: FloatArray
    loss: FloatArray
    device: IntArray


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


def fragmented(cpu: int, memory: int, free: IntArray, kinds: IntArray, typical: Typical) -> float:
    """Return how much of what is free a single typical ask, drawn by its share, could not use."""
    devices, useless = free.shape[0], 0.0
    for ask in range(typical.cpu.shape[0]):
        wanted, need = typical.whole[ask], WHOLE
        if wanted == 0:
            wanted, need = 1, typical.part[ask]
        able, unable_milli, all_milli = 0, 0, 0
        for device in range(devices):
            all_milli += free[device]
            if free[device] >= need and typical.kind_ok[ask, kinds[device]]:
                able += 1
            else:
                unable_milli += free[device]
        fits_beside = cpu >= typical.cpu[ask] and memory >= typical.memory[ask] and able >= wanted
        useless += typical.share[ask] * (unable_milli if fits_beside else all_milli)
    return useless


def potential(cpu: int, memory: int, free: IntArray, kinds: IntArray, typical: Typical) -> float:
    """Return how much of what a node has free is or will be of no use, in thousandths of an accelerator."""
    lost = stranded(cpu, memory, free, kinds, typical)
    return lost + FRAGMENT_WEIGHT * fragmented(cpu, memory, free, kinds, typical)


def cheapest_device(
    room: Room, row: int, ask: Ask, typical: Typical, free: IntArray, kinds: IntArray
) -> tuple[float, int]:
    """Return the least potential after a part of one device is taken, and which device (counted from 0) that is."""
    cpu, memory = room.free[row, 0] - ask.amount[0], room.free[row, 1] - ask.amount[1]
    part = ask.accelerators[0, 1]
    best, best_device = np.inf, -1
    first = room.device_start[row]
    for device in range(free.shape[0]):
        before = free[device]
        if before < part or room.device_memory[first + device] < ask.accelerators[0, 2]:
            continue
        if ask.kind_ok[0, kinds[device]] == 0:
            continue
        seen = False
        for other in range(device):
            if free[other] == before and kinds[other] == kinds[device]:
                seen = True
        if seen:
            continue
        free[device] = before - part
        after = potential(cpu, memory, free, kinds, typical)
        free[device] = before
        if after < best:
            best, best_device = after, device
    return best, best_device


def loss(room: Room, row: int, ask: Ask, typical: Typical, memo: Memo, chosen: IntArray) -> float:
    """Return what taking one member on *row* loses, and note the device; infinite where it does not fit."""
    if not fits(room, row, ask, chosen):
        return np.inf
    first, last = room.device_start[row], room.device_start[row + 1]
    free, kinds = room.device_free[first:last].copy(), room.device_kind[first:last]
    cpu, memory = room.free[row, 0], room.free[row, 1]
    if math.isnan(memo.potential[row]):
        memo.potential[row] = potential(cpu, memory, free, kinds, typical)
    idle = IDLE_CORE_MILLI * (cpu - ask.amount[0]) / 1000.0
    memo.device[row] = -1
    if ask.accelerators.shape[0] == 1 and ask.accelerators[0, 0] == 0:
        after, memo.device[row] = cheapest_device(room, row, ask, typical, free, kinds)
        return after - memo.potential[row] + idle
    taken = 0
    for index in range(ask.accelerators.shape[0]):
        taken += ask.accelerators[index, 0] + (1 if ask.accelerators[index, 1] > 0 else 0)
    for index in range(taken):  # the devices that ``fits`` has chosen
        free[chosen[index, 0] - first] -= chosen[index, 1]
    return (
        potential(cpu - ask.amount[0], memory - ask.amount[1], free, kinds, typical)
        - memo.potential[row]
        + idle
    )


def best_packed(room: Room, pool: int, ask: Ask, typical: Typical, memo: Memo, pressure: FloatArray) -> int:
    """Return the node of *pool* that loses least to the ask, -1 when none fits."""
    best, best_loss = -1, np.inf
    chosen = np.zeros((64, 3), dtype=np.int64)
    for row in range(room.pool_start[pool], room.pool_start[pool + 1]):
        lost = memo.loss[row]
        if math.isnan(lost):
            lost = loss(room, row, ask, typical, memo, chosen)
            memo.loss[row] = lost
        if lost == np.inf:
            continue
        if ask.amount[3] > 0:
            kind = room.device_kind[room.device_start[row]]
            lost += SCARCITY_WEIGHT * pressure[kind] * ask.amount[3]
        if lost < best_loss:
            best, best_loss = row, lost
    return best
