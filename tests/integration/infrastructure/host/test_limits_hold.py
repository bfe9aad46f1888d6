"""Everything a task causes is inside its limits: its files, archives, output, processes and what is left of it."""

import gzip
import io
import os
import signal
import tarfile
import time
from contextlib import suppress
from hashlib import sha256
from pathlib import Path

import anyio
import pytest

from integration.infrastructure.host.orders import ended, launched, log_of, order_for, running, until
from support.agent_processes import helpers, left_behind, wrappers
from support.agent_roots import kill_daemon
from yunhe.agent.files.mounts import detach, mounts_below
from yunhe.agent.limits.limits import find_backend
from yunhe.agent.runs.processes import read_stat
from yunhe.conformance.caller import archive_of, chunks_of, fetch
from yunhe.infrastructure.contract.model import Ending, LaunchOrder, Upload
from yunhe.infrastructure.host.engine import HostEngine
from yunhe.kernel.errors import PoolUnreachableError, TooLargeError
from yunhe.kernel.resources import Resources

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.skipif(os.geteuid() != 0, reason="needs root: control groups and mounts"),
]
MIB = 2**20
NEST = 'python3 -c \'import os\nfor _ in range(3000):\n os.mkdir("d"); os.chdir("d")\''

OVER = {
    "a-file": "head -c 40M /dev/zero > big; sleep 30",
    "an-unlinked-file": "exec 3> big; rm big; head -c 40M /dev/zero >&3; sleep 30",
    "tmp": "head -c 40M /dev/zero > /tmp/big; sleep 30",
    "var-tmp": "head -c 40M /dev/zero > /var/tmp/big; sleep 30",
    "a-path-over-PATH_MAX": f'{NEST[:-1]}\nopen("f", "wb").write(bytes(40 << 20))\'; sleep 30',
    "many-files": "python3 -c 'import os\nfor n in range(99999): os.mkdir(str(n))' 2>/dev/null; sleep 30",
}


@pytest.mark.parametrize("case", OVER)
async def test_whatever_a_task_writes_counts(engine: HostEngine, case: str) -> None:
    order = await launched(engine, OVER[case], disk_limit_bytes=12 * MIB)
    assert (await ended(engine, order.allocation_id)).ending is Ending.DISK_FULL


async def test_a_task_that_fails_for_want_of_room_is_told_so(engine: HostEngine) -> None:
    order = await launched(engine, "head -c 40M /dev/zero > big", disk_limit_bytes=12 * MIB)
    seen = await ended(engine, order.allocation_id)
    assert (seen.ending, seen.exit_code) == (Ending.DISK_FULL, 1)


async def test_a_task_may_use_all_of_its_disk(engine: HostEngine) -> None:
    order = await launched(engine, "head -c 30M /dev/zero > big && sync big", disk_limit_bytes=31 * MIB)
    seen = await ended(engine, order.allocation_id)
    assert (seen.ending, seen.exit_code) == (Ending.DONE, 0)


async def test_files_survive_a_killed_daemon_and_a_restarted_host_and_go_with_the_release(
    engine: HostEngine, root: Path
) -> None:
    order = await launched(engine, "echo kept > out.txt; mkdir deep; cd deep; " + NEST)
    await ended(engine, order.allocation_id)
    assert len(mounts_below(str(root))) == 3
    kill_daemon(root)
    for point in mounts_below(str(root)):
        detach(point)  # as after a restart of the host
    with pytest.raises(PoolUnreachableError):
        await engine.observe()
    assert await fetch(engine, order.allocation_id, "*.txt") == {"out.txt": b"kept\n"}
    with pytest.raises(TooLargeError):
        await fetch(engine, order.allocation_id, "deep")
    await engine.release(order.allocation_id, 1)
    with anyio.fail_after(20):
        while left_behind(root) or mounts_below(str(root)):
            await anyio.sleep(0.05)


async def test_what_a_killed_daemon_was_removing_is_removed(engine: HostEngine, root: Path) -> None:
    order = await launched(engine, "true")
    await ended(engine, order.allocation_id)
    (root / "runs" / order.allocation_id).rename(root / "trash" / "orphan.1")
    kill_daemon(root)
    with pytest.raises(PoolUnreachableError):
        await engine.observe()
    await engine.observe()
    with anyio.fail_after(20):
        while mounts_below(str(root)) or list((root / "trash").iterdir()):
            await anyio.sleep(0.05)


def upload_of(order: LaunchOrder, archive: bytes, disk_mib: int) -> Upload:
    return Upload(
        allocation_id=order.allocation_id,
        token=1,
        project_id=order.project_id,
        path="data",
        digest=sha256(archive).hexdigest(),
        size_bytes=len(archive),
        resources=Resources(cpu_millis=200, memory_mib=64, disk_mib=disk_mib),
    )


def zeros(size_mib: int) -> bytes:
    """Return an archive of some kilobytes that unpacks to as many MiB."""
    output = io.BytesIO()
    with gzip.GzipFile(fileobj=output, mode="wb", compresslevel=1) as file:
        member = tarfile.TarInfo("zeros")
        member.size = size_mib * MIB
        file.write(member.tobuf())
        for _ in range(size_mib):
            file.write(bytes(MIB))
        file.write(bytes(1024))
    return output.getvalue()


async def test_an_archive_takes_no_more_disk_than_its_task_may(engine: HostEngine, root: Path) -> None:
    order = await order_for(engine, "true")
    bomb = zeros(60)
    with pytest.raises(TooLargeError):
        await engine.put_archive(upload_of(order, bomb, 16), chunks_of(bomb))
    with anyio.fail_after(20):
        while left_behind(root) or mounts_below(str(root)):
            await anyio.sleep(0.05)


