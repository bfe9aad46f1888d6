"""What was answered is kept when the disk under the database is full: of bytes, or of inodes."""

import os
import shutil
import sys
import tempfile
from collections.abc import Generator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import anyio
import anyio.to_thread
import httpx
import pytest
from sqlalchemy.engine import Connection

from faults.bursts import Burst, present, submit_at_once
from integration.entrypoints.api.serving import Served, add_fake_pool, serving
from support.postgres import is_running, new_database, postgres_server, start_again
from support.small_disks import fill, fill_inodes, mounted
from yunhe.entrypoints.api.routes.platform import DISK_FULL, READY
from yunhe.entrypoints.client.async_client import AsyncClient
from yunhe.kernel.errors import DiskFullError
from yunhe.kernel.units import MIB
from yunhe.scheduling.orchestration.jobs.states import JobState
from yunhe.storage import database as storage
from yunhe.trading.applications.model import Submission
from yunhe.trading.demand.model import ResourceSpec, Task

pytestmark = pytest.mark.anyio

SCRIPT_BYTES = 120_000
"""A few dozen together are more than SQLite's cache: their pages go to the disk before the commit."""
AT_ONCE = 60
RESUMES_WITHIN_S = 5.0


@pytest.fixture
def disk(tmp_path: Path) -> Generator[Path]:
    with mounted(tmp_path / "disk", "size=24m") as folder:
        yield folder


async def burst(served: Served) -> Burst:
    return await submit_at_once(served.url, served.key, AT_ONCE, SCRIPT_BYTES)


async def jobs(served: Served) -> set[str]:
    return await present(served.url, served.key)


def on_sqlite(home: Path, *, reserve_bytes: int = MIB) -> AbstractContextManager[Served]:
    """Serve on a database below *home*, whatever the other tests run on."""
    url = f"sqlite:///{home / 'yunhe.db'}"
    return serving(home, database_url=url, encode_calls=False, reserve_bytes=reserve_bytes)


async def accepts_jobs_again(served: Served) -> None:
    with anyio.fail_after(RESUMES_WITHIN_S):
        while not (await submit_at_once(served.url, served.key, 1, 10)).accepted:
            await anyio.sleep(0.1)


async def fill_and_count(disk: Path) -> tuple[Burst, list[str]]:
    """Fill a disk by jobs, make room, restart; return the answers, and what does not hold."""
    found: list[str] = []
    with on_sqlite(disk / "home") as served:
        fill(disk / "ballast", leave_bytes=3 * MIB)
        answers = await burst(served)
        found += answers.problems(await jobs(served))
        (disk / "ballast").unlink()
        await accepts_jobs_again(served)
        afterwards = await burst(served)
        if afterwards.full:
            found.append(f"{afterwards.full} jobs were refused although there was room")
    with on_sqlite(disk / "home") as served:
        there = await jobs(served)
    return answers, found + answers.problems(there) + afterwards.problems(there)


