"""What others may ask of applications."""

from collections.abc import AsyncIterator
from typing import Protocol

from yunhe.kernel.ids import BlobId, ProjectId
from yunhe.scheduling.decision.model import Plan
from yunhe.scheduling.orchestration.jobs.model import Job
from yunhe.trading.accounts.model import Principal
from yunhe.trading.applications.model import Submission
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

    async def upload(self, project_id: ProjectId, digest: str, chunks: AsyncIterator[bytes]) -> BlobId:
        """Keep an archive to mount later; *digest* is its SHA-256 and is checked."""
        ...

    async def has_upload(self, project_id: ProjectId, digest: str) -> bool:
        """Return whether the project uploaded this archive already."""
        ...
