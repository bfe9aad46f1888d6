"""The rules that say no: small, named, each with what it saw.

Three kinds. Pool rules look at a pool as a whole. Node rules look at a class of nodes or at what runs on a node.
Limits look at the terms of the score. Room on a node is judged last, by the kernels. A limit of law, money or
reliability refuses what is unknown; a deadline refuses only what is known to be late. A policy that is named after one
term refuses a pool of which that is unknown: it cannot be said to be the fastest or the greenest.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from fnmatch import fnmatchcase
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from yunhe.kernel.confinement import WHY_NOT
from yunhe.kernel.ids import NodeId
from yunhe.kernel.money import MICROS, show_money
from yunhe.kernel.units import show_duration
from yunhe.scheduling.decision.model import (
    Affinity,
    Alternative,
    Demand,
    Domain,
    Policy,
    Rule,
    ScoreTerm,
    group_spread,
)
from yunhe.scheduling.decision.network.moving import NetworkRefusal
from yunhe.scheduling.decision.network.routes import in_zone
from yunhe.scheduling.decision.nodes.kernels import ByteArray, FloatArray, IntArray
from yunhe.scheduling.decision.score.kernels import HOURS, ROWS
from yunhe.scheduling.decision.score.terms import HOUR_S, term
from yunhe.scheduling.perception.model import PoolFacts
from yunhe.scheduling.perception.snapshot import NodeClass, Snapshot

BoolArray = NDArray[np.bool_]
Groups = Mapping[str, IntArray]
"""Group → the row of the node of each member."""
NO_ROWS: IntArray = np.zeros(0, dtype=np.int64)


class RuleInput(NamedTuple):
    """One alternative of a demand, put to one pool."""

    demand: Demand
    alternative: Alternative
    pool: PoolFacts
    row: int
    snapshot: Snapshot
    groups: Groups


def _accepting(question: RuleInput) -> str | None:
    return None if question.pool.accepts else (question.pool.why_not or "does not take work now")


def _named(question: RuleInput) -> str | None:
    wanted, infra = question.alternative.pools, question.alternative.infra
    if wanted and question.pool.name not in wanted:
        return f"only {', '.join(wanted)} asked for"
    if infra and not is_within(question.pool, infra):
        return f"is {_whereabouts(question.pool)}, only {infra} asked for (infra)"
    return None


OWN_MACHINES = ("ssh", "local")
"""Kinds of pool that ``ssh`` means: machines of one's own."""


def is_within(pool: PoolFacts, infra: str) -> bool:
    """Return whether a pool is of the kind, or labelled with the cloud, and of the name or in the region that *infra* says.

    A kind may be written short, with the number of letters left out: ``k8s``.
    """
    cloud, _, place = infra.partition("/")
    cloud = cloud.lower()
    kinds = {pool.kind, f"{pool.kind[:1]}{len(pool.kind) - 2}{pool.kind[-1:]}"}
    known = not kinds.isdisjoint(OWN_MACHINES if cloud == "ssh" else (cloud,))
    if cloud != "*" and not known and pool.labels.get("cloud", "").lower() != cloud:
        return False
    names = (pool.name, pool.labels.get("context", ""), _region(pool), pool.labels.get("region", ""))
    return not place or any(fnmatchcase(name, place) for name in names if name)


def _whereabouts(pool: PoolFacts) -> str:
    kind = pool.labels.get("cloud") or pool.kind or "of an unknown kind"
    return f"{kind} in {_region(pool)}" if _region(pool) else kind


def _fresh(question: RuleInput) -> str | None:
    return "just failed here" if question.pool.id in question.demand.avoid_pools else None


def _serving(question: RuleInput) -> str | None:
    only = question.pool.only_project
    if only in (None, question.demand.project_id):
        return None
    return "serves another project only"


def _resident(question: RuleInput) -> str | None:
    zone = question.demand.residency
    region = "" if question.pool.place is None else question.pool.place.region
    if in_zone(region, zone):
        return None
    return f"is in {region or 'an unknown region'}, must stay in {', '.join(zone)}"


def _level(question: RuleInput) -> str | None:
    wanted = question.demand.levels
    level = None if question.pool.place is None else question.pool.place.level
    if not wanted or level in wanted:
        return None
    return f"is at level {level or 'unknown'}, {' or '.join(wanted)} asked for"


def _tolerated(question: RuleInput) -> str | None:
    return untolerated(question.pool.taints, question.demand.tolerations)


def _able(question: RuleInput) -> str | None:
    for power in lacking(question.demand, question.pool):
        why = question.pool.missing.get(power) or WHY_NOT.get(power, "whether it could is not known")
        return f"has no {power}: {why}"
    return None


