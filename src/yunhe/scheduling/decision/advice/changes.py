"""Changes of a demand that would mend what one pool has against it: its rules, its limits and its kinds of node.

A change is a demand asked differently, so that whether it helps can be decided rather than guessed; ``advice`` does. What is
said of a number is what is asked with: it is rounded to how it is shown, towards the side that still fits.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import msgspec
import numpy as np

from yunhe.kernel.money import MICROS, show_money
from yunhe.kernel.units import parse_duration_s, show_duration
from yunhe.scheduling.decision.cycle import Cycle
from yunhe.scheduling.decision.filter.rules import (
    DECISIVE,
    RuleInput,
    at_odds,
    broken_rules,
    crowded,
    is_within,
    lacking,
    ready_after_s,
    total_cost,
    unlabelled,
    untolerated,
)
from yunhe.scheduling.decision.model import (
    Affinity,
    Alternative,
    Demand,
    Policy,
    Rule,
    ScoreTerm,
    demand_for,
)
from yunhe.scheduling.decision.options import Option
from yunhe.scheduling.decision.score.terms import term
from yunhe.scheduling.perception.model import PoolFacts
from yunhe.scheduling.perception.snapshot import NodeClass


class Change(NamedTuple):
    """One thing to ask for differently."""

    what: str
    """Which thing: of several changes of one thing only the least is worth saying."""
    size: float
    """The smaller, the nearer to what was asked."""
    words: str
    apply: Callable[[Demand], Demand]
    because: str = "room"
    """What the pool then has; empty where the words say it all."""
    parts: int = 1
    """How many things it is when counted one by one."""


Recipe = tuple[Change, ...]
"""Changes that are made together; none where nothing need change."""
AS_IT_IS: Recipe = ()


@dataclass(frozen=True)
class PoolAttempt:
    """One alternative of a demand, put to one pool."""

    demand: Demand
    cycle: Cycle
    alternative: int
    pool: int

    @cached_property
    def option(self) -> Option:
        """The alternative, scored in every pool."""
        return self.cycle.appraiser.option(self.demand, self.alternative)

    @property
    def facts(self) -> PoolFacts:
        """What is known of the pool."""
        return self.cycle.snapshot.pools[self.pool]


def changing(**fields: object) -> Callable[[Demand], Demand]:
    """Return what asks for the same with other values of some fields."""
    return lambda demand: msgspec.structs.replace(demand, **fields)


# --- what a pool's rules ask for


def rule_changes(here: PoolAttempt) -> Recipe | None:
    """Return what to give up so that the rules of the pool are kept; None where that is not the asker's to give."""
    if here.pool not in here.option.refusals:
        return AS_IT_IS
    alternative = here.demand.alternatives[here.alternative]
    question = RuleInput(
        demand_for(here.demand, alternative),
        alternative,
        here.facts,
        here.pool,
        here.cycle.snapshot,
        here.cycle.groups,
    )
    rules = broken_rules(question)
    if not rules and here.pool not in here.option.survey.refusals:
        return None  # closed, as it has failed
    found = [_allow(question, here.alternative, rule) for rule in rules]
    return tuple([one for one in found if one is not None]) if None not in found else None


def _allow(question: RuleInput, alternative: int, rule: Rule) -> Change | None:
    demand, facts = question.demand, question.pool
    region = "" if facts.place is None else facts.place.region
    level = None if facts.place is None else facts.place.level
    if rule == Rule.NAMED:
        named = facts.name in (question.alternative.pools or (facts.name,))
        words = "allow any infra" if named else f"allow pool {facts.name}"
        return Change(rule, 0.3, words, _naming(alternative, question), "")
    if rule == Rule.TOLERATED:
        return tolerate(demand, facts.taints)
    if rule == Rule.LEVEL:
        levels = () if level is None else (*demand.levels, level)
        return Change(
            rule, 0.5, f"allow {f'level {level}' if level else 'any level'}", changing(levels=levels)
        )
    if rule == Rule.ABLE:
        lacks = lacking(demand, facts)
        powers = tuple([power for power in demand.powers if power not in lacks])
        return Change(rule, 0.6, f"do without {' and '.join(lacks)}", changing(powers=powers))
    if rule == Rule.RESIDENT:
        return allow_regions(demand, [region])
    if rule == Rule.TOGETHER:
        return let_be(at_odds(question), [group for group, _ in crowded(question)])
    return None


