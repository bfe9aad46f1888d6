"""Plans that are carried out later: what they rest on, whether they still hold, and how a demand is held to one."""

import math
from collections.abc import Iterator, Sequence
from typing import Any

import msgspec

from yunhe.kernel.ids import NodeId
from yunhe.kernel.money import MICROS, Tier, show_money
from yunhe.scheduling.decision.cycle import Cycle
from yunhe.scheduling.decision.decide import decide_in, place_in
from yunhe.scheduling.decision.model import Demand, Placed, ScoreTerm, Waiting
from yunhe.scheduling.decision.plans import PlanChange, PlannedPlace
from yunhe.scheduling.decision.score.columns import cost_per_hour_micros
from yunhe.scheduling.decision.together import plan_together
from yunhe.scheduling.perception.model import EnergyFacts, PoolFacts
from yunhe.scheduling.perception.snapshot import Snapshot, check_snapshot

CLEARLY = 1e-6
"""By so much of its score another plan must be better to make a plan stale."""


def place_of(demand: Demand, decision: Placed, snapshot: Snapshot) -> PlannedPlace:
    """Return where *decision* puts *demand*, with what is known of the pool."""
    goes, chosen = decision.assignments[0], decision.candidates[0]
    return PlannedPlace(
        pool_id=goes.pool_id,
        pool_name=chosen.pool_name,
        node_id=goes.node_id,
        alternative=chosen.alternative,
        resources=goes.resources,
        cost_per_hour=decision.terms.get(ScoreTerm.COST_PER_HOUR),
        facts=facts_of_pool(snapshot.pools[snapshot.row_of_pool[goes.pool_id]], demand.tier),
    )


def facts_of_pool(pool: PoolFacts, tier: Tier) -> dict[str, Any]:
    """Return what a plan rests on of one pool, as plain values; what is unknown is left out.

    Carbon, which changes by the hour, and waiting times are not among it: they count by what would be chosen now.
    """
    energy = pool.energy or EnergyFacts()
    known = {
        "price": None if pool.prices is None else pool.prices.get(tier),
        "place": pool.place,
        "speed": pool.speed,
        "reliability": pool.reliability,
        "watts_per_core": energy.watts_per_core,
        "pue": energy.pue if energy.pue != 1.0 else None,
        "energy_price_micros_per_kwh": energy.price_micros_per_kwh,
        "labels": pool.labels or None,
        "taints": pool.taints or None,
        "site": pool.site or None,
    }
    plain = {name: value for name, value in known.items() if value is not None}
    return msgspec.json.decode(msgspec.json.encode(plain))


def held_to(demand: Demand, place: PlannedPlace) -> Demand:
    """Return *demand* so that it can go nowhere but to *place*."""
    alternative = demand.alternatives[place.alternative]
    return msgspec.structs.replace(
        demand,
        alternatives=(msgspec.structs.replace(alternative, pools=(place.pool_name,)),),
        ordered=False,
        nodes=(place.node_id,) if place.node_id else (),
    )


def changes_since(
    demands: Sequence[Demand], places: Sequence[PlannedPlace], snapshot: Snapshot
) -> tuple[PlanChange, ...]:
    """Return why a plan does not hold any more; none: it does, all of it together."""
    check_snapshot(snapshot)
    changes = [
        PlanChange(number, change)
        for number, (demand, place) in enumerate(zip(demands, places, strict=True))
        for change in _changes_of_pool(demand, place, snapshot)
    ]
    if not changes:
        changes = list(_without_room(demands, places, snapshot))
    return tuple(changes) or tuple(_better_now(demands, places, snapshot))


def _changes_of_pool(demand: Demand, place: PlannedPlace, snapshot: Snapshot) -> Iterator[str]:
    """Yield what is different of a pool: gone, closed, dearer, its facts, its node."""
    name, row = place.pool_name, snapshot.row_of_pool.get(place.pool_id)
    if row is None:
        yield f"pool {name} is gone"
        return
    pool = snapshot.pools[row]
    if pool.name != name:
        yield f"pool {name} is called {pool.name} now"
    if not pool.accepts:
        yield f"pool {name} takes no new work: {pool.why_not or 'it does not say why'}"
    now = facts_of_pool(pool, demand.tier)
    for fact in sorted({*place.facts, *now}):
        was, is_now = place.facts.get(fact), now.get(fact)
        if was != is_now and not _alike(was, is_now):
            yield _changed(fact, was, is_now, place, pool, demand.tier)
    if place.node_id and place.node_id not in snapshot.row_of_node:
        yield f"node {_node(place.node_id)} of pool {name} is gone, cordoned or not ready"


def _alike(was: object, is_now: object) -> bool:
    if not isinstance(was, int | float) or not isinstance(is_now, int | float):
        return False
    return math.isclose(was, is_now, rel_tol=1e-9)


def _changed(fact: str, was: object, is_now: object, place: PlannedPlace, pool: PoolFacts, tier: Tier) -> str:
    if fact != "price":
        return f"{fact} of pool {pool.name} was {_shown(was)}, is {_shown(is_now)}"
    prices = None if pool.prices is None else pool.prices.get(tier)
    cost = None if prices is None else cost_per_hour_micros(place.resources, prices) / MICROS
    return f"the price in pool {pool.name} was {_money(place.cost_per_hour)}, is {_money(cost)}"


def _shown(value: object) -> str:
    return "unknown" if value is None else msgspec.json.encode(value).decode()


def _money(cost: float | None) -> str:
    return "unknown" if cost is None else f"{show_money(round(cost * MICROS))}/h"


def _node(node_id: NodeId) -> str:
    return node_id.rpartition("/")[2]


def _without_room(
    demands: Sequence[Demand], places: Sequence[PlannedPlace], snapshot: Snapshot
) -> Iterator[PlanChange]:
    """Yield the tasks whose places do not take them any more, beside those before them."""
    cycle = Cycle(snapshot)
    for number, (demand, place) in enumerate(zip(demands, places, strict=True)):
        there = held_to(demand, place)
        if isinstance(place_in(there, cycle), Placed):
            continue
        decision = decide_in(there, cycle, advise=False)
        said = [no.detail for no in decision.rejected if no.pool_id == place.pool_id]
        at = f"{place.pool_name}/{_node(place.node_id)}" if place.node_id else place.pool_name
        yield PlanChange(number, f"{at} does not take it any more: {said[0] if said else 'no room'}")


def _better_now(
    demands: Sequence[Demand], places: Sequence[PlannedPlace], snapshot: Snapshot
) -> Iterator[PlanChange]:
    """Yield the tasks that would go elsewhere now, where that is clearly better for all together."""
    now, cycle = plan_together(demands, snapshot), Cycle(snapshot)
    planned = sum(
        float(cycle.appraiser.option(demand, place.alternative).score[snapshot.row_of_pool[place.pool_id]])
        for demand, place in zip(demands, places, strict=True)
    )
    if now.waiting or now.cost >= planned - max(1e-9, abs(planned) * CLEARLY):
        return
    for number, (decision, place) in enumerate(zip(now.decisions, places, strict=True)):
        chosen = None if isinstance(decision, Waiting) else decision.candidates[0]
        if chosen is not None and (chosen.pool_id, chosen.alternative) != (place.pool_id, place.alternative):
            yield PlanChange(
                number,
                f"{chosen.pool_name} would be chosen now instead of {place.pool_name}: "
                f"the plan comes to {planned:.6g}, a new one to {now.cost:.6g}",
            )