def _together(question: RuleInput) -> str | None:
    for affinity in at_odds(question):
        where = "this pool" if affinity.over is Domain.POOL else "this region"
        return f"{affinity.group} {'runs' if affinity.apart else 'does not run'} in {where}"
    for group, count in crowded(question):
        spread = group_spread(question.demand)
        most = 0 if spread is None else spread.at_most
        where = "this pool" if spread is not None and spread.over is Domain.POOL else "this region"
        return f"{count} of {group} run{'s' * (count == 1)} in {where}, at most {most} asked for"
    return None


def crowded(question: RuleInput) -> list[tuple[str, int]]:
    """Return the demand's groups that have as many members in the pool, or its region, as its spread allows."""
    spread = group_spread(question.demand)
    if spread is None or spread.over is Domain.NODE:
        return []
    counts = [(group, _members_in(question, group, spread.over)) for group in question.demand.groups]
    return [(group, count) for group, count in counts if count >= spread.at_most]


def _members_in(question: RuleInput, group: str, over: Domain) -> int:
    pools = question.snapshot.node_pool[question.groups.get(group, NO_ROWS)]
    if over is Domain.POOL:
        return int(np.count_nonzero(pools == question.row))
    facts = question.snapshot.pools
    own = _region(question.pool) or question.pool.name
    return sum((_region(facts[pool]) or facts[pool].name) == own for pool in pools.tolist())


def at_odds(question: RuleInput) -> list[Affinity]:
    """Return the affinities over pools or regions that the pool does not agree with."""
    wanted = [affinity for affinity in question.demand.affinity if affinity.over is not Domain.NODE]
    return [affinity for affinity in wanted if _runs_in(question, affinity) == affinity.apart]


POOL_RULES: tuple[tuple[Rule, Callable[[RuleInput], str | None]], ...] = (
    (Rule.ACCEPTING, _accepting),
    (Rule.NAMED, _named),
    (Rule.FRESH, _fresh),
    (Rule.SERVING, _serving),
    (Rule.RESIDENT, _resident),
    (Rule.LEVEL, _level),
    (Rule.TOLERATED, _tolerated),
    (Rule.ABLE, _able),
    (Rule.TOGETHER, _together),
)


def pool_refusal(question: RuleInput) -> NetworkRefusal | None:
    """Return the first pool rule's no."""
    for name, rule in POOL_RULES:
        detail = rule(question)
        if detail is not None:
            return NetworkRefusal(name, detail)
    return None


def broken_rules(question: RuleInput) -> list[Rule]:
    """Return the names of all pool rules that say no, not of the first alone."""
    return [name for name, rule in POOL_RULES if rule(question) is not None]


def lacking(demand: Demand, pool: PoolFacts) -> list[str]:
    """Return the powers that *demand* needs and the engine of *pool* does not have."""
    return [power for power in demand.powers if power not in pool.powers]


def untolerated(taints: tuple[str, ...], tolerations: tuple[str, ...]) -> str | None:
    """Return a taint that no toleration covers; ``key`` tolerates every value of it, ``*`` everything."""
    for taint in taints:
        if not {taint, taint.partition("=")[0], "*"}.intersection(tolerations):
            return f"is tainted {taint}, which is not tolerated"
    return None


def _runs_in(question: RuleInput, affinity: Affinity) -> bool:
    rows = question.groups.get(affinity.group)
    if rows is None:
        return False
    pools = set(question.snapshot.node_pool[rows].tolist())
    if affinity.over is Domain.POOL:
        return question.row in pools
    regions = {_region(question.snapshot.pools[pool]) for pool in pools}
    return _region(question.pool) in regions - {""}


def _region(pool: PoolFacts) -> str:
    return "" if pool.place is None else pool.place.region


def class_refusal(demand: Demand, node_class: NodeClass) -> NetworkRefusal | None:
    """Return why nodes of a class cannot take *demand*, however empty they are."""
    if demand.isa and node_class.isa not in demand.isa:
        return NetworkRefusal(
            Rule.ARCHITECTURE, f"is {node_class.isa or 'unknown'}, {' or '.join(demand.isa)} asked for"
        )
    taint = untolerated(node_class.taints, demand.tolerations)
    if taint is not None:
        return NetworkRefusal(Rule.TOLERATED, taint)
    for wanted in unlabelled(demand, node_class):
        key = _label(wanted)[0]
        has = _value(dict(node_class.labels), key) or "unset"
        return NetworkRefusal(Rule.LABELLED, f"has {key}={has}, {wanted} asked for")
    return None