def _naming(alternative: int, question: RuleInput) -> Callable[[Demand], Demand]:
    def apply(demand: Demand) -> Demand:
        one, pool = demand.alternatives[alternative], question.pool
        pools = (*one.pools, pool.name) if one.pools and pool.name not in one.pools else one.pools
        infra = one.infra if not one.infra or is_within(pool, one.infra) else ""
        named = msgspec.structs.replace(one, pools=pools, infra=infra)
        return with_alternative(demand, alternative, named)

    return apply


def with_alternative(demand: Demand, index: int, alternative: Alternative) -> Demand:
    """Return *demand* with one of its alternatives replaced."""
    alternatives = (*demand.alternatives[:index], alternative, *demand.alternatives[index + 1 :])
    return msgspec.structs.replace(demand, alternatives=alternatives)


def tolerate(demand: Demand, taints: tuple[str, ...]) -> Change:
    """Say which taints to tolerate beside those that are."""
    missing = [taint for taint in taints if untolerated((taint,), demand.tolerations) is not None]
    words = f"tolerate {', '.join(missing)}"

    def apply(demand: Demand) -> Demand:  # a pool and its nodes may each have some
        return msgspec.structs.replace(demand, tolerations=(*demand.tolerations, *missing))

    return Change(Rule.TOLERATED, 0.4, words, apply)


def allow_regions(demand: Demand, regions: list[str]) -> Change:
    """Say which regions to allow beside those that are; all, where it is not known which one it would be."""
    new = sorted(set(regions))
    if "" in new:
        return Change(Rule.RESIDENT, 1.1, "allow any region", changing(residency=()))
    words = f"allow region{'s' if len(new) > 1 else ''} {' and '.join(new)}"
    return Change(Rule.RESIDENT, 0.9, words, changing(residency=(*demand.residency, *new)))


def let_be(affinities: list[Affinity], crowds: Sequence[str] = ()) -> Change:
    """Say which groups not to go by, and of which to allow more in one place (*crowds*)."""
    words = [f"allow it {'beside' if one.apart else 'away from'} {one.group}" for one in affinities]
    words += [f"allow more of {group} together" for group in crowds]

    def apply(demand: Demand) -> Demand:
        kept = tuple([one for one in demand.affinity if one not in affinities])
        return msgspec.structs.replace(demand, affinity=kept, spread=None if crowds else demand.spread)

    return Change(Rule.TOGETHER, 0.7, " and ".join(words), apply, parts=len(words))


# --- what kinds of node ask for


def class_changes(demand: Demand, node_class: NodeClass) -> Recipe:
    """Return what to give up so that nodes of a class may take *demand*."""
    return tuple(_class_changes(demand, node_class))


def _class_changes(demand: Demand, node_class: NodeClass) -> Iterator[Change]:
    if demand.isa and node_class.isa not in demand.isa:
        isa = (*demand.isa, node_class.isa) if node_class.isa else ()
        words = f"allow {node_class.isa or 'any architecture'}"
        yield Change(Rule.ARCHITECTURE, 0.6, words, changing(isa=isa))
    if untolerated(node_class.taints, demand.tolerations) is not None:
        yield tolerate(demand, node_class.taints)
    missing = unlabelled(demand, node_class)
    if missing:
        words = f"do without {' and '.join(missing)}"
        yield Change(Rule.LABELLED, 0.5, words, _without_labels(missing), parts=len(missing))


def _without_labels(missing: list[str]) -> Callable[[Demand], Demand]:
    def kept(where: tuple[str, ...]) -> tuple[str, ...]:
        return tuple([wanted for wanted in where if wanted not in missing])

    def apply(demand: Demand) -> Demand:
        alternatives = tuple(
            [msgspec.structs.replace(one, where=kept(one.where)) for one in demand.alternatives]
        )
        return msgspec.structs.replace(demand, where=kept(demand.where), alternatives=alternatives)

    return apply


# --- limits


