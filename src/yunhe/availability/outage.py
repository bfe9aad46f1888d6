"""How available a replicated service is, given how its instances fail and which zones are up.

A group of sub-modules has the weight W = Σ −ln a: one instance of it is up with probability exp(−W). The
logarithm of a service's availability is what adds up along a platform in series, so that is what is
computed, without loss for a single nine and for fifteen of them.
"""

import itertools
import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from yunhe.availability.model import Assumptions, Model, SharedDependency

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]


class Live(NamedTuple):
    """Which replicas stand in a zone that is up: whether the primary does, and how many in all."""

    primary: bool
    replicas: int


class Scenario(NamedTuple):
    """One state of the zones, and ln of its probability times that of the shared dependencies being up in it.

    Given the state, services fail independently, so their logarithms add up; over the states one averages.
    """

    log_weight: float
    zones_up: tuple[bool, ...]

    def live(self, replicas: int) -> Live:
        """Return which of so many replicas remain; without zones, all."""
        if not self.zones_up:
            return Live(primary=True, replicas=replicas)
        zones = len(self.zones_up)
        count = sum(self.zones_up[replica % zones] for replica in range(replicas))
        return Live(self.zones_up[0], count)


def log_availability(weights: FloatArray, live: Live, assumptions: Assumptions) -> FloatArray:
    """Return ln availability of services whose groups have these weights.

    Of an instance's unavailability u the share β is common to all replicas. The rest is independent, with
    q chosen so that one instance alone is still down exactly u of the time. The primary is down with
    probability q; then a backup helps if the failover works (c) and at least one of them is up.
    """
    if live.replicas == 0:
        return np.full_like(weights, -np.inf)
    beta, covered = assumptions.common_cause, assumptions.effective_failover
    unavailable = -np.expm1(-weights)
    common = beta * unavailable
    with np.errstate(divide="ignore", invalid="ignore"):
        log_not_common = np.where(
            common < 0.5, np.log1p(-common), np.logaddexp(np.log1p(-beta), np.log(beta) - weights)
        )
        alone = np.where(common < 1, (unavailable - common) / (1 - common), 0.0)
        powers = alone[..., None] ** np.arange(1, live.replicas)
        if live.primary:
            down = (1 - covered) * alone + covered * alone**live.replicas
            factor = 1 + covered * powers.sum(axis=-1)
        else:
            down = (1 - covered) + covered * alone**live.replicas
            factor = covered * (1 + powers.sum(axis=-1))
        # 1 − down = (1 − q) · factor, and ln(1 − q) = −W − ln(1 − βu): no underflow however large the group
        large = -weights - log_not_common + np.log(factor)
        small = np.log1p(-np.minimum(down, 0.5))
        return log_not_common + np.where(down < 0.5, small, large)


def is_provably_concave(assumptions: Assumptions) -> bool:
    """Whether ln availability is concave in the weight by theorem.

    With independent failures and perfect failover, 1 − (1 − e^(−W))^k is the survival function of the
    largest of k exponentials; parallel systems have an increasing failure rate, hence a concave logarithm.
    """
    return assumptions.common_cause == 0 and assumptions.effective_failover == 1


def scenarios(model: Model, replica_choices: Sequence[int]) -> tuple[Scenario, ...]:
    """Return the states of the zones that differ for services of so many replicas, the likeliest first."""
    zones = model.assumptions.zones
    if not zones:
        return (Scenario(_shared_log_availability(model, Scenario(0.0, ())), ()),)
    merged: dict[tuple[Live, ...], Scenario] = {}
    for up in itertools.product((True, False), repeat=len(zones)):
        state = Scenario(0.0, up)
        signature = tuple(state.live(replicas) for replicas in replica_choices)
        if all(live.replicas == 0 for live in signature):
            continue
        log_probability = sum(
            math.log(zone.availability if is_up else 1 - zone.availability)
            for zone, is_up in zip(zones, up, strict=True)
        )
        log_weight = log_probability + _shared_log_availability(model, state)
        known = merged.get(signature, Scenario(-math.inf, up))
        merged[signature] = Scenario(float(np.logaddexp(known.log_weight, log_weight)), known.zones_up)
    possible = (scenario for scenario in merged.values() if scenario.log_weight > -math.inf)
    return tuple(sorted(possible, key=lambda scenario: -scenario.log_weight))


def shared_log_availability(
    dependency: SharedDependency, scenario: Scenario, assumptions: Assumptions
) -> float:
    """Return ln availability of one shared dependency; its instances fail as those of a service do."""
    weight = np.array([-math.log(dependency.availability)])
    return float(log_availability(weight, scenario.live(dependency.instances), assumptions)[0])


def _shared_log_availability(model: Model, scenario: Scenario) -> float:
    return sum(shared_log_availability(each, scenario, model.assumptions) for each in model.shared)