def unlabelled(demand: Demand, node_class: NodeClass) -> list[str]:
    """Return what *demand* asks of labels and nodes of a class do not have."""
    labels = dict(node_class.labels)
    return [
        wanted
        for wanted in demand.where
        for key, differs, value in [_label(wanted)]
        if (_value(labels, key) == value) == (differs == "!=")
    ]


WELL_KNOWN = ("zone", "instance_type")
"""Labels that a cluster's nodes carry below a name of its maker: ``…/instance-type``."""


def _value(labels: Mapping[str, str], key: str) -> str | None:
    if key in labels or key not in WELL_KNOWN:
        return labels.get(key)
    ends = f"/{key.replace('_', '-')}"
    return next((value for name, value in labels.items() if name.endswith(ends)), None)


def _label(wanted: str) -> tuple[str, str, str]:
    return wanted.partition("!=") if "!=" in wanted else wanted.partition("=")


def classes_ok(demand: Demand, snapshot: Snapshot) -> ByteArray:
    """Return, class by class, whether its nodes may take *demand*."""
    return np.array([class_refusal(demand, one) is None for one in snapshot.classes], dtype=np.uint8)


def nodes_ok(demand: Demand, snapshot: Snapshot, groups: Groups) -> ByteArray:
    """Return, node by node, whether it was asked for and what runs there allows *demand*; empty where any node would do."""
    wanted = [affinity for affinity in demand.affinity if affinity.over is Domain.NODE]
    spread = group_spread(demand)
    if spread is not None and spread.over is not Domain.NODE:
        spread = None
    if not wanted and not demand.nodes and spread is None:
        return np.zeros(0, dtype=np.uint8)
    ok = np.full(len(snapshot.node_ids), not demand.nodes, dtype=np.uint8)
    ok[[snapshot.row_of_node[node] for node in demand.nodes if node in snapshot.row_of_node]] = 1
    for affinity in wanted:
        runs = np.zeros(len(snapshot.node_ids), dtype=np.uint8)
        rows = groups.get(affinity.group)
        if rows is not None:
            runs[rows] = 1
        ok &= runs ^ 1 if affinity.apart else runs
    if spread is not None:
        for group in demand.groups:
            members = np.bincount(groups.get(group, NO_ROWS), minlength=len(snapshot.node_ids))
            ok &= (members < spread.at_most).astype(np.uint8)
    return ok


def agrees(demand: Demand, node: NodeId, snapshot: Snapshot, members: Mapping[NodeId, Iterable[str]]) -> bool:
    """Return whether the groups that have *members* on nodes now let *demand* run on a node."""
    rows: dict[str, list[int]] = {}
    for at, groups in members.items():
        for group in groups if at in snapshot.row_of_node else ():
            rows.setdefault(group, []).append(snapshot.row_of_node[at])
    running = {group: np.array(nodes, dtype=np.int64) for group, nodes in rows.items()}
    row = snapshot.row_of_node[node]
    pool = int(snapshot.node_pool[row])
    ok = nodes_ok(demand, snapshot, running)
    facts = snapshot.pools[pool]
    question = RuleInput(demand, demand.alternatives[0], facts, pool, snapshot, running)
    return not at_odds(question) and not crowded(question) and (not ok.size or bool(ok[row]))


UNKNOWN_MISS = 1e9
"""Farther from fitting than anything that is known."""


class Limit(NamedTuple):
    """A limit on terms: its name, where it is broken, and how to say so of one pool."""

    rule: Rule
    broken: BoolArray
    values: FloatArray
    text: Callable[[float], str]
    wanted: float | None = None
    """The bound on the values, where there is one."""

    def refuse(self, pool: int) -> NetworkRefusal:
        """Say what *pool* has and what was asked for; by how much of that it misses tells the nearest miss."""
        value = float(self.values[pool])
        miss = 0.0 if self.wanted is None else abs(value - self.wanted) / max(abs(self.wanted), 1e-9)
        return NetworkRefusal(self.rule, self.text(value), min(UNKNOWN_MISS, miss))  # also where it is NaN


def limits_of(demand: Demand, table: FloatArray, taken_at: float) -> list[Limit]:
    """Return every limit the demand sets, judged for each pool."""
    limits = [*_budgets(demand, table)]
    if demand.deadline_at is not None:
        limits.append(_deadline(demand.deadline_at - taken_at, table))
    if demand.reliability_min is not None:
        limits.append(_reliability(demand.reliability_min, 1 - term(table, ScoreTerm.RISK)))
    if demand.max_latency_ms is not None:
        limits.append(_latency(demand.max_latency_ms, term(table, ScoreTerm.LATENCY_MS)))
    if demand.policy in DECISIVE:
        limits.append(_known(*DECISIVE[demand.policy], table))
    return limits


