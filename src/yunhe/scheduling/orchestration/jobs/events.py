"""Facts that orchestration tells: what listeners above may build on."""

import msgspec

from yunhe.control.pools.model import Meters
from yunhe.kernel.ids import AllocationId, JobId, NodeId, PoolId, ProjectId
from yunhe.kernel.money import Tier
from yunhe.kernel.resources import Resources
from yunhe.scheduling.orchestration.jobs.states import JobState

__all__ = [
    "ALLOCATION_METERED",
    "JOB_ASKED",
    "JOB_CHANGED",
    "AllocationMetered",
    "JobChanged",
    "Meters",
    "Placing",
]

JOB_CHANGED = "scheduling.job-changed.v1"
JOB_ASKED = "scheduling.job-asked.v1"
"""Somebody asked for a stop or a resize; whoever holds the job should look."""
ALLOCATION_METERED = "scheduling.allocation-metered.v1"


class Placing(msgspec.Struct, frozen=True, kw_only=True):
    """Where a job was placed, and what was known then."""

    pool_id: PoolId
    node_id: NodeId
    knew: int
    """The last event that had happened for whoever decided: the log up to there gives the same decision again."""


class JobChanged(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A job is in another state."""

    job_id: JobId
    project_id: ProjectId
    state: JobState
    placing: Placing | None = None
    """With ``starting``."""
    shape: str = ""
    """With ``pending``, of a new job: jobs of one shape wait for the same thing."""


class AllocationMetered(msgspec.Struct, frozen=True, kw_only=True):
    """What an allocation has used since it began; ``resources`` were reserved since the fact before this one."""

    allocation_id: AllocationId
    job_id: JobId
    project_id: ProjectId
    pool_id: PoolId
    tier: Tier
    resources: Resources
    meters: Meters
    started_at: float | None = None
    """When the allocation began, by its pool's clock: the counters reach from there over ``wall_ms``."""
    final: bool
