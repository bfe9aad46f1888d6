"""How much a host needs for the instances on it: every method behind one interface.

Each estimator says it twice. ``demand`` is the definition: cores for one group of instances, to be exceeded
with the stated probability. ``load`` says the same to the packer in a form it can test quickly; the tests
hold the two together.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from yunhe.flexible.history import History
from yunhe.flexible.placing.packing import MILLI, Load, thousandths
from yunhe.flexible.trace import Floats


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


def _size(history: History) -> Floats:
    return history.request[None, :]
