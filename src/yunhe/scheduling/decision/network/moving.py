"""What a demand moves wherever it goes: datasets that are brought to it, and steady traffic with its users.

A transfer that reserves nothing takes turns with the demand's other transfers and ends before its traffic begins: it has
what others leave of a link, and the demand's own reservations do not slow it down.
"""

from collections.abc import Sequence
from functools import cached_property
from typing import NamedTuple

import msgspec
import numpy as np

from yunhe.scheduling.decision.model import (
    Demand,
    Rule,
    Traffic,
    TransferMode,
)
from yunhe.scheduling.decision.network.bundle import RouteChoice
from yunhe.scheduling.decision.network.routes import (
    ALL_OPEN,
    MBIT_PER_MIB,
    MIB_PER_GIB,
    Delivery,
    Parcel,
    RouteOption,
    Router,
    deliveries,
    parcel,
    rank_of,
    shown_mode,
)
from yunhe.scheduling.decision.score.terms import ASSUMED_RUN_S, HOUR_S, TimeValue
from yunhe.scheduling.perception.snapshot import Snapshot

OVER_THE_LIMIT = 1e12
"""What a way counts that is slower to answer than the demand allows: taken only where there is no other."""


class NetworkRefusal(NamedTuple):
    """A rule's no, before it is said of a certain pool."""

    rule: Rule
    detail: str
    miss: float = 0.0
    """How far from fitting, where that can be said."""


class Flow(NamedTuple):
    """The way that steady traffic would take to a pool."""

    traffic: Traffic
    way: RouteOption


class PoolMoves(NamedTuple):
    """What moves over the network if the demand goes to one pool."""

    deliveries: tuple[tuple[Parcel, Delivery, TransferMode], ...] = ()
    flows: tuple[Flow, ...] = ()


class DataMove:
    """A dataset, brought to one site."""

    def __init__(self, one: Parcel, router: Router, target: int, worth_of_second: float) -> None:
        self.parcel = one
        self._router = router
        self._target = target
        self._worth = worth_of_second
        self._mode = _mode(one.need.mode, worth_of_second)

    def choices(self, shut: frozenset[int] = ALL_OPEN) -> Sequence[RouteChoice]:
        """Return every way to bring it that avoids the links *shut*."""
        return self._choices(shut) if shut else self._alone

    @cached_property
    def _alone(self) -> list[RouteChoice]:
        return self._choices(ALL_OPEN)

    def _choices(self, shut: frozenset[int]) -> list[RouteChoice]:
        rate = self.parcel.need.rate_mbps or 0.0
        return [
            RouteChoice(rank_of(one, self._mode, self._worth), one.way, one.seconds, one.cost, rate)
            for one in deliveries(self.parcel, self._router, self._target, shut)
        ]

    def delivery(self, chosen: RouteChoice) -> tuple[Parcel, Delivery, TransferMode]:
        """Return what was chosen, and whether that is the fast way or the cheap one."""
        best = Delivery(chosen.seconds, chosen.cost, chosen.way)
        ways = [Delivery(one.seconds, one.cost, one.way) for one in self._alone]
        return self.parcel, best, shown_mode(best, ways)

    def refusal(self) -> NetworkRefusal | None:
        """Say why it cannot come; None when it is only unknown how it would."""
        need, zones = self.parcel.need, self.parcel.zones
        if zones and not self._reached(zones):
            zone = ", ".join(dict.fromkeys(part for zone in zones for part in zone))
            return NetworkRefusal(
                Rule.RESIDENT, f"dataset {need.dataset} may not leave {zone}, and no known route stays there"
            )
        if need.rate_mbps is not None and self.parcel.sources:
            return NetworkRefusal(
                Rule.LINKED, f"no route for {need.dataset} has {need.rate_mbps:g} Mbit/s free"
            )
        if self._reached(zones):
            return NetworkRefusal(Rule.LINKED, f"every route for {need.dataset} is full")
        return None

    def _reached(self, zones: tuple[tuple[str, ...], ...]) -> bool:
        """Return whether there is a way at all, however full."""
        return any(self._target in self._router.ways(source, zones) for source in self.parcel.sources)


def _mode(wanted: TransferMode, worth_of_second: float) -> TransferMode:
    if wanted is not TransferMode.AUTO or 0 < worth_of_second < np.inf:
        return wanted
    return TransferMode.FAST if worth_of_second else TransferMode.CHEAP


