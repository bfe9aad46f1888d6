"""What would let a waiting demand run now: the least changes, each of them decided on before it is named.

The search goes from pool to pool, nearest first: all that a pool is known to have against the demand is mended, the changed demand
is decided on in the same cycle (nothing is reserved), and where that is not enough, what is then in the way is mended too.
"""

import heapq
from collections.abc import Iterator
from itertools import count
from typing import NamedTuple

import msgspec
import numpy as np

from yunhe.kernel.resources import Accelerators
from yunhe.scheduling.decision.advice.changes import (
    LimitValues,
    PoolAttempt,
    Recipe,
    limit_changes,
    rule_changes,
    values_in,
)
from yunhe.scheduling.decision.advice.network_changes import LEFT_OUT, move_changes
from yunhe.scheduling.decision.advice.room_changes import gang_changes, node_changes, pools_together
from yunhe.scheduling.decision.cycle import Cycle
from yunhe.scheduling.decision.filter.rules import DECISIVE, BoolArray
from yunhe.scheduling.decision.model import (
    Demand,
    Policy,
    Rule,
    ScoreTerm,
)
from yunhe.scheduling.decision.score.terms import HOUR_S
from yunhe.scheduling.perception.snapshot import Snapshot, matching_kinds

MOST_TRIED = 60
MOST_TRIED_MOVING = 12
MOST_SURVEYED = 240
"""Where something moves each try surveys the way to every pool again: fewer tries over many pools."""
NEAREST = 20
"""How many pools are looked at in detail; others only where these have nothing to offer."""
NOT_THE_ASKERS = (Rule.ACCEPTING, Rule.FRESH, Rule.SERVING)
MOST_TOGETHER = 12
MOST_NAMED = 2
MOST_DIVES = 6
ANYWHERE = -1
"""Instead of a pool: all of them, for a gang that may span several."""
LESS_COSTS_LESS = ("amount", "members")


class Advice(NamedTuple):
    """Changes that together let a demand run, and the demand with them."""

    changes: Recipe
    demand: Demand
    pool: int
    """The pool they were made for; ``ANYWHERE`` where that is several."""
    alternative: int

    @property
    def cost(self) -> tuple[int, float]:
        """What to go by: how many things change, then by how much."""
        return sum(change.parts for change in self.changes), sum(change.size for change in self.changes)

    @property
    def what(self) -> tuple[str, ...]:
        """Which things change."""
        return tuple([change.what for change in self.changes])


def smallest_change(demand: Demand, cycle: Cycle) -> str:
    """Name the one or two least changes, each of which alone would let *demand* run now; else the fewest that do together."""
    return ", or ".join(_said(advice, cycle) for advice in least_changes(demand, cycle))


def least_changes(demand: Demand, cycle: Cycle) -> list[Advice]:
    """Return the least single changes of different things, or the fewest changes together where no single one will do."""
    near = {index: nearest_pools(demand, cycle, index) for index in range(len(demand.alternatives))}
    for first in range(0, max(map(len, near.values())), NEAREST):
        found = _least_in(
            [
                further
                for index, pools in near.items()
                for pool in [*_everywhere(demand, first), *pools[first : first + NEAREST]]
                for further in _further(Advice((), demand, pool, index), cycle)
            ],
            demand,
            cycle,
        )
        if found:
            return found
    return []


def _everywhere(demand: Demand, first: int) -> list[int]:
    return [ANYWHERE] if first == 0 and demand.members > 1 and not demand.one_pool else []


def _least_in(begin: list[Advice], demand: Demand, cycle: Cycle) -> list[Advice]:
    """Return the least of what *begin* leads to; the number of tries is bounded."""
    turn = count()
    waiting = [(advice.cost, next(turn), advice) for advice in begin]
    heapq.heapify(waiting)
    tries, found = _most_tries(demand, cycle), list[Advice]()
    seen: set[tuple[int, tuple[str, ...]]] = set()
    while waiting and tries > 0:
        (parts, _), _, advice = heapq.heappop(waiting)
        key = advice.alternative, tuple(sorted(change.words for change in advice.changes))
        if key in seen or (found and not _is_another(advice, found)):
            continue
        seen.add(key)
        tries -= 1
        if cycle.find(advice.demand) is not None:
            found.append(_without_needless(advice, demand, cycle))
            if parts > 1 or len(found) == MOST_NAMED:
                break
        elif not found and len(advice.changes) < MOST_TOGETHER:
            for further in _further(advice, cycle):
                heapq.heappush(waiting, (further.cost, next(turn), further))
    return found or _at_any_rate(begin, demand, cycle)


