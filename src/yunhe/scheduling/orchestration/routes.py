"""Ways through the network: which replica feeds a pool, over which route, at what price and in what time.

The choice for one demand is exact: every route that no other beats in price, latency and bandwidth together is weighed.
Transfers of one demand are counted one after another.
"""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np

from yunhe.scheduling.orchestration import route_kernels
from yunhe.scheduling.orchestration.compiling import compile_kernels
from yunhe.scheduling.orchestration.model import DataNeed, TransferMode
from yunhe.scheduling.orchestration.route_kernels import MAX_LABELS_PER_SITE, FloatArray, Labels, Ways
from yunhe.scheduling.perception.snapshot import Network, Snapshot

MBIT_PER_MIB = 8.388608
MIB_PER_GIB = 1024
COMPILE_FROM_LINKS = 200


class Way(NamedTuple):
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
    way: Way


def in_zone(region: str, zone: Sequence[str]) -> bool:
    """Return whether *region* lies in one of the regions of *zone*; an empty zone is everywhere."""
    return not zone or any(region == part or region.startswith(f"{part}-") for part in zone)


class Router:
    """Finds ways over one state of the network, and remembers them until bandwidth is taken or given back."""

    def __init__(self, network: Network) -> None:
        self._network = network
        self._free_mbps = network.free_mbps.copy()
        self._found: dict[tuple[int, tuple[tuple[str, ...], ...], float], dict[int, list[Way]]] = {}
        self.version = 0
        """Changes whenever bandwidth is taken or given back: what was computed from ways is then stale."""

    @property
    def free_mbps(self) -> FloatArray:
        """What is left on each link."""
        return self._free_mbps

    def take(self, links: Iterable[int], mbps: float) -> None:
        """Reserve *mbps* on each link (a negative amount gives it back)."""
        if mbps:
            for link in links:
                self._free_mbps[link] -= mbps
            self._found.clear()
            self.version += 1

    def ways(
        self, source: int, zones: tuple[tuple[str, ...], ...] = (), need_mbps: float = 0.0
    ) -> dict[int, list[Way]]:
        """Return every undominated way from *source* to each site it reaches without leaving any of *zones*."""
        key = (source, zones, need_mbps)
        if key not in self._found:
            self._found[key] = self._search(source, zones, need_mbps)
        return self._found[key]

    def _search(
        self, source: int, zones: tuple[tuple[str, ...], ...], need_mbps: float
    ) -> dict[int, list[Way]]:
        network = self._network
        inside = np.array([all(in_zone(r, zone) for zone in zones) for r in network.regions], dtype=np.bool_)
        if not inside[source]:
            return {}
        mbps = np.nan_to_num(self._free_mbps, nan=0.0) * (1 - np.nan_to_num(network.loss, nan=0.0))
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
        found: dict[int, list[Way]] = {}
        for row in range(used):
            if labels.alive[row]:
                found.setdefault(int(labels.site[row]), []).append(_way(labels, row))
        return found


def _way(labels: Labels, row: int) -> Way:
    price, latency, mbps = float(labels.price[row]), float(labels.latency[row]), float(labels.mbps[row])
    sites, links = [int(labels.site[row])], list[int]()
    while labels.before[row] >= 0:
        links.append(int(labels.link[row]))
        row = int(labels.before[row])
        sites.append(int(labels.site[row]))
    return Way(tuple(reversed(sites)), tuple(reversed(links)), price, latency, mbps)


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


def deliveries(parcel: Parcel, router: Router, target: int) -> list[Delivery]:
    """Return every undominated way to bring *parcel* to the site *target*; none when it cannot come."""
    rate = parcel.need.rate_mbps
    found: list[Delivery] = []
    for source in parcel.sources:
        for way in router.ways(source, parcel.zones, rate or 0.0).get(target, []):
            if not way.links:
                return [Delivery(0.0, 0.0, way)]
            found.append(Delivery(*_effort(parcel, way, rate), way))
    return found


def _effort(parcel: Parcel, way: Way, rate: float | None) -> tuple[float, float]:
    """Return the seconds and the money a way takes; infinite where size, bandwidth or price is unknown."""
    if parcel.size_mib is None:
        return np.inf, np.inf
    mbps = way.mbps if rate is None else rate
    latency_s = way.latency_ms / 1000 if np.isfinite(way.latency_ms) else 0.0
    seconds = parcel.size_mib * MBIT_PER_MIB / mbps + latency_s if mbps > 0 else np.inf
    return seconds, parcel.size_mib / MIB_PER_GIB * way.price_per_gib


def best_delivery(found: Sequence[Delivery], mode: TransferMode, worth_of_second: float) -> Delivery | None:
    """Return the delivery that *mode* prefers; ``auto`` weighs time against money."""
    if mode is TransferMode.FAST:
        return min(found, key=lambda d: (d.seconds, d.cost, d.way), default=None)
    if mode is TransferMode.CHEAP:
        return min(found, key=lambda d: (d.cost, d.seconds, d.way), default=None)
    return min(
        found,
        key=lambda d: (
            d.cost + (worth_of_second * d.seconds if worth_of_second else 0.0),
            d.seconds,
            d.cost,
            d.way,
        ),
        default=None,
    )


def shown_mode(delivery: Delivery, found: Sequence[Delivery]) -> TransferMode:
    """Say whether a delivery is the fastest or the cheapest of those there were, or in between."""
    if delivery.seconds <= min(d.seconds for d in found):
        return TransferMode.FAST
    return TransferMode.CHEAP if delivery.cost <= min(d.cost for d in found) else TransferMode.AUTO
