"""What fixed flavours and separate pools waste, on sets that have CPU and memory sizes."""

from collections.abc import Mapping, Sequence

import numpy as np

from lab.oversubscription.datasets import DataSet
from lab.oversubscription.pooling import Fragmentation, Generation, at_one_to_one, one_pool, separate_pools
from lab.oversubscription.printing import CORE_HOUR_COST, grid
from lab.oversubscription.statistics import percent
from yunhe.flexible.history import History, history_before
from yunhe.flexible.placing.tiers import BEST_TO_WORST
from yunhe.flexible.replay import TIE
from yunhe.flexible.sizing.rightsizing import (
    PRICE_BOOK,
    Guards,
    InstanceSize,
    cheapest_flavour,
    flavour_waste,
    recommend,
)
from yunhe.flexible.trace import DAY_S, WEEK_S, Dimension, Trace
from yunhe.kernel.money import Tier

GENERATIONS = (
    Generation("older", cores=32, memory_mib=256 * 1024, speed=1.0),
    Generation("newer", cores=48, memory_mib=384 * 1024, speed=1.25),
)


def learn_and_apply(trace: Trace) -> tuple[Trace, Trace]:
    """Return the first half of a trace, to size on, and the second, to judge the sizes on."""
    half = trace.slots // 2
    return trace.between(0, half), trace.between(half, trace.slots)


def flavour_table(sets: Sequence[DataSet]) -> str:
    """Return what instances cost as given, in the best flavours, and tailored; hosts, and what the next month says."""
    header = (
        "set",
        "tier",
        "sizes",
        "tenants' cost",
        "of it no demand needs",
        "hosts at 1×",
        "violation: CPU short later",
    )
    rows: list[Sequence[str]] = []
    for data in sets:
        if Dimension.MEMORY not in data.traces[0].usage:
            continue
        before, after = learn_and_apply(data.traces[0])
        for tier in BEST_TO_WORST:
            advice = recommend(before, tier, Guards(), PRICE_BOOK)
            tailored = flavour_waste(advice, PRICE_BOOK).tailored_micros_per_hour
            for name, sizes in (
                ("as given", {one.instance: one.given for one in advice}),
                ("best flavours", {one.instance: one.flavour for one in advice}),
                ("tailored", {one.instance: one.recommended for one in advice}),
            ):
                cost = sum(spec.cost_micros_per_hour(PRICE_BOOK) for spec in sizes.values())
                rows.append(
                    (
                        data.name,
                        tier,
                        name,
                        f"¥{cost / 1e6:.2f}/h",
                        percent(1 - tailored / cost, 1),
                        f"{_hosts_for([sizes[one] for one in after.instances])}",
                        percent(_short(after, sizes), 1),
                    )
                )
    return grid(header, rows) if rows else "No set here has memory sizes."


def _short(after: Trace, sizes: Mapping[str, InstanceSize]) -> float:
    """Return the share of samples in which an instance used more CPU than it would have had."""
    limits = np.array([sizes[name].cpu_millis / 1000 for name in after.instances])
    usage = after.usage[Dimension.CPU]
    return float((usage > limits[:, None] * (1 + TIE)).sum() / (~np.isnan(usage)).sum())


def _hosts_for(specs: Sequence[InstanceSize]) -> int:
    """Return how many hosts of the older generation instances of these sizes take, without oversubscription."""
    kind = GENERATIONS[0]
    sizes = np.array([[one.cpu_millis / 1000 for one in specs], [float(one.memory_mib) for one in specs]])
    return int(at_one_to_one(sizes, np.arange(len(specs)), np.array([kind.cores, kind.memory_mib])).max()) + 1


def pools_table(sets: Sequence[DataSet], seed: int) -> str:
    """Return what separate pools strand against one pool of all tiers and generations."""
    header = ("set", "pooling", "pools", "hosts", "CPU of the hosts", "stranded", "¥/vCPU-h", "violation")
    rows: list[Sequence[str]] = []
    for data in sets:
        if Dimension.MEMORY in data.traces[0].usage:
            for name, (pools, one) in compare_pools(data.traces[0], seed).items():
                rows.append(
                    (
                        data.name,
                        name,
                        str(pools),
                        str(one.hosts),
                        f"{one.capacity_cores:.0f}",
                        percent(one.stranded, 1),
                        f"{CORE_HOUR_COST * one.capacity_cores / one.placed_cores:.4f}",
                        percent(one.overloaded),
                    )
                )
    return grid(header, rows) if rows else "No set here has memory sizes."


PER_FLAVOUR, PER_FAMILY, UNITED = "a pool per flavour", "a pool per ratio of memory", "one pool, tiers mixed"


def compare_pools(trace: Trace, seed: int) -> dict[str, tuple[int, Fragmentation]]:
    """Return the number of pools and what they strand, for three ways of pooling the instances there at the end, at 1×.

    Flavours are those of the catalogue that the instances would be sold as, powers of two at 1, 2, 4 or 8 GiB per core; each
    pool holds the instances at the sizes they have, so that only the pooling differs.
    """
    random = np.random.default_rng(seed)
    histories: dict[Dimension, History] = {}
    for dimension in (Dimension.CPU, Dimension.MEMORY):
        known = history_before(trace, trace.slots, WEEK_S, DAY_S, dimension)
        histories[dimension] = known.history
    cores, memory = (histories[one].request for one in (Dimension.CPU, Dimension.MEMORY))
    order = random.permutation(len(cores))
    tiers = [(Tier.HIGH, Tier.MEDIUM, Tier.LOW)[i] for i in random.integers(0, 3, len(cores))]
    flavours = [
        cheapest_flavour(InstanceSize(round(1000 * cpu), round(mib)), PRICE_BOOK)
        for cpu, mib in zip(cores, memory, strict=True)
    ]
    sold_as = {
        PER_FLAVOUR: [(one.cpu_millis, one.memory_mib) for one in flavours],
        PER_FAMILY: [(one.memory_mib // one.cpu_millis, 0) for one in flavours],
    }
    found: dict[str, tuple[int, Fragmentation]] = {}
    for name, kinds in sold_as.items():
        distinct, pool = np.unique(np.array(kinds), axis=0, return_inverse=True)
        found[name] = len(distinct), separate_pools(histories, order, GENERATIONS, pool)
    found[UNITED] = 1, one_pool(histories, order, GENERATIONS, tiers)
    return found
