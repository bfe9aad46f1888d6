"""Ways through the network: which replica feeds a pool, over which route, at what price and in what time.

Every route that no other beats in price, latency and bandwidth together is weighed; ``bundle`` chooses among them for all
that one demand moves. Transfers of one demand are counted one after another.
"""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np

from yunhe.scheduling.decision.compiling import compile_kernels
from yunhe.scheduling.decision.model import DataNeed, TransferMode
from yunhe.scheduling.decision.network import kernels as route_kernels
from yunhe.scheduling.decision.network.kernels import MAX_LABELS_PER_SITE, FloatArray, Labels, Ways
from yunhe.scheduling.perception.snapshot import Network, Snapshot

MBIT_PER_MIB = 8.388608
MIB_PER_GIB = 1024
COMPILE_FROM_LINKS = 200
NOTHING_LEFT_MBPS = 1e-6
"""What sums of parts leave behind where nothing is left."""
ALL_OPEN: frozenset[int] = frozenset()


class RouteOption(NamedTuple):
    """One route from a source, as the search knows it."""

    sites: tuple[int, ...]
    links: tuple[int, ...]
    price_per_gib: float
    latency_ms: float
    mbps: float


class Delivery(NamedTuple):
    """How one dataset would reach one pool; infinite where nobody knows."""

    seconds: float
    cost: float
    way: RouteOption


def in_zone(region: str, zone: Sequence[str]) -> bool:
    """Return whether *region* lies in one of the regions of *zone*; an empty zone is everywhere."""
    return not zone or any(region == part or region.startswith(f"{part}-") for part in zone)


class Router:
    """Finds ways over one state of the network, and remembers them until bandwidth is taken or given back."""

    def __init__(self, network: Network) -> None:
        self._network = network
        self._free_mbps = network.free_mbps.copy()
        self._found: dict[
            tuple[int, tuple[tuple[str, ...], ...], float, frozenset[int]], dict[int, list[RouteOption]]
        ] = {}
        self._lost = np.nan_to_num(network.loss, nan=0.0)
        self.version = 0
        """Changes whenever bandwidth is taken or given back: what was computed from ways is then stale."""

    @property
    def free_mbps(self) -> FloatArray:
        """What is left on each link."""
        return self._free_mbps

    @property
    def useful_mbps(self) -> FloatArray:
        """What each link would carry of what is left on it; NaN where that is unknown."""
        return self._free_mbps * (1 - self._lost)

    @property
    def full(self) -> frozenset[int]:
        """The links on which nothing is known to be left; one of which nothing is known may have some."""
        return frozenset(np.flatnonzero(self.useful_mbps <= NOTHING_LEFT_MBPS).tolist())

    def take(self, links: Iterable[int], mbps: float) -> None:
        """Reserve *mbps* on each link (a negative amount gives it back)."""
        if mbps:
            for link in links:
                self._free_mbps[link] -= mbps
            self._found.clear()
            self.version += 1

    def ways(
        self,
        source: int,
        zones: tuple[tuple[str, ...], ...] = (),
        need_mbps: float = 0.0,
        shut: frozenset[int] = ALL_OPEN,
    ) -> dict[int, list[RouteOption]]:
        """Return every undominated way from *source* to each site it reaches without leaving any of *zones*.

        A way has *need_mbps* on each of its links, and none of the links of *shut*.
        """
        key = (source, zones, need_mbps, shut)
        if key not in self._found:
            self._found[key] = self._search(source, zones, need_mbps, shut)
        return self._found[key]

    def _search(
        self, source: int, zones: tuple[tuple[str, ...], ...], need_mbps: float, shut: frozenset[int]
    ) -> dict[int, list[RouteOption]]:
        network = self._network
        inside = np.array([all(in_zone(r, zone) for zone in zones) for r in network.regions], dtype=np.bool_)
        if not inside[source]:
            return {}
        mbps = np.nan_to_num(self.useful_mbps, nan=0.0)
        mbps[list(shut)] = -np.inf
        ways = Ways(
            arc_start=network.arc_start,
            arc_target=network.arc_target,
            arc_link=network.arc_link,
            price=np.nan_to_num(network.price_per_gib, nan=np.inf),
            latency=np.nan_to_num(network.latency_ms, nan=np.inf),
            mbps=mbps,
            passable=network.relays & inside,
            enterable=inside,
        )
        rows = 4 * MAX_LABELS_PER_SITE * len(network.sites)
        labels = Labels(
            site=np.zeros(rows, dtype=np.int64),
            price=np.zeros(rows),
            latency=np.zeros(rows),
            mbps=np.zeros(rows),
            before=np.zeros(rows, dtype=np.int64),
            link=np.zeros(rows, dtype=np.int64),
            length=np.zeros(rows, dtype=np.int64),
            alive=np.zeros(rows, dtype=np.bool_),
        )
        if network.arc_link.size >= COMPILE_FROM_LINKS:
            compile_kernels(route_kernels)
        used = route_kernels.spread_labels(ways, source, need_mbps, labels)
        found: dict[int, list[RouteOption]] = {}
        for row in range(used):
            if labels.alive[row]:
                found.setdefault(int(labels.site[row]), []).append(_way(labels, row))
        return found


