"""Quotas of jobs: exact for any number of servers that submit and place at once, and a job beyond them waits or is refused whole."""

from contextlib import AsyncExitStack
from pathlib import Path

import anyio
import pytest

from integration.scheduling.orchestration.stage import finished, with_a_pool
from yunhe.infrastructure.fake.kind import FakeKind
from yunhe.kernel.errors import ForbiddenError, QuotaExceededError
from yunhe.kernel.ids import ProjectId
from yunhe.kernel.quotas import QuotaName
from yunhe.runtime.platform import Platform
from yunhe.runtime.settings import ProcessRole, Settings
from yunhe.runtime.start import running
from yunhe.scheduling.orchestration.jobs.model import Job, JobFilter
from yunhe.scheduling.orchestration.jobs.states import JobState
from yunhe.trading.accounts.model import Principal, ProjectChange
from yunhe.trading.applications.model import Submission
from yunhe.trading.demand.model import ResourceSpec, Task

pytestmark = pytest.mark.anyio
PROJECT = ProjectId("default")
SMALL = ResourceSpec(cpus=0.1, memory="64MB")


async def limit(platform: Platform, who: Principal, **limits: int | None) -> None:
    wanted = {QuotaName(name): value for name, value in limits.items()}
    await platform.accounts.change_project(who, PROJECT, ProjectChange(limits=wanted))


def batch(count: int, run: str = "true\n") -> tuple[Submission, ...]:
    return tuple(
        Submission(task=Task(name=f"task-{number}", run=run, resources=SMALL)) for number in range(count)
    )


async def everything(platform: Platform) -> tuple[Job, ...]:
    return (await platform.orchestration.jobs(JobFilter(limit=500))).jobs


async def test_servers_that_submit_at_once_never_queue_more_than_the_quota(
    database_url: str, tmp_path: Path
) -> None:
    count = 1 if database_url.startswith("sqlite") else 2
    async with AsyncExitStack() as stack:
        platforms = [
            await stack.enter_async_context(
                running(
                    Settings(home=tmp_path / "home", database_url=database_url, role=ProcessRole.API),
                    kinds={"fake": FakeKind()},
                )
            )
            for _ in range(count)
        ]
        who = await with_a_pool(platforms[0])
        await limit(platforms[0], who, queued=20)
        accepted: list[int] = []
        refused: list[QuotaExceededError] = []

        async def submit(number: int) -> None:
            try:
                jobs = await platforms[number % count].applications.submit(who, batch(3))
                accepted.append(len(jobs))
            except QuotaExceededError as error:
                refused.append(error)

        async with anyio.create_task_group() as tasks:
            for number in range(12):
                tasks.start_soon(submit, number)
        assert accepted == [3] * 6
        assert len(await everything(platforms[0])) == 18, "a batch that was refused left nothing"
        assert "18 of 20 jobs queued, and 3 more" in refused[0].problem
        assert refused[0].fields[0].field == "quota.queued"
        assert "--max-queued" in refused[0].remedy
        (one, *_) = await platforms[0].applications.submit(who, batch(2), idempotency_key="k")
        with pytest.raises(QuotaExceededError):
            await platforms[0].applications.submit(who, batch(1))
        (again, *_) = await platforms[0].applications.submit(who, batch(2), idempotency_key="k")
        assert again.id == one.id, "a repeated submission is no new one"
        await platforms[0].orchestration.stop(one.id)
        assert await platforms[0].applications.submit(who, batch(1))


async def test_a_job_over_the_running_quota_waits_with_that_reason_and_goes_on_when_one_ends(
    database_url: str, tmp_path: Path
) -> None:
    settings = Settings(home=tmp_path, database_url=database_url)
    async with running(settings, kinds={"fake": FakeKind()}) as platform:
        who = await with_a_pool(platform)
        await limit(platform, who, running=2)
        jobs = await platform.applications.submit(who, batch(4, "sleep 60\n"))
        states, waits = list[JobState](), ""
        with anyio.fail_after(60):
            while states.count(JobState.RUNNING) < 2 or "quota" not in waits:
                await anyio.sleep(0.05)
                now = {job.id: job for job in await everything(platform)}
                states = [now[job.id].state for job in jobs]
                waits = now[jobs[2].id].reason
                placed = [state for state in states if state is not JobState.PENDING]
                assert len(placed) <= 2, states
        assert states == [JobState.RUNNING] * 2 + [JobState.PENDING] * 2
        assert "project default runs as many jobs as its quota allows (running: 2)" in waits
        counted = await platform.orchestration.count_jobs(PROJECT)
        assert counted == {QuotaName.QUEUED: 2, QuotaName.RUNNING: 2}
        await platform.orchestration.stop(jobs[0].id)
        with anyio.fail_after(60):
            while (await platform.orchestration.job(jobs[2].id)).state is not JobState.RUNNING:
                await anyio.sleep(0.05)
        assert (await platform.orchestration.job(jobs[3].id)).state is JobState.PENDING
        await limit(platform, who, running=None)
        with anyio.fail_after(60):
            while (await platform.orchestration.job(jobs[3].id)).state is not JobState.RUNNING:
                await anyio.sleep(0.05)


