"""A slow, obvious second opinion on decisions: plain loops over facts, no arrays, no shortcuts."""

import math
from collections.abc import Iterator
from dataclasses import dataclass

from yunhe.kernel.money import MICROS
from yunhe.kernel.resources import Resources
from yunhe.scheduling.orchestration.model import Assignment, Demand, Placed, Policy
from yunhe.scheduling.perception.model import PoolFacts
from yunhe.scheduling.perception.snapshot import Snapshot

GIB_MBIT = 8589.934592
WORTH = {
    "cost": 1.0,
    "data_cost": 1.0,
    "energy_cost": 1.0,
    "wait_s": 1 / 3600,
    "data_s": 1 / 3600,
    "run_s": 1 / 3600,
    "carbon_g": 0.0001,
    "latency_ms": 0.001,
    "distance_km": 0.0001,
}
NAMED_AFTER = {
    Policy.CHEAPEST: ("cost", "data_cost", "energy_cost"),
    Policy.NEAREST: ("distance_km",),
    Policy.FASTEST: ("wait_s", "data_s", "run_s"),
    Policy.GREENEST: ("carbon_g",),
    Policy.LOWEST_LATENCY: ("latency_ms",),
}

Terms = dict[str, float | None]


def zone_holds(region: str, zone: tuple[str, ...]) -> bool:
    return not zone or any(region == part or region.startswith(part + "-") for part in zone)


def region_of(facts: PoolFacts) -> str:
    return "" if facts.place is None else facts.place.region


def pool_may(demand: Demand, snapshot: Snapshot, pool: int, alternative: int) -> bool:
    """Whether every rule about the pool itself is kept; limits apart."""
    facts, wanted = snapshot.pools[pool], demand.alternatives[alternative].pools
    level = None if facts.place is None else facts.place.level
    return (
        facts.accepts
        and (not wanted or facts.name in wanted)
        and facts.id not in demand.avoid_pools
        and facts.only_project in (None, demand.project_id)
        and zone_holds(region_of(facts), demand.residency)
        and (not demand.levels or level in demand.levels)
        and all(tolerated(taint, demand) for taint in facts.taints)
        and set(demand.powers) <= set(facts.powers)
        and (not demand.data or delivery(demand, snapshot, pool) != "never")
    )


def tolerated(taint: str, demand: Demand) -> bool:
    return any(t in {"*", taint, taint.partition("=")[0]} for t in demand.tolerations)


def node_may(demand: Demand, snapshot: Snapshot, row: int) -> bool:
    """Whether the node's nature allows the demand, however full it is."""
    isa, labels, taints = snapshot.classes[int(snapshot.node_class[row])]
    have = dict(labels)
    for wanted in demand.where:
        if "!=" in wanted:
            key, value = wanted.split("!=")
            if have.get(key) == value:
                return False
        else:
            key, value = wanted.split("=")
            if have.get(key) != value:
                return False
    return (not demand.isa or isa in demand.isa) and all(tolerated(taint, demand) for taint in taints)


@dataclass
class HeldDevice:
    """One accelerator, in plain numbers."""

    kind: str
    milli: int
    mib: int

    def is_a(self, wanted: str) -> bool:
        return wanted == "*" or self.kind in wanted.split("|")