def _way(labels: Labels, row: int) -> RouteOption:
    price, latency, mbps = float(labels.price[row]), float(labels.latency[row]), float(labels.mbps[row])
    sites, links = [int(labels.site[row])], list[int]()
    while labels.before[row] >= 0:
        links.append(int(labels.link[row]))
        row = int(labels.before[row])
        sites.append(int(labels.site[row]))
    return RouteOption(tuple(reversed(sites)), tuple(reversed(links)), price, latency, mbps)


class Parcel(NamedTuple):
    """A data need with everything known of its dataset."""

    need: DataNeed
    size_mib: int | None
    sources: tuple[int, ...]
    """Sites that hold a copy."""
    zones: tuple[tuple[str, ...], ...]


def parcel(need: DataNeed, snapshot: Snapshot, residency: tuple[str, ...]) -> Parcel:
    """Join what the demand and what the snapshot say of a dataset."""
    facts = snapshot.dataset.get(need.dataset)
    names = (*need.replicas, *(() if facts is None else facts.replicas))
    site_of_pool = {
        pool.name: int(snapshot.network.pool_site[row]) for row, pool in enumerate(snapshot.pools)
    }
    sources = {site_of_pool.get(name, snapshot.network.site(name)) for name in names} - {-1}
    size = need.size_mib if facts is None else facts.size_mib
    stay_in = () if facts is None else facts.stay_in
    zones = tuple(dict.fromkeys(zone for zone in (residency, stay_in) if zone))
    return Parcel(need, size, tuple(sorted(sources)), zones)


def deliveries(
    parcel: Parcel, router: Router, target: int, shut: frozenset[int] = ALL_OPEN
) -> list[Delivery]:
    """Return every undominated way to bring *parcel* to the site *target*; none when it cannot come."""
    rate = parcel.need.rate_mbps
    if rate is None:  # whatever is left on a way will do, but something must be
        shut |= router.full
    found: list[Delivery] = []
    for source in parcel.sources:
        for way in router.ways(source, parcel.zones, rate or 0.0, shut).get(target, []):
            if not way.links:
                return [Delivery(0.0, 0.0, way)]
            found.append(Delivery(*_effort(parcel, way, rate), way))
    return found


def _effort(parcel: Parcel, way: RouteOption, rate: float | None) -> tuple[float, float]:
    """Return the seconds and the money a way takes; infinite where size, bandwidth or price is unknown."""
    if parcel.size_mib is None:
        return np.inf, np.inf
    mbps = way.mbps if rate is None else rate
    latency_s = way.latency_ms / 1000 if np.isfinite(way.latency_ms) else 0.0
    seconds = parcel.size_mib * MBIT_PER_MIB / mbps + latency_s if mbps > 0 else np.inf
    return seconds, parcel.size_mib / MIB_PER_GIB * way.price_per_gib


def rank_of(delivery: Delivery, mode: TransferMode, worth_of_second: float) -> tuple[float, float, float]:
    """Return what *mode* goes by, least first; ``auto`` weighs time against money."""
    seconds, cost = delivery.seconds, delivery.cost
    if mode is TransferMode.FAST:
        return seconds, cost, 0.0
    if mode is TransferMode.CHEAP:
        return cost, seconds, 0.0
    return cost + (worth_of_second * seconds if worth_of_second else 0.0), seconds, cost


def shown_mode(delivery: Delivery, found: Sequence[Delivery]) -> TransferMode:
    """Say whether a delivery is the fastest or the cheapest of those there were, or in between."""
    if delivery.seconds <= min(d.seconds for d in found):
        return TransferMode.FAST
    return TransferMode.CHEAP if delivery.cost <= min(d.cost for d in found) else TransferMode.AUTO
