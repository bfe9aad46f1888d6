"""What a plan costs, and a plan in figures."""

import math
from collections.abc import Iterator, Sequence

import msgspec

from yunhe.availability.model import MAX_REPLICAS, Service
from yunhe.availability.partition import Choice
from yunhe.availability.percent import SECONDS_PER_YEAR
from yunhe.kernel.errors import FieldProblem, InvalidInputError

MAX_COST = 1000


class Pricing(msgspec.Struct, frozen=True, omit_defaults=True):
    """The two scarce things: people, by the service, and devices, by the instance.

    Where replicas are not mixed, every service has the model's, and least cost means fewest services.
    """

    mixed: bool = False
    max_replicas: int = 8
    service_cost: int = 0
    instance_cost: int = 1

    def __post_init__(self) -> None:
        problems = tuple(self._problems())
        if problems:
            raise InvalidInputError(
                "These costs cannot be planned with.", remedy="Fix what is named above.", fields=problems
            )

    def _problems(self) -> Iterator[FieldProblem]:
        if not 1 <= self.max_replicas <= MAX_REPLICAS:
            yield FieldProblem("max_replicas", f"must be 1 to {MAX_REPLICAS}", str(self.max_replicas))
        for field in ("service_cost", "instance_cost"):
            cost: int = getattr(self, field)
            if not 0 <= cost <= MAX_COST:
                yield FieldProblem(field, f"must be a whole number from 0 to {MAX_COST}", str(cost))
        if self.service_cost == 0 == self.instance_cost:
            yield FieldProblem("instance_cost", "one of the two costs must be more than 0")

    def choices(self, replicas: int) -> tuple[Choice, ...]:
        """Return the replicas a service may have; costs are divided by what they have in common."""
        if not self.mixed:
            return (Choice(replicas, 1),)
        unit = self.unit(replicas)
        return tuple(
            Choice(count, (self.service_cost + self.instance_cost * count) // unit)
            for count in range(1, self.max_replicas + 1)
        )

    def unit(self, replicas: int) -> int:
        """Return the cost that one step of the frontier stands for."""
        if not self.mixed:
            return self.cost(1, replicas)
        return math.gcd(self.service_cost, self.instance_cost)

    def cost(self, services: int, instances: int) -> int:
        """Return what so many services and instances cost."""
        return self.service_cost * services + self.instance_cost * instances


class Point(msgspec.Struct, frozen=True):
    """A plan in figures."""

    services: int
    instances: int
    cost: int
    availability_percent: float
    unavailability: float
    downtime_s_per_year: float


def point_of(services: int, instances: int, log_availability: float, pricing: Pricing) -> Point:
    """Return the figures of a plan of so many services and instances."""
    unavailability = -math.expm1(log_availability)
    return Point(
        services,
        instances,
        pricing.cost(services, instances),
        100 * math.exp(log_availability),
        unavailability,
        unavailability * SECONDS_PER_YEAR,
    )


def point_of_services(services: Sequence[Service], log_availability: float, pricing: Pricing) -> Point:
    """Return the figures of these services."""
    instances = sum(service.replicas for service in services)
    return point_of(len(services), instances, log_availability, pricing)