async def test_two_placers_never_run_more_than_the_quota(postgres: str, tmp_path: Path) -> None:
    from support.postgres import new_database  # noqa: PLC0415 - starts a server only here

    url = new_database(postgres, "two_placers")
    settings = Settings(home=tmp_path, database_url=url)
    engines = FakeKind()
    async with (
        running(settings, kinds={"fake": engines}) as one,
        running(settings, kinds={"fake": engines}) as other,
    ):
        who = await with_a_pool(one)
        await limit(one, who, running=3)
        jobs = [
            *await one.applications.submit(who, batch(8, "sleep 0.1\n")),
            *await other.applications.submit(who, batch(8, "sleep 0.1\n")),
        ]
        most = 0
        with anyio.fail_after(120):
            while True:
                counted = await one.orchestration.count_jobs(PROJECT)
                most = max(most, counted[QuotaName.RUNNING])
                if counted[QuotaName.RUNNING] == counted[QuotaName.QUEUED] == 0:
                    break
                await anyio.sleep(0.01)
        assert most == 3
        ended = [await one.orchestration.job(job.id) for job in jobs]
        assert {job.state for job in ended} == {JobState.SUCCEEDED}


async def test_output_beyond_the_quotas_is_not_kept_and_the_job_says_so(
    database_url: str, tmp_path: Path
) -> None:
    settings = Settings(home=tmp_path, database_url=database_url)
    async with running(settings, kinds={"fake": FakeKind()}) as platform:
        who = await with_a_pool(platform)
        await limit(platform, who, log_bytes=300)
        (first,) = await platform.applications.submit(who, batch(1, "echo hello\n"))
        assert (await finished(platform, first)).attempts[0].log_lost == ""
        (second,) = await platform.applications.submit(who, batch(1, "echo again\n"))
        ended = await finished(platform, second)
        assert ended.state is JobState.SUCCEEDED
        assert "log_bytes: 300" in ended.attempts[0].log_lost
        assert [piece async for piece in platform.orchestration.logs(second.id)] == []
        state = await platform.accounts.project_state(PROJECT, {})
        (use,) = [one for one in state.quotas if one.name is QuotaName.LOG_BYTES]
        assert (use.used, use.limit, use.own) == (256, 300, True)


async def test_a_task_that_asks_for_more_network_than_its_project_allows_is_refused(
    database_url: str, tmp_path: Path
) -> None:
    settings = Settings(home=tmp_path, database_url=database_url, role=ProcessRole.API)
    async with running(settings, kinds={"fake": FakeKind()}) as platform:
        who = await with_a_pool(platform)
        await platform.accounts.change_project(who, PROJECT, ProjectChange(egress=("10.0.0.0/8:443",)))
        for task in (
            Task(run="true\n", network="host"),
            Task(run="true\n", privileged=True),
            Task(run="true\n", egress=("10.1.0.0/16",)),
            Task(run="true\n", egress=("10.1.0.0/16:443", "192.0.2.1:443")),
        ):
            with pytest.raises(ForbiddenError, match=r"default allows: 10\.0\.0\.0/8:443"):
                await platform.applications.submit(who, (Submission(task=task),))
        wide, narrow, none = await platform.applications.submit(
            who,
            (
                Submission(task=Task(run="true\n")),
                Submission(task=Task(run="true\n", egress=("10.1.0.0/16:443",))),
                Submission(task=Task(run="true\n", network="none")),
            ),
        )
        assert all("network" in job.demand.powers for job in (wide, narrow, none)), "a pool must keep to it"
