"""Bringing home what an allocation leaves: its output, its files, and letting its pool forget it."""

import logging

import anyio
import msgspec
import sqlalchemy as sa
from sqlalchemy.engine import Connection

from yunhe.control.pools.interface import Pools
from yunhe.kernel.clock import Clock
from yunhe.kernel.errors import ConflictError, NotFoundError, YunheError
from yunhe.kernel.ids import AllocationId, PoolId
from yunhe.observability.failpoints import failpoint
from yunhe.scheduling.orchestration.jobs import store
from yunhe.scheduling.orchestration.jobs.states import JobState
from yunhe.scheduling.orchestration.jobs.store import AllocationState, LeasedJob
from yunhe.scheduling.orchestration.jobs.tables import ALLOCATIONS, JOBS
from yunhe.storage import leases
from yunhe.storage.database import AnyRow, Database

PIECE_BYTES = 256 * 1024
LOG_ON_RESERVE_BYTES = 1024 * 1024
"""On a full disk the end of a job brings as much of its output home; more waits on the pool."""
RELEASE_BATCH = 50
RELEASE_EVERY_S = 2.0
RELEASE_RETRY_S = 10.0

log = logging.getLogger(__name__)


async def bring_logs(database: Database, pools: Pools, held: LeasedJob) -> None:
    """Keep the output that has come since the last time."""
    if not held.launched:
        return
    start, pending = held.log_bytes, bytearray()
    try:
        async for chunk in pools.logs(held.pool_id, held.allocation_id, offset=start, follow=False):
            if not pending:
                start = chunk.offset  # beyond what was asked for where the pool has dropped its oldest output
            pending += chunk.data
            if len(pending) >= PIECE_BYTES:
                await _keep(database, held, start, bytes(pending))
                start += len(pending)
                pending.clear()
    except NotFoundError:
        log.info("the pool has no output of it", extra={"allocation": held.allocation_id})
    if pending:
        await _keep(database, held, start, bytes(pending))


async def _keep(database: Database, held: LeasedJob, start: int, data: bytes) -> None:
    small = start + len(data) <= LOG_ON_RESERVE_BYTES
    await database.write(
        lambda connection: store.append_log(connection, held, start, data),
        uses_reserve=small and held.state is JobState.FINISHING,
    )


async def bring_outputs(database: Database, pools: Pools, held: LeasedJob) -> LeasedJob:
    """Keep the files the job declared as outputs, once."""
    if not held.launched or not held.order.outputs or held.outputs_blob is not None:
        return held
    blob_id = await pools.collect(held.pool_id, held.allocation_id, held.order.outputs)
    failpoint("outputs-before-record")
    await database.write(
        lambda connection: leases.apply(connection, JOBS, held.job_id, held.token, outputs_blob=blob_id)
    )
    return msgspec.structs.replace(held, outputs_blob=blob_id)


class Releaser:
    """Lets pools forget allocations that are over; repeating it is harmless, so every process may do it."""

    def __init__(self, database: Database, pools: Pools, clock: Clock) -> None:
        self._database = database
        self._pools = pools
        self._clock = clock
        self._woken = anyio.Event()

    def wake(self) -> None:
        """Say that an allocation has just ended."""
        self._woken.set()

    async def run(self) -> None:
        """Release until cancelled."""
        while True:
            self._woken = anyio.Event()
            rows = await self._database.read(lambda c: _ended(c, self._clock()))
            async with anyio.create_task_group() as tasks:
                for row in rows:
                    tasks.start_soon(self._release, row)
            if len(rows) < RELEASE_BATCH:
                with anyio.move_on_after(RELEASE_EVERY_S):
                    await self._woken.wait()

    async def _release(self, row: AnyRow) -> None:
        pool_id, allocation_id, token = PoolId(row.pool_id), AllocationId(row.id), row.lease_token
        values: dict[str, object] = {"state": AllocationState.RELEASED}
        failpoint("release-before-call")
        try:
            try:
                await self._pools.release(pool_id, allocation_id, token)
            except ConflictError:
                # Over in our books and not on the pool: its files came and its launch was refused, say.
                await self._pools.stop(pool_id, allocation_id, token)
                await self._pools.release(pool_id, allocation_id, token)
        except NotFoundError:
            log.info("nothing left to release", extra={"allocation": row.id})
        except YunheError as error:
            log.info("release waits", extra={"allocation": row.id, "problem": str(error)})
            values = {"release_due_at": self._clock() + RELEASE_RETRY_S}
        failpoint("release-after-call")
        await self._database.write(
            lambda connection: store.update_allocation(connection, AllocationId(row.id), **values)
        )


def _ended(connection: Connection, now: float) -> list[AnyRow]:
    query = (
        sa.select(ALLOCATIONS.c.id, ALLOCATIONS.c.pool_id, JOBS.c.lease_token)
        .join(JOBS, JOBS.c.id == ALLOCATIONS.c.job_id)
        .where(ALLOCATIONS.c.state == AllocationState.ENDED, ALLOCATIONS.c.release_due_at <= now)
        .limit(RELEASE_BATCH)
    )
    return list(connection.execute(query))
