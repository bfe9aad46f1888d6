"""Table 1 and Figures 8, 9 and 10 of the paper, recomputed in exact arithmetic beside what it printed."""

import itertools
import math
from collections import Counter
from collections.abc import Iterator, Sequence
from decimal import ROUND_DOWN, ROUND_HALF_UP, Decimal
from fractions import Fraction

import msgspec

from yunhe.availability.frontier import find_frontier
from yunhe.availability.model import uniform_model
from yunhe.availability.partition import Choice
from yunhe.availability.published import paper
from yunhe.availability.published.clustering import fast_clusters

MIXED_UPTO = 10
"""Replicas a service may have in the comparison with mixed replicas."""


class Cell(msgspec.Struct, frozen=True):
    """One figure of Table 1: what was printed, what is right, and why they differ where they do."""

    submodule_percent: float
    printed_percent: str
    computed_percent: str
    matches: bool
    services: int
    feasible: bool
    note: str = ""


class TableRow(msgspec.Struct, frozen=True):
    """One row of Table 1: a method, or the requirement a plan was made for."""

    name: str
    cells: tuple[Cell, ...]


class Count(msgspec.Struct, frozen=True):
    """One bar of Figure 9 or 10: the least number of services, or that none suffices."""

    submodule_percent: float
    requirement_percent: float
    backups: int
    services: int
    feasible: bool


class Split(msgspec.Struct, frozen=True):
    """One of the four packagings of Figure 8."""

    name: str
    sizes: tuple[int, ...]
    instances_each: int
    printed_percent: float
    computed_percent: float
    matches: bool


class MixedCell(msgspec.Struct, frozen=True):
    """Instances needed with equal replicas, as the paper plans, and with replicas as each service needs."""

    submodule_percent: float
    requirement_percent: float
    uniform_services: int
    uniform_instances: int
    feasible: bool
    mixed_services: int
    mixed_instances: int
    fewer_percent: float


def exact_percent(sizes: Sequence[int], a: Fraction, instances: int) -> Fraction:
    """Return the platform's availability in percent, as a rational number, for services of these sizes."""
    return 100 * math.prod((1 - (1 - a**size) ** instances for size in sizes), start=Fraction(1))


def rounded(percent: Fraction, decimals: int, mode: str = ROUND_HALF_UP) -> str:
    """Return *percent* with so many decimals, rounded from the exact value and not from a float."""
    scaled = percent * 10**decimals
    whole, rest = divmod(scaled.numerator, scaled.denominator)
    if mode == ROUND_HALF_UP and 2 * rest >= scaled.denominator:
        whole += 1
    return str(Decimal(whole).scaleb(-decimals))


def fca_clusters() -> tuple[tuple[str, ...], ...]:
    """Return the clusters FCA finds among the 24 sub-modules; it may mix modules."""
    names = [name for submodules in paper.MODULES.values() for name in submodules]
    return fast_clusters(names, paper.dependency_links())


def table_1() -> tuple[TableRow, ...]:
    """Return all 40 cells of Table 1."""
    return tuple(
        TableRow(
            name, tuple(_cell(name, a, text) for a, text in zip(paper.AVAILABILITIES, printed, strict=True))
        )
        for name, printed in paper.TABLE_1.items()
    )


def figure_8() -> tuple[Split, ...]:
    """Return the four packagings of the trade module at a = 0.9."""
    return tuple(_split(*case) for case in paper.FIGURE_8)


def figure_9() -> tuple[Count, ...]:
    """Return the least number of services for every availability and requirement, with two backups."""
    return grid(backups=(paper.INSTANCES - 1,))


def figure_10() -> tuple[Count, ...]:
    """Return the least number of services for every availability and 1 to 5 backups."""
    return grid(requirements=(paper.FIGURE_10_REQUIREMENT,))


def grid(
    availabilities: Sequence[str] = paper.AVAILABILITIES,
    requirements: Sequence[str] = paper.REQUIREMENTS,
    backups: Sequence[int] = (1, 2, 3, 4, 5),
) -> tuple[Count, ...]:
    """Return the paper's experiment, every cell of the grid asked for."""
    return tuple(
        _count(a, requirement, number)
        for number, requirement, a in itertools.product(backups, requirements, availabilities)
    )


def mixed_replicas() -> tuple[MixedCell, ...]:
    """Return, for every cell of Figure 9, how many instances mixed replicas need instead."""
    return tuple(
        _mixed_cell(a, requirement)
        for requirement, a in itertools.product(paper.REQUIREMENTS, paper.AVAILABILITIES)
    )


