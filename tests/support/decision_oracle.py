"""A slow, obvious second opinion on decisions: plain loops over facts, no arrays, no shortcuts."""

import math
from collections import Counter
from dataclasses import dataclass
from itertools import permutations

from support.moving_oracle import Listed, Moved, combine, list_legs, simple_paths, zone_holds
from yunhe.kernel.money import MICROS
from yunhe.kernel.resources import Resources
from yunhe.scheduling.decision.model import Assignment, Demand, Domain, Placed, Policy
from yunhe.scheduling.perception.model import PoolFacts
from yunhe.scheduling.perception.snapshot import Snapshot, device_shares

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

DECISIVE = {
    Policy.CHEAPEST: "cost_per_hour",
    Policy.NEAREST: "distance_km",
    Policy.FASTEST: "run_s",
    Policy.GREENEST: "carbon_g",
    Policy.LOWEST_LATENCY: "latency_ms",
}
"""Where this is unknown, a policy that is named after it refuses the pool."""

Terms = dict[str, float | None]


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
        and _agreed_in_pool(demand, snapshot, pool)
        and moved(demand, snapshot, pool, alternative) is not None
    )


def _agreed_in_pool(demand: Demand, snapshot: Snapshot, pool: int) -> bool:
    """Whether what runs in the pool or its region agrees with the demand's affinity."""
    for wish in demand.affinity:
        rows = snapshot.groups.get(wish.group, ())
        pools = {int(snapshot.node_pool[row]) for row in rows}
        regions = {region_of(snapshot.pools[row]) for row in pools} - {""}
        runs = pool in pools if wish.over is Domain.POOL else region_of(snapshot.pools[pool]) in regions
        if wish.over is not Domain.NODE and runs == wish.apart:
            return False
    return not _crowded(demand, snapshot, snapshot.pools[pool])


def _crowded(demand: Demand, snapshot: Snapshot, here: PoolFacts) -> bool:
    """Whether a group of a single job has as many members in the pool or its region as its spread allows."""
    if demand.spread is None or demand.members > 1 or demand.spread.over is Domain.NODE:
        return False
    for group in demand.groups:
        homes = [snapshot.pools[int(snapshot.node_pool[row])] for row in snapshot.groups.get(group, ())]
        if demand.spread.over is Domain.REGION:
            near = [
                home for home in homes if (region_of(home) or home.name) == (region_of(here) or here.name)
            ]
        else:
            near = [home for home in homes if home.id == here.id]
        if len(near) >= demand.spread.at_most:
            return True
    return False


def hours_in(demand: Demand, snapshot: Snapshot, pool: int) -> tuple[float, float | None]:
    """How long it runs, failures included, and the rate of those; None where that is unknown."""
    facts = snapshot.pools[pool]
    alone_h = (3600.0 if demand.run_s is None else demand.run_s) / 3600 / (facts.speed or 1.0)
    rate = None if facts.reliability is None else -math.log(facts.reliability)
    if demand.interruptible and facts.spot is not None and rate is not None:
        taken_back = facts.spot.interruptions_per_hour
        rate = None if taken_back is None else rate + taken_back
    return (math.exp(rate * alone_h) - 1) / rate if rate else alone_h, rate


def moved(demand: Demand, snapshot: Snapshot, pool: int, alternative: int) -> Moved | None:
    """What bringing data and traffic there takes, within deadline and budget where that can be; None: it cannot come."""
    if not demand.data and not demand.traffic:
        return Moved(0.0, 0.0, None)
    hours, _ = hours_in(demand, snapshot, pool)
    asked_h = 1.0 if demand.run_s is None else demand.run_s / 3600
    listed = list_legs(demand, snapshot, pool, asked_h)
    liked = None if listed.never else combine(listed, snapshot)
    if liked is None:
        return None
    true = list_legs(demand, snapshot, pool, hours)
    liked = combine(_as_liked(listed, true), snapshot) or liked
    rate, facts = cost_per_hour(demand, snapshot, pool, alternative), snapshot.pools[pool]
    left_s = math.inf if demand.deadline_at is None else demand.deadline_at - snapshot.taken_at
    left_s -= (facts.wait_s or 0.0) + hours * 3600
    left = math.inf
    if demand.budget_micros is not None:
        energy = energy_cost(demand, snapshot, pool, alternative)
        left = -1.0 if rate is None else (demand.budget_micros + 0.5) / MICROS - rate * hours - energy
    if (liked.data_s or 0.0) <= left_s and (
        left == math.inf or (liked.data_cost or math.inf) <= left or liked.data_cost == 0
    ):
        return liked
    if left_s < 0 or left < 0:
        return liked
    return combine(true, snapshot, lambda seconds, money: seconds <= left_s and money <= left) or liked


