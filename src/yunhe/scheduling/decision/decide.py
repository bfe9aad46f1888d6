"""Where a demand should run, and why: a pure function of the demand and the snapshot.

The same arguments always give the same answer: of equal scores the cheaper pool wins, then the one whose name sorts
first. ``decide`` explains itself in full; ``decide_all`` works through a queue and reserves as it goes.
"""

from collections.abc import Sequence

import numpy as np

from yunhe.scheduling.decision.advice.smallest import smallest_change
from yunhe.scheduling.decision.cycle import Cycle, Fit, GangMember, Placement
from yunhe.scheduling.decision.demands import check_demand
from yunhe.scheduling.decision.filter.explain import refusal_in
from yunhe.scheduling.decision.model import (
    Assignment,
    Candidate,
    Decision,
    Demand,
    Placed,
    Rejection,
    ScoreTerm,
    Waiting,
)
from yunhe.scheduling.decision.score.columns import cost_per_hour_micros
from yunhe.scheduling.decision.score.terms import weights_of
from yunhe.scheduling.perception.snapshot import Snapshot, check_snapshot

__all__ = [
    "considered",
    "cost_per_hour_micros",
    "decide",
    "decide_all",
    "decide_in",
    "place_all_in",
    "place_in",
    "place_in_order",
    "short_decision",
]


def decide(demand: Demand, snapshot: Snapshot) -> Decision:
    """Return where *demand* goes with every pool's reasons, or why it waits and what would change that."""
    return decide_in(check_demand(demand), Cycle(check_snapshot(snapshot)))


def decide_all(demands: Sequence[Demand], snapshot: Snapshot) -> tuple[tuple[Decision, ...], Snapshot]:
    """Decide for a whole queue, higher priority first, each decision reserving what it takes.

    A demand that finds no room waits and holds nobody up. Decisions are short: only the chosen candidate, and no reasons
    for waiting; ``decide`` on the returned snapshot gives them for any one.
    """
    cycle = Cycle(check_snapshot(snapshot))
    return place_all_in([check_demand(demand) for demand in demands], cycle), cycle.after()


def place_all_in(demands: Sequence[Demand], cycle: Cycle) -> tuple[Decision, ...]:
    """Decide for a whole queue in *cycle*, higher priority first, and reserve what each takes."""
    order = sorted(range(len(demands)), key=lambda index: -demands[index].priority)
    placed = place_in_order([demands[index] for index in order], cycle)
    decisions = dict(zip(order, placed, strict=True))
    return tuple([decisions[index] for index in range(len(demands))])


def place_in_order(demands: Sequence[Demand], cycle: Cycle) -> list[Decision]:
    """Decide for demands one after another in *cycle*, and reserve what each takes; the decisions are short."""
    return [
        short_decision(demand, cycle, given)
        for demand, given in zip(demands, cycle.place_all(demands), strict=True)
    ]


def decide_in(demand: Demand, cycle: Cycle, *, advise: bool = True) -> Decision:
    """Return the explained decision for *demand* in the world as *cycle* has it; nothing is reserved.

    What would change a no is worked out by deciding again and again; who does not tell anybody does not *advise*.
    """
    fits, candidates, rejections = considered(demand, cycle)
    spans = demand.members > 1 and not demand.one_pool
    fit = cycle.find(demand) if spans or not fits else fits[0]
    if fit is None:
        return Waiting(
            rejected=rejections,
            smallest_change=smallest_change(demand, cycle) if advise else "",
            snapshot_version=cycle.snapshot.version,
        )
    if spans:
        candidates = (_candidate(demand, cycle, fit), *candidates)
    return _placed(demand, cycle, Placement(fit, cycle.given(demand, fit)), candidates, rejections)


def place_in(demand: Demand, cycle: Cycle) -> Decision:
    """Decide for *demand* in *cycle* and reserve what it takes; the decision is short."""
    return short_decision(demand, cycle, cycle.place(demand))


