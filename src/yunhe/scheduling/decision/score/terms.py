"""The score: terms in money, seconds, grams and kilometres, and what each policy makes of them."""

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from yunhe.kernel.resources import Resources
from yunhe.scheduling.decision.model import Demand, Policy
from yunhe.scheduling.decision.score import kernels as score_kernels
from yunhe.scheduling.decision.score.columns import PoolColumns
from yunhe.scheduling.decision.score.kernels import COST_PER_HOUR, HOURS, FloatArray, PoolArrays, Reach

HOUR_S = 3600.0
ASSUMED_RUN_S = HOUR_S


class Term(NamedTuple):
    """What one unit of a term is worth in money, and how much it weighs unless the demand says otherwise."""

    worth: float
    weight: float = 1.0


TERMS: Mapping[str, Term] = {
    "cost_per_hour": Term(1.0),  # times the hours it runs
    "data_cost": Term(1.0),
    "energy_cost": Term(1.0),
    "external_cost": Term(1.0),
    "wait_s": Term(1 / HOUR_S),  # an hour sooner is worth one unit of the currency
    "data_s": Term(1 / HOUR_S),
    "run_s": Term(1 / HOUR_S),
    "external_s": Term(1 / HOUR_S),
    "carbon_g": Term(0.0001),  # a hundred units of the currency for a tonne
    "latency_ms": Term(0.001),
    "distance_km": Term(0.0001),
    "risk": Term(1.0, 0.0),  # failures already lengthen run_s; weigh it to avoid them beyond that
}
"""In the order of the rows of the table that the kernels fill."""

TERM_NAMES = tuple(TERMS)

TERMS_OF_POLICY: Mapping[Policy, tuple[str, ...]] = {
    Policy.CHEAPEST: ("cost_per_hour", "data_cost", "energy_cost", "external_cost"),
    Policy.NEAREST: ("distance_km",),
    Policy.FASTEST: ("wait_s", "data_s", "run_s", "external_s"),
    Policy.GREENEST: ("carbon_g",),
    Policy.LOWEST_LATENCY: ("latency_ms",),
}


class TimeValue(NamedTuple):
    """What time is worth in money when a way is chosen; infinite: nothing else counts."""

    second: float
    ms: float


MONEY = np.array([term.worth * term.weight for term in TERMS.values()])
"""Default weights under ``balanced``; what breaks the ties of every other policy."""


def weights_of(policy: Policy, weights: Mapping[str, float]) -> FloatArray:
    """Return the factor of each term: into money under ``balanced``, else 1 for the terms the policy is named after."""
    if policy is Policy.BALANCED and not weights:
        return MONEY
    named = TERMS_OF_POLICY.get(policy)
    if named is not None:
        return np.array([1.0 if name in named else 0.0 for name in TERMS])
    return np.array([term.worth * weights.get(name, term.weight) for name, term in TERMS.items()])


def worth_of(policy: Policy, weights: Mapping[str, float]) -> TimeValue:
    """Return what time is worth under a policy, for choosing among ways to move data."""
    if policy in {Policy.FASTEST, Policy.LOWEST_LATENCY}:
        return TimeValue(np.inf, np.inf)
    if policy is Policy.CHEAPEST:
        return TimeValue(0.0, 0.0)
    data_s, latency = TERMS["data_s"], TERMS["latency_ms"]
    return TimeValue(
        weights.get("data_s", data_s.weight) * data_s.worth,
        weights.get("latency_ms", latency.weight) * latency.worth,
    )


def facts_of(columns: PoolColumns) -> PoolArrays:
    """Return the pool columns as the kernels take them."""
    return PoolArrays(*(getattr(columns, name) for name in PoolArrays._fields))


def table_of(
    demand: Demand, resources: Resources, facts: PoolArrays, reach: Reach, columns: PoolColumns
) -> FloatArray:
    """Return every term (row) of each pool (column) for all members together; NaN where it is unknown."""
    table = np.empty((HOURS + 1, facts.speed.shape[0]))
    base_s = ASSUMED_RUN_S if demand.run_s is None else demand.run_s
    cores = resources.cpu_millis / 1000 * demand.members
    score_kernels.appraise(facts, reach, base_s / HOUR_S, cores, demand.interruptible, table)
    table[COST_PER_HOUR] = columns.cost_per_hour(resources, demand.tier, interruptible=demand.interruptible)
    if demand.members != 1:
        table[COST_PER_HOUR] *= demand.members
    return table


def term(table: FloatArray, name: str) -> FloatArray:
    """Return one row of the table by its name."""
    return table[TERM_NAMES.index(name)]


def shown_terms(table: FloatArray, pool: int) -> dict[str, float | None]:
    """Return the terms of one pool as people read them: None where unknown."""
    values: list[float] = table[:HOURS, pool].tolist()
    return {
        name: None if value != value else value  # noqa: PLR0124 - NaN differs from itself
        for name, value in zip(TERM_NAMES, values, strict=True)
    }
