"""The loop behind routes: every way through the network that no other way beats in all respects."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

KERNELS = ("spread_labels",)

MAX_LABELS_PER_SITE = 32
MAX_LINKS = 12

IntArray = NDArray[np.int64]
FloatArray = NDArray[np.float64]
BoolArray = NDArray[np.bool_]


class Ways(NamedTuple):
    """The network as a search sees it: unknown prices and latencies are infinite, unknown bandwidth is none."""

    arc_start: IntArray
    arc_target: IntArray
    arc_link: IntArray
    price: FloatArray
    latency: FloatArray
    mbps: FloatArray
    passable: BoolArray
    """Sites that a route may pass through."""
    enterable: BoolArray
    """Sites that a route may touch at all."""


class Labels(NamedTuple):
    """Partial routes: how far one has come, at what price, and by which arc."""

    site: IntArray
    price: FloatArray
    latency: FloatArray
    mbps: FloatArray
    before: IntArray
    link: IntArray
    length: IntArray
    alive: BoolArray


def spread_labels(ways: Ways, source: int, need_mbps: float, labels: Labels) -> int:
    """Fill *labels* with all undominated routes from *source*; return how many rows were used.

    A route dominates another to the same site when it is no dearer, no slower to answer and no narrower. Where more
    than ``MAX_LABELS_PER_SITE`` stay undominated at a site, later ones are dropped.
    """
    sites = ways.arc_start.shape[0] - 1
    here = np.full((sites, MAX_LABELS_PER_SITE), -1, dtype=np.int64)
    labels.site[0], labels.price[0], labels.latency[0], labels.mbps[0] = source, 0.0, 0.0, np.inf
    labels.before[0], labels.link[0], labels.length[0], labels.alive[0] = -1, -1, 0, True
    here[source, 0] = 0
    used, at = 1, 0
    while at < used:
        label = at
        at += 1
        site = labels.site[label]
        if not labels.alive[label] or labels.length[label] >= MAX_LINKS:
            continue
        if site != source and not ways.passable[site]:
            continue
        for arc in range(ways.arc_start[site], ways.arc_start[site + 1]):
            target, link = ways.arc_target[arc], ways.arc_link[arc]
            if not ways.enterable[target] or ways.mbps[link] < need_mbps:
                continue
            price = labels.price[label] + ways.price[link]
            latency = labels.latency[label] + ways.latency[link]
            mbps = min(labels.mbps[label], ways.mbps[link])
            slot, beaten = -1, False
            for index in range(MAX_LABELS_PER_SITE):
                other = here[target, index]
                if other < 0 or not labels.alive[other]:
                    slot = index if slot < 0 else slot
                    continue
                if (
                    labels.price[other] <= price
                    and labels.latency[other] <= latency
                    and labels.mbps[other] >= mbps
                ):
                    beaten = True
                    break
            if beaten:
                continue
            for index in range(MAX_LABELS_PER_SITE):
                other = here[target, index]
                if (
                    other >= 0
                    and labels.alive[other]
                    and price <= labels.price[other]
                    and latency <= labels.latency[other]
                    and mbps >= labels.mbps[other]
                ):
                    labels.alive[other] = False
                    slot = index if slot < 0 else slot
            if slot < 0 or used >= labels.site.shape[0]:
                continue
            here[target, slot] = used
            labels.site[used], labels.before[used], labels.link[used] = target, label, link
            labels.price[used], labels.latency[used], labels.mbps[used] = price, latency, mbps
            labels.length[used], labels.alive[used] = labels.length[label] + 1, True
            used += 1
    return used
