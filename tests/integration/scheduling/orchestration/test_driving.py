"""Driving jobs where two things happen at once, or one of them was cut off in the middle."""

import io
import tarfile
from collections.abc import AsyncIterator
from pathlib import Path

import anyio
import pytest

from integration.scheduling.orchestration.driving import OWNER, rig
from yunhe.control.pools.model import LaunchOrder, Mount, Phase
from yunhe.infrastructure.fake.faults import Fault
from yunhe.infrastructure.fake.pool import FakePool
from yunhe.kernel.errors import DiskFullError
from yunhe.kernel.resources import Resources
from yunhe.scheduling.orchestration.jobs import driver, resizing, steps, store
from yunhe.scheduling.orchestration.jobs.states import JobState
from yunhe.scheduling.orchestration.jobs.tables import ALLOCATIONS, JOBS

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize("moment", ["before the drive looks again", "after the drive has looked"])
async def test_a_job_placed_again_while_its_last_drive_ends_is_driven_on_and_heard_of(
    tmp_path: Path, moment: str
) -> None:
    async with rig(tmp_path) as parts:
        job_id = await parts.submit("echo once\nexit 3\n", retries=1)
        if moment == "before the drive looks again":
            parts.gated.hold_before = lambda: parts.state_now(job_id) is JobState.PENDING
        else:
            parts.gated.hold_after = lambda held: (
                isinstance(held, store.LeasedJob) and held.state is JobState.PENDING
            )
        await parts.place()
        with anyio.fail_after(60):
            await parts.gated.reached.wait()
        await parts.add_pool("north")
        await parts.pools.drain("lab")
        await parts.place()
        parts.gated.gate.set()
        job = await parts.until(job_id, JobState.FAILED)
        assert [attempt.pool_name for attempt in job.attempts] == ["lab", "north"]
        assert [attempt.exit_code for attempt in job.attempts] == [3, 3]


async def test_a_lease_that_nobody_drives_is_let_go_and_taken_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(driver, "HEARTBEAT_S", 0.1)
    async with rig(tmp_path) as parts:
        busy = await parts.submit("sleep 60\n")
        await parts.place()
        await parts.until(busy, JobState.RUNNING)
        forgotten = await parts.submit("true\n")
        await parts.place(drive=False)
        assert (await parts.row(forgotten)).lease_owner == OWNER
        await parts.until(forgotten, JobState.SUCCEEDED)


async def test_output_comes_home_when_the_launch_was_heard_and_never_recorded(tmp_path: Path) -> None:
    async with rig(tmp_path) as parts:
        job_id = await parts.submit("echo hello\nsleep 60\n")
        await parts.place(drive=False)
        held = await parts.database.read(lambda c: store.read_held(c, job_id, parts.won[job_id]))
        assert held is not None
        order = LaunchOrder(
            allocation_id=held.allocation_id,
            token=held.token,
            project_id=held.order.demand.project_id,
            node_id=held.node_id,
            resources=held.resources,
            steps=held.order.steps,
        )
        await parts.pools.launch(held.pool_id, order, ())
        await parts.database.write(
            lambda c: c.execute(JOBS.update().where(JOBS.c.id == job_id).values(stop_requested=True))
        )
        parts.driver.take(job_id, held.token)
        job = await parts.until(job_id, JobState.STOPPED)
        assert job.attempts[0].log_bytes == len("hello\n")


async def test_a_refused_launch_leaves_neither_a_lease_nor_the_files_that_came_before_it(
    tmp_path: Path,
) -> None:
    async with rig(tmp_path) as parts, anyio.create_task_group() as tasks:
        archive = _archive("word", b"canal\n")
        blob_id = await parts.blobs.put("project/default", _once(archive))
        mount = Mount(path="data", blob_id=blob_id, size_bytes=len(archive))
        job_id = await parts.submit("what is this\n", mounts=(mount,))
        await parts.place()
        job = await parts.until(job_id, JobState.PENDING)
        assert job.attempts[0].ending == "refused"
        assert (await parts.row(job_id)).lease_owner == ""
        (known,) = parts.site().pool.observation().allocations
        assert known.phase is Phase.PREPARING
        tasks.start_soon(parts.releaser.run)
        with anyio.fail_after(60):
            while parts.site().pool.observation().allocations:
                await anyio.sleep(0.02)
        tasks.cancel_scope.cancel()


