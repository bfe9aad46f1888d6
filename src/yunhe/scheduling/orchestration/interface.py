"""What others may ask of orchestration."""

from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager
from typing import Any, Protocol

from yunhe.control.pools.model import ExecRequest, ExecSession, ForwardSession
from yunhe.kernel.ids import JobId, NodeId, PoolId, ProjectId
from yunhe.kernel.quotas import QuotaName
from yunhe.kernel.resources import Resources
from yunhe.scheduling.decision.model import (
    Decision,
    Demand,
    GraphDemand,
    GraphPlaced,
    GraphWaiting,
    NodeAnswers,
    Waiting,
)
from yunhe.scheduling.decision.plans import JointPlan, ParetoPlan, PlannedPlace
from yunhe.scheduling.orchestration.jobs.model import (
    Explanation,
    Job,
    JobFilter,
    JobOrder,
    JobPage,
    LogPiece,
    SubmissionKey,
)


class Orchestration(Protocol):
    """Owns jobs and allocations."""

    async def submit(self, orders: tuple[JobOrder, ...], key: SubmissionKey | None = None) -> tuple[Job, ...]:
        """Accept every order, or none; a *key* that was used for them already returns the jobs of then."""
        ...

    async def submitted(self, key: SubmissionKey) -> tuple[Job, ...]:
        """Return the jobs that were submitted with *key*; none if it is new."""
        ...

    async def reserved(self) -> dict[NodeId, Resources]:
        """Return what jobs hold on each node, used or not."""
        ...

    async def plan(self, demand: Demand) -> Decision:
        """Return what would be decided now; nothing is promised."""
        ...

    async def plan_graph(self, demand: GraphDemand) -> GraphPlaced | GraphWaiting:
        """Return where every component of an app would go now; nothing is promised."""
        ...

    async def pareto(self, demand: Demand) -> ParetoPlan | Waiting:
        """Return the candidates that no other beats in every respect; nothing is promised."""
        ...

    async def plan_together(self, demands: tuple[Demand, ...]) -> JointPlan:
        """Return where several demands would go together now, and what that saves; nothing is promised."""
        ...

    async def choose_places(self, orders: tuple[JobOrder, ...]) -> tuple[PlannedPlace, ...]:
        """Return where the orders would go together now, to be run later; ``ConflictError``: they do not all fit."""
        ...

    async def hold_to_places(
        self, orders: tuple[JobOrder, ...], places: tuple[PlannedPlace, ...]
    ) -> tuple[JobOrder, ...]:
        """Return the orders so that each goes to its place; ``StalePlanError``: the places do not hold any more."""
        ...

    async def render_places(
        self, orders: tuple[JobOrder, ...], places: tuple[PlannedPlace, ...]
    ) -> tuple[dict[str, Any], ...]:
        """Return the orders as objects for another deployer to apply at their places; refused as ``hold_to_places``."""
        ...

    async def job(self, job_id: JobId, *, among: tuple[ProjectId, ...] | None = None) -> Job:
        """Return one job, or raise ``NotFoundError``; also when it is not of one of the projects *among*."""
        ...

    async def count_jobs(self, project_id: ProjectId) -> dict[QuotaName, int]:
        """Return how many jobs of a project are queued and running."""
        ...

    async def jobs(self, which: JobFilter) -> JobPage:
        """Return jobs, newest first."""
        ...

    async def stop(self, job_id: JobId) -> Job:
        """Ask a job to end; a job that has ended stays as it is."""
        ...

    async def stop_on_pool(self, pool_id: PoolId) -> int:
        """Ask every job that has a place on a pool to end; return how many were asked."""
        ...

    async def resize(self, job_id: JobId, resources: Resources) -> Job:
        """Change a running job's limits in place; zero in a dimension keeps it."""
        ...

    async def ask_nodes(self, job_id: JobId, node: str = "") -> NodeAnswers:
        """Return how many nodes of each pool would refuse a job now, by rule, and what one *node* says."""
        ...

    async def explain(self, job_id: JobId) -> Explanation:
        """Return the decision behind a job's place, or why it waits."""
        ...

    def logs(
        self, job_id: JobId, *, attempt: int = 0, offset: int = 0, follow: bool = False
    ) -> AsyncIterator[LogPiece]:
        """Yield the output of an attempt (0: of all, from the first) from *offset*; it outlives the pool."""
        ...

    def changes(self, job_id: JobId) -> AsyncIterator[Job]:
        """Yield the job now and whenever it changes, until it has ended."""
        ...

    def outputs(self, job_id: JobId) -> AsyncIterator[bytes]:
        """Yield the gzip-compressed tar of what the job left as outputs."""
        ...

    def files(self, job_id: JobId, paths: tuple[str, ...]) -> AsyncIterator[bytes]:
        """Yield a gzip-compressed tar of *paths* of a running job's directory."""
        ...

    def exec(self, job_id: JobId, request: ExecRequest) -> AbstractAsyncContextManager[ExecSession]:
        """Run a command beside a running job."""
        ...

    def forward(self, job_id: JobId, port: int) -> AbstractAsyncContextManager[ForwardSession]:
        """Connect to a port inside a running job."""
        ...
