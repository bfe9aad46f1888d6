"""The score: terms in money, seconds, grams and kilometres, and what each policy makes of them."""

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from yunhe.kernel.resources import Resources
from yunhe.scheduling.decision.model import (
    Demand,
    Policy,
    ScoreTerm,
)
from yunhe.scheduling.decision.score import kernels as score_kernels
from yunhe.scheduling.decision.score.columns import PoolColumns
from yunhe.scheduling.decision.score.kernels import COST_PER_HOUR, HOURS, ROWS, FloatArray, PoolArrays, Reach

HOUR_S = 3600.0
ASSUMED_RUN_S = HOUR_S


class Term(NamedTuple):
    """What one unit of a term is worth in money, and how much it weighs unless the demand says otherwise."""

    worth: float
    weight: float = 1.0


TERMS: Mapping[ScoreTerm, Term] = {
    ScoreTerm.COST_PER_HOUR: Term(1.0),  # times the hours it runs
    ScoreTerm.DATA_COST: Term(1.0),
    ScoreTerm.ENERGY_COST: Term(1.0),
    ScoreTerm.EXTERNAL_COST: Term(1.0),
    ScoreTerm.WAIT_S: Term(1 / HOUR_S),  # an hour sooner is worth one unit of the currency
    ScoreTerm.DATA_S: Term(1 / HOUR_S),
    ScoreTerm.RUN_S: Term(1 / HOUR_S),
    ScoreTerm.EXTERNAL_S: Term(1 / HOUR_S),
    ScoreTerm.CARBON_G: Term(0.0001),  # a hundred units of the currency for a tonne
    ScoreTerm.LATENCY_MS: Term(0.001),
    ScoreTerm.DISTANCE_KM: Term(0.0001),
    ScoreTerm.RISK: Term(1.0, 0.0),  # failures already lengthen run_s; weigh it to avoid them beyond that
}

_NAMES = tuple(term.value for term in ScoreTerm)

TERMS_OF_POLICY: Mapping[Policy, tuple[ScoreTerm, ...]] = {
    Policy.CHEAPEST: (
        ScoreTerm.COST_PER_HOUR,
        ScoreTerm.DATA_COST,
        ScoreTerm.ENERGY_COST,
        ScoreTerm.EXTERNAL_COST,
    ),
    Policy.NEAREST: (ScoreTerm.DISTANCE_KM,),
    Policy.FASTEST: (ScoreTerm.WAIT_S, ScoreTerm.DATA_S, ScoreTerm.RUN_S, ScoreTerm.EXTERNAL_S),
    Policy.GREENEST: (ScoreTerm.CARBON_G,),
    Policy.LOWEST_LATENCY: (ScoreTerm.LATENCY_MS,),
}


class TimeValue(NamedTuple):
    """What time is worth in money when a way is chosen; infinite: nothing else counts."""

    second: float
    ms: float


MONEY = np.array([TERMS[term].worth * TERMS[term].weight for term in ScoreTerm])
"""Default weights under ``balanced``."""
COST = np.array([1.0 if term in TERMS_OF_POLICY[Policy.CHEAPEST] else 0.0 for term in ScoreTerm])
"""What breaks the ties of every other policy: the cheaper pool wins, however far it is."""


def weights_of(policy: Policy, weights: Mapping[str, float]) -> FloatArray:
    """Return the factor of each term: into money under ``balanced``, else 1 for the terms the policy is named after."""
    if policy is Policy.BALANCED and not weights:
        return MONEY
    named = TERMS_OF_POLICY.get(policy)
    if named is not None:
        return np.array([1.0 if term in named else 0.0 for term in ScoreTerm])
    return np.array([TERMS[term].worth * weights.get(term, TERMS[term].weight) for term in ScoreTerm])


def worth_of(policy: Policy, weights: Mapping[str, float]) -> TimeValue:
    """Return what time is worth under a policy, for choosing among ways to move data."""
    if policy in {Policy.FASTEST, Policy.LOWEST_LATENCY}:
        return TimeValue(np.inf, np.inf)
    if policy is Policy.CHEAPEST:
        return TimeValue(0.0, 0.0)
    data_s, latency = TERMS[ScoreTerm.DATA_S], TERMS[ScoreTerm.LATENCY_MS]
    return TimeValue(
        weights.get(ScoreTerm.DATA_S, data_s.weight) * data_s.worth,
        weights.get(ScoreTerm.LATENCY_MS, latency.weight) * latency.worth,
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
    if demand.not_before is not None and demand.not_before > columns.taken_at:
        held_s = demand.not_before - columns.taken_at
        facts = facts._replace(wait_s=np.nan_to_num(facts.wait_s) + held_s)
    score_kernels.appraise(facts, reach, base_s / HOUR_S, cores, demand.interruptible, table)
    table[COST_PER_HOUR] = columns.cost_per_hour(resources, demand.tier, interruptible=demand.interruptible)
    if demand.members != 1:
        table[COST_PER_HOUR] *= demand.members
    return table


def term(table: FloatArray, which: ScoreTerm) -> FloatArray:
    """Return one row of the table."""
    return table[ROWS[which]]


def shown_terms(table: FloatArray, pool: int) -> dict[str, float | None]:
    """Return the terms of one pool as people read them: None where unknown."""
    values: list[float] = table[:HOURS, pool].tolist()
    return {
        name: None if value != value else value  # noqa: PLR0124 - NaN differs from itself
        for name, value in zip(_NAMES, values, strict=True)
    }
