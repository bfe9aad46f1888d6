"""The best way to package one module, for every amount one may spend on it.

A *curve* says, for each cost, the best ln availability a module can have and by which partition. Three
ways lead to one, the first that applies:

* equal sub-modules and a concave value: sizes that differ by at most one are optimal (no search at all);
* small enough: dynamic programming over how many sub-modules of each availability are left, exact for any
  value, any availabilities and any choice of replicas;
* else: longest-processing-time grouping, with a bound that no partition can beat beside it.
"""

import heapq
import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from yunhe.availability.envelope import hull_at, is_concave
from yunhe.availability.outage import FloatArray, IntArray
from yunhe.kernel.errors import UnsupportedError

EXACT_OPERATIONS = 200_000_000
"""Above so many elementary steps the exact search gives way to a bounded answer."""

RELAXED_UNITS = 240
"""Into how many equal crumbs a module is cut for the bound on mixed replicas."""

GROUPED_BY_HEAP = 600
"""Above so many sub-modules, groups are dealt out in turn: as balanced for many small parts, and faster."""


MAX_UNEQUAL = 2000
"""Above so many sub-modules of different availabilities in one module, no plan is attempted."""


class Choice(NamedTuple):
    """A number of replicas a service may have, and what such a service costs."""

    replicas: int
    cost: int


class Group(NamedTuple):
    """Sub-modules, by position in their module, that make one service."""

    members: tuple[int, ...]
    replicas: int


GroupValue = Callable[[FloatArray, int], FloatArray]
"""ln availability of services, from the weights of their groups and their number of replicas."""


@dataclass(frozen=True)
class Objective:
    """What is made as large as possible, and what else is computed for the partitions found.

    ``concave`` says that the value and its companions are concave in the weight by theorem.
    """

    value: GroupValue
    companions: tuple[GroupValue, ...]
    concave: bool


@dataclass(frozen=True)
class Curve:
    """For each cost (the index): the value reached (−inf: nothing costs that), and a bound on any.

    ``concave`` says that each further step is known to bring less than the one before.
    """

    values: FloatArray
    bounds: FloatArray
    companions: FloatArray
    partition: Callable[[int], tuple[Group, ...]]
    concave: bool = False


def module_curve(weights: FloatArray, choices: Sequence[Choice], objective: Objective) -> Curve:
    """Return the curve of a module whose sub-modules have these weights."""
    is_plain = len(choices) == 1 and choices[0].cost == 1
    if is_plain and np.ptp(weights) == 0 and _is_concave_in_size(weights, choices[0].replicas, objective):
        return _balanced(weights, choices[0].replicas, objective)
    if _operations(weights, choices, _width(len(weights), choices)) <= EXACT_OPERATIONS:
        return _exact(weights, choices, objective)
    if is_plain:
        return _bounded_plain(weights, choices[0].replicas, objective)
    return _bounded_mixed(weights, choices, objective)


def _is_concave_in_size(weights: FloatArray, replicas: int, objective: Objective) -> bool:
    if objective.concave or len(weights) <= 2:
        return True
    sizes = np.arange(1, len(weights) + 1) * weights[0]
    return all(is_concave(value(sizes, replicas)) for value in (objective.value, *objective.companions))


# --- equal sub-modules ---------------------------------------------------------------------------------


def _balanced(weights: FloatArray, replicas: int, objective: Objective) -> Curve:
    count = len(weights)
    sizes = np.arange(1, count + 2) * weights[0]
    groups = np.arange(1, count + 1)
    size, larger = np.divmod(count, groups)

    def along(value: GroupValue) -> FloatArray:
        of_size = np.concatenate(([0.0], value(sizes, replicas)))
        best = larger * of_size[size + 1] + (groups - larger) * of_size[size]
        return np.concatenate(([-np.inf], best))

    values = along(objective.value)
    companions = np.array([along(companion) for companion in objective.companions])
    return Curve(
        values, values, companions, lambda cost: balanced_groups(count, cost, replicas), concave=True
    )


def balanced_groups(count: int, groups: int, replicas: int) -> tuple[Group, ...]:
    """Return so many groups of sizes that differ by at most one, in order."""
    size, larger = divmod(count, groups)
    bounds = [index * size + min(index, larger) for index in range(groups + 1)]
    return tuple(Group(tuple(range(a, b)), replicas) for a, b in itertools.pairwise(bounds))


# --- exact search --------------------------------------------------------------------------------------


def _width(count: int, choices: Sequence[Choice]) -> int:
    return count * max(choice.cost for choice in choices) + 1


def _operations(weights: FloatArray, choices: Sequence[Choice], width: int) -> float:
    _, counts = np.unique(weights, return_counts=True)
    transitions = math.prod((int(count) + 1) * (int(count) + 2) / 2 for count in counts)
    return transitions * len(choices) * width


