"""Why a plan is as it is: where its downtime comes from, what more would buy, what it rests on."""

import math
from collections.abc import Iterator, Sequence

import msgspec
import numpy as np
from msgspec.structs import replace

from yunhe.availability.evaluation import platform_log_availability, service_logs
from yunhe.availability.frontier import find_frontier
from yunhe.availability.model import Assumptions, Model, Module, Service, SubModule, Zone
from yunhe.availability.percent import SECONDS_PER_YEAR
from yunhe.availability.pricing import Point, Pricing, point_of, point_of_services


class Downtime(msgspec.Struct, frozen=True):
    """How much downtime would go if this one part never failed."""

    part: str
    downtime_s_per_year: float
    share_percent: float


class SpendingStep(msgspec.Struct, frozen=True):
    """One more thing to buy, and where it would bring the platform."""

    change: str
    added_services: int
    added_instances: int
    availability_percent: float
    unavailability: float


class WhatIf(msgspec.Struct, frozen=True):
    """The same services under another assumption."""

    assumption: str
    availability_percent: float
    unavailability: float
    meets_target: bool


class PlanExplanation(msgspec.Struct, frozen=True):
    """Everything ``explain`` says of a plan."""

    target_percent: float
    point: Point
    one_less: Point | None
    downtime: tuple[Downtime, ...]
    next_steps: tuple[SpendingStep, ...]
    what_ifs: tuple[WhatIf, ...]


def explain(model: Model, services: tuple[Service, ...], target: float, pricing: Pricing) -> PlanExplanation:
    """Explain these services, the planner's or any others, against a target."""
    log_availability = platform_log_availability(model, services)
    point = point_of_services(services, log_availability, pricing)
    return PlanExplanation(
        100 * target,
        point,
        _one_less(model, point, pricing),
        tuple(sorted(_downtimes(model, services), key=lambda part: -part.downtime_s_per_year)),
        tuple(_next_steps(model, services, pricing)),
        tuple(_what_ifs(model, services, target)),
    )


def _one_less(model: Model, point: Point, pricing: Pricing) -> Point | None:
    """Return the best that the next lower cost can do."""
    found = find_frontier(model, pricing.choices(model.replicas))
    unit = pricing.unit(model.replicas)
    cheaper = found.reached[: point.cost // unit]
    if not np.isfinite(cheaper).any():
        return None
    cost = int(cheaper.argmax())
    return point_of_services(found.services(cost), float(cheaper[cost]), pricing)


def _downtimes(model: Model, services: Sequence[Service]) -> Iterator[Downtime]:
    states, logs = service_logs(model, services)
    log_weights = np.array([state.log_weight for state in states])
    totals = logs.sum(axis=1) + log_weights
    up = float(np.exp(totals).sum())
    missing = -math.expm1(float(totals[0])) if len(totals) == 1 else 1 - up

    def part(name: str, without: float) -> Downtime:
        gone = without - up
        return Downtime(name, gone * SECONDS_PER_YEAR, 100 * gone / missing)

    without_each = np.exp(totals[:, None] - logs).sum(axis=0)
    for service, without in zip(services, without_each, strict=True):
        yield part(f"{service.module}: {', '.join(service.submodules)}", float(without))
    for dependency in model.shared:
        without = platform_log_availability(_without(model, dependency.name), services)
        yield part(f"shared: {dependency.name}", math.exp(without))
    if model.assumptions.zones:
        zoneless = replace(model, assumptions=replace(model.assumptions, zones=()))
        yield part("zones", math.exp(platform_log_availability(zoneless, services)))


def _next_steps(model: Model, services: tuple[Service, ...], pricing: Pricing) -> Iterator[SpendingStep]:
    before = point_of_services(services, platform_log_availability(model, services), pricing)

    def step(change: str, changed: Model, after: tuple[Service, ...]) -> SpendingStep:
        point = point_of_services(after, platform_log_availability(changed, after), pricing)
        added = point.instances - before.instances + _shared_instances(changed) - _shared_instances(model)
        services = point.services - before.services
        return SpendingStep(change, services, added, point.availability_percent, point.unavailability)

    if not pricing.mixed and before.services < model.submodule_count:
        found = find_frontier(model, pricing.choices(model.replicas))
        finer = found.services(before.services + 1)
        split = [service.module for service in finer if service not in services]
        yield step(f"split {split[0] if split else 'further'}", model, finer)
    _, logs = service_logs(model, services)
    worst = int(logs[0].argmin())
    after = tuple(
        replace(service, replicas=service.replicas + 1) if number == worst else service
        for number, service in enumerate(services)
    )
    name = f"{services[worst].module}: {', '.join(services[worst].submodules)}"
    yield step(f"one more replica of {name}", model, after)
    for dependency in model.shared:
        shared = tuple(
            replace(each, instances=each.instances + 1) if each.name == dependency.name else each
            for each in model.shared
        )
        yield step(f"one more instance of {dependency.name}", replace(model, shared=shared), services)


def _what_ifs(model: Model, services: tuple[Service, ...], target: float) -> Iterator[WhatIf]:
    now = model.assumptions
    zones = tuple(Zone(f"zone-{number}", 0.999) for number in (1, 2, 3))
    worse = tuple(
        Module(m.name, tuple(SubModule(s.name, 1 - min(2 * (1 - s.availability), 0.5)) for s in m.submodules))
        for m in model.modules
    )
    cases: list[tuple[str, Model]] = [
        ("as assumed", model),
        ("independent failures, perfect failover, no zones, nothing shared",
         replace(model, assumptions=Assumptions(repair_s=now.repair_s), shared=())),
        ("every sub-module fails twice as much", replace(model, modules=worse)),
        ("1 % of failures strike all replicas", _assuming(model, common_cause=0.01)),
        ("5 % of failures strike all replicas", _assuming(model, common_cause=0.05)),
        ("one failover in 100 does not work", _assuming(model, failover=0.99)),
        ("a failover takes 30 s", _assuming(model, switchover_s=30.0)),
        ("three zones at 99.9 %", _assuming(model, zones=zones)),
    ]  # fmt: skip
    for name, changed in cases:
        log_availability = platform_log_availability(changed, services)
        point = point_of(0, 0, log_availability, Pricing())
        meets = point.unavailability <= (1 - target) * (1 + 1e-10)
        yield WhatIf(name, point.availability_percent, point.unavailability, meets)


def _shared_instances(model: Model) -> int:
    return sum(each.instances for each in model.shared)


def _without(model: Model, name: str) -> Model:
    shared = tuple(
        replace(each, needs=tuple(need for need in each.needs if need != name))
        for each in model.shared
        if each.name != name
    )
    return replace(model, shared=shared)


def _assuming(model: Model, **changes: object) -> Model:
    return replace(model, assumptions=replace(model.assumptions, **changes))
