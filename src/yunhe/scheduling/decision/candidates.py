"""What there is to choose from: the candidates for a demand that no other beats in every respect."""

import numpy as np
from numpy.typing import NDArray

from yunhe.scheduling.decision.cycle import Cycle, Fit
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
from yunhe.scheduling.decision.score.kernels import HOURS
from yunhe.scheduling.decision.score.terms import HOUR_S, term
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

FOLLOWS_FROM_HOURS = np.array(
    [name not in {"start_s", ScoreTerm.LATENCY_MS, ScoreTerm.DISTANCE_KM} for name in CRITERIA]
)


def pareto(demand: Demand, snapshot: Snapshot) -> ParetoPlan | Waiting:
    """Return the candidates that nobody beats with what each costs in the others' terms, or why there is none.

    What is unknown is no better than anything: it never helps to beat another, and loses to any known value. Where a
    pool's speed or reliability is unknown, all that follows from how long work runs there is; pools of which the same is
    unknown are compared by what both are taken to be.
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
    market = _Market(fits)
    beaters = [np.flatnonzero(market.beaten_by(index)) for index in range(len(fits))] or [np.zeros(0)]
    values = [market.values(index) for index in range(len(fits))] or [dict.fromkeys(CRITERIA)]
    front = [index for index, by in enumerate(beaters) if not by.size]
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
            if by.size
        ),
        rejected=rejected,
        unknown=tuple(name for name in CRITERIA if least[name] is None),
        snapshot_version=snapshot.version,
    )


def _differences(mine: dict[str, float | None], others: dict[str, float | None]) -> dict[str, float]:
    pairs = {name: (mine[name], others[name]) for name in CRITERIA}
    return {name: a - b for name, (a, b) in pairs.items() if a is not None and b is not None and a != b}


class _Market:
    """Candidates by what they are compared by, a row for each."""

    def __init__(self, fits: list[Fit]) -> None:
        self._guesses = np.array([_guesses(fit.option.table, fit.pool) for fit in fits], dtype=np.int64)
        rows = [_criteria(fit.option.table, fit.pool) for fit in fits]
        self._assumed = np.array(rows).reshape(-1, len(CRITERIA))
        self._known = np.where((self._guesses > 0)[:, None] & FOLLOWS_FROM_HOURS, np.inf, self._assumed)

    def beaten_by(self, index: int) -> NDArray[np.bool_]:
        """Return, candidate by candidate, whether it beats the one at *index*."""
        alike = self._guesses == self._guesses[index]
        return np.where(
            alike,
            _beats(self._assumed, self._assumed[index]),
            _beats(self._known, self._known[index]),
        )

    def values(self, index: int) -> dict[str, float | None]:
        """Return the criteria of a candidate as people read them: None where unknown."""
        risk_unknown, speed_unknown = self._guesses[index] & 1, self._guesses[index] & 2
        row = dict(zip(CRITERIA, self._assumed[index].tolist(), strict=True))
        unknown = {ScoreTerm.RUN_S} if speed_unknown else set[ScoreTerm]()
        unknown |= {ScoreTerm.RISK} if risk_unknown else set[ScoreTerm]()
        return {name: None if name in unknown or value == np.inf else value for name, value in row.items()}


def _guesses(table: FloatArray, pool: int) -> int:
    """Return which of the speed and the reliability of a pool are but assumed, as a number of its own for each case."""
    return 2 * int(np.isnan(term(table, ScoreTerm.RUN_S)[pool])) + int(
        np.isnan(term(table, ScoreTerm.RISK)[pool])
    )


def _criteria(table: FloatArray, pool: int) -> list[float]:
    """Return what one candidate is compared by, by what it is taken to be; infinite where a part is unknown."""
    values = [
        total_cost(table)[pool],
        sum(term(table, name)[pool] for name in (ScoreTerm.WAIT_S, ScoreTerm.DATA_S, ScoreTerm.EXTERNAL_S)),
        table[HOURS, pool] * HOUR_S,
        *(term(table, ScoreTerm(name))[pool] for name in CRITERIA[3:]),
    ]
    return [np.inf if np.isnan(value) else float(value) for value in values]


def _beats(values: FloatArray, row: FloatArray) -> NDArray[np.bool_]:
    """Return which of *values* beat a row: at most as large everywhere and smaller somewhere."""
    return np.all(values <= row, axis=1) & np.any(values < row, axis=1)
