"""The published method: the load of a host as the convolution of its instances' histograms.

Right only if instances are independent, which real ones are not; it is kept as the reference, as one
estimator among several, and for instances whose histories do not overlap.
"""

from collections.abc import Sequence

import numpy as np

from yunhe.flexible.profiles.histogram import Grid, Histogram
from yunhe.flexible.trace import Floats

PAPER_THRESHOLD = 0.99


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


def convolved_by_transform(histograms: Sequence[Histogram]) -> Histogram:
    """Return the same distribution as a product of Fourier transforms."""
    grid = histograms[0].grid
    length = sum(len(np.trim_zeros(one.mass, "b")) - 1 for one in histograms) + 1
    spectrum = np.ones(length // 2 + 1, dtype=np.complex128)
    for one in histograms:
        spectrum *= np.fft.rfft(one.mass[:length], length)
    mass: Floats = np.maximum(np.fft.irfft(spectrum, length), 0.0)
    return Histogram(Grid(grid.step, length), mass, min(one.weight for one in histograms))


def estimate_as_printed(host: Histogram, threshold: float = PAPER_THRESHOLD) -> float:
    """Return what the published listing returns: the lower edge of the bin that crosses *threshold*."""
    cores = 0.0
    for reached in np.cumsum(host.mass):
        if reached > threshold:
            break
        cores += host.grid.step
    return cores


def estimate(host: Histogram, threshold: float = PAPER_THRESHOLD) -> float:
    """Return the smallest amount that is exceeded with probability at most ``1 - threshold``.

    Each bin counts at the point it stands for, so with samples binned upwards (``ceil``) the true
    probability of exceeding the answer is never more than stated.
    """
    return host.quantile(threshold)
