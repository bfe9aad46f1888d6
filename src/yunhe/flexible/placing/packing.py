"""First-fit packing under rules that are data: each host takes an instance only if every rule still holds.

A rule is one of four forms, and a host may be under any number of them at once:

* **weights** add up and stay under a limit: requests, percentiles, reservations of a tier, caps;
* **series** add up slot by slot, and may exceed the limit in so many slots and no more;
* **moments**: the mean plus so many standard deviations of the sum, correlation included;
* **spectra**: the probability of staying within the limit, from a product of Fourier transforms.

Whatever the rules say, an instance never goes to a host smaller than its request, and an empty host takes
any instance that is not: alone it cannot conflict with anybody. Where the limits say so, the same goes for a
host whose requests add up to no more than it has: a rule about use could only refuse what cannot overload.
Rules that are marked firm, such as memory that is never overcommitted, hold even then.

The loops are compiled; each has an obvious twin in the tests.
"""

from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numba
import numpy as np
import numpy.typing as npt

from yunhe.flexible.profiles.histogram import Grid
from yunhe.flexible.trace import Floats, Ints

MILLI = 1000
"""Series are held in thousandths as integers, so that adding and removing an instance is exact."""

Counts = npt.NDArray[np.int32]
Spectra = npt.NDArray[np.complex128]


def thousandths(series: npt.NDArray[np.floating[Any]]) -> Counts:
    """Return *series* in whole thousandths, rounded."""
    return np.rint(np.asarray(series, dtype=np.float64) * MILLI).astype(np.int32)


_UNIT_GRID = Grid(1.0, 2)


def _no_weights() -> Floats:
    return np.zeros((0, 0))


def _no_series() -> Counts:
    return np.zeros((0, 0, 0), dtype=np.int32)


def _no_spectra() -> Spectra:
    return np.zeros((0, 0, 0), dtype=np.complex128)


@dataclass(frozen=True, slots=True)
class Load:
    """What each instance adds to a host, in the forms the rules need; an empty array is no rule."""

    size: Floats  # dimensions × instances: the requests
    weights: Floats = field(default_factory=_no_weights)  # rules × instances
    firm: int = 0  # so many of the weights, the last ones, are about more than the use of the first dimension
    series: Counts = field(default_factory=_no_series)  # rules × instances × slots
    allowed: tuple[int, ...] = ()  # in how many slots each series may exceed its limit
    mean: Floats = field(default_factory=lambda: np.zeros(0))
    covariance: Floats = field(default_factory=_no_weights)
    sigmas: float = 0.0
    spectra: Spectra = field(default_factory=_no_spectra)  # instances × classes × frequencies
    shares: tuple[float, ...] = ()  # of time that each class has
    grid: Grid = _UNIT_GRID  # of the histograms behind the spectra
    within: float = 0.0  # probability with which the sum must stay within its limit


@dataclass(frozen=True, slots=True)
class Limits:
    """What each host allows; the hosts may differ."""

    capacity: Floats  # dimensions × hosts
    weights: Floats  # rules × hosts
    series: Floats  # rules × hosts
    moments: Floats  # hosts
    spectra: Floats  # hosts
    requests: Floats = field(default_factory=lambda: np.zeros(0))
    """What the requests in the first dimension may add up to on each host, whatever rules about use say; or none."""


def limits_at(limit: Floats, load: Load, capacity: Floats) -> Limits:
    """Return one *limit* per host for every rule of *load*; no host takes more than its *capacity*."""
    return Limits(
        capacity=np.broadcast_to(capacity, (load.size.shape[0], len(limit))),
        weights=np.broadcast_to(limit, (load.weights.shape[0], len(limit))),
        series=np.broadcast_to(limit, (load.series.shape[0], len(limit))),
        moments=limit,
        spectra=limit,
    )