async def test_a_job_refused_everywhere_fails_and_is_nobodys(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(steps, "REFUSED_PAUSE_S", 0.0)
    async with rig(tmp_path) as parts:
        pools = ["lab", "north", "south", "east", "west"]
        for name in pools[1:]:
            await parts.add_pool(name)
        job_id = await parts.submit("what is this\n")
        for _ in pools:
            await parts.place()
            await parts.until(job_id, JobState.PENDING, JobState.FAILED)
        job = await parts.until(job_id, JobState.FAILED)
        assert len(job.attempts) == len(pools)
        assert (await parts.row(job_id)).lease_owner == ""


class Refusals:
    """Has fake pools refuse launches while a test wants them to."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.on = True
        launch = FakePool.launch

        def launch_or_refuse(pool: FakePool, order: LaunchOrder, *, crash: bool = False) -> None:
            if self.on:
                raise DiskFullError("No room left.")
            launch(pool, order, crash=crash)

        monkeypatch.setattr(FakePool, "launch", launch_or_refuse)


async def test_a_job_refused_by_the_only_pool_is_tried_there_again_and_holds_up_nobody(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    refusals = Refusals(monkeypatch)
    async with rig(tmp_path) as parts:
        unlucky = await parts.submit("true\n")
        await parts.place()
        await parts.until(unlucky, JobState.PENDING)
        refusals.on = False
        lucky = await parts.submit("true\n")
        await parts.place()
        await parts.until(lucky, JobState.SUCCEEDED)
        job = await parts.until(unlucky, JobState.SUCCEEDED)
        assert [attempt.ending for attempt in job.attempts] == ["turned-away", "done"]


async def test_attempts_that_ran_do_not_count_as_refusals(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    refusals = Refusals(monkeypatch)
    refusals.on = False
    async with rig(tmp_path) as parts:
        job_id = await parts.submit("exit 3\n", retries=9)
        for _ in range(steps.PLACEMENT_TRIES):
            await parts.place()
            await parts.until(job_id, JobState.PENDING)
        refusals.on = True
        await parts.place()
        job = await parts.until(job_id, JobState.PENDING, JobState.FAILED)
        assert (job.state, job.attempts[-1].ending) == (JobState.PENDING, "turned-away")


async def test_an_unknown_node_is_a_refusal_and_not_an_unknown_end(tmp_path: Path) -> None:
    async with rig(tmp_path) as parts:
        job_id = await parts.submit("true\n")
        await parts.place(drive=False)
        await parts.database.write(
            lambda c: c.execute(ALLOCATIONS.update().values(node_id=ALLOCATIONS.c.pool_id + "/renamed"))
        )
        parts.driver.take(job_id, parts.won[job_id])
        job = await parts.until(job_id, JobState.PENDING)
        assert job.attempts[0].ending == "turned-away"


async def test_a_resize_that_came_too_late_does_not_reach_the_next_attempt(tmp_path: Path) -> None:
    async with rig(tmp_path) as parts:
        job_id = await parts.submit("sleep 1\nexit 3\n", retries=1)
        await parts.place()
        job = await parts.until(job_id, JobState.RUNNING)
        parts.site().faults.inject("resize", *[Fault.UNHEARD] * 100)
        node_id = job.attempts[0].node_id
        totals = {node_id: Resources(cpu_millis=8000, memory_mib=16_384, disk_mib=100_000)}
        wanted = Resources(cpu_millis=3000)
        await parts.database.write(lambda c: resizing.intend(c, job_id, wanted, totals, 0.0))
        parts.driver.poke(job_id)
        await parts.until(job_id, JobState.PENDING)
        await parts.place()
        job = await parts.until(job_id, JobState.FAILED)
        assert [attempt.resources.cpu_millis for attempt in job.attempts] == [1000, 1000]
        row = await parts.row(job_id)
        assert (row.resize_to, row.resize_problem) == (None, "it ended first")


def _archive(name: str, content: bytes) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as archive:
        member = tarfile.TarInfo(name)
        member.size = len(content)
        archive.addfile(member, io.BytesIO(content))
    return buffer.getvalue()


async def _once(data: bytes) -> AsyncIterator[bytes]:
    yield data
