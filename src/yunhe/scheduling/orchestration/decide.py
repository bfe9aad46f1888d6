"""Where a demand should run, and why: a pure function of the demand and the snapshot.

The steps, in the order they run: filter (small named rules say no, with what they saw), score (terms in
money and kilometres), select (the policy weighs the terms), assign. The same arguments always give the same
answer: ties go to the pool whose name sorts first.
"""

from collections.abc import Callable, Iterable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from yunhe.kernel.ids import NodeId
from yunhe.kernel.money import MICROS, Prices
from yunhe.kernel.resources import Resources
from yunhe.kernel.units import show_cpu, show_memory
from yunhe.scheduling.orchestration.model import (
    Alternative,
    Assignment,
    Candidate,
    Decision,
    Demand,
    Placed,
    Policy,
    Rejection,
    Waiting,
)
from yunhe.scheduling.perception.snapshot import PoolFacts, Snapshot, check_snapshot

DEFAULT_WEIGHTS = {"cost_per_hour": 1.0, "distance_km": 1.0}


class _Question(NamedTuple):
    """One alternative of a demand, put to the nodes of one pool."""

    demand: Demand
    alternative: Alternative
    pool: PoolFacts
    rows: NDArray[np.int64]
    snapshot: Snapshot


def decide(demand: Demand, snapshot: Snapshot) -> Decision:
    """Return where *demand* goes, or why it waits."""
    check_snapshot(snapshot)
    candidates: list[Candidate] = []
    rejections: list[Rejection] = []
    for row, pool in enumerate(snapshot.pools):
        rows = np.flatnonzero(snapshot.node_pool == row)
        refusals: list[Rejection] = []
        found = False
        for index, alternative in enumerate(demand.alternatives):
            question = _Question(demand, alternative, pool, rows, snapshot)
            refusal = _first_refusal(question)
            if refusal is None:
                candidates.append(_candidate(question, index))
                found = True
            else:
                refusals.append(refusal)
        if not found:
            rejections.append(refusals[0])
    if not candidates:
        return Waiting(
            rejected=tuple(rejections),
            smallest_change=_smallest_change(demand, snapshot),
            snapshot_version=snapshot.version,
        )
    ranked = _ranked(demand, candidates)
    best = ranked[0]
    chosen = demand.alternatives[best.alternative]
    return Placed(
        assignments=(Assignment(best.pool_id, best.node_id, chosen.resources),),
        score=best.score,
        terms=best.terms,
        candidates=ranked,
        rejected=tuple(rejections),
        snapshot_version=snapshot.version,
    )


def _accepting(question: _Question) -> str | None:
    return None if question.pool.accepts else (question.pool.why_not or "does not take work now")


def _named(question: _Question) -> str | None:
    wanted = question.alternative.pools
    if not wanted or question.pool.name in wanted:
        return None
    return f"only {', '.join(wanted)} asked for"


def _fresh(question: _Question) -> str | None:
    return "just failed here" if question.pool.id in question.demand.avoid_pools else None


def _serving(question: _Question) -> str | None:
    only = question.pool.only_project
    if only in (None, question.demand.project_id):
        return None
    return "serves another project only"


def _roomy(question: _Question) -> str | None:
    if _fitting(question).size:
        return None
    return _shortest(question)


RULES: tuple[tuple[str, Callable[[_Question], str | None]], ...] = (
    ("accepting", _accepting),
    ("named", _named),
    ("fresh", _fresh),
    ("serving", _serving),
    ("roomy", _roomy),
)


def _first_refusal(question: _Question) -> Rejection | None:
    for name, rule in RULES:
        detail = rule(question)
        if detail is not None:
            return Rejection(question.pool.id, question.pool.name, name, detail)
    return None


def _fitting(question: _Question) -> NDArray[np.int64]:
    """Return the rows of the pool's nodes that have room in every dimension."""
    snapshot, ask, rows = question.snapshot, question.alternative.resources, question.rows
    fits = (
        (snapshot.cpu_free_millis[rows] >= ask.cpu_millis)
        & (snapshot.memory_free_mib[rows] >= ask.memory_mib)
        & (snapshot.disk_free_mib[rows] >= ask.disk_mib)
    )
    for wanted in ask.accelerators:
        column = snapshot.accelerators_free_milli.get(wanted.kind)
        fits &= np.zeros(rows.size, dtype=bool) if column is None else column[rows] >= wanted.milli
    return rows[fits]


def _shortest(question: _Question) -> str:
    """Say what the node that comes nearest still lacks."""
    if not question.rows.size:
        return "has no node that answers"
    nearest = min(
        (_short(question, int(row)) for row in question.rows), key=lambda short: (len(short), sorted(short))
    )
    return ", ".join(nearest)


