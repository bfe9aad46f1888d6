"""What others may ask of demand."""

from typing import Protocol

from yunhe.kernel.ids import JobId, ProjectId
from yunhe.scheduling.decision.model import Demand, GraphDemand
from yunhe.trading.demand.model import Task


class Demands(Protocol):
    """Makes tasks precise."""

    async def deconstruct(self, task: Task, job_id: JobId, project_id: ProjectId, now: float) -> Demand:
        """Return what must hold wherever the task runs, and what is preferred."""
        ...

    async def deconstruct_graph(self, task: Task, project_id: ProjectId, now: float) -> GraphDemand:
        """Return what must hold of each component of a task, and between them."""
        ...
