"""One pool or many: what is left unusable when every flavour and hardware generation has hosts of its own."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from yunhe.flexible.history import History
from yunhe.flexible.placing.packing import Limits, Load, first_fit, host_usage
from yunhe.flexible.placing.tiers import HostPark, TieredRules, place_tiered
from yunhe.flexible.trace import Bools, Dimension, Floats, Ints
from yunhe.kernel.money import Tier


@dataclass(frozen=True, slots=True)
class Generation:
    """One kind of host: cores, memory, and how fast a core is beside the reference."""

    name: str
    cores: float
    memory_mib: float
    speed: float


@dataclass(frozen=True, slots=True)
class Fragmentation:
    """How many hosts a way of pooling opens, and the share of their CPU that nothing is placed on."""

    hosts: int
    capacity_cores: float
    placed_cores: float
    overloaded: float
    """The share of host-slots of the profile in which a host was asked for more CPU than it has."""
    judged: int
    """Those host-slots."""

    @property
    def stranded(self) -> float:
        """Return the share of the opened hosts' CPU that stays unallocated."""
        return 1 - self.placed_cores / self.capacity_cores


def separate_pools(
    histories: Mapping[Dimension, History], order: Ints, generations: Sequence[Generation], pool: Ints
) -> Fragmentation:
    """Return what pools of their own waste: each has hosts of one generation, filled at 1×.

    *pool* says which pool each instance belongs to; pools are dealt to the generations in turn, as they were bought.
    """
    parts = [
        _plain(histories, pool == number, order, generations[int(number) % len(generations)])
        for number in np.unique(pool)
    ]
    judged = sum(part.judged for part in parts)
    return Fragmentation(
        sum(part.hosts for part in parts),
        sum(part.capacity_cores for part in parts),
        sum(part.placed_cores for part in parts),
        sum(part.overloaded * part.judged for part in parts) / max(1, judged),
        judged,
    )


def one_pool(
    histories: Mapping[Dimension, History],
    order: Ints,
    generations: Sequence[Generation],
    tiers: Sequence[Tier],
) -> Fragmentation:
    """Return the same instances in one pool of all generations, their tiers side by side on every host.

    Cores are put on one scale by each generation's speed. Only CPU is overcommitted, and never beyond the
    sum of requests, so that the comparison is of pooling alone.
    """
    count = len(tiers)
    kinds = [generations[host % len(generations)] for host in range(count)]
    park = HostPark(
        {
            Dimension.CPU: np.array([kind.cores for kind in kinds]),
            Dimension.MEMORY: np.array([kind.memory_mib for kind in kinds]),
        },
        speed=np.array([kind.speed for kind in kinds]),
    )
    wanted = {one: history for one, history in histories.items() if one in park.capacity}
    placement = place_tiered(wanted, tiers, park, order, TieredRules(overcommit_cap=1.0))
    return _measured(placement, histories[Dimension.CPU], park.normalised(Dimension.CPU))


def _plain(
    histories: Mapping[Dimension, History], members: Bools, order: Ints, kind: Generation
) -> Fragmentation:
    chosen = np.flatnonzero(members)
    capacity = {Dimension.CPU: kind.cores * kind.speed, Dimension.MEMORY: kind.memory_mib}
    dimensions = [one for one in histories if one in capacity]
    sizes = np.array([histories[one].request[chosen] for one in dimensions])
    rank = np.argsort(np.argsort(order)[chosen])
    placement = at_one_to_one(sizes, np.argsort(rank), np.array([capacity[one] for one in dimensions]))
    return _measured(
        placement, histories[Dimension.CPU].of(chosen), np.full(len(chosen), kind.cores * kind.speed)
    )


def at_one_to_one(sizes: Floats, order: Ints, capacity: Floats) -> Ints:
    """Return the host of each instance, first fit by its *sizes* (dimensions × instances) on equal hosts."""
    hosts = sizes.shape[1]
    limits = np.repeat(capacity[:, None], hosts, axis=1)
    empty = np.zeros(hosts)
    return first_fit(
        order, Load(sizes, weights=sizes), Limits(limits, limits, np.zeros((0, hosts)), empty, empty)
    )


def _measured(placement: Ints, cpu: History, capacity: Floats) -> Fragmentation:
    used = np.unique(placement[placement >= 0])
    together = host_usage(placement, cpu.series.astype(np.float64))[used]
    over = together > capacity[used][:, None] * (1 + 1e-9)
    return Fragmentation(
        len(used),
        float(capacity[used].sum()),
        float(cpu.request[placement >= 0].sum()),
        float(over.mean()) if over.size else 0.0,
        over.size,
    )
