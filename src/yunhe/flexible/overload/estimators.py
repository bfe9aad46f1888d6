"""How much a host needs for the instances on it: every method behind one interface.

Each estimator says it twice. ``demand`` is the definition: cores for one group of instances, to be exceeded
with the stated probability. ``load`` says the same to the packer in a form it can test quickly; the tests
hold the two together.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from yunhe.flexible.history import History
from yunhe.flexible.overload.convolution import convolved
from yunhe.flexible.placing.packing import MILLI, Load, Spectra, thousandths
from yunhe.flexible.profiles.histogram import (
    Binning,
    Grid,
    Histogram,
    grid_for_host,
    histogram,
    mass_by_row,
)
from yunhe.flexible.trace import Floats, Ints, Singles

BY_HOUR_BINS = 128


@dataclass(frozen=True, slots=True)
class EstimateRequest:
    """What is asked of an estimator: the stated probability of overload on a host of some capacity."""

    stated: float
    capacity: float


@dataclass(frozen=True, slots=True)
class Estimator:
    """A rule for how much a host needs."""

    name: str
    demand: Callable[[History, EstimateRequest], float]
    """Cores that the group exceeds with the stated probability."""
    load: Callable[[History, EstimateRequest], Load]
    """What each instance adds to a host: the same rule, as the packer tests it."""


def fixed_ratio(ratio: float) -> Estimator:
    """Return: so many requested cores for each real one, whatever they do. What most clouds sell."""

    def demand(group: History, _: EstimateRequest) -> float:
        return float(group.request.sum()) / ratio

    def load(history: History, _: EstimateRequest) -> Load:
        return Load(_size(history), weights=_size(history) / ratio)

    return Estimator(f"fixed {ratio:g}x", demand, load)


def sum_of_percentiles(percentile: float) -> Estimator:
    """Return: each instance at its own percentile, added up as if all peaked together (RC-like)."""

    def each(history: History) -> Floats:
        ordered = np.sort(thousandths(history.series), axis=1)
        return ordered[:, -1 - allowed_slots(history.slots, percentile)] / MILLI

    def demand(group: History, _: EstimateRequest) -> float:
        return float(each(group).sum())

    def load(history: History, _: EstimateRequest) -> Load:
        return Load(_size(history), weights=each(history)[None, :])

    return Estimator(f"sum of p{100 * percentile:g}", demand, load)


def aligned(level: float | None = None) -> Estimator:
    """Return: a quantile of what the group used together, slot by slot; by default ``1 - stated``.

    Whatever makes instances peak together is in the data, so nothing is assumed about independence.
    """

    def allowed(history: History, question: EstimateRequest) -> int:
        return allowed_slots(history.slots, 1 - question.stated if level is None else level)

    def demand(group: History, question: EstimateRequest) -> float:
        together = np.sort(thousandths(group.series).sum(axis=0))
        return float(together[-1 - allowed(group, question)]) / MILLI

    def load(history: History, question: EstimateRequest) -> Load:
        series = thousandths(history.series)[None, :, :]
        return Load(_size(history), series=series, allowed=(allowed(history, question),))

    suffix = "" if level is None else " max" if level >= 1 else f" p{100 * level:g}"
    return Estimator(f"aligned{suffix}", demand, load)


def n_sigma(sigmas: float) -> Estimator:
    """Return: the mean of the group's sum plus so many standard deviations, at most what was requested."""

    def demand(group: History, _: EstimateRequest) -> float:
        together = group.series.sum(axis=0, dtype=np.float64)
        return float(min(together.mean() + sigmas * together.std(), group.request.sum()))

    def load(history: History, _: EstimateRequest) -> Load:
        series = history.series.astype(np.float64)
        mean = series.mean(axis=1)
        centred = series - mean[:, None]
        covariance = centred @ centred.T / history.slots
        return Load(_size(history), mean=mean, covariance=covariance, sigmas=sigmas)

    return Estimator(f"{sigmas:g}-sigma", demand, load)


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
            _size(history),
            spectra=np.ascontiguousarray(spectra),
            shares=tuple(len(slots) / history.slots for slots in classes),
            grid=grid,
            within=within(question),
        )

    kind = "convolution by hour" if by_hour else "convolution"
    return Estimator(f"{kind} {'fine' if step is None else f'{step:g}'} {binning}", demand, load)


def recent(of: Estimator, span_s: int) -> Estimator:
    """Return another estimator shown only the last *span_s* of the profile: quick to follow a change."""

    def demand(group: History, question: EstimateRequest) -> float:
        return of.demand(group.latest(span_s), question)

    def load(history: History, question: EstimateRequest) -> Load:
        return of.load(history.latest(span_s), question)

    return Estimator(f"{of.name}, last {span_s / 3600:g} h", demand, load)


def allowed_slots(slots: int, level: float) -> int:
    """Return in how many of *slots* the sum may lie above its quantile at *level*."""
    return min(slots - 1, int(np.floor((1 - level) * slots + 1e-9)))


def spectra_of(series: Singles, grid: Grid, binning: Binning) -> Spectra:
    """Return the Fourier transform of each row's histogram: rows × frequencies."""
    return np.asarray(np.fft.rfft(mass_by_row(series.astype(np.float64), grid, binning)), dtype=np.complex128)


def _size(history: History) -> Floats:
    return history.request[None, :]


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
