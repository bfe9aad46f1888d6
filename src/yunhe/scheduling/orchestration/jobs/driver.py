"""The driver: holds leases on jobs and takes each from its intent to its end, one step after another."""

import logging
import random

import anyio
from anyio.abc import TaskGroup

from yunhe.kernel.errors import DatabaseUnavailableError, FencedError, YunheError
from yunhe.kernel.ids import AllocationId, JobId
from yunhe.observability.context import log_ids
from yunhe.observability.supervise import supervise
from yunhe.scheduling.orchestration.jobs import lease_store, store
from yunhe.scheduling.orchestration.jobs.states import FINAL, JobState
from yunhe.scheduling.orchestration.jobs.steps import (
    RETRY_S,
    SLOW_RETRY_S,
    DrivenJob,
    StepDependencies,
    Steps,
)
from yunhe.scheduling.orchestration.jobs.store import LeasedJob
from yunhe.scheduling.orchestration.jobs.watcher import Watcher

LEASE_S = 15.0
HEARTBEAT_S = 4.0
CLAIM_LIMIT = 100

DRIVEN = tuple(state for state in JobState if state not in FINAL and state is not JobState.PENDING)

log = logging.getLogger(__name__)


class Driver:
    """Drives every job whose lease this process holds."""

    def __init__(self, means: StepDependencies) -> None:
        self._means = means
        self._drives: dict[JobId, DrivenJob] = {}
        self._jobs_of: dict[AllocationId, JobId] = {}
        self._watcher = Watcher(means.pools, self._poke_allocation)
        steps = Steps(means, self._watcher)
        self._steps = {
            JobState.STARTING: steps.start,
            JobState.RUNNING: steps.watch,
            JobState.STOPPING: steps.stop,
            JobState.FINISHING: steps.finish,
            JobState.UNKNOWN: steps.settle,
            JobState.PREEMPTED: steps.settle,
        }
        self._tasks: TaskGroup | None = None

    async def run(self) -> None:
        """Drive until cancelled, then let go so that others may take over at once."""
        async with lease_store.held_until_end(self._means.database, self._means.owner):
            try:
                async with anyio.create_task_group() as tasks:
                    self._tasks = tasks
                    tasks.start_soon(supervise, "claims", self._claim_forever)
                    tasks.start_soon(supervise, "lease heartbeat", self._heartbeat_forever)
            finally:
                self._tasks = None

    def take(self, job_id: JobId, token: int, *, placed_here: bool = True) -> None:
        """Begin to drive a job whose lease was just won; one that is driven already goes on with the new token."""
        drive = self._drives.get(job_id)
        if drive is not None:
            drive.token = token
            drive.is_unsent |= placed_here  # a lease that was claimed again changes nothing
        elif self._tasks is not None:
            self._drives[job_id] = DrivenJob(token, placed_here=placed_here)
            self._tasks.start_soon(self._drive, job_id)

    def poke(self, job_id: JobId) -> None:
        """Say that there is news of a job."""
        drive = self._drives.get(job_id)
        if drive is not None:
            drive.news.set()

    def _poke_allocation(self, allocation_id: AllocationId) -> None:
        job_id = self._jobs_of.get(allocation_id)
        if job_id is not None:
            self.poke(job_id)

    async def _claim_forever(self) -> None:
        """Take over jobs that nobody drives: after a restart, or when another process died."""
        while True:
            now = self._means.clock()
            try:
                claimed = await self._means.database.write(
                    lambda c, n=now: lease_store.claim(
                        c, DRIVEN, CLAIM_LIMIT, owner=self._means.owner, now=n, ttl_s=LEASE_S
                    )
                )
            except DatabaseUnavailableError:
                # Every lease may have run out meanwhile: whoever drives a job renews it before others may claim it.
                await self._means.database.wait_until_available()
                await anyio.sleep(HEARTBEAT_S / 2)
                continue
            for job_id, token in claimed.items():
                self.take(job_id, token, placed_here=False)
            await anyio.sleep(0 if len(claimed) == CLAIM_LIMIT else HEARTBEAT_S / 2)

    async def _heartbeat_forever(self) -> None:
        undriven: set[JobId] = set()
        while True:
            now = self._means.clock()
            if not self._drives:
                await anyio.sleep(HEARTBEAT_S)
                continue
            held = await self._means.database.write(
                lambda c, n=now: lease_store.keep(c, owner=self._means.owner, now=n, ttl_s=LEASE_S)
            )
            # A lease without a drive would be kept for ever; one that was just won gets its drive in a moment.
            lost = undriven & held - self._drives.keys()
            undriven = held - self._drives.keys()
            if lost:
                await self._means.database.write(
                    lambda c, ids=lost: lease_store.let_go(c, ids, owner=self._means.owner)
                )
            await anyio.sleep(HEARTBEAT_S)

    async def _drive(self, job_id: JobId) -> None:
        drive = self._drives[job_id]
        with log_ids(job_id=job_id):
            try:
                while (held := await self._load(job_id, drive)) is not None:
                    if drive.allocation_id != held.allocation_id:
                        self._leave(drive)
                        self._follow(held, drive)
                    log.debug("step begins", extra={"state": held.state})
                    await self._step(held, drive)
            finally:
                del self._drives[job_id]
                self._leave(drive)

    async def _load(self, job_id: JobId, drive: DrivenJob) -> LeasedJob | None:
        """Return the job if its lease still stands and there is something to do."""
        while True:
            token = drive.token
            try:
                held = await self._means.database.read(lambda c, t=token: store.read_held(c, job_id, t))
            except DatabaseUnavailableError:
                await drive.wait(_spread(RETRY_S))
                continue
            if held is not None and held.state in self._steps:
                return held
            if (
                drive.token == token
            ):  # otherwise it was placed again meanwhile, and is ours with the new token
                return None

    def _follow(self, held: LeasedJob, drive: DrivenJob) -> None:
        """Hear of the job's allocation; a job that was placed again has another, perhaps on another pool."""
        drive.allocation_id, drive.pool_id = held.allocation_id, held.pool_id
        drive.begun_at_look = self._watcher.looks_begun(held.pool_id)
        drive.metered_at = self._means.clock()
        log.info(
            "attempt is driven",
            extra={"attempt": held.number, "pool": held.pool_id, "node": held.node_id, "state": held.state},
        )
        self._jobs_of[held.allocation_id] = held.job_id
        if self._tasks is not None:
            self._watcher.want(self._tasks, held.pool_id)

    def _leave(self, drive: DrivenJob) -> None:
        if drive.allocation_id is not None and drive.pool_id is not None:
            del self._jobs_of[drive.allocation_id]
            self._watcher.unwant(drive.pool_id)
            drive.allocation_id = drive.pool_id = None

    async def _step(self, held: LeasedJob, drive: DrivenJob) -> None:
        try:
            await self._steps[held.state](held, drive)
        except FencedError:
            log.info("lease has passed to another holder")
            await drive.wait(RETRY_S)
        except DatabaseUnavailableError:
            await drive.wait(_spread(RETRY_S))
        except YunheError as error:
            if not error.retryable:
                log.exception("step failed, will be repeated", extra={"state": held.state})
            else:
                log.warning("step waits", extra={"problem": str(error)})
            await drive.wait(SLOW_RETRY_S)
        except Exception:
            # The row is as it was: the same step is tried again.
            log.exception("step failed, will be repeated", extra={"state": held.state})
            await drive.wait(SLOW_RETRY_S)


def _spread(seconds: float) -> float:
    """Return a pause of about *seconds*: jobs that failed together must not all try again together."""
    return seconds * random.uniform(0.5, 1.5)  # noqa: S311 - no secret
