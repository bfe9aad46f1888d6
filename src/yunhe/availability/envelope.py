"""Concave envelopes: the least concave function above given points."""

from collections.abc import Callable

import numpy as np

from yunhe.availability.outage import FloatArray, IntArray

GRID = 4096


def is_concave(values: FloatArray) -> bool:
    """Whether the increments of these values never grow, rounding aside."""
    steps = np.diff(values)
    rounding = 1e-12 * np.abs(steps[:-1]) + 1e-15 * np.abs(values).max(initial=0.0)
    return bool(np.all(np.diff(steps) <= rounding))


def hull_vertices(x: FloatArray, y: FloatArray) -> IntArray:
    """Return the positions of the points on the upper concave hull, from left to right."""
    hull: list[int] = []
    for index in range(len(x)):
        while len(hull) >= 2:
            a, b = hull[-2], hull[-1]
            if (y[b] - y[a]) * (x[index] - x[a]) > (y[index] - y[a]) * (x[b] - x[a]):
                break
            hull.pop()
        hull.append(index)
    return np.array(hull, dtype=np.int64)


def hull_at(decreasing: Callable[[FloatArray], FloatArray], upto: float, points: FloatArray) -> FloatArray:
    """Return values, at *points* in [0, upto], of a concave function that lies above a decreasing one.

    Every cell of a grid takes the value at its left end, so that nothing between the grid points is missed.
    """
    grid = np.linspace(0.0, upto, GRID + 1)
    values = decreasing(np.concatenate(([0.0], grid[:-1])))
    vertices = hull_vertices(grid, values)
    return np.interp(points, grid[vertices], values[vertices])
