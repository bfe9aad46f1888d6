"""How often an instance uses how much: a histogram on a grid tied to the size of a host."""

from dataclasses import dataclass
from enum import StrEnum

import numpy as np

from yunhe.flexible.trace import Floats, Ints

DEFAULT_BINS = 512


class Binning(StrEnum):
    """Where a sample between two grid points goes. The choice moves the answer more than anything else.

    ``mean`` splits the sample over both neighbours so that the mean is kept exactly; ``ceil`` never
    understates; ``floor`` is the published listing read literally and loses half a step per instance.
    """

    FLOOR = "floor"
    ROUND = "round"
    CEIL = "ceil"
    MEAN = "mean"


@dataclass(frozen=True, slots=True)
class Grid:
    """Points ``0, step, 2·step, …``; anything above the last point counts at the last point."""

    step: float
    bins: int

    @property
    def top(self) -> float:
        """Return the largest amount the grid can tell apart."""
        return self.step * (self.bins - 1)


def grid_for_host(capacity: float, bins: int = DEFAULT_BINS) -> Grid:
    """Return a grid of *bins* points whose upper half lies beyond *capacity*.

    Twice the capacity, so that a sum that overflows the host still has a place of its own: a
    transform of this length wraps round only what exceeds the host twofold.
    """
    return Grid(step=2 * capacity / bins, bins=bins)


@dataclass(frozen=True, slots=True)
class Histogram:
    """Probability mass on a grid, and the weight of the samples it came from."""

    grid: Grid
    mass: Floats
    weight: float

    @property
    def points(self) -> Floats:
        """Return the amount each bin stands for."""
        return self.grid.step * np.arange(len(self.mass), dtype=np.float64)

    @property
    def mean(self) -> float:
        """Return the mean amount."""
        return float(self.mass @ self.points)

    def quantile(self, q: float) -> float:
        """Return the smallest grid point that at least *q* of the mass does not exceed."""
        reached = np.cumsum(self.mass) >= q - 1e-12
        return float(self.grid.step * np.argmax(reached)) if reached.any() else self.grid.top

    def probability_above(self, amount: float) -> float:
        """Return the mass strictly above *amount*."""
        last_within = int(np.floor(amount / self.grid.step + 1e-9))
        return float(self.mass[max(0, last_within + 1) :].sum())

    def merged(self, other: "Histogram") -> "Histogram":
        """Return the histogram of both sets of samples; both must be on the same grid."""
        if other.grid != self.grid:
            raise ValueError(f"grids differ: {self.grid} and {other.grid}")
        weight = self.weight + other.weight
        if weight == 0:
            return self
        mass = (self.mass * self.weight + other.mass * other.weight) / weight
        return Histogram(self.grid, mass, weight)

    def decayed(self, elapsed_s: float, half_life_s: float) -> "Histogram":
        """Return the same shape with the weight of its samples halved every *half_life_s*."""
        return Histogram(self.grid, self.mass, self.weight * 0.5 ** (elapsed_s / half_life_s))


def histogram(
    samples: Floats, grid: Grid, binning: Binning = Binning.MEAN, weights: Floats | None = None
) -> Histogram:
    """Return the histogram of *samples*, each counting once or by its weight; NaN are gaps and do not count."""
    seen = ~np.isnan(samples)
    counting = np.ones(len(samples)) if weights is None else weights
    weight = float(counting[seen].sum())
    if weight == 0:
        return Histogram(grid, np.zeros(grid.bins), 0.0)
    group = np.zeros(int(seen.sum()), dtype=np.int64)
    mass = weight_by_group(samples[seen], grid, group, 1, binning, counting[seen])[0]
    return Histogram(grid, mass / weight, weight)


def weight_by_group(
    samples: Floats,
    grid: Grid,
    group: Ints,
    groups: int,
    binning: Binning = Binning.MEAN,
    weights: Floats | None = None,
) -> Floats:
    """Return groups × bins: what the samples of each group weigh; without *weights* each weighs one."""
    place = np.clip(samples / grid.step, 0, grid.bins - 1)
    match binning:
        case Binning.FLOOR:
            below, upper_share = np.floor(place + 1e-9), np.zeros_like(place)
        case Binning.ROUND:
            below, upper_share = np.rint(place), np.zeros_like(place)
        case Binning.CEIL:
            below, upper_share = np.ceil(place - 1e-9), np.zeros_like(place)
        case Binning.MEAN:
            below = np.minimum(np.floor(place), grid.bins - 2)
            upper_share = place - below
    lower, upper = 1 - upper_share, upper_share
    if weights is not None:
        lower, upper = lower * weights, upper * weights
    cell = (below.astype(np.int64) + grid.bins * group).ravel()
    size = groups * grid.bins
    weighed = np.bincount(cell, weights=lower.ravel(), minlength=size)
    if binning is Binning.MEAN:
        weighed += np.bincount(cell + 1, weights=upper.ravel(), minlength=size)[:size]
    return np.asarray(weighed, dtype=np.float64).reshape(groups, grid.bins)
