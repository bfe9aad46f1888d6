"""What a market shows: the best few candidates for a demand, and those that no other beats in every respect."""

from typing import NamedTuple

import numpy as np

from yunhe.scheduling.orchestration.cycle import Cycle
from yunhe.scheduling.orchestration.decide import considered
from yunhe.scheduling.orchestration.kernels import FloatArray
from yunhe.scheduling.orchestration.model import Candidate, Demand
from yunhe.scheduling.orchestration.rules import ready_after_s, total_cost
from yunhe.scheduling.orchestration.score import term
from yunhe.scheduling.perception.snapshot import Snapshot, check_snapshot

CRITERIA = ("cost", "ready_s", "carbon_g", "latency_ms", "risk")
"""What candidates are compared by: money and time in all, carbon, latency to the user, risk of a failure."""


class Choices(NamedTuple):
    """The answer to "what is there for me": both best first by the demand's policy."""

    best: tuple[Candidate, ...]
    pareto: tuple[Candidate, ...]


def candidates(demand: Demand, snapshot: Snapshot, k: int) -> Choices:
    """Return the *k* best candidates, and all that are not beaten by another in every criterion.

    What is unknown is no better than anything: it never helps to beat another, and loses to any known value.
    """
    cycle = Cycle(check_snapshot(snapshot))
    fits, found, _ = considered(demand, cycle)
    values = np.array(
        [
            [
                total_cost(fit.option.table)[fit.pool],
                ready_after_s(fit.option.table)[fit.pool],
                *(term(fit.option.table, name)[fit.pool] for name in CRITERIA[2:]),
            ]
            for fit in fits
        ]
    ).reshape(len(fits), len(CRITERIA))
    kept = undominated(np.nan_to_num(values, nan=np.inf))
    return Choices(found[:k], tuple(one for one, keep in zip(found, kept, strict=True) if keep))


def undominated(values: FloatArray) -> list[bool]:
    """Return which rows no other row beats: none at most as large everywhere and smaller somewhere."""
    return [not bool(np.any(np.all(values <= row, axis=1) & np.any(values < row, axis=1))) for row in values]
