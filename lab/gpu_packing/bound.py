"""What no rule can exceed, even one that knows every arrival: a linear program (needs the extra ``exact``).

Room only shrinks, and a pod that fits is never skipped. So a shape that is skipped once is skipped from then on, and so is
every shape that asks for no less of anything. The program chooses until when each shape is taken, in that order, and puts
what is taken on nodes. It may do more than a scheduler can: cut pods into fractions, and pool the cores and the memory of
all nodes of one make, though not the thousandths of different devices. Its answer is therefore an upper bound.
"""

from collections import Counter
from collections.abc import Iterable
from typing import NamedTuple

import highspy
import numpy as np

from lab.gpu_packing.trace import Pod
from yunhe.scheduling.perception.model import NodeFacts

SLOTS = 50
"""Time is cut in so many slots; within the one in which a shape is first skipped, any part of it may be taken."""
WHOLE = 1000


class Shape(NamedTuple):
    """What a pod asks for; no models: any."""

    cpu_milli: int
    memory_mib: int
    num_gpu: int
    gpu_milli: int
    models: frozenset[str]

    def asks_no_less_than(self, other: "Shape") -> bool:
        """Return whether *other* fits wherever this fits."""
        if self.cpu_milli < other.cpu_milli or self.memory_mib < other.memory_mib:
            return False
        if other.num_gpu == 0:
            return True
        suits = not other.models or (bool(self.models) and self.models <= other.models)
        return suits and self.num_gpu >= other.num_gpu and self.gpu_milli >= other.gpu_milli


class Make(NamedTuple):
    """What nodes of one make have."""

    cpu_milli: int
    memory_mib: int
    gpus: int
    model: str


def shape_of(pod: Pod) -> Shape:
    """Return what a pod asks for."""
    models = frozenset(pod.gpu_spec.split("|")) if pod.gpu_spec and pod.num_gpu else frozenset[str]()
    return Shape(pod.cpu_milli, pod.memory_mib, pod.num_gpu, pod.gpu_milli, models)


def make_of(node: NodeFacts) -> Make:
    """Return what a node has."""
    gpu = node.total.accelerators[0]
    return Make(node.total.cpu_millis, node.total.memory_mib, gpu.milli // WHOLE, gpu.kind)


def most_allocated(nodes: list[NodeFacts], order: list[Pod]) -> float:
    """Return the share of GPU that can at most be allocated when demand first reaches all there is."""
    makes = Counter(make_of(node) for node in nodes)
    total = WHOLE * sum(make.gpus * count for make, count in makes.items())
    demand = np.cumsum([pod.num_gpu * pod.gpu_milli for pod in order])
    until = order[: int(np.searchsorted(demand, total)) + 1]
    arrived: dict[Shape, list[int]] = {}
    for number, pod in enumerate(until):
        arrived.setdefault(shape_of(pod), [0] * SLOTS)[number * SLOTS // len(until)] += 1
    return _Program(arrived, makes).solve() / total


class _Program:
    def __init__(self, arrived: dict[Shape, list[int]], makes: Counter[Make]) -> None:
        self.h = highspy.Highs()
        self.h.silent()
        self.columns = 0
        on: dict[Make, dict[Shape, int]] = {make: {} for make in makes}
        fits_after: dict[Shape, list[int]] = {}
        for shape, counts in arrived.items():
            taken, fits_after[shape] = self._times(shape, counts)
            for make in makes:
                if _suits(make, shape):
                    on[make][shape] = self._column()
            held = [(on[make][shape], -1.0) for make in makes if shape in on[make]]
            self._row(0.0, 0.0, [*zip(taken, map(float, counts), strict=True), *held])
        for above, below in _covering(list(arrived)):
            for high, low in zip(fits_after[above], fits_after[below], strict=True):
                self._row(0.0, highspy.kHighsInf, [(low, 1.0), (high, -1.0)])
        for make, count in makes.items():
            self._hold(make, count, on[make])

    def solve(self) -> float:
        """Return the most thousandths that can be allocated."""
        self.h.maximize()
        if self.h.getModelStatus() != highspy.HighsModelStatus.kOptimal:
            raise RuntimeError(self.h.modelStatusToString(self.h.getModelStatus()))
        return self.h.getObjectiveValue()

    def _column(self, most: float = highspy.kHighsInf, worth: float = 0.0) -> int:
        self.h.addCol(worth, 0.0, most, 0, [], [])
        self.columns += 1
        return self.columns - 1

    def _row(self, least: float, most: float, terms: Iterable[tuple[int, float]]) -> None:
        terms = list(terms)
        indices = np.array([column for column, _ in terms], dtype=np.int32)
        self.h.addRow(least, most, len(terms), indices, np.array([factor for _, factor in terms]))

    def _times(self, shape: Shape, counts: list[int]) -> tuple[list[int], list[int]]:
        """Add, for each slot, which part of a shape is taken then, and whether it still fits after."""
        worth = float(shape.num_gpu * shape.gpu_milli)
        taken = [self._column(1.0, worth * count) for count in counts]
        fits_after = [self._column(1.0) for _ in counts]
        for slot in range(SLOTS):
            self._row(0.0, 1.0, [(taken[slot], 1.0), (fits_after[slot], -1.0)])
            if slot:
                self._row(0.0, 1.0, [(fits_after[slot - 1], 1.0), (taken[slot], -1.0)])
        return taken, fits_after

    def _hold(self, make: Make, count: int, on: dict[Shape, int]) -> None:
        """Keep what the nodes of one make hold within their cores, memory and devices.

        A device is a way from 0 to at most 1000 in steps of what is put on it (arc flow, Valério de Carvalho 1999).
        """
        inf = highspy.kHighsInf
        self._row(-inf, count * make.cpu_milli, [(on[shape], shape.cpu_milli) for shape in on])
        self._row(-inf, count * make.memory_mib, [(on[shape], shape.memory_mib) for shape in on])
        reached, begun = {0}, list[tuple[int, float]]()
        through: dict[int, list[tuple[int, float]]] = {}
        for size in sorted({shape.gpu_milli for shape in on if shape.num_gpu}, reverse=True):
            steps: list[tuple[int, float]] = []
            for level in range(WHOLE - size + 1):
                if level in reached:
                    step = self._column()
                    steps.append((step, 1.0))
                    reached.add(level + size)
                    through.setdefault(level + size, []).append((step, 1.0))
                    (through.setdefault(level, []) if level else begun).append((step, -1.0 if level else 1.0))
            wanted = [
                (on[shape], -float(shape.num_gpu))
                for shape in on
                if shape.num_gpu and shape.gpu_milli == size
            ]
            self._row(0.0, inf, steps + wanted)
        for flow in through.values():
            self._row(0.0, inf, flow)
        self._row(-inf, count * make.gpus, begun)


def _suits(make: Make, shape: Shape) -> bool:
    return (
        shape.cpu_milli <= make.cpu_milli
        and shape.memory_mib <= make.memory_mib
        and shape.num_gpu <= make.gpus
        and (not shape.models or make.model in shape.models)
    )


def _covering(shapes: list[Shape]) -> list[tuple[Shape, Shape]]:
    """Return the pairs of which the first asks for no less than the second, without those that follow from others."""
    above = np.array(
        [[a is not b and a.asks_no_less_than(b) for b in shapes] for a in shapes], dtype=np.int64
    )
    rows, columns = np.nonzero((above > 0) & (above @ above == 0))
    return [(shapes[a], shapes[b]) for a, b in zip(rows.tolist(), columns.tolist(), strict=True)]
