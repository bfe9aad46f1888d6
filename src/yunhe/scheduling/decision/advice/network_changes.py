"""Changes of what moves over the network: less bandwidth, more latency, more regions to pass through, or nothing at all."""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import islice, product

import msgspec
import numpy as np

from yunhe.scheduling.decision.advice.changes import (
    AS_IT_IS,
    Change,
    PoolAttempt,
    Recipe,
    allow_regions,
    changing,
)
from yunhe.scheduling.decision.model import DataNeed, Demand, Traffic
from yunhe.scheduling.decision.network.moving import DataMove, NetworkLoad, TrafficFlow
from yunhe.scheduling.decision.network.routes import RouteOption
from yunhe.scheduling.decision.score.terms import worth_of

MOST_COMBINED = 8
LEFT_OUT = "left out"
LARGE = 100.0
"""How large a change it is to do without data or traffic: the last thing to propose."""


def move_changes(here: PoolAttempt) -> list[Recipe]:
    """Return what would let everything come to the pool: one recipe for each way to fix it."""
    demand, cycle = here.demand, here.cycle
    if here.pool not in here.option.survey.refusals:
        return [AS_IT_IS]
    worth = worth_of(demand.policy, demand.weights)
    moves = NetworkLoad(demand, cycle.snapshot, cycle.router, worth).moves_to(here.pool)
    stuck = [move for move in moves if not move.choices() and move.refusal() is not None]
    if not stuck:
        return [(change,) for change in _less_together(here, moves)]
    mends = [list(_haul(here, move) if isinstance(move, DataMove) else _stream(here, move)) for move in stuck]
    return list(islice(product(*mends), MOST_COMBINED))


def _haul(here: PoolAttempt, haul: DataMove) -> Iterator[Change]:
    need, rate = haul.parcel.need, haul.parcel.need.rate_mbps
    ways = _ways(here, haul.parcel.sources, haul.parcel.zones)
    if rate is not None:
        if ways:
            yield from _slower(need, max(way.mbps for way in ways))
        yield _unreserved(need)
    if not ways and here.demand.residency:
        others = tuple([zone for zone in haul.parcel.zones if zone != here.demand.residency])
        yield from _through(here, _ways(here, haul.parcel.sources, others))
    yield _left_out("data", need.dataset, f"dataset {need.dataset}")


def _stream(here: PoolAttempt, stream: TrafficFlow) -> Iterator[Change]:
    traffic, home = stream.traffic, here.cycle.snapshot.network.site(stream.traffic.site)
    zones = (here.demand.residency,) if here.demand.residency else ()
    sources = (home,) if home >= 0 else ()
    ways = _ways(here, sources, zones, traffic.mbps)
    if ways:
        yield _later(traffic, min(way.latency_ms for way in ways))
    narrower = _ways(here, sources, zones)
    soon = np.inf if traffic.max_latency_ms is None else traffic.max_latency_ms
    fast = [way for way in narrower if way.latency_ms <= soon] or narrower
    if fast:
        yield from _thinner(traffic, max(way.mbps for way in fast))
    if not narrower and zones:
        yield from _through(here, _ways(here, sources, ()))
    yield _left_out("traffic", traffic.site, f"traffic with {traffic.site}")


def _less_together(here: PoolAttempt, moves: Sequence[DataMove | TrafficFlow]) -> Iterator[Change]:
    """Yield less bandwidth for one of several that find no room together."""
    asked = sum(_mbps(move) for move in moves)
    widest = float(np.nanmax(here.cycle.router.useful_mbps, initial=0.0))
    for move in moves:
        left = min(widest - (asked - _mbps(move)), _mbps(move) * 0.99)
        if isinstance(move, TrafficFlow):
            yield from _thinner(move.traffic, left)
            yield from _thinner(move.traffic, _mbps(move) / 2)
        elif move.parcel.need.rate_mbps is not None:
            yield from _slower(move.parcel.need, left)
            yield _unreserved(move.parcel.need)