class Holdings:
    """What is free on every node and device, in plain numbers."""

    def __init__(self, snapshot: Snapshot) -> None:
        self.snapshot = snapshot
        self.free = [
            [int(c), int(m), int(d)]
            for c, m, d in zip(
                snapshot.cpu_free_millis, snapshot.memory_free_mib, snapshot.disk_free_mib, strict=True
            )
        ]
        self.devices = [
            HeldDevice(snapshot.device_kinds[int(kind)], int(milli), int(mib))
            for kind, milli, mib in zip(
                snapshot.device_kind,
                snapshot.device_free_milli,
                snapshot.device_memory_free_mib,
                strict=True,
            )
        ]

    def fits(self, row: int, ask: Resources) -> bool:
        cpu, memory, disk = self.free[row]
        if cpu < ask.cpu_millis or memory < ask.memory_mib or disk < ask.disk_mib:
            return False
        first, last = int(self.snapshot.device_start[row]), int(self.snapshot.device_start[row + 1])
        for wanted in ask.accelerators:
            able = [
                device.milli
                for device in self.devices[first:last]
                if device.is_a(wanted.kind) and device.mib >= wanted.memory_mib
            ]
            whole, part = divmod(wanted.milli, 1000)
            for _ in range(whole):
                if 1000 not in able:
                    return False
                able.remove(1000)
            if part and not any(milli >= part for milli in able):
                return False
        return True

    def take(self, assignment: Assignment) -> None:
        """Take what an assignment says, and fail where anything goes below zero."""
        row, ask = self.snapshot.row_of_node[assignment.node_id], assignment.resources
        for column, amount in enumerate((ask.cpu_millis, ask.memory_mib, ask.disk_mib)):
            self.free[row][column] -= amount
            assert self.free[row][column] >= 0 or amount == 0
        first = int(self.snapshot.device_start[row])
        used = [self.devices[first + index] for index in assignment.devices]
        assert len(set(assignment.devices)) == len(assignment.devices)
        for wanted in ask.accelerators:
            whole, part = divmod(wanted.milli, 1000)
            for milli in [1000] * whole + [part] * (part > 0):
                device = used.pop(0)
                assert device.is_a(wanted.kind)
                device.milli -= milli
                device.mib -= wanted.memory_mib
                assert device.milli >= 0
                assert device.mib >= 0 or wanted.memory_mib == 0
        assert not used


def members_that_fit(demand: Demand, snapshot: Snapshot, alternative: int, pools: list[int]) -> int:
    """How many equal members the given pools have room for in all."""
    holdings, ask, count = Holdings(snapshot), demand.alternatives[alternative].resources, 0
    per_node = demand.spread.at_most if demand.spread else math.inf
    for pool in pools:
        for row in range(int(snapshot.pool_start[pool]), int(snapshot.pool_start[pool + 1])):
            here = 0
            while here < per_node and count < demand.members and node_may(demand, snapshot, row):
                if not holdings.fits(row, ask):
                    break
                _take_tightest(holdings, row, ask)
                here, count = here + 1, count + 1
    return count


def _take_tightest(holdings: Holdings, row: int, ask: Resources) -> None:
    first = int(holdings.snapshot.device_start[row])
    last = int(holdings.snapshot.device_start[row + 1])
    for column, amount in enumerate((ask.cpu_millis, ask.memory_mib, ask.disk_mib)):
        holdings.free[row][column] -= amount
    for wanted in ask.accelerators:
        whole, part = divmod(wanted.milli, 1000)
        for milli in [1000] * whole + [part] * (part > 0):
            device = min(
                (
                    d
                    for d in holdings.devices[first:last]
                    if d.is_a(wanted.kind) and d.milli >= milli and d.mib >= wanted.memory_mib
                ),
                key=lambda d: d.milli,
            )
            device.milli -= milli
            device.mib -= wanted.memory_mib


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


def delivery(demand: Demand, snapshot: Snapshot, pool: int) -> tuple[float | None, float | None] | str:
    """(seconds, money) of bringing the demand's one dataset to a pool as its policy likes; "never": not allowed."""
    facts = snapshot.dataset[demand.data[0].dataset]
    rows = [row for row, one in enumerate(snapshot.pools) if one.name in facts.replicas]
    zones = [zone for zone in (demand.residency, facts.stay_in) if zone]
    target = int(snapshot.network.pool_site[pool])
    found: list[tuple[float, float]] = []
    for row in rows:
        for sites, links in simple_paths(snapshot, int(snapshot.network.pool_site[row]), target):
            if all(zone_holds(snapshot.network.regions[site], zone) for site in sites for zone in zones):
                found.append(_effort(snapshot, links, facts.size_mib))
    if not found:
        return "never" if zones else (None, None)
    if demand.policy in (Policy.FASTEST, Policy.LOWEST_LATENCY):
        seconds, money = min(found)
    elif demand.policy is Policy.CHEAPEST:
        seconds, money = min(found, key=lambda f: (f[1], f[0]))
    else:
        seconds, money = min(found, key=lambda f: (WORTH["data_s"] * f[0] + f[1], f[0], f[1]))
    return (None if math.isinf(seconds) else seconds), (None if math.isinf(money) else money)


