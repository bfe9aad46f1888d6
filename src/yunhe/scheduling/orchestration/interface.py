"""What others may ask of orchestration."""

from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager
from typing import Protocol

from yunhe.control.pools.model import ExecRequest, ExecSession
from yunhe.kernel.ids import JobId
from yunhe.kernel.resources import Resources
from yunhe.scheduling.decision.model import (
    Decision,
    Demand,
    GraphDemand,
    GraphPlaced,
    GraphWaiting,
    NodeAnswers,
)
from yunhe.scheduling.orchestration.jobs.model import (
    Explanation,
    Job,
    JobFilter,
    JobOrder,
    JobPage,
    LogPiece,
)


class Orchestration(Protocol):
    """Owns jobs and allocations."""

    async def submit(self, orders: tuple[JobOrder, ...]) -> tuple[Job, ...]:
        """Accept every order, or none; a job ID that is known already returns the job as it is."""
        ...

    async def plan(self, demand: Demand) -> Decision:
        """Return what would be decided now; nothing is promised."""
        ...

    async def plan_graph(self, demand: GraphDemand) -> GraphPlaced | GraphWaiting:
        """Return where every component of an app would go now; nothing is promised."""
        ...

    async def job(self, job_id: JobId) -> Job:
        """Return one job, or raise ``NotFoundError``."""
        ...

    async def jobs(self, which: JobFilter) -> JobPage:
        """Return jobs, newest first."""
        ...

    async def stop(self, job_id: JobId) -> Job:
        """Ask a job to end; a job that has ended stays as it is."""
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
