"""Tasks in containers: the image's files and variables, and everything else as for a task without one."""

import os
import signal
import socket
from collections.abc import AsyncGenerator, Generator
from pathlib import Path

import anyio
import pytest

from integration.infrastructure.host.orders import (
    ended,
    files_with,
    launched,
    log_of,
    look,
    processes_of,
    running,
    until,
)
from integration.infrastructure.host.test_pythons import interpreter
from support.agent_processes import left_behind, wrappers
from support.agent_roots import agent_root, kill_daemon
from support.containers import IMAGE, ContainerStore, container_store
from yunhe.infrastructure.contract.model import Ending, ExecRequest, LaunchOrder, Phase, Power
from yunhe.infrastructure.host.engine import HostEngine
from yunhe.infrastructure.host.target import LocalHost
from yunhe.kernel.errors import InvalidInputError, PoolUnreachableError, UnsupportedError
from yunhe.kernel.resources import Resources

pytestmark = [pytest.mark.anyio, pytest.mark.drives("host agent with podman")]

SECRET = "hush-77b1e0c4d2"


@pytest.fixture(scope="module")
def store() -> Generator[ContainerStore, None, None]:
    with container_store() as store:
        yield store


@pytest.fixture(scope="module")
def root(store: ContainerStore) -> Generator[Path, None, None]:
    with agent_root() as root:
        yield root


@pytest.fixture
async def engine(root: Path, store: ContainerStore) -> AsyncGenerator[HostEngine, None]:
    async with HostEngine(LocalHost(root=str(root), environment=store.environment)) as engine:
        yield engine
        known = (await engine.observe()).allocations
        for seen in known:
            await engine.stop(seen.allocation_id, 1, grace_s=0)
        for seen in known:
            await ended(engine, seen.allocation_id)
            await engine.release(seen.allocation_id, 1)


async def contained(engine: HostEngine, *scripts: str, **fields: object) -> LaunchOrder:
    return await launched(engine, *scripts, **{"image": IMAGE, **fields})


async def said_by(engine: HostEngine, order: LaunchOrder, *argv: str) -> bytes:
    async with engine.exec(order.allocation_id, ExecRequest(argv=argv)) as session:
        output = b""
        while piece := await session.receive():
            output += piece
        return output


async def until_gone(store: ContainerStore) -> None:
    with anyio.move_on_after(20):
        while store.containers():
            await anyio.sleep(0.1)
    assert store.containers() == []


# What it finds


async def test_it_finds_the_images_files_and_its_own_directory(engine: HostEngine, root: Path) -> None:
    order = await contained(engine, 'cat /etc/where; echo kept > here; pwd; echo "$HOME"; ls /root')
    await ended(engine, order.allocation_id)
    work = f"{root}/runs/{order.allocation_id}/work"
    lines = (await log_of(engine, order.allocation_id)).decode().splitlines()
    assert lines[:3] == ["this is the image", work, work]
    assert "No such file" in lines[3]
    assert files_with("kept", root / "runs" / order.allocation_id / "work") == f"{work}/here\n"


async def test_its_user_exists_for_the_system(engine: HostEngine, root: Path) -> None:
    order = await contained(engine, "id -un; whoami; grep ^task: /etc/passwd")
    await ended(engine, order.allocation_id)
    said = (await log_of(engine, order.allocation_id)).decode().splitlines()
    assert said[:2] == ["task", "task"]
    assert f"{root}/runs/{order.allocation_id}/work:/bin/sh" in said[2]


async def test_its_variables_win_over_the_images_and_the_images_over_the_hosts(engine: HostEngine) -> None:
    script = 'echo "$GREETING $EPOCHS $YUNHE_CPU_MILLIS"'
    plain = await contained(engine, script, envs={"EPOCHS": "3"})
    chosen = await contained(engine, script, secrets={"GREETING": "mine"})
    await ended(engine, plain.allocation_id)
    await ended(engine, chosen.allocation_id)
    assert await log_of(engine, plain.allocation_id) == b"from-the-image 3 1000\n"
    assert await log_of(engine, chosen.allocation_id) == b"mine  1000\n"


