"""The steps of driving a job: one method per state, each level-triggered and repeatable.

A step reads nothing but the held row, calls the pool with the allocation's ID and the lease's token, and writes what
came of it guarded by that token. Killing the process between any two lines loses nothing: the next holder reads the
same row and repeats the same step with a higher token.
"""

import logging
from collections.abc import Callable
from typing import Any, NamedTuple

import anyio
import msgspec
from prometheus_client import Histogram

from yunhe.control.pools.interface import Pools
from yunhe.control.pools.model import Ending, LaunchOrder, Observed, Phase, PoolState
from yunhe.kernel.backoff import delay_s
from yunhe.kernel.clock import Clock
from yunhe.kernel.confinement import bounded
from yunhe.kernel.errors import (
    DatabaseUnavailableError,
    DiskFullError,
    FencedError,
    ForbiddenError,
    InvalidInputError,
    LaunchUnansweredError,
    NotFoundError,
    PoolNotReachedError,
    PoolUnreachableError,
    TooLargeError,
    UnsupportedError,
    YunheError,
)
from yunhe.kernel.ids import AllocationId, PoolId, made_at_s
from yunhe.kernel.quotas import NO_LIMIT, QuotaLimits
from yunhe.kernel.resources import Resources
from yunhe.kernel.units import GIB, KIB, MIB
from yunhe.observability.failpoints import failpoint
from yunhe.observability.metrics import REGISTRY
from yunhe.scheduling.orchestration.jobs import resizing, store
from yunhe.scheduling.orchestration.jobs.collect import Fetcher, Home, is_given_up
from yunhe.scheduling.orchestration.jobs.outcome import UNKNOWN, EndedAttempt, Outcome, first_state, settle
from yunhe.scheduling.orchestration.jobs.states import FINAL, JobState
from yunhe.scheduling.orchestration.jobs.store import AllocationState, LeasedJob
from yunhe.scheduling.orchestration.jobs.watcher import Watcher
from yunhe.storage.database import Connection, Database
from yunhe.storage.notices import Notices
from yunhe.storage.quotas import ProjectSettings, QuotaBook, read_settings
from yunhe.storage.vault import SealBrokenError, Vault, secret_place

CHECK_S = 5.0
METER_S = 60.0
RETRY_S = 1.0
SLOW_RETRY_S = 5.0
LONGEST_PAUSE_S = 30.0
"""Between two attempts to bring files home; the first pause is ``RETRY_S``, each further one twice as long."""
LONGEST_REFUSED_PAUSE_S = 600.0
"""The same where the pool refuses for a reason that somebody has to remove."""
PLACEMENT_TRIES = 5
REFUSED_PAUSE_S = 1.0
"""After the second refusal; each one after that pauses twice as long. The first is tried elsewhere at once."""

LEAST_LOG_BYTES, MOST_LOG_BYTES = 16 * KIB, 64 * GIB
"""What agents take as the limit of a log."""
CLOCKS_DIFFER_S = 2.0
MOST_DOUBLINGS = 5

NOT_REACHED = "not-reached"
REFUSED = "refused"
"""The pool will not have this job: for what it is or asks."""
TURNED_AWAY = "turned-away"
"""The pool could not take any job then: its disk was full, say. It counts against nobody."""

FOR_THE_JOB = (InvalidInputError, UnsupportedError, TooLargeError, ForbiddenError)
"""Refusals for what a job is or asks; every other one is for what the host lacks."""

NO_LEASE: dict[str, Any] = {"lease_owner": "", "lease_until": 0}

log = logging.getLogger(__name__)

_ORDER_TO_RUNNING = Histogram(
    "yunhe_job_order_to_running_seconds",
    "From when a job was submitted to when its first attempt ran.",
    registry=REGISTRY,
    buckets=(0.5, 1.0, 2.0, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0, 900.0, 3600.0),
)


class StepDependencies(NamedTuple):
    """What the steps work with."""

    database: Database
    pools: Pools
    vault: Vault
    notices: Notices
    clock: Clock
    owner: str
    room_freed: Callable[[], None]
    quotas: QuotaBook = QuotaBook()