def _sizes_for(a: str, requirement: str, instances: int) -> tuple[tuple[int, ...], bool]:
    """Return the sizes of the least services that meet the requirement; else of the full split."""
    found = find_frontier(uniform_model(paper.MODULES, float(a), instances), [Choice(instances, 1)])
    cost = found.cheapest(math.log(float(requirement)))
    if cost is None:
        return (1,) * found.model.submodule_count, False
    return tuple(len(service.submodules) for service in found.services(cost)), True


def _cell(name: str, a: str, printed: str) -> Cell:
    if name == "none":
        sizes, feasible = tuple(len(submodules) for submodules in paper.MODULES.values()), True
    elif name == "full":
        sizes, feasible = tuple(1 for submodules in paper.MODULES.values() for _ in submodules), True
    elif name == "FCA":
        sizes, feasible = tuple(len(cluster) for cluster in fca_clusters()), True
    else:
        sizes, feasible = _sizes_for(a, name, paper.INSTANCES)
    percent = exact_percent(sizes, Fraction(a), paper.INSTANCES)
    computed = rounded(percent, 5)
    note = "" if feasible else "requirement out of reach; the full split is shown, as in the paper"
    if computed != printed:
        note = _why_different(percent, sizes, a, printed)
    return Cell(_percent(a), printed, computed, computed == printed, len(sizes), feasible, note)


def _why_different(percent: Fraction, sizes: Sequence[int], a: str, printed: str) -> str:
    if rounded(percent, 5, ROUND_DOWN) == printed:
        return f"exactly {rounded(percent, 7)}, printed cut off and not rounded, so as not to show 100"
    for other in _splits_of(len(sizes)):
        if rounded(exact_percent(other, Fraction(a), paper.INSTANCES), 5) == printed:
            shape = " ".join(
                f"{size}×{count}" for size, count in sorted(Counter(other).items(), reverse=True)
            )
            return f"printed is another split into {len(sizes)} services (sizes {shape}), feasible but not the best"
    return "no split of that many services has the printed value"


def _splits_of(services: int) -> Iterator[tuple[int, ...]]:
    """Yield the sizes of every way to split the modules into so many services."""
    shapes = [list(_shapes(len(submodules), len(submodules))) for submodules in paper.MODULES.values()]
    reachable: dict[int, set[tuple[int, ...]]] = {0: {()}}
    for options in shapes:
        longer: dict[int, set[tuple[int, ...]]] = {}
        for count, known in reachable.items():
            for sizes, shape in itertools.product(known, options):
                longer.setdefault(count + len(shape), set()).add(tuple(sorted(sizes + shape)))
        reachable = longer
    yield from sorted(reachable.get(services, set()))


def _shapes(items: int, largest: int) -> Iterator[tuple[int, ...]]:
    if items == 0:
        yield ()
    for first in range(min(items, largest), 0, -1):
        for rest in _shapes(items - first, first):
            yield (first, *rest)


def _split(name: str, sizes: tuple[int, ...], instances: int, printed: str) -> Split:
    percent = exact_percent(sizes, Fraction("0.9"), instances)
    decimals = len(printed) - len("0.")
    matches = rounded(percent / 100, decimals) == printed
    return Split(name, sizes, instances, _percent(printed), float(rounded(percent, 2)), matches)


def _count(a: str, requirement: str, backups: int) -> Count:
    sizes, feasible = _sizes_for(a, requirement, backups + 1)
    return Count(_percent(a), _percent(requirement), backups, len(sizes), feasible)


def _mixed_cell(a: str, requirement: str) -> MixedCell:
    uniform, feasible = _sizes_for(a, requirement, paper.INSTANCES)
    model = uniform_model(paper.MODULES, float(a))
    found = find_frontier(model, [Choice(replicas, replicas) for replicas in range(1, MIXED_UPTO + 1)])
    instances = found.cheapest(math.log(float(requirement)))
    if instances is None:
        raise AssertionError(f"{MIXED_UPTO} replicas reach every requirement of the grid")
    before = paper.INSTANCES * len(uniform)
    return MixedCell(
        _percent(a),
        _percent(requirement),
        len(uniform),
        before,
        feasible,
        len(found.services(instances)),
        instances,
        round(100 * (1 - instances / before), 1) if feasible else 0.0,
    )


def _percent(fraction: str) -> float:
    return float(Fraction(fraction) * 100)
