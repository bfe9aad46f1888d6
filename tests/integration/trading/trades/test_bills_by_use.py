"""What jobs are billed against what they counted of themselves, on every engine, though the platform was away midway."""

import time
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import pytest

from engines.pools import PoolAndImage
from support import apart
from yunhe.conformance.basic_promises import COUNTS_ITS_CPU, cpu_seconds
from yunhe.control.pools.model import PoolSpec
from yunhe.kernel.ids import JobId
from yunhe.kernel.money import Prices
from yunhe.runtime.platform import Platform
from yunhe.runtime.start import first_key_path, running
from yunhe.scheduling.orchestration.jobs.states import JobState
from yunhe.trading.applications.model import Submission
from yunhe.trading.demand.model import ResourceSpec, Task
from yunhe.trading.trades.chain import verify
from yunhe.trading.trades.model import LedgerEntry

pytestmark = [pytest.mark.anyio, pytest.mark.engine, pytest.mark.timeout(2400)]

KINDS = ("process", "container", "slurm", "ray", "kubernetes")
WANTED_S = (0.5, 2.0, 10.0, 60.0)
PATIENCE_S = 1500.0
PRICES = Prices(cpu_core_hour_micros=50_000_000, memory_gib_hour_micros=10_000_000)


@asynccontextmanager
async def platform_with(home: Path, spec: PoolSpec) -> AsyncGenerator[Platform]:
    """Run a platform that has the pool, from a start before or from now on."""
    async with running(apart.settings(home)) as platform:
        if spec.name not in [pool.spec.name for pool in await platform.pools.pools()]:
            checks = [check async for check in platform.pools.add(spec)]
            assert all(check.ok for check in checks), checks
            await platform.trades.publish_prices((await platform.pools.pool(spec.name)).id, PRICES)
        yield platform


async def submit(platform: Platform, wanted_s: float, more: dict[str, str]) -> JobId:
    run = COUNTS_ITS_CPU.replace("TICKS", str(round(wanted_s * 50)))
    small = ResourceSpec(cpus=1 if wanted_s > 10 else 0.3, memory="100MB")  # all at once
    task = Task(run=run, resources=small, **more)  # pyright: ignore[reportArgumentType]
    who = await platform.accounts.authenticate(first_key_path(platform.settings.home).read_text().strip())
    return (await platform.applications.submit(who, (Submission(task=task),)))[0].id


async def billed(platform: Platform, job: JobId) -> list[LedgerEntry]:
    """Return the lines of a job once its last one is written."""
    with anyio.fail_after(PATIENCE_S):
        while True:
            lines = [line async for line in platform.trades.export()]
            mine = [line for line in lines if isinstance(line, LedgerEntry) and line.job_id == job]
            if mine and mine[-1].final:
                assert verify(lines).ok
                return mine
            await anyio.sleep(0.2)


@pytest.mark.parametrize("kind", KINDS)
async def test_a_job_is_billed_what_it_counted_of_itself(
    tmp_path: Path, kind: str, request: pytest.FixtureRequest
) -> None:
    fixture: PoolAndImage = request.getfixturevalue(f"pool_{kind}")
    pool, more = fixture
    async with platform_with(tmp_path, pool) as platform:
        jobs = {wanted_s: await submit(platform, wanted_s, more) for wanted_s in WANTED_S}
        with anyio.fail_after(PATIENCE_S):
            while (await platform.orchestration.job(jobs[WANTED_S[-1]])).state is not JobState.RUNNING:
                await anyio.sleep(0.05)
    away_since = time.time()
    await anyio.sleep(15)  # those of 0.5 and 2 s end while nobody looks
    back_at = time.time()
    ended_alone = 0
    async with platform_with(tmp_path, pool) as platform:
        for wanted_s, job_id in jobs.items():
            with anyio.fail_after(PATIENCE_S):
                job = [change async for change in platform.orchestration.changes(job_id)][-1]
            assert (job.state, len(job.attempts)) == (JobState.SUCCEEDED, 1), job.attempts
            ended_at = job.attempts[0].ended_at
            ended_alone += ended_at is not None and away_since < ended_at < back_at
            log = b"".join([piece.data async for piece in platform.orchestration.logs(job_id)])
            told_s = cpu_seconds(log)
            lines = await billed(platform, job_id)
            billed_s = sum(line.used.cpu_us for line in lines) / 1e6
            print(f"{kind}: counted {told_s:.3f} s, billed {billed_s:.3f} s in {len(lines)} lines")
            assert told_s >= wanted_s * 0.9
            assert abs(billed_s - told_s) <= 0.02 * told_s + 0.02
            assert sum(line.final for line in lines) == 1
            assert job.attempts[0].meters.memory_peak_mib > 0
    assert ended_alone, "none ended while the platform was away"
