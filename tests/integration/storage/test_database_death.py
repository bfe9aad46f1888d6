"""The database may die under a platform: what was accepted goes on once it is back, and nobody has to restart anything."""

import time
from pathlib import Path

import anyio
import anyio.to_thread
import pytest
import sqlalchemy as sa

from integration.scheduling.orchestration.stage import finished, with_a_pool
from support.postgres import freeze, kill_and_start_again, new_database, postgres_server, thaw
from yunhe.infrastructure.contract.kind import Target
from yunhe.infrastructure.fake.kind import FakeKind
from yunhe.kernel.errors import DatabaseUnavailableError
from yunhe.runtime.settings import Settings
from yunhe.runtime.start import running
from yunhe.scheduling.orchestration.jobs.states import JobState
from yunhe.storage import freezes
from yunhe.storage.database import RECONNECT_EVERY_S, Database
from yunhe.trading.applications.model import Submission
from yunhe.trading.demand.model import Task
from yunhe.trading.trades.chain import verify

pytestmark = pytest.mark.anyio

NOTICED_WITHIN_S = 10.0


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


@pytest.mark.timeout(60)
@pytest.mark.drives("PostgreSQL")
async def test_a_database_that_stands_still_is_told_as_away_and_used_again_when_it_goes_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(freezes, "LONG_S", 0.3)
    with postgres_server() as server:
        database = Database(new_database(server, "still"))
        await database.read(one)
        pids = freeze(server)
        try:
            with anyio.fail_after(NOTICED_WITHIN_S):
                async with anyio.create_task_group() as tasks:
                    for _ in range(12):
                        tasks.start_soon(is_told_away, database)
                await anyio.sleep(2 * RECONNECT_EVERY_S)
                began = time.monotonic()
                await is_told_away(database)
                assert time.monotonic() - began < 1.0
        finally:
            thaw(pids)
        with anyio.fail_after(2.0):
            while not await is_back(database):
                await anyio.sleep(0.05)
        database.close()


@pytest.mark.drives("PostgreSQL")
async def test_a_transaction_that_merely_takes_long_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(freezes, "LONG_S", 0.3)
    with postgres_server() as server:
        database = Database(new_database(server, "slow"))
        assert await database.read(lambda c: c.scalar(sa.text("SELECT 7 FROM pg_sleep(2.5)"))) == 7
        database.close()


def one(connection: sa.Connection) -> int | None:
    return connection.scalar(sa.select(1))


async def is_told_away(database: Database) -> None:
    with pytest.raises(DatabaseUnavailableError):
        await database.read(one)


async def is_back(database: Database) -> bool:
    try:
        return await database.read(one) == 1
    except DatabaseUnavailableError:
        return False
