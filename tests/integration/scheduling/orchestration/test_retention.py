"""Retention: what is old goes, whole; a process that dies midway leaves everything consistent, and the next goes on."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import anyio
import pytest
import sqlalchemy as sa

from integration.scheduling.orchestration import pruning_process
from integration.scheduling.orchestration.stage import finished, with_a_pool
from yunhe.infrastructure.fake.kind import FakeKind
from yunhe.kernel.clock import system_clock
from yunhe.kernel.errors import GoneError, NotFoundError
from yunhe.kernel.ids import JobId, ProjectId
from yunhe.kernel.quotas import QuotaName
from yunhe.observability.failpoints import PRUNING
from yunhe.runtime.limits import Retention
from yunhe.runtime.notary import CUT
from yunhe.runtime.platform import Platform
from yunhe.runtime.settings import Settings
from yunhe.runtime.start import first_key_path, running
from yunhe.scheduling.orchestration.jobs.model import Job, JobFilter
from yunhe.scheduling.orchestration.jobs.tables import ALLOCATIONS, JOBS, LOGS
from yunhe.scheduling.perception.store import USAGE
from yunhe.storage import signing
from yunhe.storage.blobs import BLOBS, LEAST_BYTES
from yunhe.storage.database import Connection, Database
from yunhe.storage.quotas import read_uses
from yunhe.storage.sweeps import Sweep
from yunhe.trading.accounts.chain import verify
from yunhe.trading.accounts.store import read_chain
from yunhe.trading.applications.model import Submission
from yunhe.trading.demand.model import ResourceSpec, Task
from yunhe.trading.trades.store import BALANCES, LEDGER

pytestmark = pytest.mark.anyio
PROJECT = ProjectId("default")
DAY_S = 86_400.0


def submission(number: int) -> Submission:
    task = Task(
        name=f"task-{number}",
        run=f"echo {number} > out.txt\necho line {number}\nsleep 0.05\n",
        outputs=("out.txt",),
        resources=ResourceSpec(cpus=0.1, memory="64MB"),
    )
    return Submission(task=task)


async def ran(platform: Platform, count: int) -> list[Job]:
    """Run jobs with output and outputs, and wait until their pools have nothing of them and they are billed."""
    who = await with_a_pool(platform)
    for number in range(8):  # lines of the audit log, more than some tests keep
        await platform.accounts.create_project(who, ProjectId(f"other-{number}"))
    jobs = await platform.applications.submit(who, tuple(map(submission, range(count))), idempotency_key="k")
    return [await finished(platform, job) for job in jobs]


def consistent(connection: Connection) -> None:
    """Check that nothing is left without its job, and that the counters are what the rows weigh."""
    jobs = sa.select(JOBS.c.id)
    allocations = sa.select(ALLOCATIONS.c.id)
    for table, column, owners in (
        (ALLOCATIONS, ALLOCATIONS.c.job_id, jobs),
        (LOGS, LOGS.c.allocation_id, allocations),
        (BALANCES, BALANCES.c.allocation_id, allocations),
        (USAGE, USAGE.c.allocation_id, allocations),
    ):
        orphans = sa.select(sa.func.count()).select_from(table).where(column.not_in(owners))
        assert connection.scalar(orphans) == 0, table.name
    outputs = set(connection.scalars(sa.select(JOBS.c.outputs_blob).where(JOBS.c.outputs_blob.is_not(None))))
    assert outputs == set(connection.scalars(sa.select(BLOBS.c.id)))
    used = read_uses(connection, PROJECT, 0)
    sizes = connection.scalars(sa.select(BLOBS.c.size_bytes))
    assert used[QuotaName.BLOB_BYTES] == sum(max(LEAST_BYTES, size) for size in sizes)
    pieces = connection.scalars(sa.select(LOGS.c.size_bytes))
    assert used[QuotaName.LOG_BYTES] == sum(max(256, size) for size in pieces)
    cut, head = (signing.read_head(connection, chain) for chain in (CUT, "audit"))
    verdict = verify(read_chain(connection, 0, 10_000), cut=cut, head=head)
    assert verdict.problem == ""


def count(connection: Connection, table: sa.Table) -> int:
    return connection.scalar(sa.select(sa.func.count()).select_from(table)) or 0


async def settled(database: Database) -> None:
    """Wait until every allocation was released and every reading billed: only then a job may go."""
    states = sa.select(sa.func.count()).where(ALLOCATIONS.c.state != "released")
    with anyio.fail_after(60):
        while await database.read(lambda c: c.scalar(states) or count(c, LEDGER) == 0):
            await anyio.sleep(0.05)


async def test_a_sweep_killed_at_any_step_leaves_everything_consistent_and_the_next_goes_on(
    database_url: str, tmp_path: Path
) -> None:
    async with running(
        Settings(home=tmp_path, database_url=database_url), kinds={"fake": FakeKind()}
    ) as platform:
        jobs = await ran(platform, 5)
        database = Database(database_url)
        await settled(database)
        lines = await database.read(lambda c: count(c, LEDGER))
    marks = tmp_path / "marks"
    marks.mkdir()
    for point in PRUNING:
        environment = os.environ | {
            "PYTHONPATH": ":".join(sys.path),
            "YUNHE_FAILPOINT": point,
            "YUNHE_FAILPOINT_DIR": str(marks),
        }
        command = [sys.executable, pruning_process.__file__, str(tmp_path), database_url]
        done = await anyio.to_thread.run_sync(
            lambda e=environment, c=command: subprocess.run(c, env=e, timeout=100, check=False)
        )
        assert done.returncode == -signal.SIGKILL, point
        await database.read(consistent)
    settings = Settings(home=tmp_path, database_url=database_url, retention=pruning_process.KEPT)
    async with running(settings, kinds={"fake": FakeKind()}) as platform:
        with anyio.fail_after(120):  # the lease of who died must run out first
            while await database.read(lambda c: count(c, JOBS)) > 2 or not await database.read(
                lambda c: signing.read_head(c, CUT)
            ):
                await anyio.sleep(0.1)
        await platform.notary.head("audit")
        await database.read(consistent)
        assert await database.read(lambda c: count(c, LEDGER)) >= lines, "the ledger is never pruned"
        kept = await platform.orchestration.jobs(JobFilter())
        removed = {job.id for job in jobs} - {job.id for job in kept.jobs}
        assert (len(kept.jobs), len(removed)) == (2, 3)
        with pytest.raises(GoneError, match="any more: jobs of its age"):
            await platform.orchestration.job(removed.pop())
        with pytest.raises(NotFoundError, match=r"There is no job job_z\.") as missing:
            await platform.orchestration.job(JobId("job_z"))
        assert not isinstance(missing.value, GoneError)
    database.close()


async def test_logs_and_jobs_go_by_age_and_a_key_of_removed_jobs_does_not_run_them_again(
    database_url: str, tmp_path: Path
) -> None:
    kept = Retention(logs_days=10, jobs_days=20, sweep_s=0.1)
    settings = Settings(home=tmp_path, database_url=database_url, retention=kept)
    async with running(settings, kinds={"fake": FakeKind()}) as platform:
        jobs = await ran(platform, 2)
        database = Database(database_url)
        await settled(database)

        async def age(days: float) -> None:
            ended = system_clock() - days * DAY_S
            old = {"ended_at": ended}
            await database.write(
                lambda c: c.execute(JOBS.update().where(JOBS.c.id == jobs[0].id).values(old))
            )

        def renamed(connection: Connection) -> None:
            """Let the first job's allocation be as old as its end: retention goes by the time in its ID."""
            connection.execute(LOGS.update().where(LOGS.c.allocation_id == first).values(allocation_id=older))
            values = {"id": older}
            connection.execute(ALLOCATIONS.update().where(ALLOCATIONS.c.id == first).values(values))
            connection.execute(JOBS.update().where(JOBS.c.id == jobs[0].id).values(allocation_id=older))

        first, older = jobs[0].attempts[0].allocation_id, "alloc_0000000000000000000"
        await database.write(renamed)
        await age(11)
        with anyio.fail_after(60):
            while not (job := await platform.orchestration.job(jobs[0].id)).attempts[0].log_lost:
                await anyio.sleep(0.05)
        assert "removed some days after the job ended" in job.attempts[0].log_lost
        assert [piece async for piece in platform.orchestration.logs(jobs[0].id)] == []
        assert [piece async for piece in platform.orchestration.logs(jobs[1].id)], "it ended just now"
        await database.write(
            lambda c: c.execute(USAGE.delete())  # its minutes have the allocation's old name
        )
        await database.write(
            lambda c: c.execute(
                BALANCES.update().where(BALANCES.c.allocation_id == first).values(allocation_id=older)
            )
        )
        await age(21)
        with anyio.fail_after(60), pytest.raises(GoneError):
            while True:
                await platform.orchestration.job(jobs[0].id)
                await anyio.sleep(0.05)
        await database.read(consistent)
        key = first_key_path(platform.settings.home).read_text().strip()
        who = await platform.accounts.authenticate(key)
        again = tuple(map(submission, range(2)))
        with pytest.raises(GoneError, match="stands for jobs that have ended and were removed"):
            await platform.applications.submit(who, again, idempotency_key="k")
        database.close()


async def test_one_process_sweeps_at_a_time_and_who_lost_the_lease_writes_nothing(
    database_url: str, tmp_path: Path
) -> None:
    async with running(Settings(home=tmp_path, database_url=database_url), kinds={"fake": FakeKind()}):
        database = Database(database_url)
        one, other = (Sweep(database, "test", name, 10.0) for name in ("one", "other"))
        assert await one.begin(100.0)
        assert not await other.begin(105.0)
        assert await other.begin(111.0), "the lease ran out"
        with pytest.raises(Exception, match="has passed to another process"):
            await one.write(lambda c: c.execute(JOBS.delete()), 112.0)
        await other.end()
        assert await one.begin(112.0)
        database.close()
