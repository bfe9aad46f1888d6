"""A database that goes away for a while costs its callers a pause, and what runs nothing."""

import time
from collections.abc import AsyncGenerator, Callable, Generator
from contextlib import AbstractAsyncContextManager, ExitStack, asynccontextmanager, suppress
from pathlib import Path
from typing import NamedTuple

import anyio
import anyio.to_thread
import httpx
import pytest

from faults.campaign import Plan, campaign
from faults.verdict import problems_of
from integration.entrypoints.api.server_process import process
from integration.entrypoints.api.serving import Served, add_fake_pool, free_port, serving
from support import postgres as servers
from support.postgres import new_database, postgres_server
from yunhe.entrypoints.api.awaiting import WAITING
from yunhe.entrypoints.api.routes.platform import READY
from yunhe.entrypoints.client.async_client import AsyncClient
from yunhe.runtime.settings import Settings
from yunhe.scheduling.orchestration.jobs.driver import LEASE_S
from yunhe.scheduling.orchestration.jobs.states import FINAL, JobState
from yunhe.storage import database as storage
from yunhe.trading.applications.model import Submission
from yunhe.trading.demand.model import ResourceSpec, Task

pytestmark = pytest.mark.anyio

RETURN_WITHIN_S = 3.0
JOBS = 20


class Outage(NamedTuple):
    """What was seen of an outage."""

    problems: tuple[str, ...]
    recovery_s: float
    """From when the database answers until a job that is submitted then has run to its end."""


@pytest.fixture(scope="module")
def own_postgres() -> Generator[str]:
    with postgres_server() as socket_folder:
        yield socket_folder


async def job_ends(client: AsyncClient, seconds: float = 0.0) -> str:
    task = Task(run=f"sleep {seconds}\n", resources=ResourceSpec(cpus=0.1))
    return (await client.submit(Submission(task=task))).id


async def requests_fail_politely(served: Served) -> list[str]:
    """Return how requests to a server without its database were answered, where that was wrong."""
    headers = {"Authorization": f"Bearer {served.key}"}
    found: list[str] = []
    async with httpx.AsyncClient(base_url=served.url, headers=headers) as client:
        for method, path, body in (
            ("GET", "/v1/jobs", None),
            ("POST", "/v1/jobs", {"task": {"run": "true"}}),
        ):
            began = time.monotonic()
            answer = await client.request(method, path, json=body)
            told = (answer.status_code, answer.headers.get("retry-after"), answer.json().get("retryable"))
            if told != (503, "1", True) or time.monotonic() - began > 1.0:
                found.append(f"{method} {path} was answered with {told} in {time.monotonic() - began:.1f} s")
    return found


@asynccontextmanager
async def stopped(socket_folder: str) -> AsyncGenerator[None]:
    """Have no PostgreSQL while the block runs."""
    await anyio.to_thread.run_sync(servers.stop, socket_folder)
    yield
    await anyio.to_thread.run_sync(servers.start_again, socket_folder)


@asynccontextmanager
async def frozen(socket_folder: str) -> AsyncGenerator[None]:
    """Have a PostgreSQL that stands still while the block runs."""
    pids = servers.freeze(socket_folder)
    try:
        yield
    finally:
        servers.thaw(pids)


Away = Callable[[str], AbstractAsyncContextManager[None]]


async def outlive_outage(served: Served, socket_folder: str, seconds: float, away: Away = stopped) -> Outage:
    """Take the database away while jobs run; return what went wrong and how soon it was over."""
    async with AsyncClient(served.url, served.key) as client:
        begun = [await job_ends(client, seconds + 3.0) for _ in range(JOBS)]
        await reach(client, begun, {JobState.RUNNING})
        async with away(socket_folder):
            await anyio.sleep(seconds / 2)
            problems = await requests_fail_politely(served)
            await anyio.sleep(seconds / 2)
        back = time.monotonic()
        with anyio.move_on_after(60.0):
            await reach(client, [await job_ends(client)], FINAL)
        recovery_s = time.monotonic() - back
        if recovery_s > RETURN_WITHIN_S:
            problems.append(f"a job ran {recovery_s:.1f} s after the return")
        await reach(client, begun, FINAL)
        for job in [await client.job(job_id) for job_id in begun]:
            if (job.state, len(job.attempts)) != (JobState.SUCCEEDED, 1):
                problems.append(f"{job.id} is {job.state} after {len(job.attempts)} attempts: {job.reason}")
    return Outage(tuple(problems), recovery_s)


async def reach(client: AsyncClient, wanted: list[str], states: set[JobState] | frozenset[JobState]) -> None:
    """Wait until all of these jobs are in one of the states."""
    with anyio.fail_after(90.0):
        for job_id in wanted:
            while (await client.job(job_id)).state not in states:
                await anyio.sleep(0.05)


@pytest.mark.parametrize(
    "seconds",
    [3.0, pytest.param(30.0, marks=pytest.mark.engine), pytest.param(75.0, marks=pytest.mark.engine)],
)
@pytest.mark.timeout(240)
async def test_jobs_outlive_a_database_that_is_away_and_service_is_back_within_three_seconds(
    own_postgres: str, tmp_path: Path, seconds: float, capsys: pytest.CaptureFixture[str]
) -> None:
    url = new_database(own_postgres, f"away_{seconds:.0f}")
    with serving(tmp_path / "home", database_url=url) as served:
        with served.client() as client:
            await anyio.to_thread.run_sync(add_fake_pool, client)
        outage = await outlive_outage(served, own_postgres, seconds)
    with capsys.disabled():
        print(f"\nPostgreSQL away for {seconds:g} s: back in {outage.recovery_s:.2f} s")
    assert not outage.problems, "\n".join(outage.problems)