def _at_any_rate(begin: list[Advice], demand: Demand, cycle: Cycle) -> list[Advice]:
    """Return some way out where the least is out of reach: give up at each step what is surest to help, then take back."""
    for advice in sorted(begin, key=lambda one: one.cost)[:MOST_DIVES]:
        while len(advice.changes) < MOST_TOGETHER:
            if cycle.find(advice.demand) is not None:
                return [_without_needless(advice, demand, cycle)]
            further = list(_further(advice, cycle))
            if not further:
                break
            advice = max(further, key=lambda one: one.cost[1])  # noqa: PLW2901 - deeper and deeper
    return []


def _is_another(advice: Advice, found: list[Advice]) -> bool:
    """Return whether it is a single change of something else; to leave something out is the last resort, not a second."""
    return (
        advice.cost[0] == 1
        and advice.what not in {one.what for one in found}
        and not advice.what[0].startswith(LEFT_OUT)
    )


def _without_needless(advice: Advice, demand: Demand, cycle: Cycle) -> Advice:
    """Return *advice* less what turns out not to be needed, now that the rest is changed too."""
    kept = advice.changes
    for change in advice.changes if len(kept) > 1 else ():
        fewer = tuple([one for one in kept if one is not change])
        changed = _changed(demand, fewer)
        if fewer and cycle.find(changed) is not None:
            kept, advice = fewer, advice._replace(changes=fewer, demand=changed)
    return advice


def _changed(demand: Demand, changes: Recipe) -> Demand:
    for change in changes:
        demand = change.apply(demand)
    return demand


