"""A long queue: an impossible job at its head holds nobody up."""

from pathlib import Path

import anyio
import pytest

from integration.platform.stage import with_a_pool
from yunhe.infrastructure.fake.kind import FakeKind
from yunhe.runtime.settings import Settings
from yunhe.runtime.start import running
from yunhe.scheduling.orchestration.jobs import JobFilter
from yunhe.scheduling.orchestration.states import JobState
from yunhe.trading.applications.model import Submission
from yunhe.trading.demand.model import ResourceSpec, Task

pytestmark = pytest.mark.anyio

QUEUED = 10_000


async def test_an_impossible_job_at_the_head_of_ten_thousand_holds_nobody_up(tmp_path: Path) -> None:
    async with running(Settings(home=tmp_path), kinds={"fake": FakeKind()}) as platform:
        who = await with_a_pool(platform, cpus="64")
        impossible = Submission(task=Task(name="giant", run="true\n", resources=ResourceSpec(cpus=500)))
        (giant,) = await platform.applications.submit(who, (impossible,))
        ordinary = Submission(task=Task(run="sleep 0.1\n", resources=ResourceSpec(cpus=1)))
        for _ in range(QUEUED // 1000):
            await platform.applications.submit(who, (ordinary,) * 1000)
        with anyio.fail_after(60):
            while True:
                done = await platform.orchestration.jobs(JobFilter(states=(JobState.SUCCEEDED,), limit=200))
                if len(done.jobs) == 200:
                    break
                await anyio.sleep(0.2)
        explained = await platform.orchestration.explain(giant.id)
        assert explained.job.state is JobState.PENDING
        assert "500 cores asked" in explained.job.reason
        page = await platform.orchestration.jobs(JobFilter(states=(JobState.PENDING,), limit=1))
        assert page.jobs, "the queue was to be long"
