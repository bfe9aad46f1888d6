"""The paper's own method, as printed and mended: a reference to judge by, fit for few sub-modules.

Outer level: hand out an extra budget of services, 0, 1, 2 …, to the modules in every possible way. Inner
level: for each module and number of services, try every set partition. Stop at the first budget whose
best plan meets the target. Work and memory grow with the product of the module sizes.
"""

from collections.abc import Iterator, Sequence
from functools import cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from lab.availability.equations import replicated

Partition = tuple[tuple[int, ...], ...]


class TwoLevelPlan(NamedTuple):
    """What the search found; not feasible means that even the full split misses the target."""

    feasible: bool
    services: int
    availability: float
    partitions: tuple[Partition, ...]
    plans_tried: int


@cache
def stirling(items: int, groups: int) -> int:
    """Eq 8 and 9: in how many ways so many items fall into so many non-empty groups.

    The third boundary case is printed S(J, J) = 0; it must be S(J, I) = 0 for I > J.
    """
    if items == groups == 0:
        return 1
    if groups == 0 or groups > items:
        return 0
    return stirling(items - 1, groups - 1) + groups * stirling(items - 1, groups)


def set_partitions(items: int, groups: int) -> Iterator[Partition]:
    """Yield every partition of 0 … items−1 into exactly so many groups, by backtracking."""
    parts: list[list[int]] = []

    def place(item: int) -> Iterator[Partition]:
        missing = groups - len(parts)
        if items - item < missing:
            return
        if item == items:
            yield tuple(tuple(part) for part in parts)
            return
        for part in parts:
            part.append(item)
            yield from place(item + 1)
            part.pop()
        if missing:
            parts.append([item])
            yield from place(item + 1)
            parts.pop()

    yield from place(0)


def best_partition(submodules: Sequence[float], services: int, instances: int) -> tuple[float, Partition]:
    """Inner level: the most available of all partitions of one module into so many services."""
    return max(
        (_module_availability(partition, submodules, instances), partition)
        for partition in set_partitions(len(submodules), services)
    )


def _module_availability(partition: Partition, submodules: Sequence[float], instances: int) -> float:
    product = 1.0
    for group in partition:
        together = 1.0
        for index in group:
            together *= submodules[index]
        product *= replicated(together, instances)
    return product


def allocations(sizes: Sequence[int], budget: int) -> NDArray[np.uint8]:
    """Outer level, steps 1 to 10: every way to hand exactly *budget* extra services to the modules.

    One row per plan, one column per module. A module takes at most its size less one (printed: its size),
    and what is returned is the entry of the budget asked for (printed: dp[h] for dp[h']).
    """
    plans: dict[int, NDArray[np.uint8]] = {0: np.zeros((1, 0), dtype=np.uint8)}
    for position, size in enumerate(sizes):
        room_after = sum(later - 1 for later in sizes[position + 1 :])
        longer: dict[int, list[NDArray[np.uint8]]] = {}
        for spent, rows in plans.items():
            for extra in range(min(size - 1, budget - spent) + 1):
                if spent + extra + room_after < budget:
                    continue
                column = np.full((len(rows), 1), extra, dtype=np.uint8)
                longer.setdefault(spent + extra, []).append(np.hstack((rows, column)))
        plans = {spent: np.vstack(parts) for spent, parts in longer.items()}
    return plans.get(budget, np.zeros((0, len(sizes)), dtype=np.uint8))


def two_level_plan(modules: Sequence[Sequence[float]], instances: int, target: float) -> TwoLevelPlan:
    """Return the best plan of the least number of services that meets the target.

    The extra budget starts at 0 (printed: 1), else the plan that splits nothing could not be returned.
    """
    sizes = [len(submodules) for submodules in modules]
    inner = [
        [best_partition(submodules, services, instances) for services in range(1, len(submodules) + 1)]
        for submodules in modules
    ]
    values = [np.array([value for value, _ in options]) for options in inner]
    tried = 0
    for budget in range(sum(sizes) - len(sizes) + 1):
        plans = allocations(sizes, budget)
        reached = np.ones(len(plans))
        for module, of_module in enumerate(values):
            reached *= of_module[plans[:, module]]
        tried += len(plans)
        best = int(reached.argmax())
        if reached[best] >= target or budget == sum(sizes) - len(sizes):
            partitions = tuple(inner[module][extra][1] for module, extra in enumerate(plans[best]))
            feasible = bool(reached[best] >= target)
            return TwoLevelPlan(feasible, len(sizes) + budget, float(reached[best]), partitions, tried)
    raise AssertionError("the last budget always returns")
