"""Where a demand should run, and why: a pure function of the demand and the snapshot.

The same arguments always give the same answer: of equal scores the cheaper pool wins, then the one whose name sorts
first. ``decide`` explains itself in full; ``decide_all`` works through a queue and reserves as it goes.
"""

from collections.abc import Sequence

import numpy as np

from yunhe.kernel.resources import Resources
from yunhe.scheduling.orchestration.columns import cost_per_hour_micros
from yunhe.scheduling.orchestration.cycle import Cycle, Fit, Held, Member
from yunhe.scheduling.orchestration.explain import refusal_in, smallest_change
from yunhe.scheduling.orchestration.model import (
    Alternative,
    Assignment,
    Candidate,
    Decision,
    Demand,
    Placed,
    Rejection,
    Route,
    Transfer,
    Waiting,
)
from yunhe.scheduling.orchestration.options import Option, amount_of
from yunhe.scheduling.perception.snapshot import Snapshot, check_snapshot

__all__ = [
    "DEFAULT_WEIGHTS",
    "considered",
    "cost_per_hour_micros",
    "decide",
    "decide_all",
    "decide_in",
    "place_in",
]

DEFAULT_WEIGHTS = {"cost_per_hour": 1.0, "distance_km": 1.0}
"""The terms that a task file may weigh; ``score.TERMS`` has every term there is."""


def decide(demand: Demand, snapshot: Snapshot) -> Decision:
    """Return where *demand* goes with every pool's reasons, or why it waits and what would change that."""
    return decide_in(demand, Cycle(check_snapshot(snapshot)))


def decide_all(demands: Sequence[Demand], snapshot: Snapshot) -> tuple[tuple[Decision, ...], Snapshot]:
    """Decide for a whole queue, higher priority first, each decision reserving what it takes.

    A demand that finds no room waits and holds nobody up. Decisions are short: only the chosen candidate, and no reasons
    for waiting; ``decide`` on the returned snapshot gives them for any one.
    """
    cycle = Cycle(check_snapshot(snapshot))
    order = sorted(range(len(demands)), key=lambda index: -demands[index].priority)
    decisions: dict[int, Decision] = {index: place_in(demands[index], cycle) for index in order}
    return tuple(decisions[index] for index in range(len(demands))), cycle.after()


def decide_in(demand: Demand, cycle: Cycle) -> Decision:
    """Return the explained decision for *demand* in the world as *cycle* has it; nothing is reserved."""
    fits, candidates, rejections = considered(demand, cycle)
    spans = demand.members > 1 and not demand.one_pool
    fit = cycle.find(demand) if spans or not fits else fits[0]
    if fit is None:
        return Waiting(
            rejected=rejections,
            smallest_change=smallest_change(demand, cycle),
            snapshot_version=cycle.snapshot.version,
        )
    if spans:
        candidates = (_candidate(demand, cycle, fit), *candidates)
    return _placed(demand, cycle, fit, candidates, rejections)


def place_in(demand: Demand, cycle: Cycle) -> Decision:
    """Decide for *demand* in *cycle* and reserve what it takes; the decision is short."""
    fit = cycle.find(demand)
    if fit is None:
        return Waiting(rejected=(), smallest_change="", snapshot_version=cycle.snapshot.version)
    decision = _placed(demand, cycle, fit, (_candidate(demand, cycle, fit),), ())
    cycle.hold(demand.job_id, _held(demand, fit, decision))
    return decision


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
                refused[pool] = Rejection(facts.id, facts.name, refusal.rule, refusal.detail)
    fits.sort(key=lambda fit: _order(demand, fit))
    able = {fit.pool for fit in fits}
    candidates = tuple(_candidate(demand, cycle, fit) for fit in fits)
    return fits, candidates, tuple(no for pool, no in sorted(refused.items()) if pool not in able)


def _order(demand: Demand, fit: Fit) -> tuple[int, float, int, float, int]:
    return (
        fit.alternative if demand.ordered else 0,
        float(fit.option.score[fit.pool]),
        fit.alternative,
        float(fit.option.order[fit.pool]),
        fit.pool,
    )


def _candidate(demand: Demand, cycle: Cycle, fit: Fit) -> Candidate:
    facts = cycle.snapshot.pools[fit.pool]
    return Candidate(
        pool_id=facts.id,
        pool_name=facts.name,
        node_id=cycle.snapshot.node_ids[fit.members[0].row],
        alternative=fit.alternative,
        score=float(fit.option.score[fit.pool]),
        terms=fit.option.terms(fit.pool),
        estimated=_estimated(demand, cycle, fit.option, fit.pool),
    )


