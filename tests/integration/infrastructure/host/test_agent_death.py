"""The agent and its wrappers may die at any step: nothing is lost, and nothing is run twice without being told."""

import contextlib
import os
import signal
from collections.abc import Awaitable, Callable
from hashlib import sha256
from pathlib import Path

import anyio
import pytest

from integration.infrastructure.host.orders import (
    ended,
    launched,
    log_of,
    look,
    order_for,
    processes_of,
    running,
)
from support.agent_roots import daemon_pid, kill_daemon
from yunhe.agent import failpoints
from yunhe.conformance.caller import archive_of, chunks_of
from yunhe.infrastructure.contract.model import Ending, LaunchOrder, Observed, Phase, Upload
from yunhe.infrastructure.host.engine import HostEngine
from yunhe.infrastructure.host.target import DeclaredNode, LocalHost
from yunhe.kernel.errors import ConflictError, PoolUnreachableError
from yunhe.kernel.ids import AllocationId
from yunhe.kernel.resources import Resources

pytestmark = pytest.mark.anyio


async def test_a_task_outlives_its_agent_and_what_happened_is_told_by_the_next(
    engine: HostEngine, root: Path
) -> None:
    order = await launched(engine, "echo one; sleep 1; echo two; exit 5")
    await anyio.sleep(0.3)
    kill_daemon(root)
    await anyio.sleep(1.5)
    assert daemon_pid(root) is None
    with pytest.raises(PoolUnreachableError):
        await engine.observe()
    seen = await ended(engine, order.allocation_id)
    assert (seen.ending, seen.exit_code) == (Ending.DONE, 5)
    assert await log_of(engine, order.allocation_id) == b"one\ntwo\n"
    assert seen.meters.wall_ms >= 1000


async def test_a_timeout_is_kept_while_no_agent_lives(engine: HostEngine, root: Path) -> None:
    order = await launched(engine, "sleep 60", timeout_s=1.0)
    await anyio.sleep(0.3)
    kill_daemon(root)
    await anyio.sleep(1.5)
    seen = await ended(engine, order.allocation_id, within_s=5)
    assert seen.ending is Ending.TIMED_OUT
    assert seen.meters.wall_ms < 2000


async def test_limits_commanded_before_a_crash_hold_after_it(engine: HostEngine, root: Path) -> None:
    order = await launched(engine, "sleep 60")
    await running(engine, order.allocation_id)
    await engine.resize(order.allocation_id, 1, Resources(cpu_millis=300, memory_mib=64))
    await engine.pause(order.allocation_id, 1)
    kill_daemon(root)
    seen = await again(engine, order.allocation_id)
    assert seen.phase is Phase.PAUSED
    assert seen.resources == Resources(cpu_millis=300, memory_mib=64)


async def test_a_wrapper_that_is_killed_leaves_an_unknown_and_no_process(
    engine: HostEngine, root: Path
) -> None:
    order = await launched(engine, "sleep 77.25 & sleep 77.25")
    await running(engine, order.allocation_id)
    os.kill(wrapper_pid(root, order.allocation_id), signal.SIGKILL)
    seen = await ended(engine, order.allocation_id)
    assert seen.phase is Phase.UNKNOWN
    assert "without recording" in seen.detail
    assert processes_of("sleep 77.25") == []


@pytest.mark.parametrize("name", failpoints.ALL)
async def test_a_death_at_any_step_runs_nothing_twice_and_leaves_nothing_over(root: Path, name: str) -> None:
    marks = root.parent / "marks"
    marks.mkdir()
    shared = root.parent / "shared"
    shared.mkdir()
    shared.chmod(0o777)
    witness = shared / "witness"
    witness.touch()
    witness.chmod(0o666)
    environment = {"YUNHE_FAILPOINT": name, "YUNHE_FAILPOINT_DIR": str(marks)}
    async with HostEngine(
        LocalHost(root=str(root), environment=environment, declared=DeclaredNode(writable=(str(shared),)))
    ) as engine:
        order = await order_for(engine, f"echo start >> {witness}", f"sleep 0.4; echo end >> {witness}")
        if name in {"before-unpack", "after-unpack"}:
            archive = archive_of({"a.txt": b"alpha"})
            upload = upload_of(order, archive)
            await insist(lambda: engine.put_archive(upload, chunks_of(archive)))
        await insist(lambda: engine.launch(order))
        if name in {"before-stop-record", "after-stop-record"}:
            await insist(lambda: engine.stop(order.allocation_id, 1))
        if name in {"before-resize", "after-resize"}:
            await running(engine, order.allocation_id)
            with contextlib.suppress(ConflictError):  # the task may end while the agent is away
                await insist(lambda: engine.resize(order.allocation_id, 1, order.resources))
        seen = await ended(engine, order.allocation_id)
        minutes = [minute async for minute in engine.usage()]
        await insist(lambda: engine.release(order.allocation_id, 1))
        await anyio.sleep(0.1)
        assert (marks / name).exists(), "the failpoint was not reached"
        starts = witness.read_text().splitlines().count("start")
        assert starts <= 1
        if seen.phase is Phase.UNKNOWN:
            assert name in {"after-claim", "before-spawn", "after-spawn", *failpoints.WRAPPER}
        else:
            assert starts == 1 or seen.ending is Ending.STOPPED
        assert len({(minute.allocation_id, minute.minute) for minute in minutes}) == len(minutes)
        assert list((root / "runs").iterdir()) == []
        with anyio.fail_after(10):  # what is thrown away is removed behind the answer
            while any((root / "trash").iterdir()):
                await anyio.sleep(0.05)


def upload_of(order: LaunchOrder, archive: bytes) -> Upload:
    return Upload(
        allocation_id=order.allocation_id,
        token=1,
        project_id=order.project_id,
        path="data",
        digest=sha256(archive).hexdigest(),
        size_bytes=len(archive),
    )


async def insist(call: Callable[[], Awaitable[None]]) -> None:
    """Repeat a call until it is heard, as the platform does."""
    with anyio.fail_after(20):
        while True:
            try:
                await call()
            except PoolUnreachableError:
                await anyio.sleep(0.05)
            else:
                return


async def again(engine: HostEngine, allocation_id: AllocationId) -> Observed:
    with pytest.raises(PoolUnreachableError):
        await engine.observe()
    return await look(engine, allocation_id)


def wrapper_pid(root: Path, allocation_id: str) -> int:
    record = (root / "runs" / allocation_id / "start.json").read_text()
    return int(record.split('"pid":')[1].split(",")[0])
