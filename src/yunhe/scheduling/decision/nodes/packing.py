"""Fragmentation-aware packing: prepares nodes with accelerators for what usually comes.

Used where a snapshot says what is typical. What is stranded is worked out once per ask and node, and again only for nodes
that have changed since; what holes are worth, after every so many changes.
"""

from collections.abc import Sequence

import numpy as np

from yunhe.scheduling.decision.compiling import compile_kernels
from yunhe.scheduling.decision.nodes import kernels, packing_kernels
from yunhe.scheduling.decision.nodes.kernels import WHOLE, Ask, FloatArray, Room
from yunhe.scheduling.decision.nodes.packing_kernels import GRAIN, PackingCache, PackingValues, Typical
from yunhe.scheduling.decision.options import devices_asked
from yunhe.scheduling.perception.model import TypicalAsk

SEQUENCES = 16
SEQUENCE_LENGTH = 64
REMEMBERED_ASKS = 1024
MOST_PRESSURE = 5.0
CHANGES_TO_REVALUE = 32


class Packer:
    """Chooses nodes so that what is left stays useful."""

    def __init__(
        self, room: Room, typical: Sequence[TypicalAsk], kinds: tuple[str, ...], *, seed: int = 7
    ) -> None:
        self._room = room
        self._typical = typical_of(typical, kinds, seed)
        self._stranded = np.full(room.free.shape[0], np.nan)
        self._memos: dict[object, PackingCache] = {}
        self._most = int(np.diff(room.device_start).max(initial=1))
        self._changes = 0
        compile_kernels(kernels)
        compile_kernels(packing_kernels)
        self._hole, self._group = self._worth()

    def best(self, pool: int, ask: Ask) -> tuple[int, int]:
        """Return the node of *pool* that loses least, and the device of a part (-1: as usual); (-1, -1): none fits."""
        values = PackingValues(pressure_of(self._room, self._typical), self._hole, self._group)
        memo = self._memo(ask)
        row, device = packing_kernels.best_packed(self._room, pool, ask, self._typical, memo, values)
        return int(row), int(device)

    def changed(self, row: int) -> None:
        """Forget what was worked out for a node whose room has changed."""
        self._stranded[row] = np.nan
        for memo in self._memos.values():
            memo.loss[row, 0] = np.nan
        self._changes += 1
        if self._changes % CHANGES_TO_REVALUE == 0:
            self._hole, self._group = self._worth()

    def _memo(self, ask: Ask) -> PackingCache:
        key = tuple(part.tobytes() for part in (ask.amount, ask.accelerators, ask.kind_ok, ask.class_ok))
        if key not in self._memos:
            if len(self._memos) >= REMEMBERED_ASKS:
                self._memos.clear()
            columns = self._most if packing_kernels.is_part(ask) else 1
            self._memos[key] = PackingCache(
                self._stranded, np.full((self._room.free.shape[0], columns), np.nan)
            )
        return self._memos[key]

    def _worth(self) -> tuple[FloatArray, FloatArray]:
        """Return what holes in devices are worth, and whole devices of one node beyond what they are one by one."""
        in_devices, in_nodes = np.zeros(WHOLE // GRAIN + 1), np.zeros(self._most + 1)
        packing_kernels.count_holes(self._room, in_devices, in_nodes)
        hole = packing_kernels.hole_values(in_devices, pieces_of(self._typical)) * GRAIN
        group = packing_kernels.hole_values(in_nodes, groups_of(self._typical, self._most)) * WHOLE
        return hole, group - group[1] * np.arange(self._most + 1)


def typical_of(asks: Sequence[TypicalAsk], kinds: tuple[str, ...], seed: int) -> Typical:
    """Return typical asks as the kernels take them; only those with accelerators count."""
    wanted = [one for one in asks if len(one.resources.accelerators) == 1]
    asked = [devices_asked(one.resources, kinds) for one in wanted]
    share = np.array([one.share for one in wanted])
    share = share / share.sum() if wanted else share
    random = np.random.default_rng(seed)
    size = (SEQUENCES, SEQUENCE_LENGTH)
    sequences = random.choice(len(wanted), size=size, p=share) if wanted else np.zeros((1, 0), dtype=np.int64)
    return Typical(
        cpu=np.array([one.resources.cpu_millis for one in wanted], dtype=np.int64),
        memory=np.array([one.resources.memory_mib for one in wanted], dtype=np.int64),
        whole=np.array([devices[0, 0] for devices, _ in asked], dtype=np.int64),
        part=np.array([devices[0, 1] for devices, _ in asked], dtype=np.int64),
        kind_ok=np.array([ok[0] for _, ok in asked], dtype=np.uint8).reshape(len(wanted), max(1, len(kinds))),
        share=share,
        sequences=sequences.astype(np.int64),
    )


def pieces_of(typical: Typical) -> FloatArray:
    """Return how many pieces of a device a typical ask has on average, by their size in grains."""
    full = WHOLE // GRAIN
    pieces = np.zeros(full + 1)
    np.add.at(pieces, -(-typical.part // GRAIN), typical.share)
    pieces[0] = 0.0
    pieces[full] += typical.share @ typical.whole
    return pieces


def groups_of(typical: Typical, most: int) -> FloatArray:
    """Return how many groups of whole devices a typical ask has on average, by size; a part is that much of one."""
    groups = np.zeros(most + 1)
    possible = typical.whole <= most
    each = typical.share * np.where(typical.whole > 0, 1.0, typical.part / WHOLE)
    np.add.at(groups, np.maximum(typical.whole, 1)[possible], each[possible])
    return groups


def pressure_of(room: Room, typical: Typical) -> FloatArray:
    """Return how many thousandths are likely to be asked of each kind for each that is free.

    What is to come is taken to equal what is free in all; an ask that several kinds would suit presses on each in
    proportion to what they have free together.
    """
    kinds = typical.kind_ok.shape[1]
    free = np.bincount(room.device_kind, weights=room.device_free, minlength=kinds)[:kinds]
    asked = typical.share * (typical.whole * WHOLE + typical.part)
    if not asked.size or asked.sum() == 0:
        return np.zeros(kinds)
    together = typical.kind_ok @ free + 1.0
    each = np.minimum(asked / asked.sum() * (free.sum() + 1.0) / together, MOST_PRESSURE)
    return each @ typical.kind_ok