class _Table:
    """Best values for every multiset of sub-modules still to be packaged, and every cost.

    A multiset is a number in mixed radix, one digit for each distinct weight. Every group is taken to hold
    one of the first kind still left, so that no partition is met twice.
    """

    def __init__(self, weights: FloatArray, choices: Sequence[Choice], value: GroupValue, width: int) -> None:
        kinds, self._kind_of, counts = np.unique(weights, return_inverse=True, return_counts=True)
        self._choices = choices
        self._radices = counts + 1
        self._strides = np.concatenate((np.cumprod(self._radices[::-1])[::-1][1:], [1])).astype(np.int64)
        states = int(np.prod(self._radices))
        digits = np.arange(states)[:, None] // self._strides % self._radices
        self._of_group = [value(digits @ kinds, choice.replicas) for choice in choices]
        self._best = np.full((states, width), -np.inf)
        self._group = np.zeros((states, width), dtype=np.int32)
        self._choice = np.zeros((states, width), dtype=np.int8)
        self._best[0, 0] = 0.0
        for state in range(1, states):
            self._fill(state, digits[state])

    @property
    def values(self) -> FloatArray:
        """The best value of the whole module for each cost."""
        return self._best[-1]

    def _fill(self, state: int, digits: IntArray) -> None:
        groups = self._groups_within(digits)
        rest = self._best[state - groups]
        for number, choice in enumerate(self._choices):
            if choice.cost >= rest.shape[1]:
                continue
            reached = rest[:, : rest.shape[1] - choice.cost] + self._of_group[number][groups, None]
            winner = reached.argmax(axis=0)
            value = reached[winner, np.arange(reached.shape[1])]
            better = value > self._best[state, choice.cost :]
            self._best[state, choice.cost :][better] = value[better]
            self._group[state, choice.cost :][better] = groups[winner][better]
            self._choice[state, choice.cost :][better] = number

    def _groups_within(self, digits: IntArray) -> NDArray[np.int64]:
        first = int(np.flatnonzero(digits)[0])
        groups = np.arange(1, digits[first] + 1) * self._strides[first]
        for kind in range(first + 1, len(digits)):
            if digits[kind]:
                more = np.arange(digits[kind] + 1) * self._strides[kind]
                groups = (groups[:, None] + more).ravel()
        return groups

    def partition(self, cost: int) -> tuple[Group, ...]:
        """Return the groups of the best partition of exactly this cost."""
        left = [list(np.flatnonzero(self._kind_of == kind)) for kind in range(len(self._radices))]
        state, found = len(self._best) - 1, list[Group]()
        while state:
            group = int(self._group[state, cost])
            choice = self._choices[self._choice[state, cost]]
            taken = group // self._strides % self._radices
            members = [left[kind].pop(0) for kind, count in enumerate(taken) for _ in range(count)]
            found.append(Group(tuple(sorted(int(member) for member in members)), choice.replicas))
            state, cost = state - group, cost - choice.cost
        return tuple(sorted(found))


def _exact(weights: FloatArray, choices: Sequence[Choice], objective: Objective) -> Curve:
    table = _Table(weights, choices, objective.value, _width(len(weights), choices))
    companions = _companions(weights, table.values, table.partition, objective)
    return Curve(table.values, table.values, companions, table.partition)


def _companions(
    weights: FloatArray,
    values: FloatArray,
    partition: Callable[[int], tuple[Group, ...]],
    objective: Objective,
) -> FloatArray:
    """Return what each companion says of the partitions found; the value itself need not be asked again."""
    rows = np.full((len(objective.companions), len(values)), -np.inf)
    for row, companion in zip(rows, objective.companions, strict=True):
        if companion is objective.value:
            row[:] = values
            continue
        for cost in np.flatnonzero(np.isfinite(values)):
            row[cost] = sum(
                float(companion(np.array([weights[list(group.members)].sum()]), group.replicas)[0])
                for group in partition(int(cost))
            )
    return rows


# --- too large for the exact search --------------------------------------------------------------------


def _bounded_plain(weights: FloatArray, replicas: int, objective: Objective) -> Curve:
    count = len(weights)
    if count > MAX_UNEQUAL:
        raise UnsupportedError(
            f"A module of {count:,} sub-modules of different availabilities is too large to plan.",
            remedy=f"Give them one availability, or split the module; up to {MAX_UNEQUAL:,} may differ.",
        )
    values = np.full(count + 1, -np.inf)
    is_lopsided = np.zeros(count + 1, dtype=bool)
    for groups in range(1, count + 1):
        values[groups] = objective.value(_sums(weights, spread(weights, groups)), replicas).sum()
        if not objective.concave:
            lopsided = objective.value(_sums(weights, _one_large(weights, groups)), replicas).sum()
            is_lopsided[groups] = lopsided > values[groups]
            values[groups] = max(values[groups], lopsided)

    def partition(cost: int) -> tuple[Group, ...]:
        members = _one_large(weights, cost) if is_lopsided[cost] else spread(weights, cost)
        return tuple(Group(tuple(sorted(group)), replicas) for group in members)

    companions = _companions(weights, values, partition, objective)
    return Curve(values, plain_bounds(weights, replicas, objective), companions, partition)


