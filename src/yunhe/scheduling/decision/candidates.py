"""What there is to choose from: the candidates for a demand that no other beats in every respect."""

import numpy as np
from numpy.typing import NDArray

from yunhe.scheduling.decision.cycle import Cycle
from yunhe.scheduling.decision.decide import considered, decide_in
from yunhe.scheduling.decision.demands import check_demand
from yunhe.scheduling.decision.filter.rules import total_cost
from yunhe.scheduling.decision.model import (
    Demand,
    ScoreTerm,
    Waiting,
)
from yunhe.scheduling.decision.nodes.kernels import FloatArray
from yunhe.scheduling.decision.plans import BeatenCandidate, ParetoChoice, ParetoPlan
from yunhe.scheduling.decision.score.terms import term
from yunhe.scheduling.perception.snapshot import Snapshot, check_snapshot

CRITERIA = (
    "cost",
    "start_s",
    ScoreTerm.RUN_S,
    ScoreTerm.CARBON_G,
    ScoreTerm.LATENCY_MS,
    ScoreTerm.DISTANCE_KM,
    ScoreTerm.RISK,
)
"""What candidates are compared by: money in all, time until it runs, time it runs, carbon, latency to the user,
distance, risk of a failure."""


def pareto(demand: Demand, snapshot: Snapshot) -> ParetoPlan | Waiting:
    """Return the candidates that nobody beats with what each costs in the others' terms, or why there is none.

    What is unknown is no better than anything: it never helps to beat another, and loses to any known value. The
    policy's own choice comes first, also where another beats it by what the policy does not weigh.
    """
    cycle = Cycle(check_snapshot(snapshot))
    fits, found, rejected = considered(check_demand(demand), cycle)
    if not fits:
        decision = decide_in(demand, cycle)
        if isinstance(decision, Waiting):
            return decision
        fits, found = (
            [],
            decision.candidates,
        )  # it spans pools: there is one way, and nothing to compare it with
    rows = np.array([_criteria(fit.option.table, fit.pool) for fit in fits]).reshape(-1, len(CRITERIA))
    beaters = [np.flatnonzero(_beats(rows, row)) for row in rows] or [np.zeros(0)]
    values = [_shown(row) for row in rows] or [dict.fromkeys(CRITERIA)]
    front = [index for index, by in enumerate(beaters) if index == 0 or not by.size]
    least = {
        name: min((v for one in values if (v := one[name]) is not None), default=None) for name in CRITERIA
    }
    return ParetoPlan(
        choices=tuple(
            ParetoChoice(
                candidate=found[index],
                values=values[index],
                against_first=_differences(values[index], values[front[0]]),
            )
            for index in front
        ),
        beaten=tuple(
            BeatenCandidate(candidate=found[index], by=found[int(by[0])].pool_name)
            for index, by in enumerate(beaters)
            if index not in front
        ),
        rejected=rejected,
        unknown=tuple(name for name in CRITERIA if least[name] is None),
        snapshot_version=snapshot.version,
    )


def _differences(mine: dict[str, float | None], others: dict[str, float | None]) -> dict[str, float]:
    pairs = {name: (mine[name], others[name]) for name in CRITERIA}
    return {name: a - b for name, (a, b) in pairs.items() if a is not None and b is not None and a != b}


def _shown(row: FloatArray) -> dict[str, float | None]:
    return {
        name: None if value == np.inf else value for name, value in zip(CRITERIA, row.tolist(), strict=True)
    }


def _criteria(table: FloatArray, pool: int) -> list[float]:
    """Return what one candidate is compared by; infinite where a part is unknown."""
    values = [
        total_cost(table)[pool],
        sum(term(table, name)[pool] for name in (ScoreTerm.WAIT_S, ScoreTerm.DATA_S, ScoreTerm.EXTERNAL_S)),
        term(table, ScoreTerm.RUN_S)[pool],
        *(term(table, ScoreTerm(name))[pool] for name in CRITERIA[3:]),
    ]
    return [np.inf if np.isnan(value) else float(value) for value in values]


def _beats(values: FloatArray, row: FloatArray) -> NDArray[np.bool_]:
    """Return which of *values* beat a row: at most as large everywhere and smaller somewhere."""
    return np.all(values <= row, axis=1) & np.any(values < row, axis=1)
