"""Orchestration: takes orders for jobs, tells of them, and runs what places and drives them."""

import logging
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager

import anyio

from yunhe.control.pools.interface import Pools
from yunhe.control.pools.model import ExecRequest, ExecSession
from yunhe.kernel.clock import Clock
from yunhe.kernel.errors import ConflictError, NotFoundError, PoolUnreachableError, UnsupportedError
from yunhe.kernel.ids import JobId, NodeId
from yunhe.kernel.resources import Resources
from yunhe.observability.failpoints import failpoint
from yunhe.scheduling.decision.decide import decide
from yunhe.scheduling.decision.graphs.planning import plan_graph
from yunhe.scheduling.decision.model import (
    Decision,
    Demand,
    GraphDemand,
    GraphPlaced,
    GraphWaiting,
    NodeAnswers,
)
from yunhe.scheduling.decision.nodes.answers import answers_of_nodes
from yunhe.scheduling.orchestration.jobs import resizing, store
from yunhe.scheduling.orchestration.jobs.model import (
    Attempt,
    Explanation,
    Job,
    JobFilter,
    JobOrder,
    JobPage,
    LogPiece,
)
from yunhe.scheduling.orchestration.jobs.states import FINAL, JobState
from yunhe.scheduling.orchestration.placing import placement_store
from yunhe.scheduling.orchestration.placing.rounds import (
    RoundRow,
    explain_again,
    read_decision,
)
from yunhe.scheduling.perception.interface import Perception
from yunhe.storage import audit
from yunhe.storage.blobs import Blobs
from yunhe.storage.database import AnyRow, Connection, Database
from yunhe.storage.notices import Notices

RESIZE_WAIT_S = 15.0
CHANGE_WAIT_S = 5.0
LIVE_LOG_RETRY_S = 0.5

log = logging.getLogger(__name__)


