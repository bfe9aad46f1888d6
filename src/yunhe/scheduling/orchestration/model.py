"""The nouns of a decision: what is demanded, and the answer with its reasons."""

from enum import StrEnum

import msgspec

from yunhe.kernel.ids import JobId, NodeId, PoolId, ProjectId
from yunhe.kernel.money import Tier
from yunhe.kernel.places import Place
from yunhe.kernel.resources import Resources


class Policy(StrEnum):
    """A named objective that decisions follow."""

    CHEAPEST = "cheapest"
    NEAREST = "nearest"
    BALANCED = "balanced"


class Alternative(msgspec.Struct, frozen=True, omit_defaults=True):
    """One way to satisfy a demand: an amount, and the pools it may come from (empty: any)."""

    resources: Resources
    pools: tuple[str, ...] = ()


class Demand(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """A task made precise: what must hold wherever it runs, and what is preferred."""

    job_id: JobId
    project_id: ProjectId
    alternatives: tuple[Alternative, ...]
    ordered: bool = False
    """Whether an earlier alternative beats any later one (``ordered``) or the score decides (``any_of``)."""
    tier: Tier = Tier.HIGH
    policy: Policy = Policy.BALANCED
    weights: dict[str, float] = {}
    """Weight of each score term under ``balanced``; terms not named weigh as by default."""
    near: Place | None = None
    avoid_pools: tuple[PoolId, ...] = ()
    """Pools on which this job just failed for reasons of the pool."""


class Rejection(msgspec.Struct, frozen=True, omit_defaults=True):
    """Why a pool cannot take a demand: the rule that said no, and what it saw."""

    pool_id: PoolId
    pool_name: str
    rule: str
    detail: str


class Candidate(msgspec.Struct, frozen=True, omit_defaults=True):
    """A pool that could take the demand; a term that is unknown is None, never zero."""

    pool_id: PoolId
    pool_name: str
    node_id: NodeId
    alternative: int
    score: float
    terms: dict[str, float | None]


class Assignment(msgspec.Struct, frozen=True, omit_defaults=True):
    """One part of a placement: this much, there."""

    pool_id: PoolId
    node_id: NodeId
    resources: Resources


class Placed(msgspec.Struct, frozen=True, tag="placed", kw_only=True):
    """The demand goes here."""

    assignments: tuple[Assignment, ...]
    score: float
    terms: dict[str, float | None]
    candidates: tuple[Candidate, ...]
    """Every pool that could have taken it, best first; the first was chosen."""
    rejected: tuple[Rejection, ...]
    snapshot_version: int


class Waiting(msgspec.Struct, frozen=True, tag="waiting", kw_only=True):
    """Nowhere can take the demand now; each pool says why."""

    rejected: tuple[Rejection, ...]
    smallest_change: str
    """What would let it run, in one sentence; empty when nothing known would."""
    snapshot_version: int


Decision = Placed | Waiting
