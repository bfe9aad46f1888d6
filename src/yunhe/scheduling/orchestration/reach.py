"""What it takes to reach each pool: ways for data and traffic, latency and distance, and who cannot be reached.

All of it is the same for two demands that differ in their amounts alone, so a cycle computes it once for many.
"""

from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from yunhe.kernel.places import Place
from yunhe.scheduling.orchestration.columns import PoolColumns
from yunhe.scheduling.orchestration.model import Demand, Route, Traffic, Transfer, TransferMode
from yunhe.scheduling.orchestration.routes import (
    MBIT_PER_MIB,
    MIB_PER_GIB,
    Delivery,
    Parcel,
    Router,
    Way,
    best_delivery,
    deliveries,
    parcel,
    shown_mode,
)
from yunhe.scheduling.orchestration.score import HOUR_S, Worth
from yunhe.scheduling.orchestration.score_kernels import Reach
from yunhe.scheduling.perception.snapshot import Snapshot

RTT_MS_PER_KM = 0.015
"""There and back in fibre, half as far again as the straight line."""


class Flow(NamedTuple):
    """The way that steady traffic would take to a pool."""

    traffic: Traffic
    way: Way


class Parts(NamedTuple):
    """What moves over the network if the demand goes to one pool."""

    deliveries: tuple[tuple[Parcel, Delivery, TransferMode], ...] = ()
    flows: tuple[Flow, ...] = ()


class Moves(NamedTuple):
    """What moves over the network if work goes to one pool, as people read it."""

    transfers: tuple[Transfer, ...]
    routes: tuple[Route, ...]
    links: tuple[tuple[tuple[int, ...], float], ...]
    """The bandwidth it reserves: links, and Mbit/s on each."""


class Refusal(NamedTuple):
    """A rule's no, before it is said of a certain pool."""

    rule: str
    detail: str
    miss: float = 0.0
    """How far from fitting, where that can be said."""


@dataclass(eq=False)
class Survey:
    """How each pool is reached: numbers for the score, and the ways behind them."""

    reach: Reach
    parts: list[Parts]
    refusals: dict[int, Refusal] = field(default_factory=dict[int, Refusal])
    estimated_latency: set[int] = field(default_factory=set[int])
    moves: dict[int, Moves] = field(default_factory=dict[int, Moves])
    """Pool → what moves if work goes there, as people read it, once asked for; see ``present``."""


def survey(demand: Demand, snapshot: Snapshot, columns: PoolColumns, router: Router, worth: Worth) -> Survey:
    """Return how each pool is reached by the data, traffic and users of *demand*."""
    pools = len(snapshot.pools)
    found = Survey(
        Reach(
            data_s=np.zeros(pools),
            data_cost=np.zeros(pools),
            flow_cost_per_hour=np.zeros(pools),
            latency_ms=np.full(pools, np.nan),
            distance_km=np.full(pools, np.nan) if demand.near is None else columns.distance_km(demand.near),
        ),
        [Parts()] * pools,
    )
    if demand.data:
        _survey_data(found, demand, snapshot, router, worth)
    if demand.near is not None:
        _survey_latency(found, demand.near, snapshot, router)
    if demand.traffic:
        _survey_traffic(found, demand, snapshot, router, worth)
    return found


def _survey_data(found: Survey, demand: Demand, snapshot: Snapshot, router: Router, worth: Worth) -> None:
    parcels = [parcel(need, snapshot, demand.residency) for need in demand.data]
    reach = found.reach
    for row in range(len(snapshot.pools)):
        target = int(snapshot.network.pool_site[row])
        chosen: list[tuple[Parcel, Delivery, TransferMode]] = []
        for one in parcels:
            ways = deliveries(one, router, target)
            best = best_delivery(ways, _mode(one.need.mode, worth.second), worth.second)
            if best is not None:
                chosen.append((one, best, shown_mode(best, ways)))
                reach.data_s[row] += best.seconds
                reach.data_cost[row] += best.cost
                continue
            refusal = _undeliverable(one)
            if refusal is not None:
                found.refusals.setdefault(row, refusal)
            reach.data_s[row] = reach.data_cost[row] = np.inf
        found.parts[row] = Parts(deliveries=tuple(chosen))
    for column in (reach.data_s, reach.data_cost):
        column[np.isinf(column)] = np.nan


