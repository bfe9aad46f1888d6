"""Changes of how much is asked for: less of an amount, fewer or smaller members, members that share more."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace

import msgspec
import numpy as np

from yunhe.kernel.resources import Accelerators, Resources
from yunhe.kernel.units import parse_memory_mib, show_cpu, show_memory
from yunhe.scheduling.decision.advice.changes import (
    AS_IT_IS,
    Change,
    PoolAttempt,
    Recipe,
    changing,
    class_changes,
    let_be,
    with_alternative,
)
from yunhe.scheduling.decision.filter.rules import NO_ROWS, BoolArray, Groups
from yunhe.scheduling.decision.model import Demand, Domain, demand_for, group_spread, spreads_of
from yunhe.scheduling.decision.nodes import kernels
from yunhe.scheduling.decision.nodes.kernels import IntArray
from yunhe.scheduling.decision.options import devices_asked
from yunhe.scheduling.decision.spanning import orders_of

MOST_CLASSES = 12
MOST_ROWS = 24
"""Of how many nodes the devices are looked at one by one."""
AMOUNTS = ("cpu_millis", "memory_mib", "disk_mib")


def node_changes(here: PoolAttempt) -> Iterator[Recipe]:
    """Yield what would let some kind of the pool's nodes take the demand: what to give up, and how much less to ask for."""
    start = here.cycle.snapshot.pool_start
    rows = np.arange(start[here.pool], start[here.pool + 1])
    for given_up, alike in kinds_of_node(here, rows):
        if here.demand.members == 1:
            for less in less_on(here, alike):
                yield (*given_up, *less)
        elif given_up:
            yield given_up
    if here.demand.members > 1 and not here.demand.one_pool:
        yield AS_IT_IS  # whether there is room is a matter of all pools together
    elif here.demand.members > 1 and rows.size:
        yield from gang_changes(here, (here.pool,))


def kinds_of_node(here: PoolAttempt, rows: IntArray) -> Iterator[tuple[Recipe, IntArray]]:
    """Yield the nodes that a demand may not use for the same reasons, and what it would have to give up for them."""
    snapshot = here.cycle.snapshot
    demand = demand_for(here.demand, here.demand.alternatives[here.alternative])
    for given_up, beside in _by_groups(demand, here.cycle.groups, rows):
        codes = snapshot.node_class[beside]
        for code in np.unique(codes)[:MOST_CLASSES].tolist():
            yield (*class_changes(demand, snapshot.classes[code]), *given_up), beside[codes == code]


def _by_groups(demand: Demand, groups: Groups, rows: IntArray) -> Iterator[tuple[Recipe, IntArray]]:
    wanted = [one for one in demand.affinity if one.over is Domain.NODE]
    broken = np.zeros(rows.size, dtype=np.int64)
    for bit, one in enumerate(wanted):
        runs = np.isin(rows, groups.get(one.group, NO_ROWS))
        broken += (runs == one.apart).astype(np.int64) << bit
    spread = group_spread(demand)
    own = demand.groups if spread is not None and spread.over is Domain.NODE else ()
    for bit, group in enumerate(own, len(wanted)):
        members = (rows[:, None] == groups.get(group, NO_ROWS)).sum(axis=1)
        broken += (members >= (1 if spread is None else spread.at_most)).astype(np.int64) << bit
    for code in np.unique(broken).tolist():
        at_odds = [one for bit, one in enumerate(wanted) if code >> bit & 1]
        crowds = [group for bit, group in enumerate(own, len(wanted)) if code >> bit & 1]
        yield ((let_be(at_odds, crowds),) if code else AS_IT_IS), rows[broken == code]


# --- less of an amount


def less_on(here: PoolAttempt, rows: IntArray) -> list[Recipe]:
    """Return what less would fit on one of the nodes *rows*: of one thing, or of all that the nearest node lacks."""
    resources = here.demand.alternatives[here.alternative].resources
    free, ask = here.cycle.room.free[rows][:, :3], here.option.ask.amount[:3]
    lacks = free < ask
    lack = (np.maximum(ask - free, 0) / np.maximum(ask, 1)).sum(axis=1)
    order = np.lexsort((lack, lacks.sum(axis=1)))
    if not resources.accelerators:
        if not lacks.any(axis=1).all():
            return [AS_IT_IS]
    elif any(
        not lacks[at].any() and _devices_fit(here, int(rows[at]), resources.accelerators)
        for at in order[:MOST_ROWS]
    ):
        return [AS_IT_IS]
    found = [_of_one(here, column, rows, free, lacks) for column in range(3)]
    found += [_of_all(here, int(rows[at]), free[at], lacks[at]) for at in order[:MOST_ROWS]]
    return [(change,) for change in dict.fromkeys(one for one in found if one is not None)]


