"""Why not: what refuses a demand in a pool or on a node."""

from collections import Counter
from collections.abc import Mapping

import numpy as np

from yunhe.kernel.ids import NodeId
from yunhe.kernel.resources import Resources
from yunhe.kernel.units import show_cpu, show_memory
from yunhe.scheduling.decision.cycle import Cycle
from yunhe.scheduling.decision.filter.rules import (
    class_refusal,
)
from yunhe.scheduling.decision.model import (
    Demand,
    Domain,
    Policy,
    Rejection,
    Rule,
    demand_for,
    group_spread,
)
from yunhe.scheduling.decision.network.moving import NetworkRefusal
from yunhe.scheduling.decision.nodes import kernels
from yunhe.scheduling.decision.nodes.kernels import IntArray
from yunhe.scheduling.decision.options import Option

FACTS_OF_RULE: Mapping[Rule, tuple[str, ...]] = {
    Rule.RESIDENT: ("place",),
    Rule.LEVEL: ("place",),
    Rule.LABELLED: ("labels",),
    Rule.RELIABLE: ("reliability",),
    Rule.REACHABLE: ("place",),
    Rule.TIMELY: ("speed",),
}
"""The facts of a pool that a rule goes by."""
FACTS_OF_POLICY: Mapping[Policy, tuple[str, ...]] = {
    Policy.NEAREST: ("place",),
    Policy.LOWEST_LATENCY: ("place",),
    Policy.FASTEST: ("speed",),
    Policy.GREENEST: ("watts_idle", "watts_full", "carbon"),
}
"""The facts without which the term that a policy is named after is unknown."""


def refusal_in(cycle: Cycle, demand: Demand, option: Option, alternative: int, pool: int) -> NetworkRefusal:
    """Return why *pool* does not take *demand*, when it does not: the first rule, limit or shortage that says so.

    What it goes by may be unknown because it is too old; then that is said, too.
    """
    refusal = _first_refusal(cycle, demand, option, alternative, pool)
    old = cycle.snapshot.pools[pool].too_old
    goes_by = FACTS_OF_RULE.get(refusal.rule, ())
    if refusal.rule is Rule.KNOWN:
        goes_by = FACTS_OF_POLICY.get(demand.policy, ())
    notes = [f"its {fact} was {old[fact]}" for fact in goes_by if fact in old]
    return refusal._replace(detail="; ".join([refusal.detail, *notes])) if notes else refusal


def _first_refusal(
    cycle: Cycle, demand: Demand, option: Option, alternative: int, pool: int
) -> NetworkRefusal:
    if pool in option.refusals:
        return option.refusals[pool]
    for limit in option.limits:
        if limit.broken[pool]:
            return limit.refuse(pool)
    one = demand.alternatives[alternative]
    return _shortage(cycle, demand_for(demand, one), option, one.resources, pool)


def _shortage(
    cycle: Cycle, demand: Demand, option: Option, resources: Resources, pool: int
) -> NetworkRefusal:
    rows = _rows(cycle, pool)
    if not rows.size:
        return NetworkRefusal(Rule.ROOMY, "has no node that answers")
    allowed = rows[_allowed(cycle, option, rows)]
    if not allowed.size:
        refusals = Counter(_node_refusal(cycle, demand, option, int(row)) for row in rows[:: _stride(rows)])
        refusal = refusals.most_common(1)[0][0]
        return refusal or NetworkRefusal(Rule.ROOMY, "has no node that may take it")
    nearest, miss = _nearest(cycle, option, allowed)
    if demand.members > 1 and _fits(cycle, option, nearest):
        found = cycle.count_in(demand, option, (pool,))
        missing = 1 - found / demand.members
        return NetworkRefusal(Rule.ROOMY, f"{demand.members} asked together, room for {found}", missing)
    short = ", ".join(short_of(cycle, resources, nearest)) or "no device has enough left"
    return NetworkRefusal(Rule.ROOMY, short, miss)


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
        cores = f"core{'s' * (ask.cpu_millis != 1000)}"
        short.append(f"{show_cpu(ask.cpu_millis)} {cores} asked, {show_cpu(max(cpu, 0))} free")
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


