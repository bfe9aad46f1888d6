"""The published method as it is printed, and what others publish: to be compared with, not to place by."""

from collections.abc import Sequence

import numpy as np

from yunhe.flexible.history import History
from yunhe.flexible.overload.estimators import (
    EstimateRequest,
    Estimator,
    convolution,
    n_sigma,
    sum_of_percentiles,
)
from yunhe.flexible.placing.packing import Load
from yunhe.flexible.profiles.histogram import Binning, Grid, Histogram
from yunhe.flexible.replay import Window, place
from yunhe.flexible.trace import Floats, Ints

PAPER_STEP_CORES = 0.5
PAPER_THRESHOLD = 0.99


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


def larger_of_sigma_and_percentiles(sigmas: float = 5, percentile: float = 0.99) -> Estimator:
    """Return: the larger of N-sigma and the sum of percentiles, the published choice of a large operator."""
    moments, peaks = n_sigma(sigmas), sum_of_percentiles(percentile)

    def demand(group: History, question: EstimateRequest) -> float:
        return max(moments.demand(group, question), peaks.demand(group, question))

    def load(history: History, question: EstimateRequest) -> Load:
        first, second = moments.load(history, question), peaks.load(history, question)
        return Load(
            first.size, weights=second.weights, mean=first.mean, covariance=first.covariance, sigmas=sigmas
        )

    return Estimator(f"max({moments.name}, {peaks.name})", demand, load)


def as_printed() -> Estimator:
    """Return the convolution of the published listing: half-core bins, each sample at its lower edge."""
    return convolution(Binning.FLOOR, PAPER_STEP_CORES)


def place_by(window: Window, estimator: Estimator, question: EstimateRequest, margin: float = 1.0) -> Ints:
    """Return the placement in which *margin* times the estimated demand fits every host."""
    load = estimator.load(window.history, question)
    return place(window, load, question.capacity / margin, question.capacity)
