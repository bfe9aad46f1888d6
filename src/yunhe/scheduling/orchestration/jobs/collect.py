"""Bringing home what an allocation leaves: its output, its files, and letting its pool forget it."""

import logging
from collections import defaultdict
from collections.abc import Coroutine
from typing import Any, NamedTuple

import anyio

from yunhe.control.pools.interface import Pools
from yunhe.control.pools.model import Ending, LogMark
from yunhe.kernel.clock import Clock
from yunhe.kernel.errors import (
    ConflictError,
    DatabaseUnavailableError,
    FencedError,
    NotFoundError,
    YunheError,
)
from yunhe.kernel.ids import PoolId
from yunhe.observability.failpoints import failpoint
from yunhe.scheduling.orchestration.jobs import lease_store, retention_store, store
from yunhe.scheduling.orchestration.jobs.outcome import UNKNOWN
from yunhe.scheduling.orchestration.jobs.states import JobState
from yunhe.scheduling.orchestration.jobs.store import AllocationState, LeasedJob
from yunhe.scheduling.orchestration.log_pieces import marks_of
from yunhe.storage.database import Database
from yunhe.storage.quotas import QuotaBook

PIECE_BYTES = 256 * 1024
LOG_ON_RESERVE_BYTES = 1024 * 1024
"""On a full disk the end of a job brings as much of its output home; more waits on the pool."""
FETCHES_AT_ONCE = 16
"""From one pool, by one worker: the rest waits here for its turn, and not at the pool."""
RELEASE_BATCH = 50
RELEASE_EVERY_S = 2.0
RELEASE_RETRY_S = 10.0

log = logging.getLogger(__name__)


class Home(NamedTuple):
    """What has come of bringing an attempt's log and outputs home; what is lost is told with the reason."""

    log_lost: str = ""
    outputs_lost: str = ""

    def __str__(self) -> str:
        told = {"its outputs are lost": self.outputs_lost, "some of its log is lost": self.log_lost}
        return "; ".join(f"{what}: {why}" for what, why in told.items() if why)


class Fetcher:
    """Brings logs and outputs home, a few at a time from each pool; whoever ended first is first."""

    def __init__(self, database: Database, pools: Pools, quotas: QuotaBook, clock: Clock) -> None:
        self._database = database
        self._pools = pools
        self._quotas = quotas
        self._clock = clock
        self._turns: defaultdict[PoolId, anyio.Semaphore] = defaultdict(
            lambda: anyio.Semaphore(FETCHES_AT_ONCE)
        )

    async def bring_home(self, held: LeasedJob, *, log_bytes: int = 0) -> Home:
        """Keep everything an ended attempt left, and return what is lost of it.

        Lost is what the pool no longer has (``NotFoundError``) or what was given up on request. Any other error is
        raised: the pool still keeps the files, and the caller tries again later. *log_bytes* is how much output the
        pool counted.
        """
        if not held.launched:
            return Home()
        async with self._turns[held.pool_id]:
            log_lost = await _lost(held, self._bring_whole_log(held, log_bytes))
            failpoint("finish-after-logs")
            outputs_lost = await _lost(held, self._bring_outputs(held))
            failpoint("finish-after-outputs")
        return Home(log_lost, outputs_lost)

    async def _bring_whole_log(self, held: LeasedJob, log_bytes: int) -> str:
        await self.bring_log(held)
        kept, why = await self._database.read(lambda connection: retention_store.kept_log(connection, held))
        lost = log_bytes - kept
        return f"{lost} of {log_bytes} bytes are not kept. {why}".strip() if lost > 0 else ""

    async def bring_log(self, held: LeasedJob) -> None:
        """Keep the output that has come since the last time, each piece where it belongs: the pool may have gaps."""
        start, pending, marks = held.log_bytes, bytearray(), list[LogMark]()
        async for chunk in self._pools.logs(held.pool_id, held.allocation_id, offset=start, follow=False):
            if pending and (len(pending) >= PIECE_BYTES or chunk.offset != start + len(pending)):
                await self._keep(held, start, bytes(pending), tuple(marks))
                pending.clear()
                marks.clear()
            if not pending:
                start = chunk.offset  # beyond what was asked for where the pool has lost or dropped output
            pending += chunk.data
            marks += marks_of(chunk, self._clock())
        if pending:
            await self._keep(held, start, bytes(pending), tuple(marks))

    async def _keep(self, held: LeasedJob, start: int, data: bytes, marks: tuple[LogMark, ...]) -> None:
        small = start + len(data) <= LOG_ON_RESERVE_BYTES
        await self._database.write(
            lambda connection: retention_store.append_log(connection, held, start, data, self._quotas, marks),
            uses_reserve=small and held.state is JobState.FINISHING,
        )

    async def _bring_outputs(self, held: LeasedJob) -> str:
        """Keep the files the job declared as outputs, once."""
        if held.order.outputs and held.outputs_blob is None:
            project_id = held.order.demand.project_id
            blob_id = await self._pools.collect(
                held.pool_id, held.allocation_id, held.order.outputs, project_id
            )
            failpoint("outputs-before-record")
            await self._database.write(
                lambda connection: store.change_row(connection, held, outputs_blob=blob_id)
            )
        return ""


def is_given_up(held: LeasedJob) -> bool:
    """Return whether somebody asked to stop what had ended by itself: that can only mean the wait for its files."""
    return held.stop_requested and held.ending != Ending.STOPPED


async def _lost(held: LeasedJob, bring: Coroutine[Any, Any, str]) -> str:
    """Return why what is brought is lost, or nothing; raise what may be over when it is tried again."""
    try:
        return await bring
    except (FencedError, DatabaseUnavailableError):
        raise
    except YunheError as error:
        never_ran = held.started_at is None and held.ending != UNKNOWN
        if never_ran and isinstance(error, (NotFoundError, ConflictError)):
            return ""
        if isinstance(error, NotFoundError):
            return error.problem
        if is_given_up(held) or (held.stop_requested and not error.retryable):
            return f"given up on request; {error.problem}"
        raise


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
            ended = await self._database.read(lambda c: lease_store.ended(c, self._clock(), RELEASE_BATCH))
            async with anyio.create_task_group() as tasks:
                for over in ended:
                    tasks.start_soon(self._release, over)
            if len(ended) < RELEASE_BATCH:
                with anyio.move_on_after(RELEASE_EVERY_S):
                    await self._woken.wait()

    async def _release(self, over: lease_store.EndedAllocation) -> None:
        pool_id, allocation_id, token = over
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
            log.info("nothing left to release", extra={"allocation": allocation_id})
        except YunheError as error:
            log.info("release waits", extra={"allocation": allocation_id, "problem": str(error)})
            values = {"release_due_at": self._clock() + RELEASE_RETRY_S}
        failpoint("release-after-call")
        await self._database.write(
            lambda connection: store.update_allocation(connection, allocation_id, **values)
        )