def _of_one(
    here: PoolAttempt, column: int, rows: IntArray, free: IntArray, lacks: BoolArray
) -> Change | None:
    """Return the least cut of one amount, on nodes that lack nothing else."""
    resources = here.demand.alternatives[here.alternative].resources
    others = lacks.sum(axis=1) == lacks[:, column]
    best = np.flatnonzero(others & lacks[:, column])
    best = best[np.argsort(-free[best, column], kind="stable")]
    for at in best[:MOST_ROWS] if resources.accelerators else best[:1]:
        if _devices_fit(here, int(rows[at]), resources.accelerators):
            return _less(here, {column: int(free[at, column])}, None)
    return None


def _of_all(here: PoolAttempt, row: int, free: IntArray, lacks: BoolArray) -> Change | None:
    """Return what one node could give of everything it lacks; None where it has nothing of something."""
    resources = here.demand.alternatives[here.alternative].resources
    devices = None
    if not _devices_fit(here, row, resources.accelerators):
        devices = _fewer_devices(here, row, resources.accelerators)
        if devices is None:
            return None
    return _less(here, {column: int(free[column]) for column in np.flatnonzero(lacks).tolist()}, devices)


def _less(
    here: PoolAttempt, free: Mapping[int, int], devices: tuple[Accelerators, ...] | None, has: str = ""
) -> Change | None:
    """Return asking for what is free, in amounts that can be said."""
    resources = here.demand.alternatives[here.alternative].resources
    asked = {column: int(getattr(resources, AMOUNTS[column])) for column in free}
    given = {column: amount if column == 0 else _sayable_mib(amount) for column, amount in free.items()}
    if any(amount <= 0 for amount in given.values()):
        return None
    sizes = [1 - given[column] / asked[column] for column in free]
    words = [_amount(column, amount) for column, amount in given.items()]
    if devices is not None:
        for old, new in zip(resources.accelerators, devices, strict=True):
            if new != old:
                sizes.append(
                    1 - (new.milli / old.milli) * (new.memory_mib / old.memory_mib if old.memory_mib else 1)
                )
                words.append(_devices(new, old))
    if not words:
        return None
    have = "them" if list(free) == [0] and devices is None else "it"
    have = "that" if len(words) > 1 or devices is not None else have
    return Change(
        f"amount {'+'.join(str(column) for column in free)}{'' if devices is None else ' accelerators'}",
        sum(sizes),
        f"ask for {' and '.join(words)}{' each' if here.demand.members > 1 else ''}",
        _asking(here.alternative, {AMOUNTS[column]: amount for column, amount in given.items()}, devices),
        has or f"{have} free",
        len(words),
    )


def _asking(
    alternative: int, amounts: Mapping[str, int], devices: tuple[Accelerators, ...] | None
) -> Callable[[Demand], Demand]:
    def apply(demand: Demand) -> Demand:
        one = demand.alternatives[alternative]
        up_to = one.up_to
        less: Resources = msgspec.structs.replace(one.resources, **amounts)
        if devices is not None:
            less = msgspec.structs.replace(less, accelerators=devices)
            up_to = None if up_to is None else msgspec.structs.replace(up_to, accelerators=())
        changed = msgspec.structs.replace(one, resources=less, up_to=up_to)
        return with_alternative(demand, alternative, changed)

    return apply


def _amount(column: int, free: int) -> str:
    text = f"{show_cpu(free)} core{'s' * (free != 1000)}" if column == 0 else show_memory(free)
    return text + ("", " of memory", " of disk")[column]


def _devices(wanted: Accelerators, before: Accelerators) -> str:
    memory = f" with {show_memory(wanted.memory_mib)}" if wanted.memory_mib != before.memory_mib else ""
    return f"{wanted.milli / 1000:g} × {wanted.kind}{memory}"


def _sayable_mib(free: int) -> int:
    """Return the most that is not more than *free* and is what it looks like when it is shown."""
    amount = float(free)
    while amount >= 1 and parse_memory_mib(show_memory(amount)) > free:
        amount = amount * 0.999 - 1
    return parse_memory_mib(show_memory(amount)) if amount >= 1 else 0