async def test_a_large_upload_holds_up_nobody_else_and_runs_in_its_own_group(
    engine: HostEngine, root: Path
) -> None:
    slow, quick = await order_for(engine, "true", project="slow"), await order_for(engine, "true")
    large, small = zeros(600), archive_of({"a": b"a"})

    async def upload() -> None:
        with suppress(PoolUnreachableError):  # who stops the allocation kills what unpacks it
            await engine.put_archive(upload_of(slow, large, 4000), chunks_of(large))

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(upload)
        group = find_backend(str(root)).group(slow.allocation_id)
        with anyio.fail_after(20):
            while not (unpacking := set(group.processes()) & set(helpers(root))):
                await anyio.sleep(0.01)
        for pid in unpacking:
            os.kill(pid, signal.SIGSTOP)  # so it is surely not over before the quick one
        with anyio.fail_after(10):
            await engine.put_archive(upload_of(quick, small, 16), chunks_of(small))
        assert unpacking <= set(group.processes())
        await engine.stop(slow.allocation_id, 1)
        with anyio.fail_after(10):
            while group.processes():
                await anyio.sleep(0.01)
        tasks.cancel_scope.cancel()


async def test_globbing_runs_in_the_tasks_group_and_ends_with_who_asked(
    engine: HostEngine, root: Path
) -> None:
    script = "python3 -c 'import os\nfor n in range(30000): os.mkdir(str(n))'; echo made; sleep 60"
    order = await launched(engine, script, disk_limit_bytes=2**32)
    await until(engine, order.allocation_id, lambda seen: seen.log_bytes > 0)
    group, beside = find_backend(str(root)).group(order.allocation_id), set(wrappers(root))
    pattern = "/".join(["**"] * 200 + ["nothing"])
    packing: set[int] = set()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(fetch, engine, order.allocation_id, pattern)
        with anyio.fail_after(10):
            while not (packing := set(helpers(root)) - beside):
                await anyio.sleep(0.005)
            while not packing <= set(group.processes()):
                await anyio.sleep(0.005)
        tasks.cancel_scope.cancel()
    with anyio.fail_after(5):
        while packing & set(helpers(root)):
            await anyio.sleep(0.01)


BOMBS = {
    "bash": "b() { b | b & }; b; sleep 600",
    "deaf": "trap '' TERM; b() { b | b & }; b; while :; do :; done",
}


@pytest.mark.parametrize("case", BOMBS)
async def test_a_fork_bomb_ends_within_five_seconds_of_a_stop(
    engine: HostEngine, root: Path, case: str
) -> None:
    order = await launched(engine, BOMBS[case], cpu_millis=300)
    group = find_backend(str(root)).group(order.allocation_id)
    with anyio.fail_after(60):
        while len(group.processes()) < 80:
            await anyio.sleep(0.1)
    began = time.monotonic()
    await engine.stop(order.allocation_id, 1, grace_s=10.0)
    seen = await ended(engine, order.allocation_id)
    assert time.monotonic() - began < 5
    assert seen.ending is Ending.STOPPED
    assert group.processes() == []


async def test_a_flood_of_output_is_moved_within_the_tasks_limits(engine: HostEngine, root: Path) -> None:
    order = await launched(engine, "timeout 4 yes 0123456789abcdef; echo the end", cpu_millis=500)
    await running(engine, order.allocation_id)
    (wrapper,) = wrappers(root)
    await anyio.sleep(3)
    stat = read_stat(wrapper)
    assert stat is not None
    seen = await ended(engine, order.allocation_id)
    assert seen.log_bytes > 4 * MIB, "that is no flood"
    assert stat.cpu_us < 600_000, "the wrapper, which nobody limits, moved it"
    assert seen.meters.cpu_us < 3_500_000
    last = b"".join(
        [chunk.data async for chunk in engine.logs(order.allocation_id, offset=seen.log_bytes - 100)]
    )
    assert last.endswith(b"\nthe end\n")


async def test_output_is_whole_when_its_writer_changes(engine: HostEngine) -> None:
    script = "for i in 1 2 3 4 5; do seq 1 60000; sleep 0.1; done"
    order = await launched(engine, script)
    await ended(engine, order.allocation_id)
    lines = "".join(f"{number}\n" for number in range(1, 60001)).encode()
    assert await log_of(engine, order.allocation_id) == lines * 5


async def test_the_agent_tells_which_limits_are_kept(engine: HostEngine) -> None:
    told = {guard.name: guard.kept for guard in (await engine.describe()).guards}
    assert told["file system of the disk limit's size"]
    assert told["limits of CPU and memory"]


async def test_a_task_without_a_disk_limit_takes_a_file_system_made_ahead_and_another_is_made(
    engine: HostEngine, root: Path
) -> None:
    await engine.inventory()
    first = await spare_of(root)
    order = await launched(engine, "df --output=size . | tail -1")
    seen = await ended(engine, order.allocation_id)
    assert seen.exit_code == 0
    assert int(await log_of(engine, order.allocation_id)) > 15 << 20
    assert await made_from(root / "runs" / order.allocation_id / "scratch.img") == first
    assert await spare_of(root) != first


async def made_from(path: Path) -> int:
    return (await anyio.Path(path).stat()).st_ino


async def spare_of(root: Path) -> int:
    """Return which file is the file system made ahead, once there is one."""
    with anyio.fail_after(30):
        while True:
            for path in (root / "spare").glob("*.img"):
                return await made_from(path)
            await anyio.sleep(0.05)
