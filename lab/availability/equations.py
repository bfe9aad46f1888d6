"""Equations 1 to 6 of the paper, one function each, with its errata applied.

A partition is a 0/1 matrix ``x``: ``x[i][j]`` says that sub-module *j* is packaged in service *i*. What
the paper calls backups excludes the primary: ``instances`` here is backups + 1, which is what its printed
figures need.
"""

import math
from collections.abc import Sequence

Matrix = Sequence[Sequence[int]]


def replicated(availability: float, instances: int) -> float:
    """Eq 1: the availability of a set of equal instances, any one of which suffices."""
    return 1 - (1 - availability) ** instances


def series_parallel(sets: Sequence[tuple[float, int]]) -> float:
    """Eq 2: sets of instances in series, each given as its availability and its number of instances."""
    return math.prod(replicated(availability, instances) for availability, instances in sets)


def service(row: Sequence[int], submodules: Sequence[float]) -> float:
    """Eq 3: one instance of a service is up while every sub-module packaged in it is."""
    return math.prod((1 - x) + a * x for x, a in zip(row, submodules, strict=True))


def in_use(row: Sequence[int]) -> int:
    """Eq 4: 1 when the service holds at least one sub-module, else 0."""
    return 1 - math.prod(1 - x for x in row)


def module(x: Matrix, submodules: Sequence[float], instances: int) -> float:
    """Eq 5: services of a module in series; an empty one counts as always up.

    The printed equation lacks the braces around the sum; without them the product is not over services.
    """
    return math.prod(
        in_use(row) * replicated(service(row, submodules), instances) + (1 - in_use(row)) for row in x
    )


def platform(modules: Sequence[tuple[Matrix, Sequence[float]]], instances: int) -> float:
    """Eq 6: modules in series."""
    return math.prod(module(x, submodules, instances) for x, submodules in modules)


def service_count(modules: Sequence[tuple[Matrix, Sequence[float]]]) -> int:
    """The objective of eq 7: how many services are in use."""
    return sum(in_use(row) for x, _ in modules for row in x)


def assigns_each_once(x: Matrix) -> bool:
    """Constraint C3: every sub-module lies in exactly one service (the text says "at most one")."""
    return all(sum(column) == 1 for column in zip(*x, strict=True))
