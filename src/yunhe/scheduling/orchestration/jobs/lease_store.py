"""Leases on jobs: which process drives which, and what is over and waits to be released."""

from collections.abc import Iterable
from contextlib import AbstractAsyncContextManager
from typing import NamedTuple

import sqlalchemy as sa

from yunhe.kernel.ids import AllocationId, JobId, PoolId
from yunhe.scheduling.orchestration.jobs.states import JobState
from yunhe.scheduling.orchestration.jobs.store import AllocationState
from yunhe.scheduling.orchestration.jobs.tables import ALLOCATIONS, JOBS
from yunhe.storage import leases
from yunhe.storage.database import AnyRow, Connection, Database

IDS_AT_ONCE = 500


class EndedAllocation(NamedTuple):
    """An allocation that is over, and the token with which its pool may be told."""

    pool_id: PoolId
    allocation_id: AllocationId
    token: int


def claim(
    connection: Connection,
    states: Iterable[JobState],
    limit: int,
    *,
    owner: str,
    now: float,
    ttl_s: float,
) -> dict[JobId, int]:
    """Take jobs in *states* that nobody holds, the oldest first; return the token of each."""
    free = sa.select(JOBS.c.id).where(JOBS.c.state.in_(states)).order_by(JOBS.c.id).limit(limit)
    rows = leases.claim(connection, JOBS, free, owner=owner, now=now, ttl_s=ttl_s)
    return {JobId(row.id): row.lease_token for row in rows}


def keep(connection: Connection, *, owner: str, now: float, ttl_s: float) -> set[JobId]:
    """Prolong every lease of *owner* and return the jobs still held."""
    return {JobId(job_id) for job_id in leases.keep(connection, JOBS, owner=owner, now=now, ttl_s=ttl_s)}


def let_go(connection: Connection, jobs: Iterable[JobId], *, owner: str) -> None:
    """End *owner*'s leases on these jobs."""
    leases.let_go(connection, JOBS, owner=owner, ids=jobs)


def held_until_end(database: Database, owner: str) -> AbstractAsyncContextManager[None]:
    """End every lease of *owner* when the block ends."""
    return leases.held_until_end(database, JOBS, owner)


def ended(connection: Connection, now: float, limit: int) -> list[EndedAllocation]:
    """Return allocations that are over and may be released now."""
    query = (
        sa.select(ALLOCATIONS.c.pool_id, ALLOCATIONS.c.id, JOBS.c.lease_token)
        .join(JOBS, JOBS.c.id == ALLOCATIONS.c.job_id)
        .where(ALLOCATIONS.c.state == AllocationState.ENDED, ALLOCATIONS.c.release_due_at <= now)
        .limit(limit)
    )
    return [
        EndedAllocation(PoolId(row.pool_id), AllocationId(row.id), row.lease_token)
        for row in connection.execute(query)
    ]


def strays(connection: Connection, pool_id: PoolId, ids: list[AllocationId]) -> list[AnyRow]:
    """Return those of *ids* that are of another pool in our books, or released."""
    query = (
        sa.select(ALLOCATIONS.c.id, ALLOCATIONS.c.state, JOBS.c.lease_token)
        .join(JOBS, JOBS.c.id == ALLOCATIONS.c.job_id)
        .where((ALLOCATIONS.c.pool_id != pool_id) | (ALLOCATIONS.c.state == AllocationState.RELEASED))
    )
    return [
        row
        for start in range(0, len(ids), IDS_AT_ONCE)
        for row in connection.execute(query.where(ALLOCATIONS.c.id.in_(ids[start : start + IDS_AT_ONCE])))
    ]