def _devices_fit(here: PoolAttempt, row: int, accelerators: Sequence[Accelerators]) -> bool:
    if not accelerators:
        return True
    cycle = here.cycle
    asked, kind_ok = devices_asked(Resources(accelerators=tuple(accelerators)), cycle.snapshot.device_kinds)
    ask = here.option.ask._replace(accelerators=asked, kind_ok=kind_ok)
    count = int(np.diff(cycle.snapshot.device_start[row : row + 2])[0])
    chosen = np.zeros((max(1, count), 3), dtype=np.int64)
    enough = sum(-(-wanted.milli // kernels.WHOLE) for wanted in accelerators) <= count
    return enough and kernels.choose_devices(cycle.room, row, ask, chosen) >= 0


def _fewer_devices(
    here: PoolAttempt, row: int, accelerators: tuple[Accelerators, ...]
) -> tuple[Accelerators, ...] | None:
    """Return the most that a node's devices give: less of one kind where that will do, else of each in turn."""
    for index, wanted in enumerate(accelerators):
        for less in _lesser(here, row, wanted):
            changed = (*accelerators[:index], less, *accelerators[index + 1 :])
            if _devices_fit(here, row, changed):
                return changed
    kept: tuple[Accelerators, ...] = ()
    for wanted in accelerators:
        tried = (
            one for one in (wanted, *_lesser(here, row, wanted)) if _devices_fit(here, row, (*kept, one))
        )
        less = next(tried, None)
        if less is None:
            return None
        kept = (*kept, less)
    return kept


def _lesser(here: PoolAttempt, row: int, wanted: Accelerators) -> list[Accelerators]:
    """Return smaller asks of one kind, the largest first, that a node's devices might just give."""
    snapshot, room = here.cycle.snapshot, here.cycle.room
    devices = slice(int(snapshot.device_start[row]), int(snapshot.device_start[row + 1]))
    parts = {int(free) for free in room.device_free[devices].tolist()}
    wholes = range(kernels.WHOLE, wanted.milli, kernels.WHOLE)
    millis = [wanted.milli, *sorted((m for m in {*parts, *wholes} if 0 < m < wanted.milli), reverse=True)]
    memories = [wanted.memory_mib]
    if wanted.memory_mib:
        frees = {_sayable_mib(int(free)) for free in room.device_memory[devices].tolist()}
        memories += sorted((mib for mib in frees if 0 < mib < wanted.memory_mib), reverse=True)
    asks = [Accelerators(wanted.kind, milli, mib) for mib in memories for milli in millis]
    return sorted(asks[1:], key=lambda one: -one.milli * (one.memory_mib or 1))


# --- gangs


def gang_changes(here: PoolAttempt, pools: Sequence[int]) -> Iterator[Recipe]:
    """Yield what would let *pools* together take the members: fewer, smaller, or less apart from each other."""
    demand, cycle = here.demand, here.cycle
    found = cycle.count_in(demand, here.option, pools)
    if found >= _least(demand):
        yield AS_IT_IS
        return
    if found:
        words = f"ask for {found} member{'s' if found > 1 else ''}"
        fewer = changing(members=found, members_min=None)
        size = 1 - found / demand.members
        yield (Change("members", size, words, fewer, f"room for {'them' if found > 1 else 'it'}"),)
    yield from _smaller(here, pools)
    if spreads_of(demand):
        yield (_less_apart(demand),)
    if demand.one_pool and len(cycle.snapshot.pools) > 1:
        apart = changing(one_pool=False)
        yield (Change("one pool", 0.6, "let its members run in several pools", apart, ""),)


def _least(demand: Demand) -> int:
    return demand.members if demand.members_min is None else demand.members_min


def _less_apart(demand: Demand) -> Change:
    own = tuple([one for one in demand.affinity if not (one.apart and one.group in demand.groups)])
    return Change(
        "spread", 0.6, "let its members run beside each other", changing(spread=None, affinity=own), ""
    )


def _smaller(here: PoolAttempt, pools: Sequence[int]) -> Iterator[Recipe]:
    """Yield smaller members: so small in one thing that there is room for all, or so small that one fits at all."""
    start, option = here.cycle.snapshot.pool_start, here.option
    rows = np.concatenate(
        [np.arange(start[pool], start[pool + 1]) for pool in pools] or [np.zeros(0, np.int64)]
    )
    ok = option.ask.class_ok[here.cycle.snapshot.node_class[rows]] == 1
    if option.ask.node_ok.size:
        ok &= option.ask.node_ok[rows] == 1
    rows = rows[ok]
    if not rows.size:
        return
    for column in range(3):
        most = _largest(here, rows, column)
        change = most and _less(here, {column: most}, None, f"room for all {_least(here.demand)}")
        if change and _holds(replace(here, demand=change.apply(here.demand)), pools):
            yield (change,)
    yield from (recipe for recipe in less_on(here, rows) if recipe)


def _holds(here: PoolAttempt, pools: Sequence[int]) -> bool:
    return here.cycle.count_in(here.demand, here.option, pools) >= _least(here.demand)


def _largest(here: PoolAttempt, rows: IntArray, column: int) -> int:
    """Return the most of one amount at which *rows* hold all members; 0 where none will do, or no less is needed."""
    free, amount = here.cycle.room.free[rows], here.option.ask.amount
    others = [other for other in range(kernels.COLUMNS) if other != column and amount[other]]
    limits = [free[:, other] // amount[other] for other in others]
    most_each = np.minimum.reduce(
        [*limits, np.full(rows.size, min(here.option.ask.per_node, here.demand.members))]
    )
    low, high = 0, int(amount[column])
    if not high or np.minimum(most_each, free[:, column] // high).clip(0).sum() >= _least(here.demand):
        return 0
    while high - low > 1:
        middle = (low + high) // 2
        held = np.minimum(most_each, free[:, column] // middle).clip(0).sum()
        low, high = (middle, high) if held >= _least(here.demand) else (low, middle)
    return low


def pools_together(here: PoolAttempt) -> list[int]:
    """Return the pools that a gang may span, in the order in which they are filled."""
    return orders_of(here.option)[0]
