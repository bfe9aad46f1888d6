"""The availability planner against the paper's enumeration, in one run, and on a million sub-modules.

Run with ``python -m bench.availability``. The requirement is out of reach in every comparison, so that both
search everything; both must give the same answer before either is timed.
"""

import math
import time
from collections.abc import Callable, Sequence
from typing import NamedTuple

from lab.availability.two_level import two_level_plan

from yunhe.availability.frontier import Frontier, find_frontier
from yunhe.availability.model import Model, uniform_model
from yunhe.availability.partition import Choice

AVAILABILITY = 0.9
INSTANCES = 3
OUT_OF_REACH = 0.9999999
COMPARED = ((4,) * 6, (4,) * 8, (4,) * 10, (6,) * 6, (4,) * 12, (4,) * 13)
MILLIONS = {
    "10,000 modules of 100": [100] * 10_000,
    "250,000 modules of 4": [4] * 250_000,
    "1 module of 1,000,000": [1_000_000],
    "modules of 1, 2, 3 … 1,413": list(range(1, 1414)),
}
MILLION_LIMIT_S = 5.0
"""The range a whole frontier of about a million sub-modules must stay in."""


class Comparison(NamedTuple):
    """One instance searched both ways."""

    sizes: Sequence[int]
    plans: int
    enumeration_s: float
    frontier_s: float

    @property
    def ratio(self) -> float:
        """How many times faster the frontier is."""
        return self.enumeration_s / self.frontier_s


def timed(work: Callable[[], object], times: int) -> float:
    """Return the shortest of several runs."""
    shortest = math.inf
    for _ in range(times):
        started = time.perf_counter()
        work()
        shortest = min(shortest, time.perf_counter() - started)
    return shortest


def model_of(sizes: Sequence[int]) -> Model:
    """Return a model of equal sub-modules."""
    modules = {f"m{number}": [f"s{index}" for index in range(size)] for number, size in enumerate(sizes)}
    return uniform_model(modules, AVAILABILITY, INSTANCES)


def whole_frontier(model: Model) -> Frontier:
    """Return every point, from one service a module to one a sub-module."""
    return find_frontier(model, [Choice(INSTANCES, 1)])


def compare(sizes: Sequence[int]) -> Comparison:
    """Search one instance both ways; refuse to time what does not agree."""
    model, modules = model_of(sizes), [[AVAILABILITY] * size for size in sizes]
    started = time.perf_counter()
    enumerated = two_level_plan(modules, INSTANCES, OUT_OF_REACH)
    enumeration_s = time.perf_counter() - started
    best = math.exp(whole_frontier(model).reached.max())
    if enumerated.feasible or not math.isclose(enumerated.availability, best, rel_tol=1e-12):
        raise AssertionError(f"{sizes}: {enumerated.availability} enumerated, {best} by the frontier")
    return Comparison(sizes, enumerated.plans_tried, enumeration_s, timed(lambda: whole_frontier(model), 5))


def frontier_of_a_million(sizes: Sequence[int]) -> tuple[int, float]:
    """Return how many points there are and how long the whole frontier takes."""
    model = model_of(sizes)
    points = int((whole_frontier(model).reached > -math.inf).sum())
    if points != sum(sizes) - len(sizes) + 1:
        raise AssertionError(f"{points} points")
    return points, timed(lambda: whole_frontier(model), 3)


def main() -> None:
    """Print both tables."""
    print("availability: the paper's enumeration against the exact frontier, same answers, one run")
    print(f"{'modules':>12} {'plans enumerated':>17} {'enumeration':>12} {'frontier':>10} {'ratio':>10}")
    for sizes in COMPARED:
        result = compare(sizes)
        name = f"[{sizes[0]}]×{len(sizes)}"
        print(
            f"{name:>12} {result.plans:>17,} {result.enumeration_s:>10.3f} s"
            f" {result.frontier_s * 1000:>7.2f} ms {result.ratio:>9,.0f}×"
        )
    print(f"\navailability: the whole frontier of about a million sub-modules, limit {MILLION_LIMIT_S:g} s")
    for name, sizes in MILLIONS.items():
        points, elapsed_s = frontier_of_a_million(sizes)
        verdict = "ok" if elapsed_s < MILLION_LIMIT_S else "OVER THE LIMIT"
        print(f"{name:>28} {points:>10,} points {elapsed_s:>7.2f} s  {verdict}")


if __name__ == "__main__":
    main()
