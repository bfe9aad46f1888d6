"""The life of a job on a fake pool, on both databases, with plain calls and with encoded ones."""

from pathlib import Path

import anyio
import pytest

from integration.scheduling.orchestration.stage import finished, with_a_pool
from yunhe.infrastructure.contract.kind import Target
from yunhe.infrastructure.fake.kind import FakeKind
from yunhe.runtime.settings import Settings
from yunhe.runtime.start import running
from yunhe.scheduling.orchestration.jobs.states import JobState
from yunhe.trading.applications.model import Submission
from yunhe.trading.demand.model import ResourceSpec, Task
from yunhe.trading.trades.chain import verify
from yunhe.trading.trades.model import CostQuery

pytestmark = pytest.mark.anyio


@pytest.fixture(params=[False, True], ids=["plain", "encoded"])
def settings(request: pytest.FixtureRequest, database_url: str, tmp_path: Path) -> Settings:
    return Settings(home=tmp_path, database_url=database_url, encode_calls=request.param)


async def test_a_job_runs_is_logged_and_billed(settings: Settings) -> None:
    async with running(settings, kinds={"fake": FakeKind()}) as platform:
        who = await with_a_pool(platform)
        task = Task(name="hello", run="echo hello\nsleep 0.2\n", resources=ResourceSpec(cpus=1, memory="1GB"))
        (job,) = await platform.applications.submit(who, (Submission(task=task),))
        job = await finished(platform, job)
        assert job.state is JobState.SUCCEEDED, job.reason
        text = b"".join([piece.data async for piece in platform.orchestration.logs(job.id)])
        assert text == b"hello\n"
        with anyio.fail_after(60):
            while not (report := await platform.trades.costs(CostQuery(job_id=job.id))).lines:
                await anyio.sleep(0.05)
        assert report.reserved_micros > 0
        lines = [line async for line in platform.trades.export()]
        assert verify(lines).ok
        assert lines[-1].final  # pyright: ignore[reportAttributeAccessIssue]


async def test_an_engine_is_told_with_the_order_what_will_be_fetched(settings: Settings) -> None:
    kind = FakeKind()
    async with running(settings, kinds={"fake": kind}) as platform:
        who = await with_a_pool(platform)
        task = Task(run="sleep 60\n", outputs=("result", "logs/*.txt"))
        (job,) = await platform.applications.submit(who, (Submission(task=task),))
        with anyio.fail_after(60):
            while (job := await platform.orchestration.job(job.id)).state is not JobState.RUNNING:
                await anyio.sleep(0.02)
        pool = kind.site(Target(address="lab")).pool
        told = pool.known(job.attempts[0].allocation_id).order
        assert told is not None
        assert told.outputs == ("result", "logs/*.txt")
        await platform.orchestration.stop(job.id)
        await finished(platform, job)


async def test_a_failing_job_is_retried_as_often_as_it_says(settings: Settings) -> None:
    async with running(settings, kinds={"fake": FakeKind()}) as platform:
        who = await with_a_pool(platform)
        (job,) = await platform.applications.submit(who, (Submission(task=Task(run="exit 3\n", retries=2)),))
        job = await finished(platform, job)
        assert (job.state, job.exit_code, len(job.attempts)) == (JobState.FAILED, 3, 3)


async def test_a_job_that_does_not_fit_waits_and_says_why_until_there_is_room(settings: Settings) -> None:
    async with running(settings, kinds={"fake": FakeKind()}) as platform:
        who = await with_a_pool(platform, cpus="2")
        long = Task(run="sleep 3\n", resources=ResourceSpec(cpus=2))
        first, second = await platform.applications.submit(
            who, (Submission(task=long), Submission(task=long))
        )
        with anyio.fail_after(60):
            while not (explained := await platform.orchestration.explain(second.id)).job.reason:
                await anyio.sleep(0.05)
        assert explained.job.state is JobState.PENDING
        assert "2 cores asked, 0 free" in explained.job.reason
        first, second = await finished(platform, first), await finished(platform, second)
        assert first.state is second.state is JobState.SUCCEEDED
        assert second.attempts[0].started_at is not None
        assert first.attempts[0].ended_at is not None
        assert second.attempts[0].started_at >= first.attempts[0].ended_at


async def test_stopping_ends_a_job_wherever_it_is(settings: Settings) -> None:
    async with running(settings, kinds={"fake": FakeKind()}) as platform:
        who = await with_a_pool(platform, cpus="1")
        long = Submission(task=Task(run="sleep 60\n"))
        running_job, waiting_job = await platform.applications.submit(who, (long, long))
        with anyio.fail_after(60):
            while (await platform.orchestration.job(running_job.id)).state is not JobState.RUNNING:
                await anyio.sleep(0.02)
        assert (await platform.orchestration.stop(waiting_job.id)).state is JobState.STOPPED
        await platform.orchestration.stop(running_job.id)
        job = await finished(platform, running_job)
        assert job.state is JobState.STOPPED
        assert (await platform.orchestration.stop(running_job.id)).state is JobState.STOPPED
