"""What an ended job left comes home, however often that fails, unless it no longer exists; then the job says so."""

from collections.abc import AsyncIterator, Coroutine
from pathlib import Path
from typing import Any

import anyio
import pytest

from integration.scheduling.orchestration.driving import Rig, rig
from yunhe.control.pools import service
from yunhe.infrastructure.contract.model import LogChunk
from yunhe.infrastructure.fake.engine import FakeEngine
from yunhe.kernel.errors import (
    ConflictError,
    DiskFullError,
    ForbiddenError,
    InvalidInputError,
    PoolUnreachableError,
    TooLargeError,
    UnsupportedError,
    YunheError,
)
from yunhe.kernel.ids import AllocationId, JobId
from yunhe.scheduling.orchestration.jobs import collect, steps, store
from yunhe.scheduling.orchestration.jobs.model import Job
from yunhe.scheduling.orchestration.jobs.states import JobState
from yunhe.scheduling.orchestration.jobs.tables import JOBS
from yunhe.storage.blobs import Blobs

pytestmark = pytest.mark.anyio

LEAVES = "echo said\necho kept > result.txt\n"
REFUSALS = [
    PoolUnreachableError("256 requests are under way."),
    TooLargeError("More than 256 requests are under way."),
    DiskFullError("No room left."),
    ForbiddenError("Our token has expired."),
    UnsupportedError("The plugin does not have this call."),
    InvalidInputError("get_archive: nothing was heard for too long."),
    ConflictError("The files could not all be read."),
    YunheError("The agent failed at get_archive: ValueError."),
]


