"""What others may ask of applications."""

from collections.abc import AsyncIterator
from typing import Any, Protocol

from yunhe.kernel.ids import BlobId, ProjectId
from yunhe.scheduling.decision.model import Plan, Waiting
from yunhe.scheduling.decision.plans import JointPlan, ParetoPlan
from yunhe.scheduling.orchestration.jobs.model import Job
from yunhe.trading.accounts.model import Principal
from yunhe.trading.applications.model import Assembly, SavedPlan, Submission
from yunhe.trading.demand.model import Task


class Applications(Protocol):
    """Takes tasks from users and sees them become jobs; whoever calls has been authorized, and the tasks parsed."""

    async def submit(
        self, who: Principal, submissions: tuple[Submission, ...], *, idempotency_key: str = ""
    ) -> tuple[Job, ...]:
        """Accept all or none; the same key with the same body returns the first answer, with another body is refused."""
        ...

    async def plan(self, project_id: ProjectId, task: Task) -> Plan:
        """Return where the task would go now; nothing is promised."""
        ...

    async def pareto(self, project_id: ProjectId, task: Task) -> ParetoPlan | Waiting:
        """Return the pools that no other beats in every respect for the task; nothing is promised."""
        ...

    async def plan_together(self, submissions: tuple[Submission, ...]) -> JointPlan:
        """Return where several tasks would go together now, and what that saves; nothing is promised."""
        ...

    async def save_plan(self, who: Principal, submissions: tuple[Submission, ...]) -> SavedPlan:
        """Return where tasks would go together now, to be run later; ``ConflictError``: they do not all fit."""
        ...

    async def run_plan(self, who: Principal, plan: SavedPlan) -> tuple[Job, ...]:
        """Run a saved plan as it is, once; ``StalePlanError``: it does not hold any more, and nothing was started."""
        ...

    async def render_plan(self, who: Principal, plan: SavedPlan) -> tuple[dict[str, Any], ...]:
        """Return a saved plan as objects for another deployer to apply; refused as ``run_plan``, and where it cannot be."""
        ...

    async def upload(self, project_id: ProjectId, digest: str, chunks: AsyncIterator[bytes]) -> BlobId:
        """Keep an archive to mount later; *digest* is its SHA-256 and is checked."""
        ...

    async def keep_chunks(self, project_id: ProjectId, chunks: AsyncIterator[tuple[str, bytes]]) -> int:
        """Keep parts of archives, each with the SHA-256 of what it unpacks to, all or none; return how many came."""
        ...

    async def put_together(self, project_id: ProjectId, digests: tuple[str, ...]) -> Assembly:
        """Make an archive to mount of chunks that the project has, or say which it lacks."""
        ...

    async def has_upload(self, project_id: ProjectId, digest: str) -> bool:
        """Return whether the project uploaded this archive already."""
        ...