class DrivenJob:
    """A job being driven by this process."""

    def __init__(self, token: int, *, placed_here: bool) -> None:
        self.token = token
        self.news = anyio.Event()
        self.allocation_id: AllocationId | None = None
        """The allocation that is followed, and below it the pool that is watched for it."""
        self.pool_id: PoolId | None = None
        self.begun_at_look = 0
        self.metered_at = 0.0
        self.is_unsent = placed_here
        """Placed by this process, which has surely not sent its launch yet."""
        self.failures = 0
        """Attempts to bring its files home that failed in a row."""

    async def wait(self, seconds: float) -> None:
        """Wait for news of the job, at most *seconds*."""
        with anyio.move_on_after(seconds):
            await self.news.wait()
        self.news = anyio.Event()


class Steps:
    """What to do with a held job in each state."""

    def __init__(self, means: StepDependencies, watcher: Watcher) -> None:
        self._means = means
        self._watcher = watcher
        self._fetcher = Fetcher(means.database, means.pools, means.quotas, means.clock)

    async def _change(self, held: LeasedJob, state: JobState, **values: Any) -> None:
        now = self._means.clock()
        await self._means.database.write(lambda c: store.change(c, held, state, now, **values))
        self._means.notices.poke()

    async def _begin_stop(self, held: LeasedJob) -> None:
        """Say that it is ending, and by when it will be forced to."""
        await self._change(held, JobState.STOPPING, due_at=self._means.clock() + held.order.grace_s)

    async def start(self, held: LeasedJob, drive: DrivenJob) -> None:
        """Send the allocation to its pool until the pool has it, or has refused it; then wait until it runs."""
        if held.stop_requested:
            await self._begin_stop(held)
        elif held.launched:
            await self._await_running(held, drive)
        else:
            await self._launch(held, drive)

    async def _launch(self, held: LeasedJob, drive: DrivenJob) -> None:
        project_id = held.order.demand.project_id
        limits, settings = await self._means.database.read(
            lambda c: (self._means.quotas.limits(c, project_id), read_settings(c, project_id))
        )
        try:
            order = self._launch_order(held, limits, settings)
        except (
            SealBrokenError
        ) as error:  # the key may be on its way to this server, or the order be sealed anew
            await self._say(held, error.problem)
            await drive.wait(RETRY_S)
            return
        failpoint("launch-before-call")
        try:
            await self._means.pools.launch(held.pool_id, order, held.order.mounts)
        except PoolUnreachableError as error:
            await self._unreachable(held, drive, error)
            return
        except (FencedError, DatabaseUnavailableError):
            raise
        except YunheError as error:
            if not await self._pool_removed(held):
                await self._refused(held, error)
            return
        # Only a look that begins from here on must know the allocation.
        drive.begun_at_look = self._watcher.looks_begun(held.pool_id)
        failpoint("launch-after-call")

        def launched(connection: Connection) -> None:
            store.change_row(connection, held, reason="")
            store.update_allocation(connection, held.allocation_id, state=AllocationState.LAUNCHED)

        await self._means.database.write(launched)
        failpoint("launch-after-record")

    async def _unreachable(self, held: LeasedJob, drive: DrivenJob, error: PoolUnreachableError) -> None:
        """Wait for the pool while it is not called offline; then place the job elsewhere if it surely does not run there."""
        drive.is_unsent &= isinstance(error, PoolNotReachedError)
        surely_expired = isinstance(error, LaunchUnansweredError)
        if (drive.is_unsent or surely_expired) and await self._is_offline(held):
            if surely_expired:
                await self._end(held, ending=UNKNOWN, detail=error.problem)
            else:
                await self._withdraw(held, error)
            return
        await self._say(held, f"the pool does not answer: {error.problem}")
        await drive.wait(RETRY_S)

    async def _is_offline(self, held: LeasedJob) -> bool:
        return (await self._means.pools.pool(held.pool_id)).state is PoolState.OFFLINE

    async def _withdraw(self, held: LeasedJob, error: PoolUnreachableError) -> None:
        """Have a job placed again whose launch was never sent; that is no refusal, and costs it nothing."""
        now = self._means.clock()

        def write(connection: Connection) -> None:
            ended: dict[str, Any] = {"ended_at": now, "ending": NOT_REACHED, "detail": error.problem}
            store.update_guarded(connection, held, state=AllocationState.ENDED, **ended)
            reason = f"its pool went offline before the launch: {error.problem}"
            store.change(connection, held, JobState.PENDING, now, reason=reason, due_at=0.0, **NO_LEASE)

        await self._means.database.write(write)
        self._means.notices.poke()
        self._means.room_freed()

    async def _await_running(self, held: LeasedJob, drive: DrivenJob) -> None:
        """Follow an allocation the pool has taken until it runs: the pool may have a queue of its own."""
        if await self._ended(held, drive):
            return
        seen = self._watcher.seen(held.pool_id, held.allocation_id)
        if seen is None or seen.phase not in (Phase.RUNNING, Phase.PAUSED):
            await drive.wait(CHECK_S)
            return
        now = self._means.clock()
        started_at = _within(seen.started_at or now, made_at_s(held.allocation_id), now)

        def runs(connection: Connection) -> None:
            store.change(connection, held, JobState.RUNNING, now, reason="", started_at=started_at)
            off = _clock_off(seen.started_at, started_at)
            store.update_allocation(connection, held.allocation_id, started_at=started_at, **off)

        await self._means.database.write(runs)
        _note_first_run(held, started_at)
        self._means.notices.poke()

    def _launch_order(self, held: LeasedJob, limits: QuotaLimits, settings: ProjectSettings) -> LaunchOrder:
        """Return the order to send; its project may have become stricter since it was accepted."""
        order = held.order
        log_bytes = MOST_LOG_BYTES if limits.job_log_bytes == NO_LIMIT else limits.job_log_bytes
        return LaunchOrder(
            allocation_id=held.allocation_id,
            token=held.token,
            project_id=order.demand.project_id,
            node_id=held.node_id,
            resources=held.resources,
            steps=order.steps,
            image=order.image,
            envs={**order.envs, "YUNHE_JOB_ID": held.job_id, "YUNHE_ATTEMPT": str(held.number)},
            secrets={
                name: self._means.vault.open(sealed, *secret_place(order.demand.project_id, name))
                for name, sealed in order.sealed_secrets.items()
            },
            timeout_s=order.timeout_s,
            grace_s=order.grace_s,
            separate_stderr=order.separate_stderr,
            python=order.python,
            disk_limit_bytes=held.resources.disk_mib * MIB or None,
            outputs=order.outputs,
            confinement=bounded(order.confinement, settings.egress),
            log_limit_bytes=max(LEAST_LOG_BYTES, min(order.log_limit_bytes, log_bytes)),
        )

    async def _refused(self, held: LeasedJob, error: YunheError) -> None:
        """The pool heard and said no: nothing runs there. Try elsewhere, or there again after a while.

        A job fails when pools have refused it a few times for its own sake, never because they could not take any.
        """
        now = self._means.clock()
        ending = REFUSED if isinstance(error, FOR_THE_JOB) else TURNED_AWAY

        def write(connection: Connection) -> None:
            ended: dict[str, Any] = {"ended_at": now, "ending": ending, "detail": str(error)}
            store.update_guarded(connection, held, state=AllocationState.ENDED, **ended)
            refused_by = store.pools_of_attempts(connection, held.job_id, REFUSED)
            turned_away = store.pools_of_attempts(connection, held.job_id, TURNED_AWAY)
            pauses = min(len(refused_by) + len(turned_away) - 2, MOST_DOUBLINGS)
            reason = f"the pool {'refused it' if ending == REFUSED else 'could not take it'}: {error}"
            if len(refused_by) >= PLACEMENT_TRIES:
                store.change(connection, held, JobState.FAILED, now, reason=reason, ended_at=now, **NO_LEASE)
                return
            store.change(
                connection,
                held,
                JobState.PENDING,
                now,
                reason=reason,
                avoid_pools=msgspec.json.encode(sorted({*refused_by, *turned_away})),
                due_at=now + REFUSED_PAUSE_S * int(2.0**pauses),
                **NO_LEASE,
            )

        await self._means.database.write(write)
        self._means.notices.poke()
        self._means.room_freed()

    async def _say(self, held: LeasedJob, reason: str) -> None:
        await self._means.database.write(lambda c: store.change_row(c, held, reason=reason))

    async def watch(self, held: LeasedJob, drive: DrivenJob) -> None:
        """Follow a running allocation until it ends, somebody asks for something, or it is time to look anyway."""
        if held.stop_requested:
            await self._begin_stop(held)
            return
        if await self._ended(held, drive):
            return
        if held.resize_to is not None:
            await self._resize(held, drive)
            return
        await drive.wait(CHECK_S)
        seen = self._watcher.seen(held.pool_id, held.allocation_id)
        if seen is not None and seen.phase in (Phase.RUNNING, Phase.PAUSED):
            await self._meter(held, seen, drive)
            await self._keep_logs(held, seen)

    async def _resize(self, held: LeasedJob, drive: DrivenJob) -> None:
        try:
            await resizing.carry_out(self._means.database, self._means.pools, held, self._means.clock())
        except PoolUnreachableError:
            await drive.wait(RETRY_S)
        self._means.notices.poke()

    async def stop(self, held: LeasedJob, drive: DrivenJob) -> None:
        """Tell the pool to end the allocation, until it has."""
        failpoint("stop-before-call")
        try:
            # However often it is repeated, the first that the pool hears sets the time.
            await self._means.pools.stop(
                held.pool_id, held.allocation_id, held.token, grace_s=held.order.grace_s
            )
            failpoint("stop-after-call")
            known = held.launched or await self._knows(held)
        except PoolUnreachableError as error:
            await self._say(held, f"waits for the pool to hear the stop: {error.problem}")
            await drive.wait(RETRY_S)
            return
        except NotFoundError as error:
            await self._end(held, ending=UNKNOWN, detail=error.problem)
            return
        if not known:
            # The stop has left its mark: an allocation the pool does not know now will never run there.
            await self._end(held, ending=Ending.STOPPED, detail="never started")
        elif not await self._ended(held, drive):
            await drive.wait(RETRY_S)

    async def _knows(self, held: LeasedJob) -> bool:
        """Return whether the pool knows the allocation now; it is asked for everything, so only where it must be."""
        seen = await self._means.pools.observe(held.pool_id, beyond=-1, wait_s=0)
        return any(one.allocation_id == held.allocation_id for one in seen.allocations)

    async def _ended(self, held: LeasedJob, drive: DrivenJob) -> bool:
        """Write the end down if the pool has told of it."""
        seen = self._watcher.seen(held.pool_id, held.allocation_id)
        if seen is None:
            gone = self._watcher.surely_gone(
                held.pool_id, held.allocation_id, begun_at_look=drive.begun_at_look
            )
            if held.launched and gone:
                await self._end(held, ending=UNKNOWN, detail="the pool no longer knows it")
                return True
            return await self._pool_removed(held)
        if seen.phase is Phase.EXITED:
            await self._end(held, ending=seen.ending or Ending.DONE, detail=_detail(seen), seen=seen)
            return True
        if seen.phase is Phase.UNKNOWN:
            await self._end(held, ending=UNKNOWN, detail=seen.detail, seen=seen)
            return True
        return False

    async def _pool_removed(self, held: LeasedJob) -> bool:
        try:
            await self._means.pools.pool(held.pool_id)
        except NotFoundError as error:
            await self._end(held, ending=UNKNOWN, detail=error.problem)
            return True
        return False

    async def _end(self, held: LeasedJob, *, ending: str, detail: str, seen: Observed | None = None) -> None:
        now = self._means.clock()

        def write(connection: Connection) -> None:
            # A resize that was ordered and not carried out is over too: the next attempt has its own size.
            late = {"resize_problem": "it ended first"} if held.resize_to is not None else {}
            store.change(
                connection, held, JobState.FINISHING, now, reason="", resize_to=None, due_at=0.0, **late
            )
            values: dict[str, Any] = {"ending": ending, "detail": detail, "ended_at": now}
            if seen is not None:
                values |= {
                    "state": AllocationState.LAUNCHED,  # also where we died between the launch and its record
                    "exit_code": seen.exit_code,
                    "meters": msgspec.json.encode(seen.meters),
                }
                if seen.started_at is not None:
                    # Outputs of an earlier attempt are there until this one brings its own.
                    store.change_row(connection, held, outputs_blob=None)
                placed_at = made_at_s(held.allocation_id)
                started_at = held.started_at
                if seen.started_at is not None and started_at is None:
                    started_at = values["started_at"] = _within(seen.started_at, placed_at, now)
                    values |= _clock_off(seen.started_at, started_at)
                    if held.state is JobState.STARTING:  # over before anybody saw it run
                        store.change_row(connection, held, started_at=started_at)
                ran_s = (seen.ended_at or now) - (seen.started_at or now)
                values["ended_at"] = _within((started_at or now) + ran_s, started_at or placed_at, now)
            store.update_allocation(connection, held.allocation_id, **values)

        failpoint("exit-before-record")
        await self._means.database.write(write)
        failpoint("exit-after-record")
        if held.started_at is None and seen is not None and seen.started_at is not None:
            _note_first_run(held, _within(seen.started_at, made_at_s(held.allocation_id), now))
        self._means.notices.poke()

    async def _meter(self, held: LeasedJob, seen: Observed, drive: DrivenJob) -> None:
        """Keep the counters; once a minute let them be billed."""
        now = self._means.clock()
        bill = now - drive.metered_at >= METER_S and seen.meters.wall_ms > 0
        if bill:
            drive.metered_at = now

        def write(connection: Connection) -> None:
            store.update_guarded(connection, held, meters=msgspec.json.encode(seen.meters))
            if bill:
                store.meter(connection, held, seen.meters, now, final=False)

        await self._means.database.write(write)

    async def _keep_logs(self, held: LeasedJob, seen: Observed) -> None:
        if seen.log_bytes > held.log_bytes:
            try:
                await self._fetcher.bring_log(held)
            except FencedError:
                raise
            except YunheError as error:
                log.info("log waits on the pool", extra={"problem": str(error)})

    async def finish(self, held: LeasedJob, drive: DrivenJob) -> None:
        """Bring everything home, then write the end, the last meter reading and what follows in one transaction."""
        wait_s = min(held.due_at - self._means.clock(), LONGEST_REFUSED_PAUSE_S)
        if wait_s > 0 and not is_given_up(held):
            await drive.wait(wait_s)
            return
        if held.ending == UNKNOWN and not held.launched:
            await self._write_end(
                held, Home()
            )  # the pool never said that it has it: there is nothing to fetch
            return
        seen = self._watcher.seen(held.pool_id, held.allocation_id)
        try:
            home = await self._fetcher.bring_home(held, log_bytes=seen.log_bytes if seen is not None else 0)
        except (FencedError, DatabaseUnavailableError):
            raise
        except YunheError as error:
            await self._finish_later(held, drive, error)
            return
        drive.failures = 0
        if str(home):
            log.warning("log or outputs are lost", extra={"problem": str(home)})
        await self._write_end(held, home)

    async def _finish_later(self, held: LeasedJob, drive: DrivenJob, error: YunheError) -> None:
        """Say what the job waits for and when it is tried again; meanwhile its node's room, less the disk, is free."""
        longest_s = LONGEST_PAUSE_S if error.retryable else LONGEST_REFUSED_PAUSE_S
        pause_s = delay_s(RETRY_S, longest_s, drive.failures)
        drive.failures += 1
        due_at = self._means.clock() + pause_s
        reason = f"ended; its log and outputs wait on the pool: {error.problem}"
        files = msgspec.json.encode(Resources(disk_mib=held.resources.disk_mib))

        def write(connection: Connection) -> None:
            store.change_row(connection, held, reason=reason, due_at=due_at)
            store.update_allocation(connection, held.allocation_id, held=files)

        try:
            await self._means.database.write(write)
        except DiskFullError:
            log.warning("no room to write why a job waits", extra={"problem": reason})
        if drive.failures == 1:
            self._means.room_freed()
        await drive.wait(pause_s)

    async def _write_end(self, held: LeasedJob, home: Home) -> None:
        now = self._means.clock()
        attempt = _attempted(held)
        state = first_state(attempt)

        def write(connection: Connection) -> None:
            store.update_guarded(connection, held, state=AllocationState.ENDED, **home._asdict())
            store.meter(connection, held, held.meters, now, final=True)
            if state in (JobState.UNKNOWN, JobState.PREEMPTED):
                store.change(connection, held, state, now, reason=held.detail)
            else:
                _settle(connection, held, settle(attempt), now, str(home))
            failpoint("final-before-commit")

        await self._means.database.write(write)
        failpoint("final-after-commit")
        log.info(
            "attempt ended",
            extra={"attempt": held.number, "ending": held.ending, "exit_code": held.exit_code},
        )
        self._means.notices.poke()
        self._means.room_freed()

    async def settle(self, held: LeasedJob, drive: DrivenJob) -> None:
        """Let the retry policy say what follows an attempt that was preempted or is unknown."""
        now = self._means.clock()
        failpoint("settle-before-commit")
        await self._means.database.write(lambda c: _settle(c, held, settle(_attempted(held)), now))
        failpoint("settle-after-commit")
        self._means.notices.poke()
        self._means.room_freed()


