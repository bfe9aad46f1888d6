"""The database may die under a platform: what was accepted goes on once it is back, and nobody has to restart anything."""

from pathlib import Path

import anyio
import anyio.to_thread
import pytest

from integration.scheduling.orchestration.stage import finished, with_a_pool
from support.postgres import kill_and_start_again, new_database, postgres_server
from yunhe.infrastructure.contract.kind import Target
from yunhe.infrastructure.fake.kind import FakeKind
from yunhe.runtime.settings import Settings
from yunhe.runtime.start import running
from yunhe.scheduling.orchestration.jobs.states import JobState
from yunhe.storage.database import RECONNECT_EVERY_S
from yunhe.trading.applications.model import Submission
from yunhe.trading.demand.model import Task
from yunhe.trading.trades.chain import verify

pytestmark = pytest.mark.anyio


@pytest.mark.drives("PostgreSQL")
async def test_jobs_outlive_the_database_and_run_once(tmp_path: Path) -> None:
    with postgres_server() as server:
        kind = FakeKind()
        settings = Settings(home=tmp_path, database_url=new_database(server, "mortal"))
        async with running(settings, kinds={"fake": kind}) as platform:
            who = await with_a_pool(platform, cpus="10")
            batch = tuple(Submission(task=Task(run=f"sleep {n / 4}\n")) for n in range(10))
            jobs = await platform.applications.submit(who, batch)
            with anyio.fail_after(20):
                while (await platform.orchestration.job(jobs[0].id)).state is not JobState.SUCCEEDED:
                    await anyio.sleep(0.05)
            await anyio.to_thread.run_sync(kill_and_start_again, server)
            await anyio.sleep(RECONNECT_EVERY_S)
            ends = [await finished(platform, job) for job in jobs]
            assert {job.state for job in ends} == {JobState.SUCCEEDED}
            ran = kind.site(Target(address="lab")).pool.executed
            assert len(ran) == len(set(ran)) == len(jobs)
            with anyio.fail_after(30):
                while len(lines := [line async for line in platform.trades.export()]) < len(jobs):
                    await anyio.sleep(0.1)
            assert verify(lines).ok
