"""What the planner must agree with, written the obvious way: states listed one by one, nothing closed."""

import functools
import itertools
import math
from collections.abc import Iterator, Sequence
from fractions import Fraction

from yunhe.availability.model import Assumptions, Model, Module, Service, SubModule

Groups = tuple[tuple[int, ...], ...]


def all_partitions(count: int) -> Iterator[Groups]:
    """Yield every way to group 0 … count−1, by putting each item in every group or in one of its own."""
    if count == 0:
        yield ()
        return
    for smaller in all_partitions(count - 1):
        for position in range(len(smaller)):
            grown = (*smaller[position], count - 1)
            yield (*smaller[:position], grown, *smaller[position + 1 :])
        yield (*smaller, (count - 1,))


@functools.cache
def service_availability(
    submodules: tuple[float, ...], replicas: int, assumptions: Assumptions, zones_up: tuple[bool, ...] = ()
) -> float:
    """Add up the probability of every state of common cause, failover and instances that is up."""
    instance = math.prod(submodules)
    common = assumptions.common_cause * (1 - instance)
    alone = (1 - instance - common) / (1 - common)
    covered = assumptions.failover * math.exp(-assumptions.switchover_s / assumptions.repair_s)
    in_zone = [not zones_up or zones_up[replica % len(zones_up)] for replica in range(replicas)]
    up = 0.0
    for states in itertools.product((True, False), repeat=replicas):
        probability = math.prod((1 - alone) if is_up else alone for is_up in states)
        serving = [is_up and here for is_up, here in zip(states, in_zone, strict=True)]
        if serving[0]:
            up += probability
        elif any(serving):
            up += probability * covered
    return (1 - common) * up


def platform_availability(model: Model, services: Sequence[Service]) -> float:
    """Average over every state of the zones, in each of which services fail independently."""
    availability_of = {
        (module.name, submodule.name): submodule.availability
        for module in model.modules
        for submodule in module.submodules
    }
    zones = model.assumptions.zones
    total = 0.0
    for up in itertools.product((True, False), repeat=len(zones)):
        probability = math.prod(
            zone.availability if is_up else 1 - zone.availability
            for zone, is_up in zip(zones, up, strict=True)
        )
        parts = [
            (tuple(availability_of[service.module, name] for name in service.submodules), service.replicas)
            for service in services
        ]
        parts += [((dependency.availability,), dependency.instances) for dependency in model.shared]
        total += probability * math.prod(
            service_availability(submodules, replicas, model.assumptions, up)
            for submodules, replicas in parts
        )
    return total


def every_plan(model: Model, replica_choices: Sequence[int]) -> Iterator[tuple[Service, ...]]:
    """Yield every partition of every module with every choice of replicas."""
    per_module = [list(_module_plans(module, replica_choices)) for module in model.modules]
    for combination in itertools.product(*per_module):
        yield tuple(service for services in combination for service in services)


def _module_plans(module: Module, replica_choices: Sequence[int]) -> Iterator[tuple[Service, ...]]:
    names = [submodule.name for submodule in module.submodules]
    for groups in all_partitions(len(names)):
        for replicas in itertools.product(replica_choices, repeat=len(groups)):
            yield tuple(
                Service(module.name, tuple(names[index] for index in group), count)
                for group, count in zip(groups, replicas, strict=True)
            )


def best_by_services(model: Model) -> dict[int, float]:
    """Return the best availability for each number of services, by trying everything."""
    best: dict[int, float] = {}
    for services in every_plan(model, [model.replicas]):
        value = platform_availability(model, services)
        best[len(services)] = max(value, best.get(len(services), 0.0))
    return best


def best_by_cost(
    model: Model, replica_choices: Sequence[int], service_cost: int, instance_cost: int
) -> dict[int, float]:
    """Return the best availability for each cost, by trying everything."""
    best: dict[int, float] = {}
    for services in every_plan(model, replica_choices):
        instances = sum(service.replicas for service in services)
        cost = service_cost * len(services) + instance_cost * instances
        best[cost] = max(platform_availability(model, services), best.get(cost, 0.0))
    return best


def exact_platform(sizes: Sequence[int], a: Fraction, instances: int) -> Fraction:
    """Return the availability of services of equal sub-modules as a rational number."""
    return math.prod((1 - (1 - a**size) ** instances for size in sizes), start=Fraction(1))


def least_sizes(module_sizes: Sequence[int], a: Fraction, instances: int, target: Fraction) -> int | None:
    """Return the least number of services that meets a target, over all sizes, in rational arithmetic."""
    reachable: dict[int, Fraction] = {0: Fraction(1)}
    for size in module_sizes:
        longer: dict[int, Fraction] = {}
        for shape in {tuple(sorted(map(len, groups))) for groups in all_partitions(size)}:
            value = exact_platform(shape, a, instances)
            for count, known in reachable.items():
                total = count + len(shape)
                longer[total] = max(longer.get(total, Fraction(0)), known * value)
        reachable = longer
    return min((count for count, value in reachable.items() if value >= target), default=None)


def model_of(
    availabilities: Sequence[Sequence[float]], replicas: int = 3, assumptions: Assumptions | None = None
) -> Model:
    """Return a model with modules m0, m1 … of sub-modules s0, s1 …"""
    return Model(
        tuple(
            Module(f"m{number}", tuple(SubModule(f"s{index}", a) for index, a in enumerate(values)))
            for number, values in enumerate(availabilities)
        ),
        replicas=replicas,
        assumptions=assumptions or Assumptions(),
    )