def _settle(connection: Connection, held: LeasedJob, outcome: Outcome, now: float, lost: str = "") -> None:
    reason = "; ".join(filter(None, (outcome.reason, lost)))
    values: dict[str, Any] = {"reason": reason, "due_at": 0.0, **NO_LEASE}
    if outcome.state in FINAL:
        values |= {"ended_at": now, "exit_code": held.exit_code}
    else:
        used = 1 if outcome.uses_retry else 0
        values |= {"retries_left": held.retries_left - used}
    store.change(connection, held, outcome.state, now, **values)


def _attempted(held: LeasedJob) -> EndedAttempt:
    return EndedAttempt(
        ending=held.ending,
        exit_code=held.exit_code,
        detail=held.detail,
        timeout_s=held.order.timeout_s,
        retries_left=held.retries_left,
        stop_requested=held.stop_requested,
    )


def _detail(seen: Observed) -> str:
    """Say what the pool says, else in which step it ended when that was not the main one."""
    return seen.detail or (f"in {seen.step}" if seen.step not in ("", "run") else "")


def _note_first_run(held: LeasedJob, started_at: float) -> None:
    """Count how long an order took to run; later attempts are no new order."""
    if held.number == 1:
        _ORDER_TO_RUNNING.observe(max(0.0, started_at - held.submitted_at))


def _clock_off(told_at: float | None, at: float) -> dict[str, Any]:
    """Return the mark of times that a pool's clock told wrongly, if there is one to make."""
    off_s = 0.0 if told_at is None else told_at - at
    return {"clock_off_s": round(off_s, 1)} if abs(off_s) > CLOCKS_DIFFER_S else {}


def _within(told_at: float, earliest: float, latest: float) -> float:
    """Return what a pool's clock told, as far as ours bears it out; a difference that shows is logged."""
    at = max(earliest, min(told_at, latest))
    if abs(at - told_at) > CLOCKS_DIFFER_S:
        log.warning("clock of the pool differs", extra={"by_s": round(told_at - at, 1)})
    return at
