"""What fixed flavours and separate pools waste, on sets that have CPU and memory sizes."""

from collections.abc import Sequence

import numpy as np

from lab.oversubscription.datasets import DataSet
from lab.oversubscription.printing import grid
from lab.oversubscription.statistics import percent
from yunhe.flexible.history import History, history_before
from yunhe.flexible.pools import Fragmentation, Generation, one_pool, separate_pools
from yunhe.flexible.rightsizing import PRICE_BOOK, Guards, flavour_waste, recommend
from yunhe.flexible.tiers import BEST_TO_WORST
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
    """Return what a month costs as given, in the best flavours, and tailored; and what the next month says."""
    header = ("set", "tier", "as given", "best flavours", "tailored", "flavour waste", "CPU short later")
    rows: list[Sequence[str]] = []
    for data in sets:
        if Dimension.MEMORY not in data.traces[0].usage:
            continue
        before, after = learn_and_apply(data.traces[0])
        for tier in BEST_TO_WORST:
            advice = recommend(before, tier, Guards(), PRICE_BOOK)
            waste = flavour_waste(advice, PRICE_BOOK)
            limit = {one.instance: one.recommended.cpu_millis / 1000 for one in advice}
            limits = np.array([limit[name] for name in after.instances])
            usage = after.usage[Dimension.CPU]
            short = float((usage > limits[:, None]).sum() / (~np.isnan(usage)).sum())
            rows.append(
                (
                    data.name,
                    tier,
                    *(
                        f"¥{micros / 1e6:.2f}/h"
                        for micros in (
                            waste.given_micros_per_hour,
                            waste.flavours_micros_per_hour,
                            waste.tailored_micros_per_hour,
                        )
                    ),
                    percent(waste.share, 1),
                    percent(short, 1),
                )
            )
    return grid(header, rows) if rows else "No set here has memory sizes."


def pools_table(sets: Sequence[DataSet], seed: int) -> str:
    """Return hosts and stranded CPU of per-flavour pools against one pool of all tiers and generations."""
    header = ("set", "pooling", "hosts", "CPU of the hosts", "stranded")
    rows: list[Sequence[str]] = []
    for data in sets:
        if Dimension.MEMORY in data.traces[0].usage:
            separate, united = compare_pools(data.traces[0], seed)
            for name, one in (("a pool per flavour", separate), ("one pool, tiers mixed", united)):
                cores = f"{one.capacity_cores:.0f}"
                rows.append((data.name, name, str(one.hosts), cores, percent(one.stranded, 1)))
    return grid(header, rows) if rows else "No set here has memory sizes."


def compare_pools(trace: Trace, seed: int) -> tuple[Fragmentation, Fragmentation]:
    """Return both ways of pooling the instances present at the end of *trace*, at 1×."""
    random = np.random.default_rng(seed)
    histories: dict[Dimension, History] = {}
    for dimension in (Dimension.CPU, Dimension.MEMORY):
        known = history_before(trace, trace.slots, WEEK_S, DAY_S, dimension)
        histories[dimension] = known.history
    count = len(histories[Dimension.CPU].request)
    order = random.permutation(count)
    tiers = [(Tier.HIGH, Tier.MEDIUM, Tier.LOW)[i] for i in random.integers(0, 3, count)]
    return separate_pools(histories, order, GENERATIONS), one_pool(histories, order, GENERATIONS, tiers)
