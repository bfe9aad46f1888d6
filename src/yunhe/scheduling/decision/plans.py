"""The nouns of plans made before anything runs: candidates compared, tasks planned together, places kept for later."""

from typing import Any

import msgspec

from yunhe.kernel.ids import NodeId, PoolId
from yunhe.kernel.resources import Resources
from yunhe.scheduling.decision.model import Candidate, Decision, Rejection


class ParetoChoice(msgspec.Struct, frozen=True, kw_only=True):
    """A candidate that no other beats, and what it costs in the terms of the others."""

    candidate: Candidate
    values: dict[str, float | None]
    """Each criterion; None where it is unknown."""
    against_first: dict[str, float]
    """How much more (or, below zero, less) of each criterion than the first choice, where both are known and differ."""


class BeatenCandidate(msgspec.Struct, frozen=True, kw_only=True):
    """A candidate that another beats: no better in any criterion, worse in one."""

    candidate: Candidate
    by: str
    """The name of a pool that beats it."""


class ParetoPlan(msgspec.Struct, frozen=True, tag="pareto", kw_only=True):
    """What there is to choose from for one task."""

    choices: tuple[ParetoChoice, ...]
    """What nobody beats, best first by the task's policy; the first is what ``run`` would take."""
    beaten: tuple[BeatenCandidate, ...]
    rejected: tuple[Rejection, ...]
    unknown: tuple[str, ...]
    """Criteria that are not known of any candidate, and so were not compared."""
    snapshot_version: int


class JointPlan(msgspec.Struct, frozen=True, tag="joint", kw_only=True):
    """Where several tasks would go together, and what that saves; costs are sums of scores, in the policy's unit."""

    decisions: tuple[Decision, ...]
    cost: float
    """Of those that are placed."""
    waiting: int
    one_after_another: float
    waiting_one_after_another: int
    single_pools: dict[str, float]
    """Each pool that could take all of them alone → what that would cost."""
    exact: bool
    """Whether every way was looked at, so that none is better."""
    snapshot_version: int


class PlannedPlace(msgspec.Struct, frozen=True, kw_only=True):
    """Where a plan puts a task, and what it was decided on."""

    pool_id: PoolId
    pool_name: str
    node_id: NodeId
    """Empty where the pool hides its nodes."""
    alternative: int
    """Which of the task's alternatives it was, counted from 0."""
    resources: Resources
    cost_per_hour: float | None
    facts: dict[str, Any]
    """What was known of the pool: its price, place, speed …"""


class PlanChange(msgspec.Struct, frozen=True):
    """What has changed since a plan was made, so that it does not hold any more."""

    task: int
    """Which of the plan's tasks, counted from 0."""
    change: str