class TrafficFlow:
    """Steady traffic between its users and one site."""

    def __init__(self, traffic: Traffic, burden: "NetworkLoad", target: int, hours: float | None) -> None:
        demand = burden.demand
        self.traffic = traffic
        self._hours = _hours(demand) if hours is None else hours
        self._worth_of_ms = burden.worth.ms
        self._zones = (demand.residency,) if demand.residency else ()
        self._wanted_ms = np.inf if demand.max_latency_ms is None else demand.max_latency_ms
        self._router = burden.router
        self._home, self._target = burden.network.site(traffic.site), target

    @property
    def gib_per_hour(self) -> float:
        """How much an hour of it moves."""
        return self.traffic.mbps * HOUR_S / MBIT_PER_MIB / MIB_PER_GIB

    def choices(self, shut: frozenset[int] = ALL_OPEN) -> Sequence[RouteChoice]:
        """Return every way for it that avoids the links *shut* and answers soon enough."""
        most_ms = np.inf if self.traffic.max_latency_ms is None else self.traffic.max_latency_ms
        return [self._choice(way) for way in self._ways(shut) if way.latency_ms <= most_ms]

    def _ways(self, shut: frozenset[int]) -> list[RouteOption]:
        if self._home < 0:
            return []
        return self._router.ways(self._home, self._zones, self.traffic.mbps, shut).get(self._target, [])

    def _choice(self, way: RouteOption) -> RouteChoice:
        gib = self.gib_per_hour * self._hours
        money = gib * way.price_per_gib if gib > 0 else 0.0
        late = OVER_THE_LIMIT if way.latency_ms > self._wanted_ms else 0.0
        if self._worth_of_ms == np.inf:
            rank = (late + way.latency_ms, money, 0.0)
        else:
            answers = self._worth_of_ms * way.latency_ms if self._worth_of_ms else 0.0
            rank = (late + money + answers, way.latency_ms, 0.0)
        return RouteChoice(rank, way, 0.0, money, self.traffic.mbps)

    def refusal(self) -> NetworkRefusal:
        """Say why no way will do."""
        ways, traffic = self._ways(ALL_OPEN), self.traffic
        if not ways:
            return NetworkRefusal(
                Rule.LINKED, f"no route from {traffic.site} has {traffic.mbps:g} Mbit/s free"
            )
        best = min(way.latency_ms for way in ways)
        shown = f"{best:.0f} ms" if np.isfinite(best) else "an unknown time"
        return NetworkRefusal(
            Rule.REACHABLE, f"{shown} from {traffic.site}, {traffic.max_latency_ms:g} ms allowed"
        )


def _hours(demand: Demand) -> float:
    return (ASSUMED_RUN_S if demand.run_s is None else demand.run_s) / HOUR_S


class NetworkLoad:
    """All that one demand moves."""

    def __init__(self, demand: Demand, snapshot: Snapshot, router: Router, worth: TimeValue) -> None:
        self.demand = demand
        self.router = router
        self.network = snapshot.network
        self.worth = worth
        self._parcels = [parcel(need, snapshot, demand.residency) for need in demand.data]

    def moves_to(
        self, pool: int, hours: float | None = None, share: float = 1.0
    ) -> list[DataMove | TrafficFlow]:
        """Return what moves to a pool: all of the data, and a *share* of the traffic for so many hours."""
        target = int(self.network.pool_site[pool])
        hauls = [DataMove(one, self.router, target, self.worth.second) for one in self._parcels]
        flows = self.demand.traffic
        if share != 1.0:
            flows = [msgspec.structs.replace(one, mbps=one.mbps * share) for one in flows]
        return [*hauls, *(TrafficFlow(one, self, target, hours) for one in flows)]


def clash(moves: Sequence[DataMove | TrafficFlow]) -> NetworkRefusal:
    """Say that what moves finds no room on the links together, though each would alone."""
    names = [
        f"{move.parcel.need.dataset} ({move.parcel.need.rate_mbps:g} Mbit/s)"
        if isinstance(move, DataMove)
        else f"{move.traffic.site} ({move.traffic.mbps:g} Mbit/s)"
        for move in moves
        if isinstance(move, TrafficFlow) or move.parcel.need.rate_mbps is not None
    ]
    return NetworkRefusal(Rule.LINKED, f"no routes have room for {' and '.join(names)} together")


def parts_of(moves: Sequence[DataMove | TrafficFlow], chosen: Sequence[RouteChoice]) -> PoolMoves:
    """Return what was chosen, datasets and traffic apart."""
    pairs = list(zip(moves, chosen, strict=True))
    return PoolMoves(
        tuple([move.delivery(choice) for move, choice in pairs if isinstance(move, DataMove)]),
        tuple([Flow(move.traffic, choice.way) for move, choice in pairs if isinstance(move, TrafficFlow)]),
    )