def short_decision(demand: Demand, cycle: Cycle, given: Placement | None) -> Decision:
    """Return a placement, or that there is none, without the reasons of the other pools."""
    if given is None:
        return Waiting(rejected=(), smallest_change="", snapshot_version=cycle.snapshot.version)
    return _placed(demand, cycle, given, (_candidate(demand, cycle, given.fit),))


def considered(
    demand: Demand, cycle: Cycle
) -> tuple[list[Fit], tuple[Candidate, ...], tuple[Rejection, ...]]:
    """Return every fit in a single pool, best first, the same as candidates, and a rejection for each other pool."""
    fits: list[Fit] = []
    refused: dict[int, Rejection] = {}
    for index in range(len(demand.alternatives)):
        option = cycle.appraiser.option(demand, index)
        for pool, facts in enumerate(cycle.snapshot.pools):
            fit = None if option.order[pool] == np.inf else cycle.fit_in(demand, index, option, pool)
            if fit is not None:
                fits.append(fit)
            elif pool not in refused:
                refusal = refusal_in(cycle, demand, option, index, pool)
                refused[pool] = Rejection(facts.id, facts.name, *refusal)
    fits.sort(key=lambda fit: _order(demand, fit))
    able = {fit.pool for fit in fits}
    candidates = tuple(_candidate(demand, cycle, fit) for fit in fits)
    return fits, candidates, tuple(no for pool, no in sorted(refused.items()) if pool not in able)


def _order(demand: Demand, fit: Fit) -> tuple[int, float, int, float, int]:
    return (
        fit.alternative if demand.ordered else 0,
        fit.score,
        fit.alternative,
        float(fit.option.order[fit.pool]),
        fit.pool,
    )


def _candidate(demand: Demand, cycle: Cycle, fit: Fit) -> Candidate:
    facts, shown = cycle.snapshot.pools[fit.pool], cycle.shown(demand, fit)
    return Candidate(
        facts.id,
        facts.name,
        cycle.snapshot.node_ids[fit.members[0].row],
        fit.alternative,
        shown.score,
        shown.terms,
        shown.estimated,
        facts.too_old,
    )


def _placed(
    demand: Demand,
    cycle: Cycle,
    given: Placement,
    candidates: tuple[Candidate, ...],
    rejected: tuple[Rejection, ...] = (),
) -> Placed:
    snapshot, shown = cycle.snapshot, cycle.shown(demand, given.fit)
    return Placed(
        assignments=tuple(
            [
                Assignment(
                    snapshot.pools[member.pool].id,
                    snapshot.node_ids[member.row],
                    resources,
                    _devices(snapshot, member) if member.devices.size else (),
                )
                for member, resources in zip(given.fit.members, given.resources, strict=True)
            ]
        ),
        score=shown.score,
        terms=shown.terms,
        candidates=candidates,
        rejected=rejected,
        snapshot_version=snapshot.version,
        transfers=shown.moves.transfers,
        routes=shown.moves.routes,
        omitted=_omitted(demand, candidates),
    )


def _omitted(demand: Demand, candidates: tuple[Candidate, ...]) -> tuple[str, ...]:
    """Return the terms that count and that no candidate knows; those about ``near`` only where that is said."""
    about_near = () if demand.near is not None else (ScoreTerm.LATENCY_MS, ScoreTerm.DISTANCE_KM)
    factors = zip(ScoreTerm, weights_of(demand.policy, demand.weights).tolist(), strict=True)
    return tuple(
        [
            name.value
            for name, factor in factors
            if factor and name not in about_near and all(one.terms[name] is None for one in candidates)
        ]
    )


def _devices(snapshot: Snapshot, member: GangMember) -> tuple[int, ...]:
    first = int(snapshot.device_start[member.row])
    return tuple([device - first for device in member.devices[:, 0].tolist()])