class Trouble:
    """Has fake pools refuse to give out logs or files while a test wants them to."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.log_is_cut = False
        self.logs: YunheError | None = None
        self.files: YunheError | None = None
        self.refused = 0
        self.at_once = self.most_at_once = 0
        self.files_take_s = 0.02
        logs, files = FakeEngine.logs, FakeEngine.get_archive

        async def logs_or_refuse(
            engine: FakeEngine, allocation_id: AllocationId, *, offset: int = 0, follow: bool = False
        ) -> AsyncIterator[LogChunk]:
            self._refuse(self.logs)
            async for chunk in logs(engine, allocation_id, offset=offset, follow=follow):
                if not self.log_is_cut:
                    yield chunk

        async def files_or_refuse(
            engine: FakeEngine, allocation_id: AllocationId, paths: tuple[str, ...]
        ) -> AsyncIterator[bytes]:
            self._refuse(self.files)
            self.at_once += 1
            self.most_at_once = max(self.most_at_once, self.at_once)
            try:
                await anyio.sleep(self.files_take_s)
                async for piece in files(engine, allocation_id, paths):
                    yield piece
            finally:
                self.at_once -= 1

        monkeypatch.setattr(FakeEngine, "logs", logs_or_refuse)
        monkeypatch.setattr(FakeEngine, "get_archive", files_or_refuse)
        monkeypatch.setattr(steps, "RETRY_S", 0.02)

    def _refuse(self, error: YunheError | None) -> None:
        if error is not None:
            self.refused += 1
            raise error


@pytest.fixture
def trouble(monkeypatch: pytest.MonkeyPatch) -> Trouble:
    return Trouble(monkeypatch)


async def waits(parts: Rig, trouble: Trouble, job_id: JobId, problem: str, times: int = 3) -> Job:
    """Return the job once it has failed to come home a few times and says why."""
    with anyio.fail_after(20):
        while trouble.refused < times or problem not in (job := await parts.job(job_id)).reason:
            await anyio.sleep(0.01)
    return job


@pytest.mark.parametrize("what", ["logs", "files"])
@pytest.mark.parametrize("error", REFUSALS, ids=lambda error: f"{error.code}")
async def test_what_cannot_be_fetched_now_is_fetched_later_and_the_job_says_what_it_waits_for(
    tmp_path: Path, trouble: Trouble, error: YunheError, what: str
) -> None:
    async with rig(tmp_path) as parts, anyio.create_task_group() as tasks:
        tasks.start_soon(parts.releaser.run)
        setattr(trouble, what, error)
        job_id = await parts.submit(LEAVES, outputs=("result.txt",))
        await parts.place()
        job = await waits(parts, trouble, job_id, error.problem)
        assert job.state is JobState.FINISHING
        assert parts.site().pool.observation().allocations, "the pool must keep what is not home"
        trouble.logs = trouble.files = None
        job = await parts.until(job_id, JobState.SUCCEEDED)
        assert (job.reason, job.outputs_lost, job.attempts[0].log_lost) == ("", "", "")
        assert job.outputs_blob is not None
        assert job.attempts[0].log_bytes == len("said\n")
        tasks.cancel_scope.cancel()


async def test_outputs_that_find_no_room_at_home_are_fetched_when_there_is_some(
    tmp_path: Path, trouble: Trouble, monkeypatch: pytest.MonkeyPatch
) -> None:
    put, full = Blobs.put, True

    async def put_or_refuse(
        blobs: Blobs, scope: str, chunks: AsyncIterator[bytes], *, project_id: str
    ) -> object:
        if full:
            trouble.refused += 1
            raise DiskFullError("The database has no room left.")
        return await put(blobs, scope, chunks, project_id=project_id)

    monkeypatch.setattr(Blobs, "put", put_or_refuse)
    async with rig(tmp_path) as parts:
        job_id = await parts.submit(LEAVES, outputs=("result.txt",))
        await parts.place()
        await waits(parts, trouble, job_id, "The database has no room left.")
        full = False
        assert (await parts.until(job_id, JobState.SUCCEEDED)).outputs_blob is not None


@pytest.mark.parametrize("gone", ["from the pool", "with the pool"])
async def test_what_no_longer_exists_is_told_as_lost_on_the_job(
    tmp_path: Path, trouble: Trouble, gone: str
) -> None:
    async with rig(tmp_path) as parts:
        trouble.logs = PoolUnreachableError("No answer.")
        job_id = await parts.submit(LEAVES, outputs=("result.txt",))
        await parts.place()
        job = await waits(parts, trouble, job_id, "No answer.")
        if gone == "from the pool":
            parts.site().pool.release(job.attempts[0].allocation_id, 99)
        else:
            await parts.pools.remove("lab", force=True)
        trouble.logs = None
        job = await parts.until(job_id, JobState.SUCCEEDED)
        assert "its outputs are lost" in job.reason
        assert job.outputs_lost
        assert job.attempts[0].log_lost


async def test_a_pool_whose_files_are_not_home_is_not_removed_unless_by_force(
    tmp_path: Path, trouble: Trouble, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(service, "FILES_HOME_WITHIN_S", 0.5)
    async with rig(tmp_path) as parts:
        trouble.files = DiskFullError("No room left.")
        job_id = await parts.submit(LEAVES, outputs=("result.txt",))
        await parts.place()
        await waits(parts, trouble, job_id, "No room left.")
        with pytest.raises(ConflictError, match="still keeps the logs and files of 1 of our jobs"):
            await parts.pools.remove("lab")
        trouble.files = None
        await parts.until(job_id, JobState.SUCCEEDED)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(parts.releaser.run)
            monkeypatch.setattr(service, "FILES_HOME_WITHIN_S", 20.0)
            await parts.pools.remove("lab")
            tasks.cancel_scope.cancel()


async def test_a_log_shorter_than_the_pool_counted_is_told_on_the_attempt(
    tmp_path: Path, trouble: Trouble
) -> None:
    async with rig(tmp_path) as parts:
        trouble.log_is_cut = True
        job_id = await parts.submit(LEAVES)
        await parts.place()
        job = await parts.until(job_id, JobState.SUCCEEDED)
        assert "5 of 5 bytes are not kept" in job.attempts[0].log_lost


async def test_a_stop_gives_up_files_that_cannot_be_fetched_and_says_so(
    tmp_path: Path, trouble: Trouble
) -> None:
    async with rig(tmp_path) as parts:
        trouble.files = TooLargeError("The archive is larger than 9 bytes.")
        job_id = await parts.submit(LEAVES, outputs=("result.txt",))
        await parts.place()
        await waits(parts, trouble, job_id, "larger than 9 bytes")
        await parts.database.write(
            lambda c: c.execute(JOBS.update().where(JOBS.c.id == job_id).values(stop_requested=True))
        )
        parts.driver.poke(job_id)
        job = await parts.until(job_id, JobState.STOPPED)
        assert job.outputs_lost == "given up on request; The archive is larger than 9 bytes."
        assert job.attempts[0].log_lost == ""


async def test_who_waits_for_files_holds_only_disk_and_is_not_asked_again_before_its_time(
    tmp_path: Path, trouble: Trouble, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(steps, "RETRY_S", 60.0)
    async with rig(tmp_path) as parts:
        trouble.files = DiskFullError("No room left.")
        job_id = await parts.submit(LEAVES, outputs=("result.txt",))
        await parts.place()
        job = await waits(parts, trouble, job_id, "No room left.", times=1)
        promised = await parts.database.read(store.promised)
        assert promised[job.attempts[0].node_id].cpu_millis == 0
        for _ in range(5):
            parts.driver.poke(job_id)
            await anyio.sleep(0.05)
        assert trouble.refused == 1


async def test_files_are_fetched_a_few_at_a_time_from_one_pool(
    tmp_path: Path, trouble: Trouble, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(collect, "FETCHES_AT_ONCE", 2)
    trouble.files_take_s = 0.3  # long enough for another to come, also on a busy machine
    async with rig(tmp_path) as parts:
        ids = [await parts.submit(LEAVES, outputs=("result.txt",)) for _ in range(7)]
        await parts.place()
        for job_id in ids:
            await parts.until(job_id, JobState.SUCCEEDED)
        assert trouble.most_at_once == 2


async def missing_after_refusals(parts: Rig, trouble: Trouble) -> list[str]:
    """Have a pool refuse files for a while; return what a job that ended misses without saying so."""
    trouble.files = PoolUnreachableError("256 requests are under way.")
    job_id = await parts.submit(LEAVES, outputs=("result.txt",))
    await parts.place()
    with anyio.fail_after(20):
        while trouble.refused < 1:
            await anyio.sleep(0.01)
    trouble.files = None
    job = await parts.until(job_id, JobState.SUCCEEDED)
    return ["its outputs are neither home nor lost"] if not (job.outputs_blob or job.outputs_lost) else []


async def test_what_is_refused_for_a_while_is_home_in_the_end(tmp_path: Path, trouble: Trouble) -> None:
    async with rig(tmp_path) as parts:
        assert not await missing_after_refusals(parts, trouble)


async def swallow(_held: store.LeasedJob, bring: Coroutine[Any, Any, str]) -> str:
    try:
        return await bring
    except YunheError:
        return ""


async def test_swallowing_what_fails_while_files_are_fetched_is_caught(
    tmp_path: Path, trouble: Trouble, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(collect, "_lost", swallow)
    async with rig(tmp_path) as parts:
        assert await missing_after_refusals(parts, trouble)