@pytest.mark.engine  # a minute of waiting
@pytest.mark.parametrize("seconds", [24.0, 75.0])
@pytest.mark.timeout(240)
async def test_jobs_outlive_a_database_that_stands_still(
    own_postgres: str, tmp_path: Path, seconds: float, capsys: pytest.CaptureFixture[str]
) -> None:
    url = new_database(own_postgres, f"frozen_{seconds:.0f}")
    with serving(tmp_path / "home", database_url=url) as served:
        with served.client() as client:
            await anyio.to_thread.run_sync(add_fake_pool, client)
        outage = await outlive_outage(served, own_postgres, seconds, frozen)
    with capsys.disabled():
        print(f"\nPostgreSQL frozen for {seconds:g} s: back in {outage.recovery_s:.2f} s")
    assert not outage.problems, "\n".join(outage.problems)


@pytest.mark.engine  # a minute of waiting
@pytest.mark.timeout(300)
async def test_several_workers_outlive_a_long_outage_and_kills_within_it(
    own_postgres: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Leases run out meanwhile and one worker is killed: nothing is lost, and nothing runs twice unsaid."""
    plan = Plan(seed=3, jobs=60, failpoints=(), random_kills=0)
    with campaign(plan, new_database(own_postgres, "workers_away")) as run:

        async def take_away() -> None:
            while run.finished < 5:
                await anyio.sleep(0.1)
            async with stopped(own_postgres):
                await anyio.sleep(LEASE_S + 10.0)
                assert run.servers[1].kill()
                await anyio.sleep(5.0)

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(take_away)
            await run.run()
        with capsys.disabled():
            print(f"\n{run.figures()}")
        problems = await problems_of(run)
        assert not problems, "\n".join([run.figures(), *problems])


def never(_context: object) -> bool:
    return False


@pytest.mark.timeout(240)
async def test_a_server_that_takes_an_outage_for_a_fault_of_its_own_is_caught(
    own_postgres: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(storage, "_is_unavailable", never)
    url = new_database(own_postgres, "planted")
    with serving(tmp_path / "home", database_url=url) as served:
        with served.client() as client:
            await anyio.to_thread.run_sync(add_fake_pool, client)
        problems = (await outlive_outage(served, own_postgres, 3.0)).problems
    assert any("was answered with (500" in problem for problem in problems), problems


async def test_a_server_that_starts_without_its_database_waits_for_it(
    own_postgres: str, tmp_path: Path
) -> None:
    url = new_database(own_postgres, "late")
    servers.stop(own_postgres)

    async def start_later() -> None:
        await anyio.sleep(2.0)
        await anyio.to_thread.run_sync(servers.start_again, own_postgres)

    def start() -> bool:
        with serving(tmp_path / "home", database_url=url) as served, served.client() as client:
            return client.ready().ready

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(start_later)
        assert await anyio.to_thread.run_sync(start)


async def test_a_server_that_waits_for_its_database_at_its_start_says_so_and_then_serves(
    own_postgres: str, tmp_path: Path
) -> None:
    settings = Settings(
        home=tmp_path / "home", port=free_port(), database_url=new_database(own_postgres, "said")
    )
    url = f"http://127.0.0.1:{settings.port}"
    with ExitStack() as running_servers:
        async with httpx.AsyncClient(base_url=url) as client:
            async with stopped(own_postgres):
                with process(settings) as ended_early:
                    await ready_says(client, 503, WAITING)
                    assert (await client.get("/health")).status_code == 200
                    answer = await client.post("/v1/jobs", json={"task": {"run": "true"}})
                    told = (answer.status_code, answer.headers.get("retry-after"), answer.json()["retryable"])
                    assert told == (503, "1", True)
                    assert answer.json()["code"] == "database-unavailable"
                    ended_early.terminate()
                    assert await anyio.to_thread.run_sync(ended_early.wait, 30) == 0
                server = running_servers.enter_context(process(settings))
                await ready_says(client, 503, WAITING)
            await ready_says(client, 200, READY)
            server.terminate()
            assert await anyio.to_thread.run_sync(server.wait, 30) == 0


async def ready_says(client: httpx.AsyncClient, status: int, state: str) -> None:
    """Wait until a server says this of itself."""
    with anyio.fail_after(60.0):
        while True:
            # An idle connection may be closed when the waiting server becomes the serving one.
            with suppress(httpx.TransportError):
                answer = await client.get("/ready")
                if (answer.status_code, set(answer.json()["modules"].values())) == (status, {state}):
                    return
            await anyio.sleep(0.05)


async def test_a_server_whose_database_does_not_exist_says_so_instead_of_waiting(
    own_postgres: str, tmp_path: Path
) -> None:
    url = f"postgresql://yunhe@/nowhere?host={own_postgres}&port={servers.PORT}"
    with pytest.raises(Exception, match="does not exist"), serving(tmp_path / "home", database_url=url):
        pass
