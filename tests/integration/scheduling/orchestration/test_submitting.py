"""Submitting: the same key has one answer, also while the first call is still under way."""

from pathlib import Path

import anyio
import pytest

from integration.scheduling.orchestration.stage import with_a_pool
from yunhe.infrastructure.fake.kind import FakeKind
from yunhe.kernel.errors import ConflictError, YunheError
from yunhe.kernel.ids import JobId, ProjectId
from yunhe.runtime.settings import ProcessRole, Settings
from yunhe.runtime.start import running
from yunhe.scheduling.orchestration.jobs.model import JobFilter
from yunhe.trading.applications.model import Submission
from yunhe.trading.demand.model import Task

pytestmark = pytest.mark.anyio


async def test_a_key_repeated_at_once_makes_the_jobs_once(database_url: str, tmp_path: Path) -> None:
    settings = Settings(home=tmp_path, database_url=database_url, role=ProcessRole.API)
    async with running(settings, kinds={"fake": FakeKind()}) as platform:
        who = await with_a_pool(platform)
        batch = tuple(Submission(task=Task(name=f"task-{n}", run="true\n")) for n in range(300))
        answers: list[list[JobId]] = []

        async def submit() -> None:
            jobs = await platform.applications.submit(who, batch, idempotency_key="the-key")
            answers.append([job.id for job in jobs])

        async with anyio.create_task_group() as tasks:
            for _ in range(6):
                tasks.start_soon(submit)
        assert answers == [answers[0]] * 6
        page = await platform.orchestration.jobs(JobFilter(limit=1000))
        assert sorted(job.id for job in page.jobs) == sorted(answers[0])


async def test_a_refused_submission_does_not_use_up_its_key(database_url: str, tmp_path: Path) -> None:
    settings = Settings(home=tmp_path, database_url=database_url, role=ProcessRole.API)
    async with running(settings, kinds={"fake": FakeKind()}) as platform:
        who = await with_a_pool(platform)
        refused = Submission(task=Task(name="needs", run="true\n", secrets=("ABSENT",)))
        with pytest.raises(YunheError, match="ABSENT"):
            await platform.applications.submit(who, (refused,), idempotency_key="the-key")
        mended = Submission(task=Task(name="needs", run="true\n"))
        (job,) = await platform.applications.submit(who, (mended,), idempotency_key="the-key")
        (again,) = await platform.applications.submit(who, (mended,), idempotency_key="the-key")
        assert again.id == job.id


async def test_a_repeated_key_has_its_first_answer_though_a_secret_it_named_is_gone(
    database_url: str, tmp_path: Path
) -> None:
    settings = Settings(home=tmp_path, database_url=database_url, role=ProcessRole.API)
    async with running(settings, kinds={"fake": FakeKind()}) as platform:
        who = await with_a_pool(platform)
        project = ProjectId("default")
        await platform.accounts.set_secret(who, project, "TOKEN", "value")
        batch = tuple(
            Submission(task=Task(name=f"task-{n}", run="true\n", secrets=("TOKEN",))) for n in range(3)
        )
        first = await platform.applications.submit(who, batch, idempotency_key="the-key")
        await platform.accounts.delete_secret(who, project, "TOKEN")
        again = await platform.applications.submit(who, batch, idempotency_key="the-key")
        assert [job.id for job in again] == [job.id for job in first]
        with pytest.raises(ConflictError, match="different submission"):
            await platform.applications.submit(who, batch[:1], idempotency_key="the-key")
        with pytest.raises(YunheError, match="TOKEN"):
            await platform.applications.submit(who, batch, idempotency_key="another")