def _most_tries(demand: Demand, cycle: Cycle) -> int:
    if not (demand.data or demand.traffic):
        return MOST_TRIED
    return min(MOST_TRIED, max(MOST_TRIED_MOVING, MOST_SURVEYED // len(cycle.snapshot.pools)))


def nearest_pools(demand: Demand, cycle: Cycle, alternative: int) -> list[int]:
    """Return the pools that could take it if it were asked differently, by how much they are known to have against it."""
    snapshot, option = cycle.snapshot, cycle.appraiser.option(demand, alternative)
    pools = np.flatnonzero(np.diff(snapshot.pool_start) > 0)
    ask, free = option.ask, cycle.room.free
    lacks = free < ask.amount
    miss = lacks.sum(axis=1) + (np.maximum(ask.amount - free, 0) / np.maximum(ask.amount, 1)).sum(axis=1) / 8
    miss += ask.class_ok[snapshot.node_class] == 0
    if ask.node_ok.size:
        miss += ask.node_ok == 0
    against = np.full(len(snapshot.pools), np.inf)
    if pools.size:
        against[pools] = np.minimum.reduceat(miss, snapshot.pool_start[pools])
    for limit in option.limits:
        against += limit.broken
    for pool, refusal in option.refusals.items():
        against[pool] += np.inf if refusal.rule in NOT_THE_ASKERS else 1
    against[(cycle.room.pool_free < np.minimum(ask.amount, 1)).any(axis=1)] = np.inf
    for wanted in demand.alternatives[alternative].resources.accelerators:
        against[~_has_some(snapshot, wanted)] = np.inf
    order = np.argsort(against, kind="stable")
    return [pool for pool in order.tolist() if np.isfinite(against[pool])]


def _has_some(snapshot: Snapshot, wanted: Accelerators) -> BoolArray:
    """Return, pool by pool, whether any device of a kind is there at all: what nobody has cannot be bargained for."""
    codes = sorted(matching_kinds(wanted.kind, snapshot.device_kinds))
    node_of = np.repeat(np.arange(len(snapshot.node_ids)), np.diff(snapshot.device_start))
    some = np.zeros(len(snapshot.pools), dtype=np.bool_)
    some[snapshot.node_pool[node_of[np.isin(snapshot.device_kind, codes)]]] = True
    return some


def _further(advice: Advice, cycle: Cycle) -> Iterator[Advice]:
    """Yield *advice* with what would fix all that its pool is still known to have against it."""
    here = PoolAttempt(advice.demand, cycle, advice.alternative, advice.pool)
    for recipe in _recipes(here, first=not advice.changes):
        again = {change.what for change in recipe}.intersection(advice.what)
        if recipe and not any(what.startswith(LESS_COSTS_LESS) for what in again):
            changed = _changed(advice.demand, recipe)
            yield Advice((*advice.changes, *recipe), changed, advice.pool, advice.alternative)


def _recipes(here: PoolAttempt, *, first: bool) -> Iterator[Recipe]:
    """Yield what would fix one pool; once it is fixed a gang that spans several may still lack something in all of them."""
    if here.pool != ANYWHERE:
        yield from _in_pool(here)
    if here.pool == ANYWHERE or (not first and here.demand.members > 1 and not here.demand.one_pool):
        yield from _over_pools(here)


def _in_pool(here: PoolAttempt) -> Iterator[Recipe]:
    rules = rule_changes(here)
    if rules is None:
        return
    limits = limit_changes(here.demand, values_in(here.option, here.pool), here.cycle.snapshot.taken_at)
    moves = move_changes(here) if not any(change.what == Rule.RESIDENT for change in rules) else [()]
    for less in node_changes(here):
        raised = () if any(change.what.startswith(LESS_COSTS_LESS) for change in less) else limits
        for move in moves:
            yield _merged((*rules, *move, *raised, *less))


def _merged(recipe: Recipe) -> Recipe:
    """Return a recipe in which what pool and nodes both ask for is said once."""
    tolerated = [change for change in recipe if change.what == Rule.TOLERATED]
    if len(tolerated) < 2:
        return recipe
    first, second = tolerated
    words = ", ".join([first.words, *second.words.removeprefix("tolerate ").split(", ")])

    def apply(demand: Demand) -> Demand:
        return second.apply(first.apply(demand))

    both = first._replace(words=words, apply=apply)
    return (both, *(change for change in recipe if change.what != Rule.TOLERATED))


def _over_pools(here: PoolAttempt) -> Iterator[Recipe]:
    """Yield what would let all pools together take a gang: other members, or limits that the whole keeps."""
    pools = pools_together(here)
    for recipe in gang_changes(here, pools):
        if recipe:
            yield recipe
            continue
        free = msgspec.structs.replace(
            here.demand,
            budget_micros=None,
            budget_per_hour_micros=None,
            deadline_at=None,
            reliability_min=None,
            max_latency_ms=None,
            policy=Policy.BALANCED,
        )
        values = _values_of(free, here.cycle)
        if values is not None:
            yield limit_changes(here.demand, values, here.cycle.snapshot.taken_at)


def _values_of(demand: Demand, cycle: Cycle) -> LimitValues | None:
    """Return what the limits would look at where *demand* goes without them."""
    fit = cycle.find(demand)
    if fit is None:
        return None
    if fit.spanning is None:
        return values_in(fit.option, fit.pool)
    terms = {name: np.nan if value is None else value for name, value in fit.spanning.terms.items()}
    running = terms[ScoreTerm.COST_PER_HOUR] * terms[ScoreTerm.RUN_S] / HOUR_S
    return LimitValues(
        per_hour=terms[ScoreTerm.COST_PER_HOUR],
        in_all=running
        + sum(terms[name] for name in (ScoreTerm.DATA_COST, ScoreTerm.ENERGY_COST, ScoreTerm.EXTERNAL_COST)),
        ready_s=float(
            np.nansum(
                [
                    terms[name]
                    for name in (ScoreTerm.WAIT_S, ScoreTerm.DATA_S, ScoreTerm.RUN_S, ScoreTerm.EXTERNAL_S)
                ]
            )
        ),
        kept=1 - terms[ScoreTerm.RISK],
        latency_ms=terms[ScoreTerm.LATENCY_MS],
        unknown=tuple([name for name, _, _ in DECISIVE.values() if np.isnan(terms[name])]),
    )


# --- in words


def _said(advice: Advice, cycle: Cycle) -> str:
    who = (
        "the pools together have"
        if advice.pool == ANYWHERE
        else f"{cycle.snapshot.pools[advice.pool].name} has"
    )
    words, last = [change.words for change in advice.changes], advice.changes[-1]
    if len(words) > 1:
        return f"{', '.join(words[:-1])} and {words[-1]}, together: {who} room"
    if not last.because:
        return last.words
    pools = _pools_that_do(advice, cycle)
    return f"{last.words}: {who} {last.because}" + (f" ({pools} pools do)" if pools > 1 else "")


def _pools_that_do(advice: Advice, cycle: Cycle) -> int:
    """Count the pools that could take the changed demand; one where it takes several together."""
    demand = advice.demand
    if demand.members > 1 and not demand.one_pool:
        return 1
    option = cycle.appraiser.option(demand, advice.alternative)
    return sum(
        cycle.fit_in(demand, advice.alternative, option, pool) is not None for pool in cycle.in_order(option)
    )