def _as_liked(listed: Listed, true: Listed) -> Listed:
    """The same paths with what they really cost, liked as they were when nobody knew how long work runs there."""
    legs = [
        [b._replace(liked=a.liked) for a, b in zip(mine, others, strict=True)]
        for mine, others in zip(listed.legs, true.legs, strict=True)
    ]
    return true._replace(legs=legs)


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
    for wish in demand.affinity:
        runs = row in list(snapshot.groups.get(wish.group, ()))
        if wish.over is Domain.NODE and runs == wish.apart:
            return False
    if demand.spread is not None and demand.members == 1 and demand.spread.over is Domain.NODE:
        for group in demand.groups:
            if list(snapshot.groups.get(group, ())).count(row) >= demand.spread.at_most:
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
        return self.devices_for(row, ask) is not None

    def devices_for(self, row: int, ask: Resources) -> "tuple[HeldDevice, ...] | None":
        """A device for each share of an ask, emptier ones spared; None when no choice will do."""
        first, last = int(self.snapshot.device_start[row]), int(self.snapshot.device_start[row + 1])
        shares = [(one, milli) for one in ask.accelerators for milli in device_shares(one.milli)]
        tightest = sorted(self.devices[first:last], key=lambda device: device.milli)
        for order in permutations(tightest, len(shares)):
            if all(
                device.is_a(one.kind) and device.milli >= milli and device.mib >= one.memory_mib
                for device, (one, milli) in zip(order, shares, strict=True)
            ):
                return order
        return None

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
    inside: Counter[object] = Counter()
    for pool in pools:
        region = region_of(snapshot.pools[pool]) or snapshot.pools[pool].name
        for row in range(int(snapshot.pool_start[pool]), int(snapshot.pool_start[pool + 1])):
            domain = {Domain.NODE: row, Domain.POOL: (pool,), Domain.REGION: region}
            at = None if demand.spread is None else domain[demand.spread.over]
            most = math.inf if demand.spread is None else demand.spread.at_most
            while inside[at] < most and count < demand.members and node_may(demand, snapshot, row):
                if not holdings.fits(row, ask):
                    break
                _take_tightest(holdings, row, ask)
                inside[at] += 1
                count += 1
    return count


def _take_tightest(holdings: Holdings, row: int, ask: Resources) -> None:
    for column, amount in enumerate((ask.cpu_millis, ask.memory_mib, ask.disk_mib)):
        holdings.free[row][column] -= amount
    shares = [(one, milli) for one in ask.accelerators for milli in device_shares(one.milli)]
    for device, (one, milli) in zip(holdings.devices_for(row, ask) or (), shares, strict=True):
        device.milli -= milli
        device.mib -= one.memory_mib


def cost_per_hour(demand: Demand, snapshot: Snapshot, pool: int, alternative: int) -> float | None:
    """What an hour of all members costs, at the spot price where that will do; None where it is unknown."""
    facts, ask = snapshot.pools[pool], demand.alternatives[alternative].resources
    if facts.prices is None:
        return None
    listed, ratio = facts.prices[demand.tier], 1.0
    if demand.interruptible and facts.spot is not None:
        ratio = sum(facts.spot.price_ratio_history) / len(facts.spot.price_ratio_history)
    cost = ask.cpu_millis / 1000 * listed.cpu_core_hour_micros
    cost += ask.memory_mib / 1024 * listed.memory_gib_hour_micros
    for wanted in ask.accelerators:
        priced = [
            listed.accelerator_hour_micros.get(kind, 0)
            for kind in snapshot.device_kinds
            if wanted.kind == "*" or kind in wanted.kind.split("|")
        ]
        cost += wanted.milli / 1000 * max(priced, default=0)
    return demand.members * cost * ratio / MICROS


