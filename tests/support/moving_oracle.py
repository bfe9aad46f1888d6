"""A slow second opinion on what moves over the network: every combination of every simple path."""

import math
from collections.abc import Callable, Iterator
from typing import NamedTuple

from yunhe.scheduling.decision.model import DataNeed, Demand, Policy, Traffic
from yunhe.scheduling.perception.snapshot import Snapshot

GIB_MBIT = 8589.934592
SECOND, MS = 1 / 3600, 0.001
OVER = 1e12


class Leg(NamedTuple):
    """One path for one thing that moves; infinite where unknown."""

    links: list[int]
    seconds: float
    money: float
    latency_ms: float
    mbps: float
    liked: tuple[float, float]
    """What the policy goes by, least first."""
    flows: bool


class Moved(NamedTuple):
    """What bringing everything to a pool takes in all; None where unknown."""

    data_s: float | None
    data_cost: float | None
    latency_ms: float | None


class Listed(NamedTuple):
    """The paths of each thing that moves, whether any is without a known one, and whether that forbids the pool."""

    legs: list[list[Leg]]
    unknown: bool
    never: bool


def zone_holds(region: str, zone: tuple[str, ...]) -> bool:
    return not zone or any(region == part or region.startswith(part + "-") for part in zone)


def simple_paths(snapshot: Snapshot, source: int, target: int) -> Iterator[tuple[list[int], list[int]]]:
    """Every way without loops, as (sites, links); a site passed through must relay."""
    network = snapshot.network

    def walk(sites: list[int], links: list[int]) -> Iterator[tuple[list[int], list[int]]]:
        here = sites[-1]
        if here == target:
            yield sites, links
            return
        if here != source and not network.relays[here]:
            return
        for arc in range(int(network.arc_start[here]), int(network.arc_start[here + 1])):
            after = int(network.arc_target[arc])
            if after not in sites:
                yield from walk([*sites, after], [*links, int(network.arc_link[arc])])

    yield from walk([source], [])


def _column(snapshot: Snapshot, name: str, links: list[int]) -> list[float]:
    return [float(getattr(snapshot.network, name)[link]) for link in links]


def _sum(values: list[float]) -> float:
    return math.inf if any(map(math.isnan, values)) else sum(values)


def list_legs(demand: Demand, snapshot: Snapshot, pool: int, hours: float) -> Listed:
    """Every path for every dataset and flow of a demand to one pool."""
    target = int(snapshot.network.pool_site[pool])
    listed = [_data_legs(need, demand, snapshot, target) for need in demand.data]
    listed += [_flow_legs(flow, demand, snapshot, target, hours) for flow in demand.traffic]
    return Listed(
        [legs for legs, _ in listed if legs],
        any(not legs and not never for legs, never in listed),
        any(never for _, never in listed),
    )


def _data_legs(need: DataNeed, demand: Demand, snapshot: Snapshot, target: int) -> tuple[list[Leg], bool]:
    facts = snapshot.dataset[need.dataset]
    site_of = {one.name: int(snapshot.network.pool_site[row]) for row, one in enumerate(snapshot.pools)}
    zones = [zone for zone in (demand.residency, facts.stay_in) if zone]
    inside: list[list[int]] = []
    for name in facts.replicas:
        source = site_of.get(name, snapshot.network.site(name))
        for sites, links in simple_paths(snapshot, source, target):
            if all(zone_holds(snapshot.network.regions[site], zone) for site in sites for zone in zones):
                inside.append(links)
    able = [links for links in inside if _wide(snapshot, links, need.rate_mbps)]
    legs = [_data_leg(need, demand, snapshot, links, facts.size_mib) for links in able]
    if any(not leg.links for leg in legs):
        legs = [leg for leg in legs if not leg.links]
    never = not legs and (bool(zones) or need.rate_mbps is not None or bool(inside))
    return legs, never


def _wide(snapshot: Snapshot, links: list[int], rate: float | None) -> bool:
    free = _column(snapshot, "free_mbps", links)
    if rate is None:
        return not any(mbps <= 0 for mbps in free)
    return all(mbps >= rate for mbps in free)


