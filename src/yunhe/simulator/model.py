"""The nouns of a simulation: tasks, failures, and what came of them."""

from collections.abc import Sequence
from typing import NamedTuple

import msgspec

from yunhe.kernel.ids import PoolId
from yunhe.kernel.resources import Resources
from yunhe.scheduling.decision.model import DataNeed, Demand


class SimulatedTask(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """One piece of work: when it comes, what it needs, how long it really runs at speed 1."""

    submitted_at: float
    resources: Resources
    run_s: float
    members: int = 1
    after: tuple[int, ...] = ()
    """Tasks (by their number in the workload) that must have ended before."""
    data: tuple[DataNeed, ...] = ()
    pools: tuple[str, ...] = ()
    priority: int = 0
    demand: Demand | None = None
    """All that was asked for, where that is known (of a platform's jobs); else it is made from the above."""


class Failure(msgspec.Struct, frozen=True, kw_only=True):
    """A pool that goes away for a while; what runs there starts again elsewhere."""

    pool_id: PoolId
    at: float
    lasts_s: float


class SimulatedPlatform(NamedTuple):
    """What the platform itself takes."""

    handling_s: float = 0.0
    """Of a task's room: from the decision to its start, and from its end until the room is given out again."""
    reaction_s: float = 0.0
    """From an arrival or an end to the next round of decisions, which sees all that has happened by then."""


PROMPT = SimulatedPlatform()


class Workload(NamedTuple):
    """Tasks in order of their arrival, with a name for tables."""

    name: str
    tasks: Sequence[SimulatedTask]


class SimulatedOutcome(NamedTuple):
    """What came of one task; None where it did not get that far."""

    pool: str | None
    node: str | None
    started_at: float | None
    ended_at: float | None
    restarts: int
    cost: float


class SimulationReport(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """What came of a workload under one policy."""

    workload: str
    policy: str
    tasks: int
    ended: int
    never_placed: int
    restarts: int
    makespan_s: float
    wait_mean_s: float
    wait_p50_s: float
    wait_p95_s: float
    turnaround_mean_s: float
    cost: float | None
    carbon_kg: float | None
    busy_cores_mean: float
    utilisation: tuple[float, ...]
    """Share of all cores in use, at even intervals from the first arrival to the last end."""
    simulated_in_s: float | None = None
    """None: it was not simulated, it happened."""
