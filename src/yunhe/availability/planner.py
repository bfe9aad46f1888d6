"""The planner: the fewest services, or the least cost, that meet a target; or that none can, and why."""

import math

import msgspec
import numpy as np

from yunhe.availability.frontier import Frontier, find_frontier, least_services_across_modules, reaches
from yunhe.availability.model import Model, Service
from yunhe.availability.outage import scenarios
from yunhe.availability.partition import Choice
from yunhe.availability.pricing import Point, Pricing, point_of, point_of_services
from yunhe.availability.remedies import Remedy, find_remedies
from yunhe.kernel.errors import FieldProblem, InvalidInputError, UnsupportedError

TRADE_OFF_UPTO_SUBMODULES = 60


class Bounds(msgspec.Struct, frozen=True):
    """What lies around a plan: the two trivial packagings with the model's replicas for each service.

    And, for equal replicas, how few services could do at best if modules were mixed; none: no number could.
    """

    unsplit: Point
    fully_split: Point
    across_modules_services: int | None


class Planned(msgspec.Struct, frozen=True, tag_field="outcome", tag="planned"):
    """The least cost that meets the target. ``proven`` says that nothing cheaper can."""

    target_percent: float
    point: Point
    services: tuple[Service, ...]
    proven: bool
    least_possible_cost: int
    bounds: Bounds


class Infeasible(msgspec.Struct, frozen=True, tag_field="outcome", tag="infeasible"):
    """No plan was found. ``proven`` says that there is none; ``point`` is the nearest one reachable.

    ``ceiling_percent`` is what zones and shared dependencies leave if services never failed at all.
    """

    target_percent: float
    point: Point
    services: tuple[Service, ...]
    proven: bool
    ceiling_percent: float
    remedies: tuple[Remedy, ...]
    bounds: Bounds


class FrontierPoint(msgspec.Struct, frozen=True):
    """The best plan of at most this cost, and a bound that no plan of that cost exceeds."""

    services: int
    instances: int
    cost: int
    availability_percent: float
    unavailability: float
    bound_percent: float


def make_plan(model: Model, target: float, pricing: Pricing) -> Planned | Infeasible:
    """Return the cheapest plan that meets the target, or that there is none and what would change that."""
    if not 0 < target < 1:
        problem = FieldProblem("target", "must lie between 0 and 1, both excluded", f"{target:g}")
        raise InvalidInputError("This target cannot be planned for.", fields=(problem,))
    found = find_frontier(model, pricing.choices(model.replicas))
    log_target = math.log(target)
    bounds = _bounds(found, pricing, log_target)
    cost, possible = found.cheapest(log_target), found.cheapest_possible(log_target)
    if cost is not None and possible is not None:
        services = found.services(cost)
        point = point_of_services(services, float(found.reached[cost]), pricing)
        least = possible * pricing.unit(model.replicas)
        return Planned(100 * target, point, services, cost == possible, least, bounds)
    cost = int(found.reached.argmax())
    services = found.services(cost)
    return Infeasible(
        100 * target,
        point_of_services(services, float(found.reached[cost]), pricing),
        services,
        possible is None,
        100 * _ceiling(model, pricing),
        tuple(find_remedies(model, target, pricing)),
        bounds,
    )


def frontier_points(model: Model, pricing: Pricing, most: int) -> list[FrontierPoint]:
    """Return the frontier wherever spending more buys a better plan; thinned evenly to *most* points."""
    found = find_frontier(model, pricing.choices(model.replicas))
    best, bounds = np.maximum.accumulate(found.reached), np.maximum.accumulate(found.bound)
    worth_it = np.flatnonzero(best > np.concatenate(([-np.inf], best[:-1])))
    if len(worth_it) > most:
        worth_it = worth_it[np.unique(np.linspace(0, len(worth_it) - 1, most).astype(np.int64))]
    return [_frontier_point(found, int(cost), float(bounds[cost]), pricing) for cost in worth_it]


def _frontier_point(found: Frontier, cost: int, bound: float, pricing: Pricing) -> FrontierPoint:
    reached = float(found.reached[cost])
    if pricing.mixed:
        point = point_of_services(found.services(cost), reached, pricing)
    else:
        point = point_of(cost, cost * found.model.replicas, reached, pricing)
    return FrontierPoint(
        point.services,
        point.instances,
        point.cost,
        point.availability_percent,
        point.unavailability,
        100 * math.exp(bound),
    )


def trade_off(model: Model, target: float, pricing: Pricing) -> list[Point]:
    """Return every plan that meets the target for which fewer services would need more instances.

    Both scarce things at once: a large step for each service and a small one for each instance keep the
    two apart in a single search.
    """
    if model.submodule_count > TRADE_OFF_UPTO_SUBMODULES:
        raise UnsupportedError(
            f"Services against instances is worked out up to {TRADE_OFF_UPTO_SUBMODULES} sub-modules;"
            f" this model has {model.submodule_count}.",
            remedy="Weigh the two with --service-cost and --instance-cost instead.",
        )
    step = model.submodule_count * pricing.max_replicas + 1
    found = find_frontier(
        model, [Choice(count, step + count) for count in range(1, pricing.max_replicas + 1)]
    )
    points, fewest = list[Point](), step
    for cost in np.flatnonzero(reaches(found.reached, math.log(target))):
        if cost % step < fewest:
            fewest = int(cost % step)
            services = found.services(int(cost))
            points.append(point_of_services(services, float(found.reached[cost]), pricing))
    return points


def _bounds(found: Frontier, pricing: Pricing, log_target: float) -> Bounds:
    model = found.model
    plain = (Choice(model.replicas, 1),)
    uniform = find_frontier(model, plain) if pricing.mixed else found
    fewest, most = len(model.modules), model.submodule_count
    return Bounds(
        point_of(fewest, fewest * model.replicas, float(uniform.reached[fewest]), pricing),
        point_of(most, most * model.replicas, float(uniform.reached[most]), pricing),
        None if pricing.mixed else least_services_across_modules(model, log_target),
    )


def _ceiling(model: Model, pricing: Pricing) -> float:
    most = pricing.max_replicas if pricing.mixed else model.replicas
    return min(1.0, sum(math.exp(state.log_weight) for state in scenarios(model, [most])))