def _mode(wanted: TransferMode, worth_of_second: float) -> TransferMode:
    if wanted is not TransferMode.AUTO or 0 < worth_of_second < np.inf:
        return wanted
    return TransferMode.FAST if worth_of_second else TransferMode.CHEAP


def _undeliverable(one: Parcel) -> Refusal | None:
    """Say why a dataset cannot come; None when it is only unknown how it would."""
    name = one.need.dataset
    if one.zones:
        zone = ", ".join(dict.fromkeys(part for zone in one.zones for part in zone))
        return Refusal("resident", f"dataset {name} may not leave {zone}, and no known route stays there")
    if one.need.rate_mbps is not None and one.sources:
        return Refusal("linked", f"no route for {name} has {one.need.rate_mbps:g} Mbit/s free")
    return None


def _survey_latency(found: Survey, near: Place, snapshot: Snapshot, router: Router) -> None:
    network, reach = snapshot.network, found.reach
    homes = [site for site, region in enumerate(network.regions) if region and region == near.region]
    for row in range(len(snapshot.pools)):
        target = int(network.pool_site[row])
        measured = [way.latency_ms for home in homes for way in router.ways(home).get(target, [])]
        best = min(measured, default=np.inf)
        if np.isfinite(best):
            reach.latency_ms[row] = best
        elif not np.isnan(reach.distance_km[row]):
            reach.latency_ms[row] = reach.distance_km[row] * RTT_MS_PER_KM
            found.estimated_latency.add(row)


def _survey_traffic(found: Survey, demand: Demand, snapshot: Snapshot, router: Router, worth: Worth) -> None:
    network, reach = snapshot.network, found.reach
    zones = (demand.residency,) if demand.residency else ()
    hours = 1.0 if demand.run_s is None else demand.run_s / HOUR_S
    for row in range(len(snapshot.pools)):
        flows: list[Flow] = []
        for traffic in demand.traffic:
            home, target = network.site(traffic.site), int(network.pool_site[row])
            ways = router.ways(home, zones, traffic.mbps).get(target, []) if home >= 0 else []
            gib_per_hour = traffic.mbps * HOUR_S / MBIT_PER_MIB / MIB_PER_GIB
            way = best_way(ways, traffic.max_latency_ms, gib_per_hour * hours, worth.ms)
            if way is None:
                found.refusals.setdefault(row, _unreachable(traffic, ways))
                continue
            flows.append(Flow(traffic, way))
            price = way.price_per_gib if np.isfinite(way.price_per_gib) else np.nan
            reach.flow_cost_per_hour[row] += gib_per_hour * price
            if np.isfinite(way.latency_ms):
                reach.latency_ms[row] = np.fmax(reach.latency_ms[row], way.latency_ms)
        found.parts[row] = Parts(found.parts[row].deliveries, tuple(flows))


def best_way(ways: list[Way], max_latency_ms: float | None, gib: float, worth_of_ms: float) -> Way | None:
    """Return the way for steady traffic of *gib* in all: within its bound, least in money and latency together."""

    def order(way: Way) -> tuple[float, float, tuple[int, ...]]:
        money = gib * way.price_per_gib if gib > 0 else 0.0
        if worth_of_ms == np.inf:
            return way.latency_ms, money, way.links
        return money + (worth_of_ms * way.latency_ms if worth_of_ms else 0.0), way.latency_ms, way.links

    able = [way for way in ways if max_latency_ms is None or way.latency_ms <= max_latency_ms]
    return min(able, key=order, default=None)


def _unreachable(traffic: Traffic, ways: list[Way]) -> Refusal:
    if not ways:
        return Refusal("linked", f"no route from {traffic.site} has {traffic.mbps:g} Mbit/s free")
    best = min(way.latency_ms for way in ways)
    shown = f"{best:.0f} ms" if np.isfinite(best) else "an unknown time"
    return Refusal("reachable", f"{shown} from {traffic.site}, {traffic.max_latency_ms:g} ms allowed")
