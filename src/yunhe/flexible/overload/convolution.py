"""The published method: the load of a host as the convolution of its instances' histograms.

Right only if instances are independent, which real ones are not; it is kept as the reference, as one
estimator among several, and for instances whose histories do not overlap.
"""

from collections.abc import Sequence

import numpy as np

from yunhe.flexible.profiles.histogram import Grid, Histogram


def convolved(histograms: Sequence[Histogram]) -> Histogram:
    """Return the distribution of the sum by direct convolution; the grid grows to hold it all."""
    grid = histograms[0].grid
    mass = np.ones(1)
    for one in histograms:
        if one.grid.step != grid.step:
            raise ValueError(f"grids differ: {grid} and {one.grid}")
        mass = np.convolve(mass, np.trim_zeros(one.mass, "b"))
    weight = min(one.weight for one in histograms)
    return Histogram(Grid(grid.step, len(mass)), mass, weight)