DECISIVE: Mapping[Policy, tuple[ScoreTerm, str, str]] = {
    Policy.CHEAPEST: (
        ScoreTerm.COST_PER_HOUR,
        "what it costs",
        "yunhe pool price NAME cpu=0.05/h,mem=0.01/h",
    ),
    Policy.NEAREST: (ScoreTerm.DISTANCE_KM, "where it is", "yunhe pool set NAME --place cn-north@39.9,116.4"),
    Policy.FASTEST: (ScoreTerm.RUN_S, "how fast it is", "yunhe pool set NAME --speed 1.2"),
    Policy.GREENEST: (ScoreTerm.CARBON_G, "its carbon", "yunhe pool set NAME --watts 60..250 --carbon 400"),
    Policy.LOWEST_LATENCY: (
        ScoreTerm.LATENCY_MS,
        "how far it is",
        "yunhe pool set NAME --place cn-north@39.9,116.4",
    ),
}
"""The term that a policy is named after, what a pool does not say where it is unknown, and how to say it."""


def _known(which: ScoreTerm, what: str, remedy: str, table: FloatArray) -> Limit:
    def text(_value: float) -> str:
        return f"does not say {what}: {remedy}"

    values = term(table, which)
    return Limit(Rule.KNOWN, np.isnan(values), values, text)


def _deadline(left_s: float, table: FloatArray) -> Limit:
    ready_s = ready_after_s(table)
    due = show_duration(max(left_s, 0.0))

    def text(value: float) -> str:
        return f"done in ~{show_duration(value)}, due in {due}"

    return Limit(Rule.TIMELY, ready_s > left_s, ready_s, text, left_s)


def _reliability(wanted: float, kept: FloatArray) -> Limit:
    def text(value: float) -> str:
        known = "unknown how" if np.isnan(value) else f"{value * 100:.4g} %"
        return f"{known} sure to finish, {wanted * 100:.4g} % asked for"

    return Limit(Rule.RELIABLE, ~(kept >= wanted - 1e-12), kept, text, wanted)


def _latency(most: float, latency: FloatArray) -> Limit:
    def text(value: float) -> str:
        return f"{'latency unknown' if np.isnan(value) else f'{value:.0f} ms away'}, {most:g} ms allowed"

    return Limit(Rule.REACHABLE, ~(latency <= most), latency, text, most)


def _budgets(demand: Demand, table: FloatArray) -> Iterator[Limit]:
    if demand.budget_per_hour_micros is not None:
        yield _budget(demand.budget_per_hour_micros, term(table, ScoreTerm.COST_PER_HOUR), "/h")
    if demand.budget_micros is not None:
        yield _budget(demand.budget_micros, total_cost(table), " in all")


def _budget(budget_micros: int, cost: FloatArray, per: str) -> Limit:
    def text(value: float) -> str:
        shown = "price unknown" if np.isnan(value) else f"{show_money(round(value * MICROS))}{per}"
        return f"{shown}, over the budget of {show_money(budget_micros)}{per}"

    return Limit(Rule.AFFORDABLE, ~(cost * MICROS <= budget_micros + 0.5), cost, text, budget_micros / MICROS)


def left_for_moves(demand: Demand, table: FloatArray, taken_at: float) -> tuple[FloatArray, FloatArray]:
    """Return the seconds and the money that deadline and budget leave for moving data, pool by pool."""
    without = table.copy()
    without[ROWS[ScoreTerm.DATA_S]] = without[ROWS[ScoreTerm.DATA_COST]] = 0.0
    seconds, money = np.full(table.shape[1], np.inf), np.full(table.shape[1], np.inf)
    if demand.deadline_at is not None:
        seconds = demand.deadline_at - taken_at - ready_after_s(without)
    if demand.budget_micros is not None:
        money = (demand.budget_micros + 0.5) / MICROS - total_cost(without)
    return seconds, money


def ready_after_s(table: FloatArray) -> FloatArray:
    """Return when work would be done; what is unknown counts as nothing."""
    parts = (
        term(table, ScoreTerm.WAIT_S),
        term(table, ScoreTerm.DATA_S),
        table[HOURS] * HOUR_S,
        term(table, ScoreTerm.EXTERNAL_S),
    )
    return np.nansum(np.stack(parts), axis=0)


def total_cost(table: FloatArray) -> FloatArray:
    """Return what a placement costs in all: running, data, power, and what is added from outside."""
    return term(table, ScoreTerm.COST_PER_HOUR) * table[HOURS] + sum(
        term(table, name) for name in (ScoreTerm.DATA_COST, ScoreTerm.ENERGY_COST, ScoreTerm.EXTERNAL_COST)
    )