def _effort(snapshot: Snapshot, links: list[int], size_mib: int) -> tuple[float, float]:
    if not links:
        return 0.0, 0.0
    network = snapshot.network
    mbps = min((float(network.free_mbps[link]) for link in links), default=math.inf)
    latency = [float(network.latency_ms[link]) for link in links]
    price = [float(network.price_per_gib[link]) for link in links]
    known_latency = 0.0 if any(map(math.isnan, latency)) else sum(latency) / 1000
    unknown_mbps = any(math.isnan(float(network.free_mbps[link])) for link in links)
    seconds = math.inf if unknown_mbps else size_mib / 1024 * GIB_MBIT / mbps + known_latency
    return seconds, math.inf if any(map(math.isnan, price)) else size_mib / 1024 * sum(price)


def terms(demand: Demand, snapshot: Snapshot, pool: int, alternative: int) -> Terms:
    """Every term of the score for one pool, by its definition."""
    facts, ask = snapshot.pools[pool], demand.alternatives[alternative].resources
    alone_h = (3600.0 if demand.run_s is None else demand.run_s) / 3600 / (facts.speed or 1.0)
    rate = 0.0 if facts.reliability is None else -math.log(facts.reliability)
    hours = alone_h if rate <= 0 else (math.exp(rate * alone_h) - 1) / rate
    brought = delivery(demand, snapshot, pool) if demand.data else (0.0, 0.0)
    data_s, data_cost = (None, None) if isinstance(brought, str) else brought
    n = demand.members
    rate_per_hour = None
    if facts.prices is not None:
        listed = facts.prices[demand.tier]
        rate_per_hour = (
            n
            * (
                ask.cpu_millis / 1000 * listed.cpu_core_hour_micros
                + ask.memory_mib / 1024 * listed.memory_gib_hour_micros
                + sum(
                    a.milli
                    / 1000
                    * max(
                        (
                            listed.accelerator_hour_micros.get(kind, 0)
                            for kind in snapshot.device_kinds
                            if a.kind == "*" or kind in a.kind.split("|")
                        ),
                        default=0,
                    )
                    for a in ask.accelerators
                )
            )
            / MICROS
        )
    distance = demand.near.distance_km(facts.place) if demand.near and facts.place else None
    kwh = None
    if facts.energy is not None:
        kwh = facts.energy.watts_per_core * facts.energy.pue * ask.cpu_millis / 1000 * n * hours / 1000
    start_h = ((facts.wait_s or 0.0) + (data_s or 0.0)) / 3600
    grams = None if facts.energy is None else _carbon(facts, snapshot.taken_at / 3600 + start_h, hours)
    return {
        "cost_per_hour": rate_per_hour,
        "cost": None if rate_per_hour is None else rate_per_hour * hours,
        "data_cost": data_cost,
        "energy_cost": 0.0
        if kwh is None or facts.energy is None
        else kwh * (facts.energy.price_micros_per_kwh or 0) / MICROS,
        "wait_s": facts.wait_s,
        "data_s": data_s,
        "run_s": None if facts.speed is None else hours * 3600,
        "carbon_g": None if kwh is None or grams is None else kwh * grams,
        "latency_ms": _latency(demand, snapshot, pool, distance),
        "distance_km": distance,
        "risk": None if facts.reliability is None else 1 - math.exp(-rate * alone_h),
        "hours": hours,
    }


