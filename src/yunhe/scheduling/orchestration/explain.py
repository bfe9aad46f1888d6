"""Why not: what refuses a demand in a pool or on a node, and the smallest change that would let it run."""

from collections import Counter
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from yunhe.kernel.ids import NodeId
from yunhe.kernel.money import MICROS, show_money
from yunhe.kernel.resources import Resources
from yunhe.kernel.units import show_cpu, show_duration, show_memory
from yunhe.scheduling.orchestration import kernels
from yunhe.scheduling.orchestration.cycle import Cycle
from yunhe.scheduling.orchestration.kernels import IntArray
from yunhe.scheduling.orchestration.model import Demand, Rejection
from yunhe.scheduling.orchestration.moving import Refusal
from yunhe.scheduling.orchestration.options import Option
from yunhe.scheduling.orchestration.rules import (
    POOL_RULES,
    Question,
    class_refusal,
    lacking,
    pool_refusal,
    ready_after_s,
    total_cost,
)
from yunhe.scheduling.orchestration.score import term


def refusal_in(cycle: Cycle, demand: Demand, option: Option, alternative: int, pool: int) -> Refusal:
    """Return why *pool* does not take *demand*, when it does not: the first rule, limit or shortage that says so."""
    if pool in option.refusals:
        return option.refusals[pool]
    for limit in option.limits:
        if limit.broken[pool]:
            return Refusal(limit.rule, limit.say(pool))
    return _shortage(cycle, demand, option, demand.alternatives[alternative].resources, pool)


def _shortage(cycle: Cycle, demand: Demand, option: Option, resources: Resources, pool: int) -> Refusal:
    rows = _rows(cycle, pool)
    if not rows.size:
        return Refusal("roomy", "has no node that answers")
    allowed = rows[_allowed(cycle, option, rows)]
    if not allowed.size:
        refusals = Counter(_node_refusal(cycle, demand, option, int(row)) for row in rows[:: _stride(rows)])
        refusal = refusals.most_common(1)[0][0]
        return refusal or Refusal("roomy", "has no node that may take it")
    nearest, miss = _nearest(cycle, option, allowed)
    if demand.members > 1 and _fits(cycle, option, nearest):
        found = cycle.count_in(demand, option, (pool,))
        missing = 1 - found / demand.members
        return Refusal("roomy", f"{demand.members} asked together, room for {found}", missing)
    short = ", ".join(short_of(cycle, resources, nearest)) or "no device has enough left"
    return Refusal("roomy", short, miss)