def _kwh(demand: Demand, snapshot: Snapshot, pool: int, alternative: int) -> float | None:
    facts, ask = snapshot.pools[pool], demand.alternatives[alternative].resources
    if facts.energy is None or facts.energy.watts_per_core is None:
        return None
    hours, _ = hours_in(demand, snapshot, pool)
    watts = facts.energy.watts_per_core * facts.energy.pue * ask.cpu_millis / 1000 * demand.members
    return watts * hours / 1000


def energy_cost(demand: Demand, snapshot: Snapshot, pool: int, alternative: int) -> float:
    kwh, facts = _kwh(demand, snapshot, pool, alternative), snapshot.pools[pool]
    if kwh is None or facts.energy is None:
        return 0.0
    return kwh * (facts.energy.price_micros_per_kwh or 0) / MICROS


def terms(demand: Demand, snapshot: Snapshot, pool: int, alternative: int) -> Terms:
    """Every term of the score for one pool, by its definition."""
    facts = snapshot.pools[pool]
    hours, failing = hours_in(demand, snapshot, pool)
    alone_h = (3600.0 if demand.run_s is None else demand.run_s) / 3600 / (facts.speed or 1.0)
    brought = moved(demand, snapshot, pool, alternative) or Moved(None, None, None)
    rate = cost_per_hour(demand, snapshot, pool, alternative)
    distance = demand.near.distance_km(facts.place) if demand.near and facts.place else None
    kwh = _kwh(demand, snapshot, pool, alternative)
    start_h = ((facts.wait_s or 0.0) + (brought.data_s or 0.0)) / 3600
    grams = None if facts.energy is None else _carbon(facts, snapshot.taken_at / 3600 + start_h, hours)
    answers = [_latency(demand, snapshot, pool, distance), brought.latency_ms]
    return {
        "cost_per_hour": rate,
        "cost": None if rate is None else rate * hours,
        "data_cost": brought.data_cost,
        "energy_cost": energy_cost(demand, snapshot, pool, alternative),
        "wait_s": facts.wait_s,
        "data_s": brought.data_s,
        "run_s": None if facts.speed is None else hours * 3600,
        "carbon_g": None if kwh is None or grams is None else kwh * grams,
        "latency_ms": max((value for value in answers if value is not None), default=None),
        "distance_km": distance,
        "risk": None if failing is None else 1 - math.exp(-failing * alone_h),
        "hours": hours,
    }


def _carbon(facts: PoolFacts, start_h: float, hours: float) -> float | None:
    assert facts.energy is not None
    series = facts.energy.carbon_g_per_kwh
    if not series:
        return None
    total, at, end = 0.0, start_h, start_h + hours
    while at < end:
        until = min(math.floor(at) + 1.0, end)
        total += (until - at) * series[math.floor(at) % len(series)]
        at = until
    return total / hours


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
    if demand.budget_micros is not None:
        parts = [found[name] for name in ("cost", "data_cost", "energy_cost")]
        if None in parts or sum(part or 0.0 for part in parts) * MICROS > demand.budget_micros + 0.5:
            return False
    named = DECISIVE.get(demand.policy)
    if named is not None and found[named] is None:
        return False
    latency = found["latency_ms"]
    if demand.max_latency_ms is not None and (latency is None or latency > demand.max_latency_ms):
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
    for links, mbps in reserved(placed):
        for link in links:
            left[link] -= mbps
            assert left[link] >= -1e-6


def reserved(placed: Placed) -> list[tuple[tuple[int, ...], float]]:
    """The links of everything that reserves bandwidth, and how much each keeps of them."""
    return [
        *((route.links, route.mbps) for route in placed.routes),
        *((one.links, one.rate_mbps) for one in placed.transfers if one.rate_mbps is not None),
    ]
