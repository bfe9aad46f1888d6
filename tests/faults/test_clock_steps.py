"""Clocks that are set, on a server or a host, neither make a job free nor give it a negative duration."""

from pathlib import Path

import anyio
import pytest
from rich.console import Console

from integration.scheduling.orchestration.stage import finished, with_a_pool
from yunhe.entrypoints.cli.views.jobs import explanation_page
from yunhe.infrastructure.fake.kind import FakeKind
from yunhe.infrastructure.fake.timeline import RealTime
from yunhe.kernel.clock import MOST_AHEAD_S, Clock, SteadyClock, system_clock
from yunhe.runtime.settings import Settings
from yunhe.runtime.start import running
from yunhe.scheduling.orchestration.jobs.model import Explanation, Job
from yunhe.scheduling.orchestration.jobs.states import JobState
from yunhe.storage.audit import newest_time
from yunhe.storage.database import Database
from yunhe.trading.applications.model import Submission
from yunhe.trading.demand.model import Task

pytestmark = pytest.mark.anyio


class Steps:
    """A clock that can be set."""

    def __init__(self) -> None:
        self.by_s = 0.0

    def __call__(self) -> float:
        return system_clock() + self.by_s


async def run_after_step(home: Path, clock: Clock, steps: Steps, by_s: float) -> tuple[Job, int]:
    """Set prices, set the clock, run a job; return it and what it cost."""
    async with running(
        Settings(home=home, reserve_bytes=0), kinds={"fake": FakeKind()}, clock=clock
    ) as platform:
        who = await with_a_pool(platform)
        steps.by_s = by_s
        (job,) = await platform.applications.submit(who, (Submission(task=Task(run="sleep 1\n")),))
        with anyio.fail_after(30.0):
            job = await finished(platform, job)
            while not any([line.final async for line in platform.trades.export()]):  # pyright: ignore[reportAttributeAccessIssue]
                await anyio.sleep(0.1)
        cost = sum([line.reserved_micros async for line in platform.trades.export()])  # pyright: ignore[reportAttributeAccessIssue]
        return job, cost


@pytest.mark.parametrize("by_s", [-3600.0, -3.0, 3600.0])
async def test_a_job_is_billed_and_takes_its_time_after_the_clock_was_set(
    tmp_path: Path, by_s: float
) -> None:
    steps = Steps()
    job, cost = await run_after_step(tmp_path, SteadyClock(steps), steps, by_s)
    assert job.state is JobState.SUCCEEDED
    assert cost > 0
    assert job.started_at is not None
    assert job.ended_at is not None
    assert 0.5 < job.ended_at - job.started_at < 20.0
    assert job.submitted_at <= job.started_at


class WrongTime(RealTime):
    """The time of a host whose clock is wrong."""

    def __init__(self, off_s: float) -> None:
        self._off_s = off_s

    def now(self) -> float:
        return super().now() + self._off_s


@pytest.mark.parametrize("off_s", [-3600.0, 3600.0, 0.0])
async def test_times_of_a_host_whose_clock_is_wrong_are_corrected_and_marked(
    tmp_path: Path, off_s: float
) -> None:
    kind = FakeKind(time=WrongTime(off_s))
    async with running(Settings(home=tmp_path, reserve_bytes=0), kinds={"fake": kind}) as platform:
        who = await with_a_pool(platform)
        before = system_clock()
        (job,) = await platform.applications.submit(who, (Submission(task=Task(run="sleep 1\n")),))
        with anyio.fail_after(30.0):
            job = await finished(platform, job)
        (attempt,) = job.attempts
        assert attempt.started_at is not None
        assert attempt.ended_at is not None
        assert before <= attempt.started_at <= attempt.ended_at <= system_clock()
        assert attempt.clock_off_s == (pytest.approx(off_s, abs=30.0) if off_s else None)
        console = Console(width=200)
        with console.capture() as shown:
            explained = Explanation(job=job, decision=None, decided_at=None)
            console.print(explanation_page(explained, {}, now=system_clock()))
        assert ("its times are corrected" in shown.get()) == bool(off_s)


async def test_a_clock_that_goes_back_is_caught_by_the_bill(tmp_path: Path) -> None:
    steps = Steps()
    _, cost = await run_after_step(tmp_path, steps, steps, -3600.0)
    assert cost == 0


async def test_a_server_that_starts_with_its_clock_set_back_goes_on_from_what_was_written(
    tmp_path: Path,
) -> None:
    steps = Steps()
    async with running(Settings(home=tmp_path, reserve_bytes=0), kinds={"fake": FakeKind()}) as platform:
        who = await with_a_pool(platform)
        await platform.applications.submit(who, (Submission(task=Task(run="true\n")),))
    before = system_clock()
    database = Database(f"sqlite:///{tmp_path / 'yunhe.db'}")
    floor = await database.read(newest_time)
    database.close()
    assert before - 30.0 < floor <= before
    steps.by_s = -3600.0
    assert SteadyClock(steps, floor=floor)() >= floor


def test_a_clock_set_back_by_more_than_a_day_was_wrong_before_and_is_followed() -> None:
    told, passed = [2 * MOST_AHEAD_S], [0.0]
    clock = SteadyClock(lambda: told[0], monotonic=lambda: passed[0])
    assert clock() == 2 * MOST_AHEAD_S
    told[0], passed[0] = MOST_AHEAD_S + 10.0, 5.0
    assert clock() == 2 * MOST_AHEAD_S + 5.0
    told[0] = 10.0
    assert clock() == 10.0
