"""Orchestration: takes orders for jobs, tells of them, and runs what places and drives them."""

import logging
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any, TypeVar

import anyio
import msgspec

from yunhe.control.pools.interface import Pools
from yunhe.control.pools.model import ExecRequest, ExecSession, ForwardSession, LaunchOrder, LogChunk
from yunhe.kernel.clock import Clock
from yunhe.kernel.errors import (
    ConflictError,
    FieldProblem,
    NotFoundError,
    PoolUnreachableError,
    StalePlanError,
    UnsupportedError,
)
from yunhe.kernel.ids import AllocationId, JobId, NodeId, PoolId, ProjectId
from yunhe.kernel.quotas import QuotaName
from yunhe.kernel.resources import Resources
from yunhe.kernel.units import MIB
from yunhe.observability.failpoints import failpoint
from yunhe.scheduling.decision.candidates import pareto
from yunhe.scheduling.decision.decide import decide
from yunhe.scheduling.decision.graphs.planning import plan_graph
from yunhe.scheduling.decision.holding import changes_since, held_to, place_of
from yunhe.scheduling.decision.model import (
    Decision,
    Demand,
    GraphDemand,
    GraphPlaced,
    GraphWaiting,
    NodeAnswers,
    Placed,
    Waiting,
)
from yunhe.scheduling.decision.nodes.answers import answers_of_nodes
from yunhe.scheduling.decision.plans import JointPlan, ParetoPlan, PlannedPlace
from yunhe.scheduling.decision.together import plan_together
from yunhe.scheduling.orchestration.forwards import Forwards
from yunhe.scheduling.orchestration.jobs import resizing, store, submission_store
from yunhe.scheduling.orchestration.jobs.model import (
    Attempt,
    Explanation,
    Job,
    JobFilter,
    JobOrder,
    JobPage,
    LogPiece,
    SubmissionKey,
)
from yunhe.scheduling.orchestration.jobs.states import FINAL, JobState
from yunhe.scheduling.orchestration.log_pieces import marks_of
from yunhe.scheduling.orchestration.placing import placement_store
from yunhe.scheduling.orchestration.placing.rounds import (
    RoundRow,
    explain_again,
    read_decision,
)
from yunhe.scheduling.perception.interface import Perception
from yunhe.scheduling.perception.snapshot import Snapshot
from yunhe.storage import audit
from yunhe.storage.blobs import Blobs
from yunhe.storage.database import AnyRow, Connection, Database
from yunhe.storage.notices import Notices
from yunhe.storage.quotas import QuotaBook

T = TypeVar("T")

RESIZE_WAIT_S = 15.0
CHANGE_WAIT_S = 5.0
LIVE_LOG_RETRY_S = 0.5

log = logging.getLogger(__name__)