async def test_it_is_its_projects_user_without_privileges_and_sees_only_its_own_processes(
    engine: HostEngine,
) -> None:
    script = "id -u; id -G; umask; grep -E 'NoNewPrivs|CapEff|CapPrm' /proc/self/status | tr -d '\\n'; echo; ls /proc | grep -c '^[0-9]'"
    inside = await contained(engine, script)
    await ended(engine, inside.allocation_id)
    beside = await launched(engine, "id -u")
    await ended(engine, beside.allocation_id)
    lines = (await log_of(engine, inside.allocation_id)).decode().splitlines()
    assert lines[0] == lines[1] == (await log_of(engine, beside.allocation_id)).decode().strip()
    assert int(lines[0]) >= 700_000
    assert lines[2] == "0077"
    assert lines[3] == "CapPrm:\t" + "0" * 16 + "CapEff:\t" + "0" * 16 + "NoNewPrivs:\t1"
    assert int(lines[4]) < 10, "it sees the host's processes"


async def test_a_program_that_looks_for_its_limits_finds_them(engine: HostEngine) -> None:
    script = "cat /sys/fs/cgroup/memory/memory.limit_in_bytes /sys/fs/cgroup/memory.max 2>/dev/null; sleep 60"
    order = await contained(engine, script)
    await until(engine, order.allocation_id, lambda seen: seen.log_bytes > 0)
    assert await log_of(engine, order.allocation_id) == b"%d\n" % (256 << 20)


async def test_a_command_beside_it_is_in_the_same_container(engine: HostEngine) -> None:
    order = await contained(engine, "echo $$; sleep 60")
    await until(engine, order.allocation_id, lambda seen: seen.log_bytes > 0)
    pid = (await log_of(engine, order.allocation_id)).decode().strip()
    output = await said_by(
        engine, order, "sh", "-c", f"cat /etc/where; echo $GREETING; tr '\\0' ' ' < /proc/{pid}/cmdline"
    )
    assert output.startswith(b"this is the image\nfrom-the-image\n/bin/sh ")


async def test_the_oldest_python_enters_containers_too(store: ContainerStore) -> None:
    with agent_root() as root:
        host = LocalHost(root=str(root), python=interpreter("3.8"), environment=store.environment)
        async with HostEngine(host) as engine:
            order = await contained(engine, "cat /etc/where; sleep 60")
            await until(engine, order.allocation_id, lambda seen: seen.log_bytes > 0)
            assert await said_by(engine, order, "cat", "/etc/where") == b"this is the image\n"
            await engine.stop(order.allocation_id, 1, grace_s=0)
            assert (await ended(engine, order.allocation_id)).ending is Ending.STOPPED


# One lifecycle


async def test_a_resize_is_felt_by_the_same_process_inside(engine: HostEngine, root: Path) -> None:
    script = "echo $$; trap 'cat /sys/fs/cgroup/*/memory.limit_in_bytes; echo $$; exit' USR1; while :; do sleep 0.1; done"
    order = await contained(engine, script)
    await until(engine, order.allocation_id, lambda seen: seen.log_bytes > 0)
    before = process_in_group(order, root)
    await engine.resize(order.allocation_id, 1, Resources(cpu_millis=300, memory_mib=96))
    assert process_in_group(order, root) == before
    os.kill(before, signal.SIGUSR1)
    await ended(engine, order.allocation_id)
    first, limit, last = (await log_of(engine, order.allocation_id)).decode().split()
    assert (first, limit) == (last, str(96 << 20))


def process_in_group(order: LaunchOrder, root: Path) -> int:
    """Return the host's number for the script of *order*."""
    step = f"{root}/runs/{order.allocation_id}/steps/00"
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            words = (folder / "cmdline").read_bytes().split(b"\0")
        except OSError:
            continue
        if step.encode() in words:
            return int(folder.name)
    raise AssertionError("the script does not run")


async def test_more_memory_than_asked_ends_it_and_the_peak_is_told(
    engine: HostEngine, store: ContainerStore
) -> None:
    order = await contained(engine, "head -c 400000000 /dev/zero | tail")
    seen = await ended(engine, order.allocation_id)
    assert seen.ending is Ending.OUT_OF_MEMORY
    assert 250 <= seen.meters.memory_peak_mib <= 256
    await until_gone(store)