def _node_refusal(cycle: Cycle, demand: Demand, option: Option, row: int) -> NetworkRefusal | None:
    refusal = class_refusal(demand, cycle.snapshot.classes[int(cycle.snapshot.node_class[row])])
    if refusal is not None:
        return refusal
    if demand.nodes and cycle.snapshot.node_ids[row] not in demand.nodes:
        names = ", ".join(node.rpartition("/")[2] for node in demand.nodes)
        return NetworkRefusal(Rule.NAMED, f"only node {names} asked for, which does not take work now")
    if option.ask.node_ok.size and not option.ask.node_ok[row]:
        spread = group_spread(demand)
        names = [affinity.group for affinity in demand.affinity if affinity.over is Domain.NODE]
        if not names and spread is not None:
            names = list(demand.groups)
            detail = f"as many of {', '.join(names)} run here as asked for: {spread.at_most}"
            return NetworkRefusal(Rule.TOGETHER, detail)
        return NetworkRefusal(Rule.TOGETHER, f"what runs here does not agree with {', '.join(names)}")
    return None


def why_not(demand: Demand, cycle: Cycle, node_id: NodeId) -> Rejection | None:
    """Return why one node does not take *demand*, from the snapshot that was decided on; None when it could."""
    row = cycle.snapshot.row_of_node[node_id]
    pool = int(cycle.snapshot.node_pool[row])
    facts = cycle.snapshot.pools[pool]
    refusals: list[NetworkRefusal] = []
    for index, alternative in enumerate(demand.alternatives):
        option = cycle.appraiser.option(demand, index)
        if option.order[pool] == np.inf:
            refusals.append(refusal_in(cycle, demand, option, index, pool))
            continue
        refusal = _node_refusal(cycle, demand_for(demand, alternative), option, row)
        if refusal is None and _fits(cycle, option, row):
            return None
        short = ", ".join(short_of(cycle, alternative.resources, row)) or "no device has enough left"
        refusals.append(refusal or NetworkRefusal(Rule.ROOMY, short))
    return Rejection(facts.id, facts.name, *refusals[0])


def count_refusals(demand: Demand, cycle: Cycle) -> dict[str, dict[str, int]]:
    """Return pool → rule → nodes, for the first alternative; what a decision over many nodes keeps of its reasons."""
    option, counts = cycle.appraiser.option(demand, 0), dict[str, dict[str, int]]()
    for pool, facts in enumerate(cycle.snapshot.pools):
        rows = _rows(cycle, pool)
        if option.order[pool] == np.inf:
            counts[facts.name] = {refusal_in(cycle, demand, option, 0, pool).rule.value: int(rows.size)}
            continue
        tally: Counter[Rule] = Counter()
        for code, number in zip(*np.unique(cycle.snapshot.node_class[rows], return_counts=True), strict=True):
            first = demand_for(demand, demand.alternatives[0])
            refusal = class_refusal(first, cycle.snapshot.classes[int(code)])
            if refusal is not None:
                tally[refusal.rule] += int(number)
        allowed = rows[_allowed(cycle, option, rows)]
        by_node = Rule.NAMED if demand.nodes else Rule.TOGETHER
        tally[by_node] += int(rows.size - allowed.size - sum(tally.values()))
        tally[Rule.ROOMY] += _without_room(cycle, option, allowed)
        counts[facts.name] = {rule.value: number for rule, number in tally.items() if number}
    return counts


def _without_room(cycle: Cycle, option: Option, rows: IntArray) -> int:
    """Count the nodes that have no room; devices are looked at one by one only where the rest fits."""
    enough = np.all(cycle.room.free[rows] >= option.ask.amount, axis=1)
    if not option.ask.amount[kernels.COLUMNS - 1]:
        return int(rows.size - enough.sum())
    return int(rows.size - sum(_fits(cycle, option, int(row)) for row in rows[enough]))
