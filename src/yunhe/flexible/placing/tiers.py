"""Service tiers: what each reserves, who may overload a host and how often, who leaves first."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from yunhe.flexible.history import History
from yunhe.flexible.placing.packing import Limits, Load, first_fit, thousandths
from yunhe.flexible.trace import Dimension, Floats, Ints, Singles
from yunhe.kernel.money import Tier

BEST_TO_WORST = (Tier.HIGH, Tier.MEDIUM, Tier.LOW)


@dataclass(frozen=True, slots=True)
class Promise:
    """What a tier is sold as."""

    reserves: str
    degradation_below: float
    overload: float
    """How often the host may be short for this tier and those above it together."""


PROMISES: Mapping[Tier, Promise] = {
    Tier.HIGH: Promise("95th percentile", degradation_below=0.05, overload=0.001),
    Tier.MEDIUM: Promise("mean", degradation_below=0.20, overload=0.01),
    Tier.LOW: Promise("minimum", degradation_below=0.50, overload=0.05),
}


def reservation(series: Singles, tier: Tier) -> Floats:
    """Return what each row of *series* has reserved for it in *tier*."""
    match tier:
        case Tier.HIGH:
            return np.quantile(series.astype(np.float64), 0.95, axis=1)
        case Tier.MEDIUM:
            return series.mean(axis=1, dtype=np.float64)
        case Tier.LOW:
            return series.min(axis=1).astype(np.float64)


@dataclass(frozen=True, slots=True)
class HostPark:
    """The hosts of a pool: capacity in each dimension and how fast a core of each host is.

    ``speed`` puts generations on one scale: a host of 32 cores at speed 1.25 serves as much as one of 40
    cores at speed 1. Instances are sized in cores of speed 1.
    """

    capacity: Mapping[Dimension, Floats]
    speed: Floats

    def normalised(self, dimension: Dimension) -> Floats:
        """Return what each host has in units of the reference generation."""
        capacity = self.capacity[dimension]
        return capacity * self.speed if dimension is Dimension.CPU else capacity


@dataclass(frozen=True, slots=True)
class TieredRules:
    """What a tiered packing keeps to."""

    overcommit_cap: float = np.inf
    """Requested CPU for each real core, at most."""
    overcommitted: frozenset[Dimension] = frozenset({Dimension.CPU})
    """Dimensions in which more may be requested than there is; elsewhere requests must fit."""
    margin: float = 1.0


def place_tiered(
    histories: Mapping[Dimension, History],
    tiers: Sequence[Tier],
    park: HostPark,
    order: Ints,
    rules: TieredRules | None = None,
) -> Ints:
    """Return the host of each instance, −1 where none could take it.

    On every host and in every overcommitted dimension: the reservations of all tiers fit; the high tier
    alone overloads the host no more than it was promised, high and medium together no more than medium
    was, and all together no more than low was. Elsewhere the requests fit.
    """
    rules = rules or TieredRules()
    dimensions = [one for one in histories if one in park.capacity]
    hosts = len(park.speed)
    weights: list[Floats] = [histories[Dimension.CPU].request / rules.overcommit_cap]
    limits: list[Floats] = [park.normalised(Dimension.CPU)]
    for dimension in dimensions:
        history = histories[dimension]
        free = dimension in rules.overcommitted
        weights.append(_reserved(history, tiers) if free else history.request)
        limits.append(park.normalised(dimension))
    shared = [one for one in dimensions if one in rules.overcommitted]
    series, allowed = _nested(histories, shared, tiers)
    load = Load(
        size=np.array([histories[one].request for one in dimensions]),
        weights=np.array(weights),
        series=series,
        allowed=allowed,
    )
    per_series = [park.normalised(one) / rules.margin for one in shared for _ in BEST_TO_WORST]
    return first_fit(
        order,
        load,
        Limits(
            capacity=np.array([park.normalised(one) for one in dimensions]),
            weights=np.array(limits),
            series=np.array(per_series).reshape(-1, hosts),
            moments=np.zeros(hosts),
            spectra=np.zeros(hosts),
        ),
    )


def _reserved(history: History, tiers: Sequence[Tier]) -> Floats:
    reserved = np.zeros(len(tiers))
    for tier in BEST_TO_WORST:
        rows = np.array([one is tier for one in tiers])
        if rows.any():
            reserved[rows] = reservation(history.series[rows], tier)
    return reserved


def _nested(
    histories: Mapping[Dimension, History], dimensions: Sequence[Dimension], tiers: Sequence[Tier]
) -> tuple["np.ndarray[tuple[int, ...], np.dtype[np.int32]]", tuple[int, ...]]:
    """Return one series rule for each dimension and tier: that tier and the better ones, others at zero."""
    rank = np.array([BEST_TO_WORST.index(tier) for tier in tiers])
    series: list[np.ndarray[tuple[int, ...], np.dtype[np.int32]]] = []
    allowed: list[int] = []
    for dimension in dimensions:
        history = histories[dimension]
        whole = thousandths(history.series)
        for worst, tier in enumerate(BEST_TO_WORST):
            series.append(np.where((rank <= worst)[:, None], whole, 0).astype(np.int32))
            allowed.append(int(np.floor(PROMISES[tier].overload * history.slots + 1e-9)))
    if not series:
        return np.zeros((0, 0, 0), dtype=np.int32), ()
    return np.stack(series), tuple(allowed)


@dataclass(frozen=True, slots=True)
class Tenant:
    """An instance on a crowded host: its tier and what it uses now."""

    name: str
    tier: Tier
    usage: float


def eviction_order(tenants: Sequence[Tenant]) -> tuple[Tenant, ...]:
    """Return who leaves first: low, then medium, then high; within a tier the largest user first."""
    return tuple(sorted(tenants, key=lambda one: (-BEST_TO_WORST.index(one.tier), -one.usage, one.name)))


def victims(tenants: Sequence[Tenant], excess: float) -> tuple[Tenant, ...]:
    """Return the fewest tenants of the lowest tiers whose leaving frees *excess*.

    A tier is touched only when the tiers below it are gone. Within a tier the smallest tenant that frees
    enough by itself leaves, so that one move cures it and nobody leaves for nothing.
    """
    chosen: list[Tenant] = []
    for tier in reversed(BEST_TO_WORST):
        left = sorted((one for one in tenants if one.tier is tier), key=lambda one: (one.usage, one.name))
        while left and excess > 0:
            enough = [one for one in left if one.usage >= excess]
            leaving = enough[0] if enough else left[-1]
            left.remove(leaving)
            chosen.append(leaving)
            excess -= leaving.usage
    return tuple(chosen)
