"""A pool that can take no job for a while fails none of them."""

from pathlib import Path

import pytest

from integration.scheduling.orchestration.driving import rig
from yunhe.control.pools.model import LaunchOrder
from yunhe.infrastructure.fake.pool import FakePool
from yunhe.kernel.errors import DiskFullError, YunheError
from yunhe.scheduling.orchestration.jobs import steps
from yunhe.scheduling.orchestration.jobs.model import Job
from yunhe.scheduling.orchestration.jobs.states import FINAL, JobState

pytestmark = pytest.mark.anyio

REFUSALS = 2 * steps.PLACEMENT_TRIES


async def run_on_a_full_pool(folder: Path, monkeypatch: pytest.MonkeyPatch, error: YunheError) -> Job:
    """Return a job that may not be repeated, placed on a pool that raises *error* ten times before it takes it."""
    left = [error] * REFUSALS
    launch = FakePool.launch

    def launch_or_refuse(pool: FakePool, order: LaunchOrder, *, crash: bool = False) -> None:
        if left:
            raise left.pop()
        launch(pool, order, crash=crash)

    monkeypatch.setattr(FakePool, "launch", launch_or_refuse)
    monkeypatch.setattr(steps, "REFUSED_PAUSE_S", 0.0)
    async with rig(folder) as parts:
        job_id = await parts.submit("true\n")
        for _ in range(REFUSALS + 1):
            await parts.place()
            job = await parts.until(job_id, JobState.PENDING, *FINAL)
            if job.state in FINAL:
                break
        return await parts.job(job_id)


@pytest.mark.parametrize("error", [DiskFullError("No inodes."), YunheError("The agent failed.")])
async def test_a_job_is_not_failed_by_what_its_host_lacks_however_often(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: YunheError
) -> None:
    job = await run_on_a_full_pool(tmp_path, monkeypatch, error)
    assert job.state is JobState.SUCCEEDED, job.reason
    assert [attempt.ending for attempt in job.attempts] == [steps.TURNED_AWAY] * REFUSALS + ["done"]


async def test_counting_every_refusal_against_the_job_is_caught(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(steps, "FOR_THE_JOB", (YunheError,))
    job = await run_on_a_full_pool(tmp_path, monkeypatch, DiskFullError("No inodes."))
    assert job.state is JobState.FAILED