class OrchestrationService:
    """Implements ``Orchestration``; what places and drives jobs runs beside it (``workers``)."""

    def __init__(  # noqa: PLR0913 - what it works with
        self,
        database: Database,
        blobs: Blobs,
        notices: Notices,
        perception: Perception,
        pools: Pools,
        clock: Clock,
        *,
        quotas: QuotaBook = QuotaBook(),  # noqa: B008 - it has no state
    ) -> None:
        self._quotas = quotas
        self._database = database
        self._blobs = blobs
        self._notices = notices
        self._perception = perception
        self._pools = pools
        self._clock = clock
        self._forwards = Forwards()

    async def submit(self, orders: tuple[JobOrder, ...], key: SubmissionKey | None = None) -> tuple[Job, ...]:
        """Accept every order, or none."""
        now, by = self._clock(), audit.actor()

        def write(connection: Connection) -> tuple[Job, ...]:
            wanted = orders if key is None else _as_first_submitted(connection, orders, key, now)
            if wanted is orders:  # else they were accepted before, and are no new ones
                submission_store.check_queued(connection, self._quotas, wanted)
            jobs = store.insert_jobs(connection, wanted, now, by)
            failpoint("submit-before-commit")
            return jobs

        jobs = await self._database.write(write, uses_reserve=False)
        failpoint("submit-after-commit")
        self._notices.poke()
        return jobs

    async def submitted(self, key: SubmissionKey) -> tuple[Job, ...]:
        """Return the jobs that were submitted with *key*."""
        return await self._database.read(
            lambda connection: store.read_many(connection, submission_store.kept_answer(connection, key))
        )

    async def reserved(self) -> dict[NodeId, Resources]:
        """Return what jobs hold on each node, used or not."""
        return (await self._database.read(store.known)).promised

    async def plan(self, demand: Demand) -> Decision:
        """Return what would be decided now."""
        return decide(demand, await self._snapshot())

    async def plan_graph(self, demand: GraphDemand) -> GraphPlaced | GraphWaiting:
        """Return what would be decided now for an app of components."""
        return await anyio.to_thread.run_sync(plan_graph, demand, await self._snapshot())

    async def pareto(self, demand: Demand) -> ParetoPlan | Waiting:
        """Return the candidates that no other beats in every respect."""
        return await anyio.to_thread.run_sync(pareto, demand, await self._snapshot())

    async def plan_together(self, demands: tuple[Demand, ...]) -> JointPlan:
        """Return where several demands would go together now, and what that saves."""
        return await anyio.to_thread.run_sync(plan_together, demands, await self._snapshot())

    async def choose_places(self, orders: tuple[JobOrder, ...]) -> tuple[PlannedPlace, ...]:
        """Return where the orders would go together now, to be run later."""
        snapshot = await self._snapshot()
        demands = tuple(order.demand for order in orders)
        plan = await anyio.to_thread.run_sync(plan_together, demands, snapshot)
        _refuse_waiting(orders, plan)
        return tuple(
            place_of(demand, decision, snapshot)
            for demand, decision in zip(demands, plan.decisions, strict=True)
            if isinstance(decision, Placed)
        )

    async def hold_to_places(
        self, orders: tuple[JobOrder, ...], places: tuple[PlannedPlace, ...]
    ) -> tuple[JobOrder, ...]:
        """Return the orders so that each goes to its place; refuse places that do not hold any more."""
        demands = [order.demand for order in orders]
        changes = await anyio.to_thread.run_sync(changes_since, demands, places, await self._snapshot())
        if changes:
            raise StalePlanError(
                "The plan does not hold any more; nothing was started.",
                remedy="Plan again: yunhe plan FILE… --save PLAN.",
                fields=tuple(FieldProblem(orders[one.task].name, one.change) for one in changes),
            )
        return tuple(
            msgspec.structs.replace(order, demand=held_to(order.demand, place))
            for order, place in zip(orders, places, strict=True)
        )

    async def render_places(
        self, orders: tuple[JobOrder, ...], places: tuple[PlannedPlace, ...]
    ) -> tuple[dict[str, Any], ...]:
        """Return the orders as objects for another deployer to apply at their places."""
        _refuse_unrenderable(orders)
        await self.hold_to_places(orders, places)
        found: dict[str, dict[str, Any]] = {}
        for order, place in zip(orders, places, strict=True):
            launch = LaunchOrder(
                allocation_id=AllocationId(order.demand.job_id),
                token=1,
                project_id=order.demand.project_id,
                node_id=place.node_id,
                resources=place.resources,
                steps=order.steps,
                image=order.image,
                envs=order.envs,
                timeout_s=order.timeout_s,
                grace_s=order.grace_s,
                log_limit_bytes=order.log_limit_bytes,
                separate_stderr=order.separate_stderr,
                python=order.python,
                disk_limit_bytes=place.resources.disk_mib * MIB or None,
                outputs=order.outputs,
            )
            for one in await self._pools.manifests(place.pool_id, launch):
                found.setdefault(msgspec.json.encode([one["kind"], one["metadata"]]).decode(), one)
        return tuple(found.values())

    async def _snapshot(self) -> Snapshot:
        known = await self._database.read(store.known)
        return await self._perception.snapshot(known.promised, known.groups)

    async def job(self, job_id: JobId, *, among: tuple[ProjectId, ...] | None = None) -> Job:
        """Return one job."""
        return await self._database.read(lambda connection: store.read_job(connection, job_id, among))

    async def count_jobs(self, project_id: ProjectId) -> dict[QuotaName, int]:
        """Return how many jobs of a project are queued and running."""
        return await self._database.read(
            lambda c: {
                QuotaName.QUEUED: submission_store.count_queued(c, project_id),
                QuotaName.RUNNING: submission_store.count_running(c, project_id),
            }
        )

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

        return await self._order_stops(write)

    async def stop_on_pool(self, pool_id: PoolId) -> int:
        """Ask every job that has a place on a pool to end, all or none; return how many were asked."""
        now, by = self._clock(), audit.actor()

        def write(connection: Connection) -> int:
            jobs = [job for job in store.read_placed(connection, pool_id) if not job.stop_requested]
            for job in jobs:
                audit.append(connection, by, now, "job stop", job.id, project_id=job.project_id)
                store.request_stop(connection, job, now)
            return len(jobs)

        return await self._order_stops(write)

    async def _order_stops(self, write: Callable[[Connection], T]) -> T:
        """Write that jobs are to end, and have that seen at once."""
        written = await self._database.write(write)
        failpoint("stop-after-intent")
        self._notices.poke()
        return written

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
        return await anyio.to_thread.run_sync(answers_of_nodes, job.demand, await self._snapshot(), node)

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
            yield _piece(attempt, found, self._clock())
            offset = found.offset + len(found.data)

    async def _live_logs(self, attempt: Attempt, offset: int, *, follow: bool) -> AsyncIterator[LogPiece]:
        """Yield what the pool has beyond what is kept; nothing while it does not answer or knows nothing yet."""
        try:
            async for chunk in self._pools.logs(
                attempt.pool_id, attempt.allocation_id, offset=offset, follow=follow
            ):
                yield _piece(attempt, chunk, self._clock())
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

    @asynccontextmanager
    async def forward(self, job_id: JobId, port: int) -> AsyncGenerator[ForwardSession]:
        """Connect to a port inside a running job."""
        job, attempt = await self._running(job_id)
        with self._forwards.opened(job_id):
            with self._forwards.news(job_id, port, self._clock()) as news:
                if news:
                    await audit.change(
                        self._database,
                        audit.nothing,
                        self._clock(),
                        "job forward",
                        job_id,
                        project_id=job.project_id,
                        detail=f"port {port}",
                    )
            async with self._pools.forward(attempt.pool_id, attempt.allocation_id, port) as session:
                yield session

    async def _running(self, job_id: JobId) -> tuple[Job, Attempt]:
        job = await self.job(job_id)
        if job.state is not JobState.RUNNING:
            raise ConflictError(
                f"Job {job_id} is {job.state}, not running.",
                remedy="Its outputs and log stay: yunhe cp, yunhe logs.",
            )
        return job, job.attempts[-1]