class LimitValues(NamedTuple):
    """What limits are held against; NaN where it is unknown."""

    per_hour: float
    in_all: float
    ready_s: float
    kept: float
    latency_ms: float
    unknown: tuple[ScoreTerm, ...] = ()
    """Terms that a policy is named after and that are unknown."""


def values_in(option: Option, pool: int) -> LimitValues:
    """Return what the limits of a demand look at in one pool."""
    table = option.table
    return LimitValues(
        float(term(table, ScoreTerm.COST_PER_HOUR)[pool]),
        float(total_cost(table)[pool]),
        float(ready_after_s(table)[pool]),
        1 - float(term(table, ScoreTerm.RISK)[pool]),
        float(term(table, ScoreTerm.LATENCY_MS)[pool]),
        tuple([name for name, _, _ in DECISIVE.values() if np.isnan(term(table, name)[pool])]),
    )


def limit_changes(demand: Demand, values: LimitValues, taken_at: float) -> Recipe:
    """Return how far every limit that is broken must move."""
    return tuple(_limit_changes(demand, values, taken_at))


def _limit_changes(demand: Demand, values: LimitValues, taken_at: float) -> Iterator[Change]:
    hourly, total = demand.budget_per_hour_micros, demand.budget_micros
    if hourly is not None and not values.per_hour * MICROS <= hourly + 0.5:
        yield _budget(values.per_hour, hourly, "/h", "budget_per_hour_micros")
    if total is not None and not values.in_all * MICROS <= total + 0.5:
        yield _budget(values.in_all, total, "", "budget_micros")
    if demand.deadline_at is not None and values.ready_s > demand.deadline_at - taken_at:
        yield _deadline(values.ready_s, taken_at)
    wanted = demand.reliability_min
    if wanted is not None and not values.kept >= wanted - 1e-12:
        yield _reliability(wanted, values.kept)
    most = demand.max_latency_ms
    if most is not None and not values.latency_ms <= most:
        yield _latency(most, values.latency_ms)
    if demand.policy in DECISIVE and DECISIVE[demand.policy][0] in values.unknown:
        yield Change(Rule.KNOWN, 0.2, "use policy balanced", changing(policy=Policy.BALANCED))


def _budget(cost: float, budget_micros: int, per: str, name: str) -> Change:
    if not np.isfinite(cost):
        return Change(name, 1.5, f"no budget{per}", changing(**{name: None}), "room at an unknown price")
    micros = round(cost * MICROS)
    grid = MICROS // (100 if micros >= MICROS else 10_000)  # as it is shown
    raised = -(-micros // grid) * grid
    size = cost * MICROS / max(budget_micros, 1) - 1
    return Change(name, size, f"a budget of {show_money(raised)}{per}", changing(**{name: raised}), "")


def _deadline(ready_s: float, taken_at: float) -> Change:
    later_s = ready_s
    while parse_duration_s(show_duration(later_s)) < ready_s:
        later_s = later_s * 1.005 + 0.05
    words = f"a deadline {show_duration(later_s)} from now"
    deadline_at = taken_at + parse_duration_s(show_duration(later_s)) + 0.001
    return Change(Rule.TIMELY, 0.5 + ready_s / 1e9, words, changing(deadline_at=deadline_at), "")


def _reliability(wanted: float, kept: float) -> Change:
    floor = math.floor(kept * 1e4 + 1e-6) / 1e4 if np.isfinite(kept) else 0.0
    if floor <= 0:
        lifted = changing(reliability_min=None)
        return Change(Rule.RELIABLE, 1.5, "no reliability asked for", lifted)
    words = f"a reliability of {floor * 100:.4g} %"
    return Change(Rule.RELIABLE, 0.5 + wanted - kept, words, changing(reliability_min=floor), "")


def _latency(most: float, latency_ms: float) -> Change:
    if not np.isfinite(latency_ms):
        lifted = changing(max_latency_ms=None)
        return Change(Rule.REACHABLE, 1.5, "any latency", lifted, "room at an unknown one")
    ceiling = math.ceil(latency_ms - 1e-9)
    size = latency_ms / max(most, 1e-9) - 1
    return Change(
        Rule.REACHABLE, size, f"a latency of {ceiling} ms", changing(max_latency_ms=float(ceiling)), ""
    )