def within_window(grid: Grid, limit: float) -> Spectra:
    """Return w such that ``Re Σ φ(f)·w(f)`` is the probability that the sum stays within *limit*."""
    inside = (np.arange(grid.bins) <= np.floor(limit / grid.step + 1e-9)).astype(np.float64)
    window = np.asarray(np.conj(np.fft.rfft(inside)) / grid.bins, dtype=np.complex128)
    window[1 : (grid.bins + 1) // 2] *= 2  # the half of the spectrum that rfft leaves out
    return window


class _Load(NamedTuple):
    size: Floats
    weights: Floats
    series: Counts
    mean: Floats
    covariance: Floats
    spectra: Spectra


class _Limits(NamedTuple):
    capacity: Floats
    weights: Floats
    series: Counts
    allowed: Ints
    sigmas: float
    moments: Floats
    windows: Spectra
    within: float
    firm: int
    requests: Floats


class _Hosts(NamedTuple):
    members: Ints
    size: Floats  # of the first dimension: no sum of usage exceeds the sum of requests
    weights: Floats  # hosts × rules
    series: Counts  # rules × hosts × slots
    mean: Floats
    variance: Floats
    cross: Floats  # hosts × instances: covariance of the host's sum with each instance
    spectra: Spectra


def first_fit(order: Ints, load: Load, limits: Limits) -> Ints:
    """Return the host of every instance, −1 where none of the hosts could take it.

    Instances come in *order*; each goes to the first host that keeps every rule. A limit is inclusive. Where
    requests may add up to something on every host, the packing by requests alone is made too and the denser of
    both returned: first fit by a rule that takes more can in the end need more hosts.
    """
    by_rule = _fitted(order, load, limits)
    if not len(limits.requests) or _as_dense_as_requests(by_rule, load.size[0], limits.requests):
        return by_rule
    rows = load.weights.shape[0] - load.firm
    requests = Load(
        load.size, weights=np.vstack([load.size[:1], load.weights.reshape(-1, load.size.shape[1])[rows:]])
    )
    bounds = np.vstack([limits.requests[None, :], limits.weights[rows:]])
    none = np.zeros((0, len(limits.requests)))
    by_request = _fitted(
        order, requests, Limits(limits.capacity, bounds, none, limits.moments, limits.spectra)
    )
    return max(by_rule, by_request, key=lambda placement: _density(placement, load.size[0]))


def _as_dense_as_requests(placement: Ints, size: Floats, requests: Floats) -> bool:
    """Return whether requests that add up to no more than *requests* on any host could not be packed denser."""
    placed = float(size[placement >= 0].sum())
    all_placed = placed >= min(float(size.sum()), float(requests.sum())) - 1e-6
    return all_placed and int(placement.max(initial=-1)) + 1 <= np.ceil(placed / requests.max() - 1e-6)


def _density(placement: Ints, size: Floats) -> tuple[float, int]:
    """Return what orders packings: how much of the first dimension found a place, then how few hosts it took."""
    return round(float(size[placement >= 0].sum()), 6), -int(placement.max(initial=-1))


def _fitted(order: Ints, load: Load, limits: Limits) -> Ints:
    slack = 1e-9
    hosts = limits.capacity.shape[1]
    flat = np.ascontiguousarray  # one memory layout: the loops are compiled once, not once for each layout
    bare_load = _Load(
        flat(load.size),
        flat(load.weights),
        flat(load.series),
        flat(load.mean),
        flat(load.covariance),
        flat(load.spectra),
    )
    bare_limits = _Limits(
        flat(limits.capacity * (1 + slack) + slack),
        flat(limits.weights * (1 + slack) + slack),
        flat(np.floor(limits.series * MILLI + 1e-6).astype(np.int32)),
        np.asarray(load.allowed, dtype=np.int64),
        float(load.sigmas),
        flat(limits.moments * (1 + slack) + slack),
        flat(_windows(load, limits.spectra)),
        float(load.within - slack),
        load.firm,
        flat(limits.requests * (1 + slack) + slack) if len(limits.requests) else np.full(hosts, -1.0),
    )
    return _first_fit(np.ascontiguousarray(order, dtype=np.int64), bare_load, bare_limits)


def _windows(load: Load, limit: Floats) -> Spectra:
    """Return the window of each host, or one for all where all limits are the same."""
    if not load.shares:
        return _no_spectra()
    shares = np.asarray(load.shares)[:, None]
    distinct = np.unique(limit)
    each = distinct if len(distinct) == 1 else limit
    return np.stack([shares * within_window(load.grid, float(one))[None, :] for one in each])


@numba.njit(cache=True)
def series_fit(host: Counts, extra: Counts, limit: int, allowed: int) -> bool:
    """Return whether the sum of both exceeds *limit* in at most *allowed* slots."""
    over = 0
    for first in range(0, host.shape[0], 64):
        last = min(first + 64, host.shape[0])
        in_block = 0
        for slot in range(first, last):
            in_block += host[slot] + extra[slot] > limit
        over += in_block
        if over > allowed:
            return False
    return True


@numba.njit(cache=True)
def _probability_within(host: Spectra, extra: Spectra, window: Spectra) -> float:
    total = 0.0
    for kind in range(host.shape[0]):
        for f in range(host.shape[1]):
            product = host[kind, f] * extra[kind, f]
            total += product.real * window[kind, f].real - product.imag * window[kind, f].imag
    return total


@numba.njit(cache=True)
def _keeps_every_rule(host: int, one: int, state: _Hosts, load: _Load, limits: _Limits) -> bool:
    for dimension in range(load.size.shape[0]):
        if load.size[dimension, one] > limits.capacity[dimension, host]:
            return False
    if state.members[host] == 0:
        return True
    rules = load.weights.shape[0]
    for rule in range(rules - limits.firm, rules):
        if state.weights[host, rule] + load.weights[rule, one] > limits.weights[rule, host]:
            return False
    if state.size[host] + load.size[0, one] <= limits.requests[host]:
        return True
    for rule in range(rules - limits.firm):
        if state.weights[host, rule] + load.weights[rule, one] > limits.weights[rule, host]:
            return False
    if load.mean.shape[0] > 0 and state.size[host] + load.size[0, one] > limits.moments[host]:
        mean = state.mean[host] + load.mean[one]
        variance = state.variance[host] + load.covariance[one, one] + 2 * state.cross[host, one]
        if mean + limits.sigmas * np.sqrt(max(variance, 0.0)) > limits.moments[host]:
            return False
    for rule in range(load.series.shape[0]):
        limit, allowed = limits.series[rule, host], limits.allowed[rule]
        if not series_fit(state.series[rule, host], load.series[rule, one], limit, allowed):
            return False
    if load.spectra.shape[0] > 0:
        window = limits.windows[min(host, limits.windows.shape[0] - 1)]
        if _probability_within(state.spectra[host], load.spectra[one], window) < limits.within:
            return False
    return True


@numba.njit(cache=True)
def _add(host: int, one: int, state: _Hosts, load: _Load) -> None:
    # plain loops: whole-row arithmetic compiles ten times as long for the same machine code
    state.members[host] += 1
    state.size[host] += load.size[0, one]
    for rule in range(load.weights.shape[0]):
        state.weights[host, rule] += load.weights[rule, one]
    for rule in range(load.series.shape[0]):
        for slot in range(load.series.shape[2]):
            state.series[rule, host, slot] += load.series[rule, one, slot]
    if load.mean.shape[0] > 0:
        state.mean[host] += load.mean[one]
        state.variance[host] += load.covariance[one, one] + 2 * state.cross[host, one]
        for other in range(load.mean.shape[0]):
            state.cross[host, other] += load.covariance[one, other]
    if load.spectra.shape[0] > 0:
        for kind in range(load.spectra.shape[1]):
            for f in range(load.spectra.shape[2]):
                state.spectra[host, kind, f] *= load.spectra[one, kind, f]


@numba.njit(cache=True)
def _first_fit(order: Ints, load: _Load, limits: _Limits) -> Ints:
    hosts = limits.capacity.shape[1]
    rules, _, slots = load.series.shape
    moments = hosts if load.mean.shape[0] > 0 else 0
    spectral = hosts if load.spectra.shape[0] > 0 else 0
    state = _Hosts(
        np.zeros(hosts, dtype=np.int64),
        np.zeros(hosts),
        np.zeros((hosts, load.weights.shape[0])),
        np.zeros((rules, hosts, slots), dtype=np.int32),
        np.zeros(moments),
        np.zeros(moments),
        np.zeros((moments, load.mean.shape[0])),
        np.ones((spectral, load.spectra.shape[1], load.spectra.shape[2]), dtype=np.complex128),
    )
    placed = np.full(load.size.shape[1], -1, dtype=np.int64)
    for one in order:
        for host in range(hosts):
            if _keeps_every_rule(host, one, state, load, limits):
                _add(host, one, state, load)
                placed[one] = host
                break
    return placed


def host_usage(placement: Ints, usage: Floats) -> Floats:
    """Return hosts × slots: what the instances on each host used together."""
    return _host_usage(placement, np.ascontiguousarray(usage), int(placement.max(initial=-1)) + 1)


@numba.njit(cache=True)
def _host_usage(placement: Ints, usage: Floats, hosts: int) -> Floats:
    total = np.zeros((hosts, usage.shape[1]))
    for one in range(len(placement)):
        if placement[one] >= 0:
            for slot in range(usage.shape[1]):
                total[placement[one], slot] += usage[one, slot]
    return total
