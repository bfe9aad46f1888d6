"""Whether a demand makes sense at all, before anybody asks where it could go."""

from collections.abc import Iterator

from yunhe.kernel.errors import FieldProblem, InvalidInputError
from yunhe.kernel.resources import Resources
from yunhe.scheduling.decision.model import Alternative, Demand
from yunhe.scheduling.decision.score.terms import TERMS


def check_demand(demand: Demand) -> Demand:
    """Return *demand* if every field can be honoured; else refuse it, with every bad field named."""
    problems = [
        *_members(demand),
        *_moves(demand),
        *(
            problem
            for number, alternative in enumerate(demand.alternatives)
            for problem in _alternative(f"alternatives[{number}]", alternative)
        ),
        *(
            FieldProblem(f"weights.{name}", f"is no term; there are {', '.join(TERMS)}")
            for name in demand.weights
            if name not in TERMS
        ),
    ]
    if not demand.alternatives:
        problems.append(FieldProblem("alternatives", "is empty"))
    if problems:
        raise InvalidInputError("This demand cannot be placed as it is.", fields=tuple(problems))
    return demand


def _members(demand: Demand) -> Iterator[FieldProblem]:
    if demand.members < 1:
        yield FieldProblem("members", "is less than 1", str(demand.members))
    if demand.members_min is not None and not 1 <= demand.members_min <= max(demand.members, 1):
        yield FieldProblem("members_min", f"is not from 1 to {demand.members}", str(demand.members_min))
    if demand.spread is not None and demand.spread.at_most < 1:
        yield FieldProblem("spread.at_most", "is less than 1", str(demand.spread.at_most))


def _moves(demand: Demand) -> Iterator[FieldProblem]:
    for number, need in enumerate(demand.data):
        if need.rate_mbps is not None and not need.rate_mbps > 0:
            yield FieldProblem(f"data[{number}].rate_mbps", "is not more than 0", str(need.rate_mbps))
    for number, traffic in enumerate(demand.traffic):
        if not traffic.mbps >= 0:
            yield FieldProblem(f"traffic[{number}].mbps", "is negative", str(traffic.mbps))


def _alternative(where: str, alternative: Alternative) -> Iterator[FieldProblem]:
    least, most = alternative.resources, alternative.up_to
    if _least_of(least) < 0:
        yield FieldProblem(f"{where}.resources", "is negative", str(_least_of(least)))
    if most is not None and most.accelerators not in {(), least.accelerators}:
        yield FieldProblem(
            f"{where}.up_to", "has a range of accelerators; only cores, memory and disk may have one"
        )


def _least_of(amount: Resources) -> int:
    parts = [part for one in amount.accelerators for part in (one.milli, one.memory_mib)]
    return min(amount.cpu_millis, amount.memory_mib, amount.disk_mib, *parts)
