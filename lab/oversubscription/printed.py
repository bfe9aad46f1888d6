"""The published method and its readings, and what others publish: to be compared with, not to place by.

The published load of a host is the convolution of its instances' histograms. That is right only if instances are
independent, which real ones are not.
"""

from collections.abc import Sequence

import numpy as np

from yunhe.flexible.history import History
from yunhe.flexible.overload.estimators import (
    EstimateRequest,
    Estimator,
    n_sigma,
    sum_of_percentiles,
)
from yunhe.flexible.placing.packing import Load, Spectra
from yunhe.flexible.profiles.histogram import (
    Binning,
    Grid,
    Histogram,
    grid_for_host,
    histogram,
    weight_by_group,
)
from yunhe.flexible.replay import Window, place
from yunhe.flexible.trace import Floats, Ints, Singles

PAPER_STEP_CORES = 0.5
PAPER_THRESHOLD = 0.99
BY_HOUR_BINS = 128


def convolved(histograms: Sequence[Histogram]) -> Histogram:
    """Return the distribution of the sum by direct convolution; the grid grows to hold it all."""
    grid = histograms[0].grid
    mass = np.ones(1)
    for one in histograms:
        if one.grid.step != grid.step:
            raise ValueError(f"grids differ: {grid} and {one.grid}")
        mass = np.asarray(np.convolve(mass, np.trim_zeros(one.mass, "b")), dtype=np.float64)
    weight = min(one.weight for one in histograms)
    return Histogram(Grid(grid.step, len(mass)), mass, weight)


def convolution(
    binning: Binning = Binning.MEAN,
    step: float | None = None,
    *,
    by_hour: bool = False,
    level: float | None = None,
) -> Estimator:
    """Return the published method: histograms convolved as if instances were independent.

    Without *step* the grid is tied to the host. With *by_hour* the instances are independent only within
    an hour of the day, and the hours are mixed in the share they have in the profile.
    """

    def grid_of(question: EstimateRequest) -> Grid:
        if step is None:
            return grid_for_host(question.capacity, BY_HOUR_BINS if by_hour else 512)
        return Grid(step, 2 * int(np.ceil(question.capacity / step)))

    def within(question: EstimateRequest) -> float:
        return 1 - question.stated if level is None else level

    def demand(group: History, question: EstimateRequest) -> float:
        grid = grid_of(question)
        parts: list[tuple[float, Histogram]] = []
        for slots in _classes(group, by_hour=by_hour):
            rows = group.series[:, slots].astype(np.float64)
            parts.append((len(slots) / group.slots, convolved([histogram(r, grid, binning) for r in rows])))
        return _mixture(parts).quantile(within(question))

    def load(history: History, question: EstimateRequest) -> Load:
        grid, classes = grid_of(question), _classes(history, by_hour=by_hour)
        spectra = np.stack([spectra_of(history.series[:, slots], grid, binning) for slots in classes], axis=1)
        return Load(
            history.request[None, :],
            spectra=np.ascontiguousarray(spectra),
            shares=tuple(len(slots) / history.slots for slots in classes),
            grid=grid,
            within=within(question),
        )

    kind = "convolution by hour" if by_hour else "convolution"
    return Estimator(f"{kind} {'fine' if step is None else f'{step:g}'} {binning}", demand, load)


def spectra_of(series: Singles, grid: Grid, binning: Binning) -> Spectra:
    """Return the Fourier transform of each row's histogram: rows × frequencies."""
    return np.asarray(np.fft.rfft(mass_by_row(series.astype(np.float64), grid, binning)), dtype=np.complex128)


def mass_by_row(samples: Floats, grid: Grid, binning: Binning = Binning.MEAN) -> Floats:
    """Return rows × bins: the probability mass of each row of *samples*, which have no gaps."""
    rows, count = samples.shape
    return weight_by_group(samples, grid, np.arange(rows)[:, None], rows, binning) / count


def _classes(history: History, *, by_hour: bool) -> list[Ints]:
    if not by_hour:
        return [np.arange(history.slots)]
    hours = history.hours % 24
    return [np.flatnonzero(hours == hour) for hour in np.unique(hours)]


def _mixture(parts: list[tuple[float, Histogram]]) -> Histogram:
    mass = np.zeros(max(len(part.mass) for _, part in parts))
    for share, part in parts:
        mass[: len(part.mass)] += share * part.mass
    return Histogram(Grid(parts[0][1].grid.step, len(mass)), mass, sum(part.weight for _, part in parts))


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
