"""The network as arrays: sites, links with a capacity each, and arcs that lead along them."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from yunhe.kernel.errors import InvalidInputError
from yunhe.scheduling.perception.model import LinkFacts, PoolFacts, SiteFacts

IntArray = NDArray[np.int64]
FloatArray = NDArray[np.float64]
BoolArray = NDArray[np.bool_]


@dataclass(frozen=True, eq=False)
class Network:
    """Sites and links; unknown is NaN. Arcs leaving site s are rows ``arc_start[s]:arc_start[s + 1]``."""

    sites: tuple[str, ...]
    regions: tuple[str, ...]
    relays: BoolArray
    pool_site: IntArray
    arc_start: IntArray
    arc_target: IntArray
    arc_link: IntArray
    bandwidth_mbps: FloatArray
    free_mbps: FloatArray
    latency_ms: FloatArray
    loss: FloatArray
    price_per_gib: FloatArray
    """In units of the currency."""
    reliability: FloatArray

    def site(self, name: str) -> int:
        """Return the number of the site called *name*, or -1."""
        return self.sites.index(name) if name in self.sites else -1

    def with_free(self, free_mbps: FloatArray) -> "Network":
        """Return the same network with other bandwidth left on its links."""
        return replace(self, free_mbps=free_mbps)


def build_network(
    pools: Sequence[PoolFacts], sites: Sequence[SiteFacts] = (), links: Sequence[LinkFacts] = ()
) -> Network:
    """Return the network between *pools*; a pool that names no site is a site of its own."""
    names: dict[str, tuple[str, bool]] = {site.name: (site.region, site.relays) for site in sites}
    for pool in pools:
        name = pool.site or pool.name
        region = "" if pool.place is None else pool.place.region
        names.setdefault(name, (region, pool.relays))
    number = {name: row for row, name in enumerate(names)}
    _check_ends(links, number)
    arcs = sorted(
        (number[source], number[target], link)
        for link, facts in enumerate(links)
        for source, target in (
            ((facts.source, facts.target), (facts.target, facts.source))
            if facts.both_ways
            else ((facts.source, facts.target),)
        )
    )
    start = np.searchsorted([source for source, _, _ in arcs], np.arange(len(names) + 1))
    bandwidth = _floats([link.bandwidth_mbps for link in links])
    free = _floats([link.free_mbps for link in links])
    return Network(
        sites=tuple(names),
        regions=tuple(region for region, _ in names.values()),
        relays=np.array([relays for _, relays in names.values()], dtype=np.bool_),
        pool_site=np.array([number[pool.site or pool.name] for pool in pools], dtype=np.int64),
        arc_start=start.astype(np.int64),
        arc_target=np.array([target for _, target, _ in arcs], dtype=np.int64),
        arc_link=np.array([link for _, _, link in arcs], dtype=np.int64),
        bandwidth_mbps=bandwidth,
        free_mbps=np.where(np.isnan(free), bandwidth, free),
        latency_ms=_floats([link.latency_ms for link in links]),
        loss=_floats([link.loss for link in links]),
        price_per_gib=_floats([link.price_micros_per_gib for link in links]) / 1e6,
        reliability=_floats([link.reliability for link in links]),
    )


def _check_ends(links: Sequence[LinkFacts], known: dict[str, int]) -> None:
    strangers = sorted({end for link in links for end in (link.source, link.target)} - set(known))
    if strangers:
        raise InvalidInputError(
            f"Links name sites that are not in the snapshot: {', '.join(strangers)}.",
            remedy="Name a pool, a pool's site, or list the site among the sites.",
        )


def _floats(values: Sequence[float | None]) -> FloatArray:
    return np.array([np.nan if value is None else value for value in values], dtype=np.float64)
