"""How available given services are: exact for any plan, the planner's or your own."""

import math
from collections.abc import Sequence

import numpy as np

from yunhe.availability.model import Model, Service
from yunhe.availability.outage import FloatArray, Scenario, log_availability, scenarios


def platform_log_availability(model: Model, services: Sequence[Service]) -> float:
    """Return ln availability of the platform with these services, shared dependencies and zones included."""
    states, logs = service_logs(model, services)
    totals = logs.sum(axis=1) + np.array([state.log_weight for state in states])
    if len(totals) == 1:
        return float(totals[0])
    return math.log(np.exp(totals).sum())


def service_logs(model: Model, services: Sequence[Service]) -> tuple[tuple[Scenario, ...], FloatArray]:
    """Return the states of the zones, and for each of them ln availability of every service."""
    weights = service_weights(model, services)
    replicas = np.array([service.replicas for service in services])
    states = scenarios(model, sorted(set(replicas.tolist())))
    logs = np.empty((len(states), len(services)))
    for row, state in zip(logs, states, strict=True):
        for count in np.unique(replicas):
            chosen = replicas == count
            row[chosen] = log_availability(weights[chosen], state.live(int(count)), model.assumptions)
    return states, logs


def service_weights(model: Model, services: Sequence[Service]) -> FloatArray:
    """Return Σ −ln a of the sub-modules of each service."""
    weight_of = {
        (module.name, submodule.name): -math.log(submodule.availability)
        for module in model.modules
        for submodule in module.submodules
    }
    return np.array(
        [sum(weight_of[service.module, name] for name in service.submodules) for service in services]
    )


def unsplit(model: Model) -> tuple[Service, ...]:
    """Return the baseline that makes every module one service."""
    return tuple(
        Service(module.name, tuple(submodule.name for submodule in module.submodules), model.replicas)
        for module in model.modules
    )


def fully_split(model: Model) -> tuple[Service, ...]:
    """Return the baseline that makes every sub-module one service."""
    return tuple(
        Service(module.name, (submodule.name,), model.replicas)
        for module in model.modules
        for submodule in module.submodules
    )