def _carbon(facts: PoolFacts, start_h: float, hours: float) -> float | None:
    assert facts.energy is not None
    series = facts.energy.carbon_g_per_kwh
    if not series:
        return None
    steps = 2000
    width = hours / steps
    return sum(series[int(start_h + (i + 0.5) * width) % len(series)] for i in range(steps)) / steps


def _latency(demand: Demand, snapshot: Snapshot, pool: int, distance: float | None) -> float | None:
    if demand.near is None:
        return None
    target, best = int(snapshot.network.pool_site[pool]), math.inf
    for site, region in enumerate(snapshot.network.regions):
        if region and region == demand.near.region:
            for _, links in simple_paths(snapshot, site, target):
                values = [float(snapshot.network.latency_ms[link]) for link in links]
                if not any(map(math.isnan, values)):
                    best = min(best, sum(values))
    if not math.isinf(best):
        return best
    return None if distance is None else distance * 0.015


def within_limits(demand: Demand, snapshot: Snapshot, found: Terms) -> bool:
    hours, rate = found["hours"] or 0.0, found["cost_per_hour"]
    if demand.budget_per_hour_micros is not None and (
        rate is None or rate * MICROS > demand.budget_per_hour_micros + 0.5
    ):
        return False
    if demand.deadline_at is not None:
        ready = (found["wait_s"] or 0.0) + (found["data_s"] or 0.0) + hours * 3600
        if ready > demand.deadline_at - snapshot.taken_at:
            return False
    return demand.reliability_min is None or (
        found["risk"] is not None and 1 - found["risk"] >= demand.reliability_min - 1e-12
    )


def able_pools(demand: Demand, snapshot: Snapshot, alternative: int) -> list[int]:
    """Pools that no rule and no limit refuses, room apart."""
    return [
        pool
        for pool in range(len(snapshot.pools))
        if pool_may(demand, snapshot, pool, alternative)
        and within_limits(demand, snapshot, terms(demand, snapshot, pool, alternative))
    ]


def placeable(demand: Demand, snapshot: Snapshot) -> bool:
    """Whether any alternative has room for enough members."""
    least = demand.members if demand.members_min is None else demand.members_min
    for alternative in range(len(demand.alternatives)):
        pools = able_pools(demand, snapshot, alternative)
        groups = [[pool] for pool in pools] if demand.one_pool else [pools]
        if any(members_that_fit(demand, snapshot, alternative, group) >= least for group in groups):
            return True
    return False


def scores(demand: Demand, snapshot: Snapshot, alternative: int) -> dict[int, float]:
    """Pool → score by the definition of the policy, among pools that no rule about the pool refuses."""
    eligible = [p for p in range(len(snapshot.pools)) if pool_may(demand, snapshot, p, alternative)]
    found = {pool: terms(demand, snapshot, pool, alternative) for pool in eligible}
    names = NAMED_AFTER.get(demand.policy, tuple(WORTH))
    totals = dict.fromkeys(eligible, 0.0)
    for name in names:
        factor = WORTH[name] if demand.policy is Policy.BALANCED else 1.0
        known = [value for pool in eligible if (value := found[pool][name]) is not None]
        worst = max(known, default=0.0)
        for pool in eligible:
            value = found[pool][name]
            totals[pool] += factor * (worst if value is None else value)
    return totals


def check_capacity(placed: Placed, snapshot: Snapshot) -> None:
    """Fail where a decision takes more than there is, on any node, device or link."""
    holdings = Holdings(snapshot)
    for assignment in placed.assignments:
        holdings.take(assignment)
    left = [float(mbps) for mbps in snapshot.network.free_mbps]
    for route in placed.routes:
        for link in route.links:
            left[link] -= route.mbps
            assert left[link] >= -1e-6