def _mbps(move: DataMove | TrafficFlow) -> float:
    return move.traffic.mbps if isinstance(move, TrafficFlow) else move.parcel.need.rate_mbps or 0.0


def _ways(
    here: PoolAttempt, sources: Sequence[int], zones: tuple[tuple[str, ...], ...], mbps: float = 0.0
) -> list[RouteOption]:
    target = int(here.cycle.snapshot.network.pool_site[here.pool])
    return [way for source in sources for way in here.cycle.router.ways(source, zones, mbps).get(target, [])]


def _through(here: PoolAttempt, ways: Sequence[RouteOption]) -> Iterator[Change]:
    """Yield the fewest regions to allow so that there is a way."""
    network, zone = here.cycle.snapshot.network, here.demand.residency
    passed = [{network.regions[site] for site in way.sites} for way in ways]
    new = [sorted(region for region in regions if not _inside(region, zone)) for regions in passed]
    if new:
        yield allow_regions(here.demand, min(new, key=lambda regions: ("" in regions, len(regions), regions)))


def _inside(region: str, zone: Sequence[str]) -> bool:
    return any(region == part or region.startswith(f"{part}-") for part in zone)


# --- the single changes


def _sayable(mbps: float) -> float:
    """Return a bandwidth that is not more, and is what it looks like when it is shown."""
    return float(math.floor(mbps)) if 1 <= mbps < 1e6 else math.floor(mbps * 100) / 100 if mbps < 1 else 0.0


def _left_out(field: str, name: str, shown: str) -> Change:
    return Change(f"{LEFT_OUT} {name}", LARGE, f"do without {shown}", _moving(field, name, None))


def _slower(need: DataNeed, mbps: float) -> Iterator[Change]:
    rate, less = need.rate_mbps, _sayable(mbps)
    if rate is not None and 0 < less < rate:
        words = f"bring {need.dataset} with {less:g} Mbit/s"
        slow = _moving("data", need.dataset, {"rate_mbps": less})
        yield Change(f"rate of {need.dataset}", 1 - less / rate, words, slow)


def _unreserved(need: DataNeed) -> Change:
    """Bring it with what is left on the links, as it comes."""
    words = f"reserve no bandwidth for {need.dataset}"
    unreserved = _moving("data", need.dataset, {"rate_mbps": None})
    return Change(f"rate of {need.dataset}", 1.0, words, unreserved)


def _thinner(traffic: Traffic, mbps: float) -> Iterator[Change]:
    less = _sayable(mbps)
    if 0 < less < traffic.mbps:
        words = f"ask for {less:g} Mbit/s with {traffic.site}"
        thin = _moving("traffic", traffic.site, {"mbps": less})
        yield Change(f"traffic with {traffic.site}", 1 - less / traffic.mbps, words, thin)


def _later(traffic: Traffic, latency_ms: float) -> Change:
    name, limit = f"latency of {traffic.site}", traffic.max_latency_ms or 1.0
    if not np.isfinite(latency_ms):
        lifted = _moving("traffic", traffic.site, {"max_latency_ms": None})
        return Change(name, 1.5, f"allow any latency to {traffic.site}", lifted)
    ceiling = math.ceil(latency_ms - 1e-9)
    later = _moving("traffic", traffic.site, {"max_latency_ms": float(ceiling)})
    return Change(name, latency_ms / limit - 1, f"allow {ceiling} ms to {traffic.site}", later)


def _moving(field: str, name: str, new: Mapping[str, object] | None) -> Callable[[Demand], Demand]:
    """Return what moves a dataset or the traffic with a site differently, or not at all."""
    key = "dataset" if field == "data" else "site"

    def apply(demand: Demand) -> Demand:
        kept: list[object] = []
        for one in getattr(demand, field):
            if getattr(one, key) != name:
                kept.append(one)
            elif new is not None:
                kept.append(msgspec.structs.replace(one, **new))
        return changing(**{field: tuple(kept)})(demand)

    return apply
