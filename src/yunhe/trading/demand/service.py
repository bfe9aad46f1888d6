"""Demand as a sub-module: the pure functions behind its interface."""

from yunhe.kernel.ids import JobId, ProjectId
from yunhe.scheduling.decision.model import Demand, GraphDemand
from yunhe.trading.demand.deconstruct import deconstruct, deconstruct_graph
from yunhe.trading.demand.model import Task


class DemandService:
    """Keeps nothing: the same task always makes the same demand."""

    async def deconstruct(self, task: Task, job_id: JobId, project_id: ProjectId, now: float) -> Demand:
        """Return what must hold wherever the task runs, and what is preferred."""
        return deconstruct(task, job_id, project_id, now)

    async def deconstruct_graph(self, task: Task, project_id: ProjectId, now: float) -> GraphDemand:
        """Return what must hold of each component of a task, and between them."""
        return deconstruct_graph(task, project_id, now)