async def test_every_job_answered_with_success_is_kept_when_the_disk_fills_and_service_resumes(
    disk: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    answers, problems = await fill_and_count(disk)
    with capsys.disabled():
        print(f"\n{len(answers.accepted)} accepted, {answers.full} refused for want of room")
    assert answers.full
    assert not problems, "\n".join(problems)


def run_batch_with_savepoints_alone(database: Any, batch: list[Any]) -> None:
    """Share a commit as if want of room undid no more than the savepoint it struck."""

    def run(connection: Connection) -> None:
        for waiting in batch:
            try:
                with connection.begin_nested():
                    waiting.answer = waiting.transaction(connection)
            except Exception as error:  # noqa: BLE001 - the planted fault
                waiting.error = error

    database._run(run, True)
    for waiting in batch:
        waiting.done = True


def _do_nothing(_connection: Connection) -> None:
    pass


async def test_a_batch_that_trusts_its_savepoints_is_caught(
    disk: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(storage, "_require_transaction", _do_nothing)
    monkeypatch.setattr(storage.Database, "_run_batch", run_batch_with_savepoints_alone)
    _, problems = await fill_and_count(disk)
    assert any("accepted jobs are gone" in problem for problem in problems), problems


async def begin_jobs(served: Served, seconds: float) -> set[str]:
    """Have three jobs run, for that long."""

    def begin() -> set[str]:
        with served.client() as client:
            add_fake_pool(client)
            task = Task(run=f"echo here\nsleep {seconds}\n", resources=ResourceSpec(cpus=1))
            return {client.submit(Submission(task=task)).id for _ in range(3)}

    begun = await anyio.to_thread.run_sync(begin)
    await states(served, begun, JobState.RUNNING)
    return begun


async def states(served: Served, wanted: set[str], state: JobState, within_s: float = 20.0) -> None:
    """Wait until all of these jobs are in that state."""
    async with AsyncClient(served.url, served.key) as client:
        with anyio.fail_after(within_s):
            while {(await client.job(job_id)).state for job_id in wanted} != {state}:
                await anyio.sleep(0.1)


async def log_bytes(served: Served, wanted: set[str]) -> set[int]:
    async with AsyncClient(served.url, served.key) as client:
        return {(await client.job(job_id)).attempts[-1].log_bytes for job_id in wanted}


async def readiness(served: Served) -> set[str]:
    async with AsyncClient(served.url, served.key) as client:
        return set((await client.ready()).modules.values())


async def doctor(served: Served) -> str:
    command = [sys.executable, "-m", "yunhe.entrypoints.cli", "doctor", "--output", "json"]
    environment = os.environ | {"YUNHE_URL": served.url, "YUNHE_KEY": served.key}
    found = await anyio.run_process(command, env=environment, check=False)
    return found.stdout.decode()


async def test_what_has_begun_ends_on_the_reserve_while_new_jobs_are_refused(disk: Path) -> None:
    with on_sqlite(disk / "home", reserve_bytes=4 * MIB) as served:
        begun = await begin_jobs(served, seconds=3.0)
        fill(disk / "ballast")
        answers = await burst(served)
        assert (answers.accepted, answers.full, answers.other) == (set(), AT_ONCE, [])
        await states(served, begun, JobState.SUCCEEDED)
        assert await log_bytes(served, begun) == {len("here\n")}
        assert await readiness(served) == {DISK_FULL}
        assert DISK_FULL in await doctor(served)
        assert not (await burst(served)).accepted
        (disk / "ballast").unlink()
        await accepts_jobs_again(served)
        assert await readiness(served) == {READY}
        assert DISK_FULL not in await doctor(served)


async def test_without_a_reserve_what_has_begun_ends_by_itself_once_there_is_room(disk: Path) -> None:
    with on_sqlite(disk / "home", reserve_bytes=0) as served:
        begun = await begin_jobs(served, seconds=1.0)
        fill(disk / "ballast")
        assert (await burst(served)).full
        await anyio.sleep(5.0)  # every loop has failed by now, more than once
        fill(disk / "more")
        assert (await burst(served)).full
        for ballast in ("ballast", "more"):
            (disk / ballast).unlink()
        await accepts_jobs_again(served)
        await states(served, begun, JobState.SUCCEEDED)


async def test_a_refusal_for_want_of_room_says_when_to_try_again(disk: Path) -> None:
    with on_sqlite(disk / "home") as served:
        fill(disk / "ballast")
        assert (await burst(served)).full
        async with httpx.AsyncClient(
            base_url=served.url, headers={"Authorization": f"Bearer {served.key}"}
        ) as client:
            answer = await client.post("/v1/jobs", json={"task": {"run": "true"}})
        assert (answer.status_code, answer.headers["retry-after"]) == (507, "1")
        problem = answer.json()
        assert (problem["code"], problem["retryable"]) == ("disk-full", True)
        assert "Free some space" in problem["remedy"]


async def test_every_job_answered_with_success_is_kept_when_inodes_run_out(tmp_path: Path) -> None:
    with mounted(tmp_path / "disk", "size=64m,nr_inodes=60") as disk:
        with on_sqlite(disk / "home") as served:
            fill_inodes(disk / "many")
            answers = await burst(served)
            assert len(answers.accepted) + answers.full == AT_ONCE
            assert not answers.problems(await jobs(served))
        fill_inodes(disk / "again")  # those that SQLite gave back when it was closed
        with pytest.raises(DiskFullError), on_sqlite(disk / "home"):
            pass
        shutil.rmtree(disk / "many")
        with on_sqlite(disk / "home") as served:
            assert not answers.problems(await jobs(served))
            await accepts_jobs_again(served)


@pytest.fixture
def small_tablespace() -> Generator[tuple[str, Path]]:
    """Yield a database of PostgreSQL with its tables on a small disk, and that disk."""
    with tempfile.TemporaryDirectory(prefix="yunhe-tables-") as folder:
        Path(folder).chmod(0o755)
        with mounted(Path(folder) / "disk", "size=48m,mode=755") as disk, postgres_server() as socket_folder:
            (disk / "tables").mkdir()
            shutil.chown(disk / "tables", "postgres", "postgres")
            yield new_database(socket_folder, "full", tablespace=disk / "tables"), disk


async def test_every_job_answered_with_success_is_kept_when_the_disk_of_postgresql_fills(
    small_tablespace: tuple[str, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    url, disk = small_tablespace
    with serving(tmp_path / "home", database_url=url) as served:
        fill(disk / "ballast", leave_bytes=3 * MIB)
        answers = [await submit_at_once(served.url, served.key, AT_ONCE, SCRIPT_BYTES) for _ in range(3)]
        with capsys.disabled():
            print(f"\n{[len(a.accepted) for a in answers]} accepted, {[a.full for a in answers]} refused")
        assert answers[-1].full
        there = await jobs(served)
        (disk / "ballast").unlink()
        await accepts_jobs_again(served)
        for one in answers:
            assert not one.problems(there)
            assert not one.problems(await jobs(served))


@pytest.fixture
def small_write_ahead_log() -> Generator[tuple[str, Path]]:
    """Yield a PostgreSQL with its write-ahead log on a small disk, and that disk."""
    with tempfile.TemporaryDirectory(prefix="yunhe-wal-") as folder:
        Path(folder).chmod(0o755)
        with mounted(Path(folder) / "disk", "size=24m,mode=755") as disk:
            (disk / "wal").mkdir()
            shutil.chown(disk / "wal", "postgres", "postgres")
            with postgres_server(log_folder=disk / "wal") as socket_folder:
                yield socket_folder, disk


async def test_every_job_answered_with_success_is_kept_when_the_write_ahead_log_of_postgresql_fills(
    small_write_ahead_log: tuple[str, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """PostgreSQL ends itself then; it is an outage until somebody makes room and starts it again."""
    socket_folder, disk = small_write_ahead_log
    with serving(tmp_path / "home", database_url=new_database(socket_folder, "log_full")) as served:
        fill(disk / "ballast", leave_bytes=2 * MIB)
        answers = [await burst(served) for _ in range(2)]
        with capsys.disabled():
            print(
                f"\n{[len(a.accepted) for a in answers]} accepted, {[len(a.other) for a in answers]} refused"
            )
        assert sum(len(answer.accepted) for answer in answers) < 2 * AT_ONCE
        assert {"DatabaseUnavailableError"} >= {
            told.split()[5].rstrip(":") for a in answers for told in a.other
        }
        (disk / "ballast").unlink()
        if not is_running(socket_folder):
            await anyio.to_thread.run_sync(start_again, socket_folder)
        await accepts_jobs_again(served)
        there = await jobs(served)
    assert not set().union(*(answer.accepted for answer in answers)) - there


async def test_a_server_starts_on_a_full_disk_by_its_reserve_and_knows_every_job(disk: Path) -> None:
    with on_sqlite(disk / "home") as served:
        accepted = (await submit_at_once(served.url, served.key, 5, 100)).accepted
    fill(disk / "ballast")
    with on_sqlite(disk / "home") as served:
        assert await jobs(served) == accepted
        assert await readiness(served) == {DISK_FULL}
        assert not (await submit_at_once(served.url, served.key, 5, 100)).accepted