def _short(question: _Question, row: int) -> list[str]:
    snapshot, ask = question.snapshot, question.alternative.resources
    cpu, memory, disk = (
        int(column[row])
        for column in (snapshot.cpu_free_millis, snapshot.memory_free_mib, snapshot.disk_free_mib)
    )
    short: list[str] = []
    if cpu < ask.cpu_millis:
        short.append(f"{show_cpu(ask.cpu_millis)} cores asked, {show_cpu(cpu)} free")
    if memory < ask.memory_mib:
        short.append(f"{show_memory(ask.memory_mib)} asked, {show_memory(memory)} free")
    if disk < ask.disk_mib:
        short.append(f"{show_memory(ask.disk_mib)} disk asked, {show_memory(disk)} free")
    for wanted in ask.accelerators:
        column = snapshot.accelerators_free_milli.get(wanted.kind)
        have = 0 if column is None else int(column[row])
        if have < wanted.milli:
            short.append(f"{wanted.milli / 1000:g} × {wanted.kind} asked, {have / 1000:g} free")
    return short


def _candidate(question: _Question, index: int) -> Candidate:
    rows = _fitting(question)
    # Best fit: the node left with the least free cpu keeps large holes for large demands.
    order = np.lexsort(
        (rows, question.snapshot.memory_free_mib[rows], question.snapshot.cpu_free_millis[rows])
    )
    node: NodeId = question.snapshot.node_ids[int(rows[order[0]])]
    pool = question.pool
    terms = {
        "cost_per_hour": _cost_per_hour(question.alternative.resources, pool, question.demand),
        "distance_km": _distance_km(pool, question.demand),
    }
    return Candidate(pool.id, pool.name, node, index, 0.0, terms)


def _cost_per_hour(resources: Resources, pool: PoolFacts, demand: Demand) -> float | None:
    if pool.prices is None or demand.tier not in pool.prices:
        return None
    return cost_per_hour_micros(resources, pool.prices[demand.tier]) / MICROS


def cost_per_hour_micros(resources: Resources, prices: Prices) -> float:
    """Return what reserving *resources* for an hour costs."""
    cost = resources.cpu_millis / 1000 * prices.cpu_core_hour_micros
    cost += resources.memory_mib / 1024 * prices.memory_gib_hour_micros
    for wanted in resources.accelerators:
        cost += wanted.milli / 1000 * prices.accelerator_hour_micros.get(wanted.kind, 0)
    return cost


def _distance_km(pool: PoolFacts, demand: Demand) -> float | None:
    if demand.near is None or pool.place is None:
        return None
    return demand.near.distance_km(pool.place)


def _ranked(demand: Demand, candidates: list[Candidate]) -> tuple[Candidate, ...]:
    weights = _weights(demand)
    spans = {term: _span(candidate.terms[term] for candidate in candidates) for term in weights}
    scored = [
        Candidate(c.pool_id, c.pool_name, c.node_id, c.alternative, _score(c, weights, spans), c.terms)
        for c in candidates
    ]
    return tuple(
        sorted(
            scored,
            key=lambda c: (
                c.alternative if demand.ordered else 0,
                c.score,
                tuple(np.inf if v is None else v for v in c.terms.values()),
                c.pool_name,
                c.alternative,
            ),
        )
    )


def _weights(demand: Demand) -> dict[str, float]:
    if demand.policy is Policy.CHEAPEST:
        return {"cost_per_hour": 1.0}
    if demand.policy is Policy.NEAREST:
        return {"distance_km": 1.0}
    return {**DEFAULT_WEIGHTS, **demand.weights}


def _span(values: Iterable[float | None]) -> tuple[float, float]:
    known = [value for value in values if value is not None]
    return (min(known), max(known)) if known else (0.0, 0.0)


def _score(candidate: Candidate, weights: dict[str, float], spans: dict[str, tuple[float, float]]) -> float:
    """Return the weighted sum of the terms, each scaled to 0 (best here) … 1 (worst here); unknown counts as worst."""
    total = 0.0
    for term, weight in weights.items():
        low, high = spans[term]
        value = candidate.terms[term]
        if value is None:
            total += weight
        elif high > low:
            total += weight * (value - low) / (high - low)
    return total


def _smallest_change(demand: Demand, snapshot: Snapshot) -> str:
    """Name the one dimension whose reduction would let the demand run somewhere now."""
    best: tuple[float, str] | None = None
    for row, pool in enumerate(snapshot.pools):
        rows = np.flatnonzero(snapshot.node_pool == row)
        for alternative in demand.alternatives:
            question = _Question(demand, alternative, pool, rows, snapshot)
            if any(rule(question) is not None for name, rule in RULES if name != "roomy"):
                continue
            for node in rows:
                change = _one_reduction(alternative.resources, snapshot, int(node), pool.name)
                if change is not None and (best is None or change < best):
                    best = change
    return best[1] if best else ""


def _one_reduction(ask: Resources, snapshot: Snapshot, row: int, pool: str) -> tuple[float, str] | None:
    cpu, memory = int(snapshot.cpu_free_millis[row]), int(snapshot.memory_free_mib[row])
    cpu_short, memory_short = cpu < ask.cpu_millis, memory < ask.memory_mib
    if cpu_short == memory_short:
        return None
    if cpu_short and cpu > 0:
        return (1 - cpu / ask.cpu_millis, f"ask for {show_cpu(cpu)} cores: {pool} has them free")
    if memory_short and memory > 0:
        return (1 - memory / ask.memory_mib, f"ask for {show_memory(memory)} of memory: {pool} has it free")
    return None