class OrchestrationService:
    """Implements ``Orchestration``; what places and drives jobs runs beside it (``workers``)."""

    def __init__(
        self,
        database: Database,
        blobs: Blobs,
        notices: Notices,
        perception: Perception,
        pools: Pools,
        clock: Clock,
    ) -> None:
        self._database = database
        self._blobs = blobs
        self._notices = notices
        self._perception = perception
        self._pools = pools
        self._clock = clock

    async def submit(self, orders: tuple[JobOrder, ...]) -> tuple[Job, ...]:
        """Accept every order, or none."""
        now, by = self._clock(), audit.actor()

        def write(connection: Connection) -> tuple[Job, ...]:
            jobs = store.insert_jobs(connection, orders, now, by)
            failpoint("submit-before-commit")
            return jobs

        jobs = await self._database.write(write, uses_reserve=False)
        failpoint("submit-after-commit")
        self._notices.poke()
        return jobs

    async def plan(self, demand: Demand) -> Decision:
        """Return what would be decided now."""
        promised = await self._database.read(store.promised)
        return decide(demand, await self._perception.snapshot(promised))

    async def plan_graph(self, demand: GraphDemand) -> GraphPlaced | GraphWaiting:
        """Return what would be decided now for an app of components."""
        promised = await self._database.read(store.promised)
        snapshot = await self._perception.snapshot(promised)
        return await anyio.to_thread.run_sync(plan_graph, demand, snapshot)

    async def job(self, job_id: JobId) -> Job:
        """Return one job."""
        return await self._database.read(lambda connection: store.read_job(connection, job_id))

    async def jobs(self, which: JobFilter) -> JobPage:
        """Return jobs, newest first."""
        return await self._database.read(lambda connection: store.read_jobs(connection, which))

    async def stop(self, job_id: JobId) -> Job:
        """Ask a job to end."""
        now, by = self._clock(), audit.actor()

        def write(connection: Connection) -> Job:
            store.lock_job(connection, job_id)
            job = store.read_job(connection, job_id)
            if job.state in FINAL or (job.stop_requested and job.state is not JobState.PENDING):
                return job
            audit.append(connection, by, now, "job stop", job_id, project_id=job.project_id)
            store.request_stop(connection, job, now)
            return store.read_job(connection, job_id)

        job = await self._database.write(write)
        failpoint("stop-after-intent")
        self._notices.poke()
        return job

    async def resize(self, job_id: JobId, resources: Resources) -> Job:
        """Change a running job's limits in place."""
        totals: dict[NodeId, Resources] = {
            node.id: node.total for pool in await self._pools.pools() for node in pool.nodes
        }
        now, by = self._clock(), audit.actor()
        detail = f"cpu_millis={resources.cpu_millis} memory_mib={resources.memory_mib}"

        def intend(connection: Connection) -> None:
            project_id = resizing.intend(connection, job_id, resources, totals, now)
            audit.append(connection, by, now, "job resize", job_id, project_id=project_id, detail=detail)

        await self._database.write(intend)
        failpoint("resize-after-intent")
        self._notices.poke()
        with anyio.move_on_after(RESIZE_WAIT_S):
            while True:
                waiter = self._notices.waiter(job_id)
                pending, problem = await self._database.read(lambda c: store.resize_state(c, job_id))
                if problem:
                    raise UnsupportedError(
                        f"The pool could not resize it: {problem}", remedy="The job keeps its old size."
                    )
                if not pending:
                    return await self.job(job_id)
                with anyio.move_on_after(CHANGE_WAIT_S):
                    await waiter.wait()
        raise PoolUnreachableError(
            "The pool has not answered yet; the resize stays ordered.", remedy=f"See: yunhe ps {job_id}."
        )

    async def ask_nodes(self, job_id: JobId, node: str = "") -> NodeAnswers:
        """Return how many nodes of each pool would refuse a job now, by rule, and what one *node* says."""
        job = await self.job(job_id)
        promised = await self._database.read(store.promised)
        snapshot = await self._perception.snapshot(promised)
        return await anyio.to_thread.run_sync(answers_of_nodes, job.demand, snapshot, node)

    async def explain(self, job_id: JobId) -> Explanation:
        """Return the decision behind a job's place, or why it waits."""
        job = await self.job(job_id)
        now = self._clock()
        if job.state is JobState.PENDING:
            decision = await self.plan(job.demand)
            return Explanation(job=job, decision=decision, decided_at=now, waiting_s=now - job.submitted_at)
        row, demand, rounds = await self._database.read(lambda c: _decided(c, job_id))
        if row.decision is None:
            return Explanation(job=job, decision=None, decided_at=row.decided_at)
        recorded = read_decision(row.decision)
        decision = await anyio.to_thread.run_sync(explain_again, recorded, demand, rounds)
        return Explanation(job=job, decision=decision, decided_at=row.decided_at)

    async def changes(self, job_id: JobId) -> AsyncIterator[Job]:
        """Yield the job now and whenever it changes, until it has ended."""
        last: Job | None = None
        while True:
            waiter = self._notices.waiter(job_id)
            job = await self.job(job_id)
            if job != last:
                last = job
                yield job
            if job.state in FINAL:
                return
            with anyio.move_on_after(CHANGE_WAIT_S):
                await waiter.wait()

    async def logs(
        self, job_id: JobId, *, attempt: int = 0, offset: int = 0, follow: bool = False
    ) -> AsyncIterator[LogPiece]:
        """Yield the output of an attempt (0: of all, from the first) from *offset*."""
        number = attempt or 1
        while True:
            waiter = self._notices.waiter(job_id)
            job = await self.job(job_id)
            if number > len(job.attempts):
                if job.state in FINAL or not follow or attempt:
                    return
                with anyio.move_on_after(CHANGE_WAIT_S):
                    await waiter.wait()
                continue
            current = job.attempts[number - 1]
            async for piece in self._kept_logs(current, offset):
                offset = piece.offset + len(piece.data)
                yield piece
            if current.over:
                if attempt:
                    return
                number, offset = number + 1, 0
                continue
            async for piece in self._live_logs(current, offset, follow=follow):
                offset = piece.offset + len(piece.data)
                yield piece
            if not follow:
                return
            with anyio.move_on_after(LIVE_LOG_RETRY_S):
                await waiter.wait()

    async def _kept_logs(self, attempt: Attempt, offset: int) -> AsyncIterator[LogPiece]:
        while True:
            found = await self._database.read(lambda c, o=offset: store.read_log(c, attempt.allocation_id, o))
            if found is None:
                return
            start, data = found
            yield LogPiece(attempt=attempt.number, offset=start, data=data)
            offset = start + len(data)

    async def _live_logs(self, attempt: Attempt, offset: int, *, follow: bool) -> AsyncIterator[LogPiece]:
        """Yield what the pool has beyond what is kept; nothing while it does not answer or knows nothing yet."""
        try:
            async for chunk in self._pools.logs(
                attempt.pool_id, attempt.allocation_id, offset=offset, follow=follow
            ):
                yield LogPiece(attempt=attempt.number, offset=chunk.offset, data=chunk.data)
        except (NotFoundError, PoolUnreachableError) as error:
            log.debug(
                "live log not there", extra={"allocation": attempt.allocation_id, "problem": str(error)}
            )

    async def outputs(self, job_id: JobId) -> AsyncIterator[bytes]:
        """Yield the gzip-compressed tar of what the job left as outputs."""
        job = await self.job(job_id)
        if job.outputs_blob is None:
            raise _no_outputs(job)
        async for chunk in self._blobs.chunks(job.outputs_blob):
            yield chunk

    async def files(self, job_id: JobId, paths: tuple[str, ...]) -> AsyncIterator[bytes]:
        """Yield a gzip-compressed tar of *paths* of a running job's directory."""
        _, attempt = await self._running(job_id)
        async for chunk in self._pools.files(attempt.pool_id, attempt.allocation_id, paths):
            yield chunk

    @asynccontextmanager
    async def exec(self, job_id: JobId, request: ExecRequest) -> AsyncGenerator[ExecSession]:
        """Run a command beside a running job."""
        job, attempt = await self._running(job_id)
        await audit.change(
            self._database,
            audit.nothing,
            self._clock(),
            "job exec",
            job_id,
            project_id=job.project_id,
            detail=" ".join(request.argv)[:200],
        )
        async with self._pools.exec(attempt.pool_id, attempt.allocation_id, request) as session:
            yield session

    async def _running(self, job_id: JobId) -> tuple[Job, Attempt]:
        job = await self.job(job_id)
        if job.state is not JobState.RUNNING:
            raise ConflictError(
                f"Job {job_id} is {job.state}, not running.",
                remedy="Its outputs and log stay: yunhe cp, yunhe logs.",
            )
        return job, job.attempts[-1]


def _no_outputs(job: Job) -> NotFoundError:
    """Say why there is nothing to fetch: not yet, lost, or never declared."""
    if job.outputs_lost:
        return NotFoundError(
            f"The outputs of job {job.id} are lost: {job.outputs_lost}", remedy="Run it again."
        )
    if job.state is JobState.FINISHING:
        return NotFoundError(
            f"The outputs of job {job.id} are not here yet: {job.reason or 'they are being fetched'}",
            remedy="Ask again when it has ended.",
        )
    return NotFoundError(
        f"Job {job.id} has left no outputs.",
        remedy="Name them under outputs: in the task; while it runs, use yunhe cp for any file.",
    )


def _decided(connection: Connection, job_id: JobId) -> tuple[AnyRow, Demand, list[RoundRow]]:
    """Return a job's decision, its demand, and what the decision was made on."""
    row, demand = store.read_decision(connection, job_id)
    rounds = (
        [] if row.decision is None else placement_store.read_rounds(connection, read_decision(row.decision))
    )
    return row, demand, rounds
