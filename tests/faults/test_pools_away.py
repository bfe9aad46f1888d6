"""A pool that stands still, or leaves and comes back, keeps no job from running elsewhere and runs none twice."""

import os
import signal
import time
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import anyio
import pytest

from faults.campaign import Campaign, Plan, campaign
from faults.planted import Fault, plant
from support import agent_processes
from yunhe.control.pools.model import Pool, PoolState
from yunhe.entrypoints.client.async_client import AsyncClient
from yunhe.infrastructure.host.engine import LOOK_WITHIN_S
from yunhe.scheduling.orchestration.jobs.model import Job
from yunhe.scheduling.orchestration.jobs.states import FINAL, JobState
from yunhe.trading.applications.model import Submission
from yunhe.trading.demand.model import ResourceSpec, Task

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(180)]

OFFLINE_WITHIN_S = 1.5 * 1.5 + 2 * LOOK_WITHIN_S
SLACK_S = 2.0
"""For a machine that is busy with other tests."""


@asynccontextmanager
async def platform() -> AsyncGenerator[Campaign]:
    with campaign(Plan(seed=1, jobs=0, failpoints=(), random_kills=0)) as prepared:
        async with anyio.create_task_group() as tasks:
            for server in prepared.servers:
                tasks.start_soon(server.run)
            async with prepared.connected():
                await prepared.add_pools()
                yield prepared
            for server in prepared.servers:
                await server.stop()


async def submit(run: Campaign, script: str, pool: str | None = None) -> Job:
    task = Task(run=script, resources=ResourceSpec(cpus=0.1, pool=pool))
    return await run.persist(lambda client: client.submit(Submission(task=task)))


async def until(run: Campaign, job: Job, holds: Callable[[Job], bool], within_s: float = 60.0) -> Job:
    with anyio.fail_after(within_s):
        while not holds(found := await run.persist(lambda client: client.job(job.id))):
            await anyio.sleep(0.1)
    return found


async def pool_of(client: AsyncClient, name: str) -> Pool:
    return {pool.spec.name: pool for pool in await client.pools()}[name]


class Frozen:
    """Processes that stand still until the block ends."""

    def __init__(self, *pids: int) -> None:
        assert pids
        self._pids = pids

    def __enter__(self) -> None:
        for pid in self._pids:
            os.kill(pid, signal.SIGSTOP)

    def __exit__(self, *_: object) -> None:
        for pid in self._pids:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)


@pytest.mark.engine  # a minute of waiting
async def test_a_frozen_agent_gets_no_placement_after_two_looks_and_every_job_runs_once(
    capsys: pytest.CaptureFixture[str],
) -> None:
    async with platform() as run:
        frozen_at = time.monotonic()
        lines = run.lines
        jobs: list[Job] = []
        with Frozen(*agent_processes.daemon(run.roots["north"])):
            while (await run.persist(lambda client: pool_of(client, "north"))).state is not PoolState.OFFLINE:
                jobs.append(await submit(run, f"echo $YUNHE_JOB_ID >> {lines}/ran"))
                await anyio.sleep(0.25)
                assert time.monotonic() < frozen_at + 30.0
            offline_s = time.monotonic() - frozen_at
            late = [await submit(run, f"echo $YUNHE_JOB_ID >> {lines}/ran") for _ in range(5)]
            for job in late:
                found = await until(run, job, lambda found: found.state in FINAL)
                assert (found.state, found.attempts[-1].pool_name) == (JobState.SUCCEEDED, "south")
            elsewhere = [await until(run, job, lambda found: found.state in FINAL) for job in jobs]
        with capsys.disabled():
            ends = sorted({(job.state.value, len(job.attempts)) for job in elsewhere})
            print(f"\nfrozen agent: offline after {offline_s:.1f} s; {len(jobs)} jobs came meanwhile: {ends}")
        assert offline_s < OFFLINE_WITHIN_S + SLACK_S
        for job in elsewhere:
            if job.state is not JobState.SUCCEEDED:
                assert "whether it ran cannot be said" in job.reason, job.reason
        await anyio.sleep(3.0)  # what the agent finds in its socket has expired
        ran = (lines / "ran").read_text().split()
        assert len(ran) == len(set(ran))
        assert {job.id for job in elsewhere if job.state is JobState.SUCCEEDED} <= set(ran)


async def test_a_job_runs_although_the_spawner_of_its_agent_stands_still() -> None:
    async with platform() as run:
        first = await submit(run, "true")
        await until(run, first, lambda found: found.state in FINAL)
        stopped = [pid for root in run.roots.values() for pid in agent_processes.spawner(root)]
        with Frozen(*stopped):
            began = time.monotonic()
            job = await submit(run, f"echo once >> {run.lines}/ran")
            found = await until(run, job, lambda found: found.state in FINAL, within_s=20.0)
            assert (found.state, len(found.attempts)) == (JobState.SUCCEEDED, 1), found.reason
            assert time.monotonic() - began < 10.0
        assert (run.lines / "ran").read_text() == "once\n"


async def left_by_a_pool_that_was_removed_and_added_again(within_s: float) -> list[str]:
    """Remove pools by force under their jobs, add them again, and return what they still have *within_s* later."""
    async with platform() as run:
        script = f"echo $$ >> {run.lines}/pids; sleep 600"
        jobs = [await submit(run, script) for _ in range(4)]
        for job in jobs:
            await until(run, job, lambda found: found.state is JobState.RUNNING)
        for name in run.pools:
            await run.persist(lambda client, name=name: client.remove_pool(name, force=True))
        for job in jobs:
            found = await until(run, job, lambda found: found.state in FINAL)
            assert found.state is JobState.FAILED
        assert any(agent_processes.left_behind(root) for root in run.roots.values())
        await run.add_pools()
        with anyio.move_on_after(within_s):
            while any(agent_processes.left_behind(root) for root in run.roots.values()):
                await anyio.sleep(0.2)
        return [left for root in run.roots.values() for left in agent_processes.left_behind(root)]


async def test_what_a_removed_pool_still_runs_is_ended_when_it_is_added_again() -> None:
    assert not await left_by_a_pool_that_was_removed_and_added_again(40.0)


FORGETS_ORPHANS = Fault(
    "scheduling/orchestration/jobs/orphans.py",
    "                if row.state in OVER:",
    "                if False:",
)


@pytest.mark.engine  # it waits for what does not come
async def test_a_server_that_leaves_the_orphans_of_a_removed_pool_is_caught(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    plant(monkeypatch, tmp_path, FORGETS_ORPHANS)
    assert await left_by_a_pool_that_was_removed_and_added_again(20.0)
