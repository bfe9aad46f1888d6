"""Facts that orchestration tells: what listeners above may build on."""

import msgspec

from yunhe.control.plugins.model import Meters
from yunhe.kernel.ids import AllocationId, JobId, PoolId, ProjectId
from yunhe.kernel.money import Tier
from yunhe.kernel.resources import Resources
from yunhe.scheduling.orchestration.states import JobState

__all__ = ["ALLOCATION_METERED", "JOB_ASKED", "JOB_CHANGED", "AllocationMetered", "JobChanged", "Meters"]

JOB_CHANGED = "scheduling.job-changed.v1"
JOB_ASKED = "scheduling.job-asked.v1"
"""Somebody asked for a stop or a resize; whoever holds the job should look."""
ALLOCATION_METERED = "scheduling.allocation-metered.v1"


class JobChanged(msgspec.Struct, frozen=True, kw_only=True):
    """A job is in another state."""

    job_id: JobId
    project_id: ProjectId
    state: JobState


class AllocationMetered(msgspec.Struct, frozen=True, kw_only=True):
    """What an allocation has used since it began; ``resources`` were reserved since the fact before this one."""

    allocation_id: AllocationId
    job_id: JobId
    project_id: ProjectId
    pool_id: PoolId
    tier: Tier
    resources: Resources
    meters: Meters
    final: bool