def _stride(rows: IntArray) -> int:
    """Look at a few hundred nodes at most: classes repeat."""
    return max(1, rows.size // 256)


def _rows(cycle: Cycle, pool: int) -> IntArray:
    start = cycle.snapshot.pool_start
    return np.arange(start[pool], start[pool + 1])


def _allowed(cycle: Cycle, option: Option, rows: IntArray) -> IntArray:
    ok = option.ask.class_ok[cycle.snapshot.node_class[rows]] == 1
    if option.ask.node_ok.size:
        ok &= option.ask.node_ok[rows] == 1
    return np.flatnonzero(ok)


def _nearest(cycle: Cycle, option: Option, rows: IntArray) -> tuple[int, float]:
    """Return the node that lacks the fewest dimensions, then the least of them, and how far it is from fitting."""
    lacks, lack = np.zeros(rows.size), np.zeros(rows.size)
    for column, asked in enumerate(option.ask.amount.tolist()):
        short = asked - cycle.room.free[rows, column]
        lacks += short > 0
        lack += np.maximum(short, 0) / max(asked, 1)
    misses = lacks * 1000 + lack
    best = int(np.argmin(misses))
    return int(rows[best]), float(misses[best])


def _fits(cycle: Cycle, option: Option, row: int) -> bool:
    devices = int(np.diff(cycle.snapshot.device_start[row : row + 2])[0])
    chosen = np.zeros((max(1, devices), 3), dtype=np.int64)
    return bool(kernels.fits(cycle.room, row, option.ask, chosen))


def short_of(cycle: Cycle, ask: Resources, row: int) -> list[str]:
    """Say what a node lacks for an amount, dimension by dimension."""
    cpu, memory, disk, _ = (int(value) for value in cycle.room.free[row])
    short: list[str] = []
    if cpu < ask.cpu_millis:
        short.append(f"{show_cpu(ask.cpu_millis)} cores asked, {show_cpu(max(cpu, 0))} free")
    if memory < ask.memory_mib:
        short.append(f"{show_memory(ask.memory_mib)} asked, {show_memory(max(memory, 0))} free")
    if disk < ask.disk_mib:
        short.append(f"{show_memory(ask.disk_mib)} disk asked, {show_memory(max(disk, 0))} free")
    for wanted in ask.accelerators:
        have = free_milli(cycle, row, wanted.kind, wanted.memory_mib, wanted.milli)
        if have < wanted.milli:
            memory_note = f" with {show_memory(wanted.memory_mib)}" if wanted.memory_mib else ""
            short.append(f"{wanted.milli / 1000:g} × {wanted.kind}{memory_note} asked, {have / 1000:g} free")
    return short


def free_milli(cycle: Cycle, row: int, kind: str, memory_mib: int, ask_milli: int) -> int:
    """Return how much of an ask the node's devices could give: whole ones for whole, the largest part for a part."""
    snapshot, room = cycle.snapshot, cycle.room
    first, last = int(snapshot.device_start[row]), int(snapshot.device_start[row + 1])
    names = set(kind.split("|"))
    parts = sorted(
        int(room.device_free[device])
        for device in range(first, last)
        if (kind == "*" or snapshot.device_kinds[int(snapshot.device_kind[device])] in names)
        and room.device_memory[device] >= memory_mib
    )
    if ask_milli < kernels.WHOLE:
        return parts[-1] if parts else 0
    return sum(kernels.WHOLE for part in parts if part >= kernels.WHOLE)


def _node_refusal(cycle: Cycle, demand: Demand, option: Option, row: int) -> Refusal | None:
    refusal = class_refusal(demand, cycle.snapshot.classes[int(cycle.snapshot.node_class[row])])
    if refusal is not None:
        return refusal
    if option.ask.node_ok.size and not option.ask.node_ok[row]:
        groups = ", ".join(affinity.group for affinity in demand.affinity)
        return Refusal("together", f"what runs here does not agree with {groups}")
    return None


def why_not(demand: Demand, cycle: Cycle, node_id: NodeId) -> Rejection | None:
    """Return why one node does not take *demand*, from the snapshot that was decided on; None when it could."""
    row = cycle.snapshot.row_of_node[node_id]
    pool = int(cycle.snapshot.node_pool[row])
    facts = cycle.snapshot.pools[pool]
    refusals: list[Refusal] = []
    for index, alternative in enumerate(demand.alternatives):
        option = cycle.appraiser.option(demand, index)
        if option.order[pool] == np.inf:
            refusals.append(refusal_in(cycle, demand, option, index, pool))
            continue
        refusal = _node_refusal(cycle, demand, option, row)
        if refusal is None and _fits(cycle, option, row):
            return None
        short = ", ".join(short_of(cycle, alternative.resources, row)) or "no device has enough left"
        refusals.append(refusal or Refusal("roomy", short))
    return Rejection(facts.id, facts.name, *refusals[0])


def count_refusals(demand: Demand, cycle: Cycle) -> dict[str, dict[str, int]]:
    """Return pool → rule → nodes, for the first alternative; what a decision over many nodes keeps of its reasons."""
    option, counts = cycle.appraiser.option(demand, 0), dict[str, dict[str, int]]()
    for pool, facts in enumerate(cycle.snapshot.pools):
        rows = _rows(cycle, pool)
        if option.order[pool] == np.inf:
            counts[facts.name] = {refusal_in(cycle, demand, option, 0, pool).rule: int(rows.size)}
            continue
        tally: Counter[str] = Counter()
        for code, number in zip(*np.unique(cycle.snapshot.node_class[rows], return_counts=True), strict=True):
            refusal = class_refusal(demand, cycle.snapshot.classes[int(code)])
            if refusal is not None:
                tally[refusal.rule] += int(number)
        allowed = rows[_allowed(cycle, option, rows)]
        tally["together"] += int(rows.size - allowed.size - sum(tally.values()))
        tally["roomy"] += _without_room(cycle, option, allowed)
        counts[facts.name] = {rule: number for rule, number in tally.items() if number}
    return counts


def _without_room(cycle: Cycle, option: Option, rows: IntArray) -> int:
    """Count the nodes that have no room; devices are looked at one by one only where the rest fits."""
    enough = np.all(cycle.room.free[rows] >= option.ask.amount, axis=1)
    if not option.ask.amount[kernels.COLUMNS - 1]:
        return int(rows.size - enough.sum())
    return int(rows.size - sum(_fits(cycle, option, int(row)) for row in rows[enough]))


class Change(NamedTuple):
    """One thing to ask for differently; the smaller the size, the nearer to what was asked."""

    size: float
    text: str
    what: str
    """Which thing: of several changes of one thing only the least is worth saying."""


def smallest_change(demand: Demand, cycle: Cycle) -> str:
    """Name the one or two least changes, each of which alone would let *demand* run now; else less of all it lacks."""
    alternatives = range(len(demand.alternatives))
    changes = sorted(change for index in alternatives for change in _changes(demand, cycle, index))
    if not changes:
        return min((cut for index in alternatives for cut in _cuts(demand, cycle, index)), default=NONE).text
    least: dict[str, Change] = {}
    for change in changes:
        least.setdefault(change.what, change)
    texts: list[str] = []
    for best in list(least.values())[:2]:
        pools = sum(change.what == best.what and change.size == best.size for change in changes)
        texts.append(best.text + (f" ({pools} pools do)" if pools > 1 and ": " in best.text else ""))
    return ", or ".join(texts)


NONE = Change(np.inf, "", "")


def _cuts(demand: Demand, cycle: Cycle, alternative: int) -> Iterator[Change]:
    """Yield how much of everything the nearest node of each pool could give, where only room is lacking."""
    option = cycle.appraiser.option(demand, alternative)
    if demand.members > 1:
        return
    for pool in range(len(cycle.snapshot.pools)):
        rows = _rows(cycle, pool)
        rows = rows[_allowed(cycle, option, rows)]
        if not rows.size or pool in option.refusals or any(limit.broken[pool] for limit in option.limits):
            continue
        row, miss = _nearest(cycle, option, rows)
        resources = demand.alternatives[alternative].resources
        free = [int(value) for value in cycle.room.free[row]]
        asked = (resources.cpu_millis, resources.memory_mib, resources.disk_mib)
        short = [column for column, amount in enumerate(asked) if free[column] < amount]
        if len(short_of(cycle, resources, row)) > len(short) or any(free[column] <= 0 for column in short):
            continue  # a device is lacking, or nothing is left
        if not short:
            continue  # devices would do for each kind alone, not for all of them
        words = " and ".join(_amount(column, free[column]) for column in short)
        yield Change(miss, f"ask for {words}: {cycle.snapshot.pools[pool].name} has that free", "all")


def _amount(column: int, free: int) -> str:
    text = f"{show_cpu(free)} cores" if column == 0 else show_memory(free)
    return text + ("", " of memory", " of disk")[column]


def _changes(demand: Demand, cycle: Cycle, alternative: int) -> Iterator[Change]:
    option = cycle.appraiser.option(demand, alternative)
    if demand.members > 1 and not demand.one_pool:
        found = cycle.count_in(demand, option, list(cycle.in_order(option)))
        yield from _fewer_members(demand, found, "the pools together have")
    for pool in range(len(cycle.snapshot.pools)):
        rules = _broken_rules(demand, cycle, alternative, pool)
        limits = [limit for limit in option.limits if limit.broken[pool]]
        survey_says_no = pool in option.refusals and not rules
        if len(rules) + len(limits) + survey_says_no > 1:
            continue
        if rules or limits:
            if cycle.fit_in(demand, alternative, option, pool) is not None:
                change = (
                    _allow(demand, cycle, pool, rules[0])
                    if rules
                    else _raise(demand, option, pool, limits[0].rule)
                )
                if change is not None:
                    yield change
        elif not survey_says_no:
            yield from _reductions(demand, cycle, option, alternative, pool)


def _broken_rules(demand: Demand, cycle: Cycle, alternative: int, pool: int) -> list[str]:
    facts = cycle.snapshot.pools[pool]
    question = Question(demand, demand.alternatives[alternative], facts, pool, cycle.snapshot, cycle.groups)
    if pool_refusal(question) is None:
        return []
    return [name for name, rule in POOL_RULES if rule(question) is not None]


def _allow(demand: Demand, cycle: Cycle, pool: int, rule: str) -> Change | None:
    """Say which constraint to give up so that *pool* may take it; rules of the pool itself are not the asker's."""
    facts = cycle.snapshot.pools[pool]
    place = facts.place
    if rule == "named":
        return Change(0.3, f"allow pool {facts.name}", rule)
    if rule == "tolerated":
        return Change(0.4, f"tolerate {', '.join(facts.taints)}: {facts.name} has room", rule)
    if rule == "level" and place is not None and place.level is not None:
        return Change(0.5, f"allow level {place.level}: {facts.name} has room", rule)
    if rule == "able":
        return Change(0.6, f"do without {' and '.join(lacking(demand, facts))}: {facts.name} has room", rule)
    if rule == "resident" and place is not None:
        return Change(0.9, f"allow region {place.region}: {facts.name} has room", rule)
    return None


def _raise(demand: Demand, option: Option, pool: int, rule: str) -> Change | None:
    """Say how far a limit must move so that *pool* is within it."""
    table = option.table
    if rule == "affordable" and demand.budget_per_hour_micros is not None:
        rate = float(term(table, "cost_per_hour")[pool])
        return _budget(rate, demand.budget_per_hour_micros, "/h")
    if rule == "affordable" and demand.budget_micros is not None:
        return _budget(float(total_cost(table)[pool]), demand.budget_micros, "")
    if rule == "timely":
        ready_s = float(ready_after_s(table)[pool])
        return Change(0.5 + ready_s / 1e9, f"a deadline {show_duration(ready_s)} from now", rule)
    if rule == "reliable" and not np.isnan(term(table, "risk")[pool]):
        kept = 1 - float(term(table, "risk")[pool])
        return Change(
            0.5 + (demand.reliability_min or 0) - kept, f"a reliability of {kept * 100:.4g} %", rule
        )
    if rule == "reachable" and demand.max_latency_ms and not np.isnan(term(table, "latency_ms")[pool]):
        latency = float(term(table, "latency_ms")[pool])
        return Change(latency / demand.max_latency_ms - 1, f"a latency of {latency:.0f} ms", rule)
    return None


def _budget(cost: float, budget_micros: int, per: str) -> Change | None:
    if np.isnan(cost):
        return None
    size = cost * MICROS / max(budget_micros, 1) - 1
    return Change(size, f"a budget of {show_money(round(cost * MICROS))}{per}", "affordable")


def _reductions(
    demand: Demand, cycle: Cycle, option: Option, alternative: int, pool: int
) -> Iterator[Change]:
    """Yield what less of one thing would fit on some node of *pool*."""
    name = cycle.snapshot.pools[pool].name
    rows = _rows(cycle, pool)
    rows = rows[_allowed(cycle, option, rows)]
    if not rows.size:
        return
    if demand.members > 1:
        if demand.one_pool:
            yield from _fewer_members(demand, cycle.count_in(demand, option, (pool,)), f"{name} has")
        return
    ask = option.ask.amount
    resources = demand.alternatives[alternative].resources
    free = [cycle.room.free[rows, column] for column in range(kernels.COLUMNS)]
    lacks = [free[column] < ask[column] for column in range(kernels.COLUMNS)]
    count = lacks[0].astype(np.int64) + lacks[1] + lacks[2] + lacks[3]
    for column in range(kernels.COLUMNS):
        others = count - lacks[column] == 0
        if not others.any():
            continue
        if column == kernels.COLUMNS - 1:
            yield from _fewer_devices(cycle, resources, rows[others], name)
            continue
        most = int(free[column][others].max())
        if 0 < most < ask[column]:
            yield Change(
                1 - most / int(ask[column]),
                f"ask for {_amount(column, most)}: {name} has {'them' if column == 0 else 'it'} free",
                f"amount {column}",
            )


def _fewer_members(demand: Demand, found: int, who_has: str) -> Iterator[Change]:
    if found:
        text = f"ask for {found} members: {who_has} room for them"
        yield Change(1 - found / demand.members, text, "members")


def _fewer_devices(cycle: Cycle, resources: Resources, rows: IntArray, name: str) -> Iterator[Change]:
    if len(resources.accelerators) != 1:
        return
    wanted = resources.accelerators[0]
    have = max(
        free_milli(cycle, int(row), wanted.kind, wanted.memory_mib, wanted.milli)
        for row in rows[:: _stride(rows)]
    )
    if 0 < have < wanted.milli:
        yield Change(
            1 - have / wanted.milli,
            f"ask for {have / 1000:g} × {wanted.kind}: {name} has that free",
            "accelerators",
        )
