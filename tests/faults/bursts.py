"""Jobs that are submitted at once, and what the server answered."""

import secrets as randomness
from dataclasses import dataclass, field

import anyio

from yunhe.entrypoints.client.async_client import AsyncClient
from yunhe.kernel.errors import DiskFullError, YunheError
from yunhe.trading.applications.model import Submission
from yunhe.trading.demand.model import ResourceSpec, Task

NOWHERE = ResourceSpec(cpus=64)
"""No pool has as much: such a job waits."""


@dataclass
class Burst:
    """What a server answered to jobs that were submitted at once."""

    accepted: set[str] = field(default_factory=set[str])
    full: int = 0
    other: list[str] = field(default_factory=list[str])

    def problems(self, present: set[str]) -> list[str]:
        """Return what does not hold, given the jobs that are there."""
        lost = self.accepted - present
        found = [f"{len(lost)} of {len(self.accepted)} accepted jobs are gone"] if lost else []
        return found + self.other


async def submit_at_once(url: str, key: str, count: int, script_bytes: int) -> Burst:
    """Submit *count* jobs at the same moment, each with a script of that size."""
    burst = Burst()

    async def submit(client: AsyncClient) -> None:
        script = randomness.token_urlsafe(script_bytes)[
            :script_bytes
        ]  # PostgreSQL would compress a plainer one
        try:
            job = await client.submit(Submission(task=Task(run=script, resources=NOWHERE)))
            burst.accepted.add(job.id)
        except DiskFullError:
            burst.full += 1
        except YunheError as error:
            burst.other.append(f"a submission was answered with {type(error).__name__}: {error}")

    async with AsyncClient(url, key) as client, anyio.create_task_group() as tasks:
        for _ in range(count):
            tasks.start_soon(submit, client)
    return burst


async def present(url: str, key: str) -> set[str]:
    """Return the jobs that the server knows."""
    async with AsyncClient(url, key) as client:
        return {job.id async for job in client.jobs()}
