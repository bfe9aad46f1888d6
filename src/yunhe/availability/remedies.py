"""What would make a target reachable: the smallest single change of each kind, found by trying it."""

import math
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import msgspec
from msgspec.structs import replace

from yunhe.availability.frontier import find_frontier
from yunhe.availability.model import Assumptions, Model, Module, SubModule, Zone
from yunhe.availability.pricing import Point, Pricing, point_of_services

UPTO_SUBMODULES = 100_000
"""Better sub-modules are not tried out on larger models: each attempt rebuilds all of them."""

_NINES = tuple(1 - step * 10.0**-power for power in range(1, 8) for step in (5, 2, 1))
_SHARES = (*(step * 10.0**-power for power in range(1, 5) for step in (5, 2, 1)), 0.0)


class ModelChange(msgspec.Struct, frozen=True):
    """One field of the model, or of the prices, and its new value."""

    field: str
    value: str


class Remedy(msgspec.Struct, frozen=True):
    """Changes with which the target is reachable, and the plan they then give."""

    changes: tuple[ModelChange, ...]
    point: Point


class _Rung(NamedTuple):
    value: str
    model: Model
    pricing: Pricing


def find_remedies(model: Model, target: float, pricing: Pricing) -> list[Remedy]:
    """Return every single change that suffices; where none does, a combination that does, if there is one."""
    single = [
        remedy
        for field, rungs in _ladders(model, pricing)
        if (remedy := _lowest_rung(field, rungs, target)) is not None
    ]
    return single or _combined(model, target, pricing)


def _combined(model: Model, target: float, pricing: Pricing) -> list[Remedy]:
    """Raise what holds the platform back to its best, one after the other, until a single change suffices."""
    changes = list[ModelChange]()
    for field in [field for field, _ in _ladders(model, pricing)]:
        rungs = dict(_ladders(model, pricing)).get(field)
        if not rungs:
            continue
        best = rungs[-1]
        changes.append(ModelChange(field, best.value))
        model, pricing = best.model, best.pricing
        for last_field, last_rungs in _ladders(model, pricing):
            if last_field in {"mixed", *(change.field for change in changes)}:
                continue
            remedy = _lowest_rung(last_field, last_rungs, target)
            if remedy is not None:
                return [Remedy((*changes, *remedy.changes), remedy.point)]
    return []


def _ladders(model: Model, pricing: Pricing) -> Iterator[tuple[str, list[_Rung]]]:
    """Yield, for each kind of change, its steps from the smallest; each is at least as good as the last."""
    for each in model.shared:
        rungs = [
            _Rung(str(count), _with_instances(model, each.name, count), pricing)
            for count in range(each.instances + 1, 6)
        ]
        yield f"shared.{each.name}.instances", rungs
    yield from _assumption_ladders(model, pricing)
    if pricing.mixed:
        most = range(pricing.max_replicas + 1, 13)
        yield "max_replicas", [_Rung(str(k), model, replace(pricing, max_replicas=k)) for k in most]
    else:
        more = range(model.replicas + 1, 13)
        yield "replicas", [_Rung(str(k), replace(model, replicas=k), pricing) for k in more]
        yield "mixed", [_Rung("true", model, replace(pricing, mixed=True))]
    if model.submodule_count <= UPTO_SUBMODULES:
        worst = min(s.availability for module in model.modules for s in module.submodules)
        better = [a for a in _NINES if a > worst]
        yield "availability", [_Rung(f"{a:.7g}", _at_least(model, a), pricing) for a in better]


def _assumption_ladders(model: Model, pricing: Pricing) -> Iterator[tuple[str, list[_Rung]]]:
    now = model.assumptions

    def rungs(changed: Sequence[tuple[str, Assumptions]]) -> list[_Rung]:
        return [_Rung(value, replace(model, assumptions=each), pricing) for value, each in changed]

    if now.zones:
        better = [a for a in _NINES if a > min(zone.availability for zone in now.zones)]
        yield "zones", rungs([(f"{a:.7g}", replace(now, zones=_zones_at_least(now, a))) for a in better])
    shares = [share for share in _SHARES if share < now.common_cause]
    yield "common_cause", rungs([(f"{share:g}", replace(now, common_cause=share)) for share in shares])
    works = [share for share in (*_NINES[:15], 1.0) if share > now.failover]
    yield "failover", rungs([(f"{share:.7g}", replace(now, failover=share)) for share in works])
    if now.switchover_s:
        quicker = [now.switchover_s / part for part in (2, 5, 10, 100)]
        yield "switchover", rungs([(f"{s:g}s", replace(now, switchover_s=s)) for s in (*quicker, 0.0)])


def _lowest_rung(field: str, rungs: Sequence[_Rung], target: float) -> Remedy | None:
    low, high, found = 0, len(rungs) - 1, None
    while low <= high:
        middle = (low + high) // 2
        point = _cheapest(rungs[middle], target)
        if point is None:
            low = middle + 1
        else:
            found, high = Remedy((ModelChange(field, rungs[middle].value),), point), middle - 1
    return found


def _cheapest(rung: _Rung, target: float) -> Point | None:
    frontier = find_frontier(rung.model, rung.pricing.choices(rung.model.replicas))
    cost = frontier.cheapest(math.log(target))
    if cost is None:
        return None
    return point_of_services(frontier.services(cost), float(frontier.reached[cost]), rung.pricing)


def _with_instances(model: Model, name: str, instances: int) -> Model:
    shared = tuple(replace(each, instances=instances) if each.name == name else each for each in model.shared)
    return replace(model, shared=shared)


def _zones_at_least(assumptions: Assumptions, availability: float) -> tuple[Zone, ...]:
    return tuple(Zone(zone.name, max(zone.availability, availability)) for zone in assumptions.zones)


def _at_least(model: Model, availability: float) -> Model:
    modules = tuple(
        Module(
            module.name,
            tuple(SubModule(s.name, max(s.availability, availability)) for s in module.submodules),
        )
        for module in model.modules
    )
    return replace(model, modules=modules)