def plain_bounds(weights: FloatArray, replicas: int, objective: Objective) -> FloatArray:
    """Return, for each number of groups, a value that no partition exceeds: all groups of equal weight."""
    numbers, total = np.arange(1, len(weights) + 1), float(weights.sum())
    if objective.concave:
        bounds = numbers * objective.value(total / numbers, replicas)
    else:
        bounds = numbers * hull_at(lambda w: objective.value(w, replicas), total, total / numbers)
    return np.concatenate(([-np.inf], bounds))


def _bounded_mixed(weights: FloatArray, choices: Sequence[Choice], objective: Objective) -> Curve:
    width = _width(len(weights), choices)
    crumb = float(weights.sum()) / RELAXED_UNITS
    crumbs = np.full(RELAXED_UNITS, crumb)
    if len(weights) > RELAXED_UNITS or _operations(crumbs, choices, width) > EXACT_OPERATIONS:
        raise UnsupportedError(
            f"Mixed replicas cannot be planned for a module of {len(weights)} sub-modules at these costs.",
            remedy="Plan it with equal replicas, or give costs as smaller whole numbers of the same ratio.",
        )
    values, grouping = np.full(width, -np.inf), np.zeros(width, dtype=np.int64)
    for groups in range(1, len(weights) + 1):
        reached = _replicate(_sums(weights, spread(weights, groups)), choices, objective.value, width)[0]
        better = reached > values
        values[better], grouping[better] = reached[better], groups

    def partition(cost: int) -> tuple[Group, ...]:
        members = spread(weights, int(grouping[cost]))
        _, picked = _replicate(_sums(weights, members), choices, objective.value, width)
        replicas = list[int]()
        for row in reversed(picked):
            choice = choices[row[cost]]
            replicas.append(choice.replicas)
            cost -= choice.cost
        pairs = zip(members, reversed(replicas), strict=True)
        return tuple(Group(tuple(sorted(group)), count) for group, count in pairs)

    # any partition, cut down to whole crumbs less one for each group, is a partition of the crumbs
    def of_crumbs(weight: FloatArray, replicas: int) -> FloatArray:
        return objective.value(np.maximum(weight - crumb, 0.0), replicas)

    bounds = np.maximum(_Table(crumbs, choices, of_crumbs, width).values, values)
    return Curve(values, bounds, _companions(weights, values, partition, objective), partition)


def _replicate(
    sums: FloatArray, choices: Sequence[Choice], value: GroupValue, width: int
) -> tuple[FloatArray, list[NDArray[np.int8]]]:
    """Return, for fixed groups, the best value of each cost, and which choice each group then takes."""
    best, picked = np.full(width, -np.inf), list[NDArray[np.int8]]()
    best[0] = 0.0
    of_group = [value(sums, choice.replicas) for choice in choices]
    for group in range(len(sums)):
        options = np.full((len(choices), width), -np.inf)
        for row, choice, values in zip(options, choices, of_group, strict=True):
            row[choice.cost :] = best[: width - choice.cost] + values[group]
        picked.append(options.argmax(axis=0).astype(np.int8))
        best = options.max(axis=0)
    return best, picked


def spread(weights: FloatArray, groups: int) -> list[list[int]]:
    """Return groups of weights as equal as a fast method gets them: the heaviest first, to the lightest."""
    order = np.argsort(-weights, kind="stable")
    if len(weights) > GROUPED_BY_HEAP:
        lane = np.arange(len(weights)) % (2 * groups)
        lane = np.minimum(lane, 2 * groups - 1 - lane)
        by_lane = order[np.argsort(lane, kind="stable")]
        return [part.tolist() for part in np.split(by_lane, np.cumsum(np.bincount(lane))[:-1])]
    members: list[list[int]] = [[] for _ in range(groups)]
    heap = [(0.0, group) for group in range(groups)]
    for index in order.tolist():
        load, group = heapq.heappop(heap)
        members[group].append(index)
        heapq.heappush(heap, (load + float(weights[index]), group))
    return members


def _one_large(weights: FloatArray, groups: int) -> list[list[int]]:
    """Return the lightest sub-modules alone and all others together: best where sharing costs nothing."""
    order: list[int] = np.argsort(weights, kind="stable").tolist()
    return [*([index] for index in order[: groups - 1]), order[groups - 1 :]]


def _sums(weights: FloatArray, members: list[list[int]]) -> FloatArray:
    return np.array([weights[group].sum() for group in members])