async def test_what_it_writes_in_the_container_counts_as_its_disk(engine: HostEngine) -> None:
    order = await contained(
        engine, "head -c 60000000 /dev/zero > /shared/x; sleep 60", disk_limit_bytes=20 << 20
    )
    assert (await ended(engine, order.allocation_id)).ending is Ending.DISK_FULL


async def test_the_engines_own_work_is_not_billed(engine: HostEngine) -> None:
    order = await contained(engine, "sleep 1")
    seen = await ended(engine, order.allocation_id)
    assert seen.meters.cpu_us < 100_000
    assert seen.meters.written_bytes < 100_000


async def test_it_outlives_its_agent_and_its_container_is_gone_after_it(
    engine: HostEngine, root: Path, store: ContainerStore
) -> None:
    order = await contained(engine, "echo one; while [ ! -e go ]; do sleep 0.1; done; echo two; exit 5")
    await until(engine, order.allocation_id, lambda seen: seen.log_bytes > 0)
    kill_daemon(root)
    assert store.containers() == [f"yunhe-{order.allocation_id}"]
    with pytest.raises(PoolUnreachableError):
        await engine.observe()
    assert (await look(engine, order.allocation_id)).phase is Phase.RUNNING
    assert await said_by(engine, order, "cat", "/etc/where") == b"this is the image\n"
    await said_by(engine, order, "touch", "go")
    seen = await ended(engine, order.allocation_id)
    assert (seen.ending, seen.exit_code) == (Ending.DONE, 5)
    assert await log_of(engine, order.allocation_id) == b"one\ntwo\n"
    await until_gone(store)
    await engine.release(order.allocation_id, 1)
    with anyio.fail_after(10):
        while left_behind(root):
            await anyio.sleep(0.1)


async def test_without_its_wrapper_it_is_unknown_and_nothing_of_it_runs_on(
    engine: HostEngine, root: Path, store: ContainerStore
) -> None:
    order = await contained(engine, "echo started; sleep 60")
    await until(engine, order.allocation_id, lambda seen: seen.log_bytes > 0)
    (wrapper,) = wrappers(root)
    os.kill(wrapper, signal.SIGKILL)
    seen = await ended(engine, order.allocation_id)
    assert seen.phase is Phase.UNKNOWN
    await until_gone(store)


async def test_a_container_that_nobody_owns_is_removed_by_the_next_agent(
    engine: HostEngine, root: Path, store: ContainerStore
) -> None:
    order = await contained(engine, "echo started; sleep 60")
    await until(engine, order.allocation_id, lambda seen: seen.log_bytes > 0)
    (wrapper,) = wrappers(root)
    kill_daemon(root)
    os.kill(wrapper, signal.SIGKILL)
    assert store.containers() == [f"yunhe-{order.allocation_id}"]
    with pytest.raises(PoolUnreachableError):
        await engine.observe()
    assert (await look(engine, order.allocation_id)).phase is Phase.UNKNOWN
    await until_gone(store)


# Kept apart


async def test_a_secret_is_known_to_no_engine_and_lies_on_no_disk(
    engine: HostEngine, root: Path, store: ContainerStore
) -> None:
    script = f"test \"$TOKEN\" = {SECRET[:6]}'{SECRET[6:]}' && echo got it; sleep 60"
    order = await contained(engine, script, secrets={"TOKEN": SECRET})
    await until(engine, order.allocation_id, lambda seen: seen.log_bytes > 0)
    name = f"yunhe-{order.allocation_id}"
    assert await log_of(engine, order.allocation_id) == b"got it\n"
    assert SECRET not in store.podman("inspect", name)
    assert processes_of(SECRET) == []
    assert files_with(SECRET, root) == ""
    assert files_with(SECRET, Path(store.environment["CONTAINERS_CONF"]).parent) == ""
    assert await said_by(engine, order, "sh", "-c", "echo [$TOKEN]") == b"[]\n"


