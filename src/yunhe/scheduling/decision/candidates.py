"""What a market shows: the best few candidates for a demand, and those that no other beats in every respect."""

from typing import NamedTuple

import numpy as np

from yunhe.scheduling.decision.cycle import Cycle
from yunhe.scheduling.decision.decide import considered
from yunhe.scheduling.decision.demands import check_demand
from yunhe.scheduling.decision.filter.rules import total_cost
from yunhe.scheduling.decision.model import (
    Candidate,
    Demand,
    ScoreTerm,
)
from yunhe.scheduling.decision.nodes.kernels import FloatArray
from yunhe.scheduling.decision.score.kernels import HOURS
from yunhe.scheduling.decision.score.terms import HOUR_S, term
from yunhe.scheduling.perception.snapshot import Snapshot, check_snapshot

CRITERIA = ("cost", "ready_s", ScoreTerm.CARBON_G, ScoreTerm.LATENCY_MS, ScoreTerm.RISK)
"""What candidates are compared by: money and time in all, carbon, latency to the user, risk of a failure."""

FOLLOWS_FROM_HOURS = np.array([name != ScoreTerm.LATENCY_MS for name in CRITERIA])


class Choices(NamedTuple):
    """The answer to "what is there for me": both best first by the demand's policy."""

    best: tuple[Candidate, ...]
    pareto: tuple[Candidate, ...]


def candidates(demand: Demand, snapshot: Snapshot, k: int) -> Choices:
    """Return the *k* best candidates, and all that are not beaten by another in every criterion.

    What is unknown is no better than anything: it never helps to beat another, and loses to any known value. Where a
    pool's speed or reliability is unknown, all that follows from how long work runs there is; pools of which the same is
    unknown are compared by what both are taken to be.
    """
    cycle = Cycle(check_snapshot(snapshot))
    fits, found, _ = considered(check_demand(demand), cycle)
    guesses = np.array([_guesses(fit.option.table, fit.pool) for fit in fits], dtype=np.int64)
    assumed = np.array([_criteria(fit.option.table, fit.pool) for fit in fits]).reshape(-1, len(CRITERIA))
    known = np.where((guesses > 0)[:, None] & FOLLOWS_FROM_HOURS, np.inf, assumed)
    kept = [
        not beaten(known[guesses != guess], known[index])
        and not beaten(assumed[guesses == guess], assumed[index])
        for index, guess in enumerate(guesses)
    ]
    return Choices(found[:k], tuple(one for one, keep in zip(found, kept, strict=True) if keep))


def _guesses(table: FloatArray, pool: int) -> int:
    """Return which of the speed and the reliability of a pool are but assumed, as a number of its own for each case."""
    return 2 * int(np.isnan(term(table, ScoreTerm.RUN_S)[pool])) + int(
        np.isnan(term(table, ScoreTerm.RISK)[pool])
    )


def _criteria(table: FloatArray, pool: int) -> list[float]:
    """Return what one candidate is compared by, by what it is taken to be; infinite where a part is unknown."""
    values = [
        total_cost(table)[pool],
        sum(term(table, name)[pool] for name in (ScoreTerm.WAIT_S, ScoreTerm.DATA_S, ScoreTerm.EXTERNAL_S))
        + table[HOURS, pool] * HOUR_S,
        *(term(table, name)[pool] for name in (ScoreTerm.CARBON_G, ScoreTerm.LATENCY_MS, ScoreTerm.RISK)),
    ]
    return [np.inf if np.isnan(value) else float(value) for value in values]


def beaten(values: FloatArray, row: FloatArray) -> bool:
    """Return whether any of *values* beats a row: at most as large everywhere and smaller somewhere."""
    return bool(np.any(np.all(values <= row, axis=1) & np.any(values < row, axis=1)))