def _estimated(demand: Demand, cycle: Cycle, option: Option, pool: int) -> tuple[str, ...]:
    """Name the terms that rest on an assumption: an hour's run, or a latency from the distance."""
    names: list[str] = []
    if demand.run_s is None and not np.isnan(cycle.appraiser.columns.speed[pool]):
        names.append("run_s")
    if demand.run_s is None and not np.isnan(cycle.appraiser.columns.kw_per_core[pool]):
        names.append("carbon_g")
    if pool in option.survey.estimated_latency:
        names.append("latency_ms")
    return tuple(names)


def _placed(
    demand: Demand,
    cycle: Cycle,
    fit: Fit,
    candidates: tuple[Candidate, ...],
    rejected: tuple[Rejection, ...],
) -> Placed:
    chosen = candidates[0]
    return Placed(
        assignments=_assignments(demand, cycle, fit),
        score=chosen.score,
        terms=chosen.terms,
        candidates=candidates,
        rejected=rejected,
        snapshot_version=cycle.snapshot.version,
        transfers=_transfers(cycle, fit),
        routes=_routes(cycle, fit),
    )


def _assignments(demand: Demand, cycle: Cycle, fit: Fit) -> tuple[Assignment, ...]:
    alternative = demand.alternatives[fit.alternative]
    grows = alternative.up_to is not None and len(fit.members) == 1
    return tuple(
        [
            Assignment(
                cycle.snapshot.pools[member.pool].id,
                cycle.snapshot.node_ids[member.row],
                _grown(alternative, cycle, member.row) if grows else alternative.resources,
                devices=_devices(cycle, member) if member.devices.size else (),
            )
            for member in fit.members
        ]
    )


def _devices(cycle: Cycle, member: Member) -> tuple[int, ...]:
    first = int(cycle.snapshot.device_start[member.row])
    return tuple([device - first for device in member.devices[:, 0].tolist()])


def _grown(alternative: Alternative, cycle: Cycle, row: int) -> Resources:
    """Return as much of a range as the node has free."""
    least, most = alternative.resources, alternative.up_to or alternative.resources
    cpu, memory, disk, _ = (int(value) for value in cycle.room.free[row])
    return Resources(
        cpu_millis=max(least.cpu_millis, min(most.cpu_millis, cpu)),
        memory_mib=max(least.memory_mib, min(most.memory_mib, memory)),
        disk_mib=max(least.disk_mib, min(most.disk_mib, disk)),
        accelerators=least.accelerators,
    )


def _transfers(cycle: Cycle, fit: Fit) -> tuple[Transfer, ...]:
    sites = cycle.snapshot.network.sites
    return tuple(
        [
            Transfer(
                dataset=parcel.need.dataset,
                sites=tuple([sites[site] for site in delivery.way.sites]),
                mode=mode,
                seconds=_known(delivery.seconds),
                cost=_known(delivery.cost),
                rate_mbps=parcel.need.rate_mbps if delivery.way.links else None,
                links=delivery.way.links,
            )
            for parcel, delivery, mode in fit.option.survey.parts[fit.pool].deliveries
        ]
    )


def _routes(cycle: Cycle, fit: Fit) -> tuple[Route, ...]:
    sites = cycle.snapshot.network.sites
    return tuple(
        [
            Route(
                purpose=flow.traffic.site,
                sites=tuple([sites[site] for site in flow.way.sites]),
                mbps=flow.traffic.mbps,
                latency_ms=_known(flow.way.latency_ms),
                links=flow.way.links,
            )
            for flow in fit.option.survey.parts[fit.pool].flows
        ]
    )


def _known(value: float) -> float | None:
    return value if np.isfinite(value) else None


def _held(demand: Demand, fit: Fit, decision: Placed) -> Held:
    asked = fit.option.ask.amount
    grows = demand.alternatives[fit.alternative].up_to is not None
    return Held(
        members=tuple(
            [
                (member, amount_of(assignment.resources) if grows else asked)
                for member, assignment in zip(fit.members, decision.assignments, strict=True)
            ]
        ),
        links=reserved_links(decision),
        groups=demand.groups,
    )


def reserved_links(decision: Placed) -> tuple[tuple[tuple[int, ...], float], ...]:
    """Return the bandwidth a decision reserves: (links, Mbit/s) for each route and each transfer at a fixed rate."""
    if not decision.routes and not decision.transfers:
        return ()
    return tuple(
        [(route.links, route.mbps) for route in decision.routes]
        + [(one.links, one.rate_mbps) for one in decision.transfers if one.rate_mbps is not None]
    )