async def test_another_project_can_read_nothing_of_it(engine: HostEngine, root: Path) -> None:
    victim = await contained(
        engine, "echo mine > note.txt; echo mine > /shared/note.txt; echo said; sleep 60", project="victim"
    )
    await until(engine, victim.allocation_id, lambda seen: seen.log_bytes > 0)
    run = f"{root}/runs/{victim.allocation_id}"
    first = process_in_group(victim, root)
    paths = f"{run}/work/note.txt {run}/steps/00 {run}/container.json /shared/note.txt"
    paths += f" /proc/{first}/root/shared/note.txt /proc/{first}/cwd/note.txt"
    assert os.path.exists(f"/proc/{first}/root/shared/note.txt"), "root could read it"  # noqa: ASYNC240, PTH110
    script = f"for path in {paths}; do cat $path 2>/dev/null && echo LEAK $path; done; kill -9 -1; true"
    for fields in ({"image": IMAGE}, {}):
        thief = await launched(engine, script, project="thief", **fields)
        await ended(engine, thief.allocation_id)
        assert b"LEAK" not in await log_of(engine, thief.allocation_id)
    assert (await look(engine, victim.allocation_id)).phase is Phase.RUNNING


# What cannot be had


async def test_an_image_that_is_nowhere_is_told_with_the_engines_reason(
    engine: HostEngine, store: ContainerStore
) -> None:
    order = await contained(engine, "echo never", image="localhost/no-such-image:7")
    seen = await ended(engine, order.allocation_id)
    assert (seen.phase, seen.ending, seen.exit_code) == (Phase.EXITED, Ending.DONE, 125)
    assert seen.detail.startswith("could not start: no container of image localhost/no-such-image:7: ")
    assert "refused" in seen.detail, "the engine's own reason is missing"
    assert (seen.log_bytes, store.containers()) == (0, [])


async def test_an_image_that_takes_for_ever_to_come_can_be_stopped(engine: HostEngine) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        order = await contained(engine, "echo never", image=f"127.0.0.1:{silent.getsockname()[1]}/x:1")
        await anyio.sleep(1.0)
        assert (await look(engine, order.allocation_id)).phase is Phase.STARTING
        await engine.stop(order.allocation_id, 1)
        seen = await ended(engine, order.allocation_id)
    assert (seen.ending, seen.exit_code, seen.log_bytes) == (Ending.STOPPED, None, 0)


async def test_an_image_that_takes_too_long_to_come_has_timed_out(engine: HostEngine) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        image = f"127.0.0.1:{silent.getsockname()[1]}/x:1"
        order = await contained(engine, "echo never", image=image, timeout_s=1.0)
        assert (await ended(engine, order.allocation_id)).ending is Ending.TIMED_OUT


async def test_a_name_that_would_be_an_option_is_refused(engine: HostEngine) -> None:
    for image in ("--privileged", "-v/:/host", "a b", "a;b"):
        with pytest.raises(InvalidInputError, match="image"):
            await contained(engine, "true", image=image)


async def test_a_host_whose_engine_does_not_work_says_so_and_runs_the_rest(tmp_path: Path) -> None:
    for name in ("podman", "docker"):
        (tmp_path / name).write_text(f"#!/bin/sh\necho the {name} of this test is broken >&2\nexit 3\n")
        (tmp_path / name).chmod(0o755)
    environment = {"PATH": f"{tmp_path}:{os.environ['PATH']}"}
    with agent_root() as root:
        async with HostEngine(LocalHost(root=str(root), environment=environment)) as engine:
            description = await engine.describe()
            assert Power.IMAGES not in description.powers
            reason = description.missing[Power.IMAGES]
            assert "podman does not work here: the podman of this test is broken" in reason
            assert "docker does not work here: the docker of this test is broken" in reason
            with pytest.raises(UnsupportedError, match="does not work here"):
                await contained(engine, "true")
            order = await launched(engine, "true")
            assert (await ended(engine, order.allocation_id)).exit_code == 0


async def test_a_paused_one_uses_nothing(engine: HostEngine) -> None:
    order = await contained(engine, "while :; do :; done")
    await running(engine, order.allocation_id)
    await engine.pause(order.allocation_id, 1)
    await anyio.sleep(1.2)
    before = (await look(engine, order.allocation_id)).meters.cpu_us
    await anyio.sleep(1.5)
    assert (await look(engine, order.allocation_id)).meters.cpu_us == before