def _piece(attempt: Attempt, chunk: LogChunk, now: float) -> LogPiece:
    marks = marks_of(chunk, now)
    return LogPiece(attempt=attempt.number, offset=chunk.offset, data=chunk.data, marks=marks)


def _as_first_submitted(
    connection: Connection, orders: tuple[JobOrder, ...], key: SubmissionKey, now: float
) -> tuple[JobOrder, ...]:
    """Return *orders* with the job IDs that they had when *key* was first used."""
    ids = [order.demand.job_id for order in orders]
    kept = submission_store.first_answer(connection, key, ids, now)
    if kept == ids:
        return orders
    return tuple(
        msgspec.structs.replace(order, demand=msgspec.structs.replace(order.demand, job_id=job_id))
        for order, job_id in zip(orders, kept, strict=True)
    )


def _refuse_unrenderable(orders: tuple[JobOrder, ...]) -> None:
    """Refuse orders with what only the platform brings: secrets and files."""
    problems = [
        FieldProblem(f"{order.name}.{field}", "is brought by the platform and cannot be rendered")
        for order in orders
        for field, there in (("secrets", order.sealed_secrets), ("workdir or file_mounts", order.mounts))
        if there
    ]
    if problems:
        raise UnsupportedError(
            "The plan cannot be carried out without the platform.",
            remedy="Put files into the task's image and leave secrets out, or run it here: yunhe run --plan PLAN.",
            fields=tuple(problems),
        )


def _refuse_waiting(orders: tuple[JobOrder, ...], plan: JointPlan) -> None:
    """Refuse a plan in which somebody waits, with the nearest miss of each."""
    waits = [
        FieldProblem(
            order.name, "; ".join(f"{no.pool_name}: {no.detail}" for no in decision.nearest_first[:1])
        )
        for order, decision in zip(orders, plan.decisions, strict=True)
        if isinstance(decision, Waiting)
    ]
    if waits:
        raise ConflictError(
            f"{len(waits)} of {len(orders)} tasks cannot be placed now; there is no plan to keep.",
            remedy="See what each lacks: yunhe plan FILE…",
            fields=tuple(waits),
        )


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
