"""A stop ends the job whenever it comes, also where nothing could place the job again."""

from pathlib import Path

import anyio
import pytest
from sqlalchemy.engine import Connection

from integration.scheduling.orchestration.driving import Rig, rig
from yunhe.kernel.clock import system_clock
from yunhe.kernel.ids import JobId
from yunhe.scheduling.orchestration.jobs import store
from yunhe.scheduling.orchestration.jobs.states import FINAL, JobState
from yunhe.scheduling.orchestration.service import OrchestrationService
from yunhe.scheduling.perception.service import PerceptionService
from yunhe.storage.notices import Notices

pytestmark = pytest.mark.anyio

SETTLES_WITHIN_S = 3.0


def orchestration(parts: Rig) -> OrchestrationService:
    perception = PerceptionService(parts.database, parts.pools, system_clock)
    notices = Notices(parts.database)
    return OrchestrationService(parts.database, parts.blobs, notices, perception, parts.pools, system_clock)


async def stop_while_finishing(parts: Rig) -> JobId:
    """Have a job with retries end on a pool that is drained, and stop it between its end and what follows."""
    job_id = await parts.submit("exit 3\n", retries=2)
    parts.gated.hold_after = lambda held: (
        isinstance(held, store.LeasedJob) and held.state is JobState.FINISHING
    )
    await parts.place()
    with anyio.fail_after(30):
        await parts.gated.reached.wait()
    await parts.pools.drain("lab")
    stopped = await orchestration(parts).stop(job_id)
    assert stopped.state is JobState.FINISHING
    parts.gated.gate.set()
    return job_id


async def unstopped(parts: Rig, job_id: JobId) -> str:
    """Return the state of a job that does not end although somebody stopped it; empty: it ended."""
    with anyio.move_on_after(SETTLES_WITHIN_S):
        await parts.until(job_id, *FINAL)
        return ""
    return (await parts.job(job_id)).state


async def test_a_stop_while_finishing_ends_the_job_though_retries_are_left(tmp_path: Path) -> None:
    async with rig(tmp_path) as parts:
        job_id = await stop_while_finishing(parts)
        assert not await unstopped(parts, job_id)
        job = await parts.job(job_id)
        assert (job.state, job.reason) == (JobState.STOPPED, store.STOPPED_ON_REQUEST)
        assert job.ended_at is not None
        assert len(job.attempts) == 1
        assert (await parts.row(job_id)).lease_owner == ""


def trust_what_was_read(_connection: Connection, _job_id: JobId) -> bool:
    return False


async def test_a_settling_that_trusts_what_it_read_is_caught_and_the_next_stop_ends_the_job(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store, "_is_to_stop", trust_what_was_read)
    async with rig(tmp_path) as parts:
        job_id = await stop_while_finishing(parts)
        assert await unstopped(parts, job_id) == JobState.PENDING
        assert (await orchestration(parts).stop(job_id)).state is JobState.STOPPED
