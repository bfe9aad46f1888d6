"""How often an instance uses how much: a histogram on a grid tied to the size of a host."""

from dataclasses import dataclass
from enum import StrEnum

import numpy as np

from yunhe.flexible.trace import Floats

PAPER_STEP_CORES = 0.5
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

    def updated(self, samples: Floats, elapsed_s: float, half_life_s: float) -> "Histogram":
        """Return the histogram after *samples*, seen *elapsed_s* after the last ones: the online update."""
        fresh = histogram(samples, self.grid)
        return self.decayed(elapsed_s, half_life_s).merged(fresh)


def histogram(samples: Floats, grid: Grid, binning: Binning = Binning.MEAN) -> Histogram:
    """Return the histogram of *samples*; NaN are gaps and do not count."""
    seen = samples[~np.isnan(samples)]
    if seen.size == 0:
        return Histogram(grid, np.zeros(grid.bins), 0.0)
    return Histogram(grid, mass_by_row(seen[None, :], grid, binning)[0], float(seen.size))


def mass_by_row(samples: Floats, grid: Grid, binning: Binning = Binning.MEAN) -> Floats:
    """Return rows × bins: the probability mass of each row of *samples*, which have no gaps."""
    rows, count = samples.shape
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
    cell = (below.astype(np.int64) + grid.bins * np.arange(rows)[:, None]).ravel()
    size = rows * grid.bins
    mass = np.bincount(cell, weights=1 - upper_share.ravel(), minlength=size)
    if binning is Binning.MEAN:
        mass += np.bincount(cell + 1, weights=upper_share.ravel(), minlength=size)[:size]
    return mass.reshape(rows, grid.bins) / count