def _data_leg(need: DataNeed, demand: Demand, snapshot: Snapshot, links: list[int], size_mib: int) -> Leg:
    gib = size_mib / 1024
    free = _column(snapshot, "free_mbps", links)
    latency = _sum(_column(snapshot, "latency_ms", links))
    mbps = need.rate_mbps or (math.inf if any(map(math.isnan, free)) else min(free, default=math.inf))
    seconds = gib * GIB_MBIT / mbps + (0.0 if math.isinf(latency) else latency / 1000) if links else 0.0
    if need.rate_mbps is None and any(map(math.isnan, free)):
        seconds = math.inf
    money = gib * _sum(_column(snapshot, "price_per_gib", links)) if links else 0.0
    liked = {
        Policy.FASTEST: (seconds, money),
        Policy.LOWEST_LATENCY: (seconds, money),
        Policy.CHEAPEST: (money, seconds),
    }.get(demand.policy, (money + SECOND * seconds, seconds))
    return Leg(links, seconds, money, latency, need.rate_mbps or 0.0, liked, flows=False)


def _flow_legs(
    flow: Traffic, demand: Demand, snapshot: Snapshot, target: int, hours: float
) -> tuple[list[Leg], bool]:
    legs: list[Leg] = []
    gib = flow.mbps * 3600 / GIB_MBIT * hours
    for sites, links in simple_paths(snapshot, snapshot.network.site(flow.site), target):
        stays = all(zone_holds(snapshot.network.regions[site], demand.residency) for site in sites)
        latency = _sum(_column(snapshot, "latency_ms", links))
        if not stays or not _wide(snapshot, links, flow.mbps) or latency > (flow.max_latency_ms or math.inf):
            continue
        money = gib * _sum(_column(snapshot, "price_per_gib", links)) if links else 0.0
        over = OVER if latency > (demand.max_latency_ms or math.inf) else 0.0
        liked = {
            Policy.FASTEST: (over + latency, money),
            Policy.LOWEST_LATENCY: (over + latency, money),
            Policy.CHEAPEST: (over + money, latency),
        }.get(demand.policy, (over + money + MS * latency, latency))
        legs.append(Leg(links, 0.0, money, latency, flow.mbps, liked, flows=True))
    return legs, not legs


def combine(
    listed: Listed, snapshot: Snapshot, allowed: Callable[[float, float], bool] | None = None
) -> Moved | None:
    """The combination the policy likes best among those that the links hold and *allowed* (seconds, money) lets pass."""
    best: list[Leg] | None = None
    best_key = (math.inf, math.inf, math.inf)

    def extend(chosen: list[Leg], left: list[float]) -> None:
        nonlocal best, best_key
        if len(chosen) < len(listed.legs):
            for leg in listed.legs[len(chosen)]:
                if leg.mbps == 0 or all(left[link] >= leg.mbps - 1e-9 for link in leg.links):
                    rest = [have - leg.mbps * (link in leg.links) for link, have in enumerate(left)]
                    extend([*chosen, leg], rest)
            return
        first, second = [leg.liked[0] for leg in chosen], [leg.liked[1] for leg in chosen]
        key = (first.count(math.inf), _finite(first), _finite(second))
        seconds, money = _finite([leg.seconds for leg in chosen]), sum(leg.money for leg in chosen)
        if key < best_key and (allowed is None or allowed(seconds, money)):
            best, best_key = chosen, key

    extend([], [float(mbps) for mbps in snapshot.network.free_mbps])
    if best is None:
        return None
    seconds, money = sum(leg.seconds for leg in best), sum(leg.money for leg in best)
    answers = [leg.latency_ms for leg in best if leg.flows and leg.latency_ms < math.inf]
    return Moved(
        None if listed.unknown or math.isinf(seconds) else seconds,
        None if listed.unknown or math.isinf(money) else money,
        max(answers, default=None),
    )


def _finite(values: list[float]) -> float:
    return sum(value for value in values if value < math.inf)
