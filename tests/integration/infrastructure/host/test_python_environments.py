"""Python environments of tasks: made once for a content, shared read-only by the jobs of a project, never half-made."""

import os
import shutil
import signal
import sys
import time
from collections.abc import AsyncGenerator, Generator
from pathlib import Path

import anyio
import pytest

from integration.infrastructure.host.orders import ended, launched, log_of, until
from support.agent_roots import kill_daemon
from support.package_index import PackageIndex, package_index
from support.sandboxes import SANDBOXED, sandbox_environment
from yunhe.infrastructure.contract.model import Ending, ExecRequest, LaunchOrder, Observed, PythonNeed
from yunhe.infrastructure.host.engine import HostEngine
from yunhe.infrastructure.host.target import DeclaredNode, LocalHost
from yunhe.kernel.confinement import Confinement
from yunhe.kernel.errors import UnsupportedError

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.skipif(os.geteuid() != 0, reason="needs root: users and namespaces"),
]

HELLO = "def main():\n    print('hello from', __file__)\n"
WITHIN_S = 120.0


@pytest.fixture
def index(tmp_path: Path) -> Generator[PackageIndex]:
    with package_index(tmp_path) as index:
        index.add("greeter", "1.0", HELLO, program=True)
        index.add("greeter", "2.0", HELLO, program=True)
        index.add("bulky", "1.0", "", size_bytes=12_000_000)
        yield index


@pytest.fixture
async def builder(root: Path) -> AsyncGenerator[HostEngine]:
    async with HostEngine(_host(root)) as engine:
        yield engine


def _host(
    root: Path, *, pythons_mib: int | None = None, environment: dict[str, str] | None = None
) -> LocalHost:
    declared = DeclaredNode(allowed=("host-network",), pythons_mib=pythons_mib)
    return LocalHost(root=str(root), declared=declared, environment=environment or {})


async def run_with(
    engine: HostEngine, index: PackageIndex, script: str, *lines: str, **fields: object
) -> tuple[LaunchOrder, Observed, str]:
    """Run a script in an environment with these requirements; return the order, its end and its log."""
    order = await begin(engine, index, script, *lines, **fields)
    seen = await ended(engine, order.allocation_id, WITHIN_S)
    return order, seen, (await log_of(engine, order.allocation_id)).decode()


async def begin(
    engine: HostEngine, index: PackageIndex, script: str, *lines: str, **fields: object
) -> LaunchOrder:
    chosen: dict[str, object] = {
        "python": PythonNeed(requirements=lines),
        "envs": {"PIP_INDEX_URL": index.address},
        "confinement": Confinement(network="host"),
        **fields,
    }
    return await launched(engine, script, **chosen)


def own(said: str) -> str:
    """Return what the script itself has said."""
    return said.rpartition("yunhe: the Python environment is ready.\n")[2]


def _status(path: str) -> os.stat_result:
    return Path(path).stat()


def kept(root: Path) -> list[Path]:
    """Return the environments below an agent's root, finished or not."""
    return [path for path in root.glob("pythons/*/*") if path.is_dir()]


def ready(root: Path) -> list[Path]:
    """Return the records of those that later jobs may use."""
    return list(root.glob("pythons/*/ready.json"))


async def test_a_second_job_finds_what_the_first_had_built_and_asks_the_index_for_nothing(
    builder: HostEngine, index: PackageIndex, root: Path
) -> None:
    script = "greeter\npython -c 'import sys; print(sys.prefix)'\necho $VIRTUAL_ENV"
    _, seen, first = await run_with(builder, index, script, "greeter==1.0")
    assert (seen.exit_code, seen.ending) == (0, Ending.DONE), first
    asked = list(index.asked)
    assert any("greeter-1.0" in path for path in asked)
    _, seen, second = await run_with(builder, index, script, "greeter==1.0")
    assert seen.exit_code == 0, second
    assert "preparing" not in second
    assert second == own(first)
    assert index.asked == asked
    hello, prefix, at = second.split("\n")[:3]
    assert hello.startswith(f"hello from {prefix}/lib/")
    assert (prefix, [Path(at)]) == (at, kept(root))
    _, _, other = await run_with(builder, index, script, "greeter==2.0")
    assert own(other).split("\n")[2] != at
    assert len(ready(root)) == 2


UV = Path(sys.executable).parent / "uv"


@pytest.mark.skipif(not UV.exists(), reason="needs uv (a development requirement)")
async def test_uv_builds_it_where_the_host_has_it(
    builder: HostEngine, index: PackageIndex, root: Path, uv_place: str
) -> None:
    envs = {"PIP_INDEX_URL": index.address, "PATH": f"{uv_place}:/usr/bin:/bin"}
    script = (
        "greeter; python -c 'import sys; print(sys.version_info[:2])'; pip list; cat $VIRTUAL_ENV/pyvenv.cfg"
    )
    need = PythonNeed(version="3.11", requirements=("greeter==1.0",))
    asked: list[int] = []
    for _ in range(2):
        _, seen, said = await run_with(builder, index, script, python=need, envs=envs)
        assert seen.exit_code == 0, said
        assert "hello from" in said
        assert "(3, 11)" in said
        assert "uv = " in said
        assert "shared and read-only: add what is missing to python.requirements" in said
        asked.append(len(index.asked))
    assert asked[0] == asked[1] > 0
    assert len(ready(root)) == 1
    bad = PythonNeed(requirements=("greeter==1.0", "no-such-package==7"))
    _, seen, said = await run_with(builder, index, script, python=bad, envs=envs)
    assert seen.exit_code != 0
    assert "yunhe: Line 2 of requirements.txt cannot be installed: no-such-package==7" in said
    assert "Line 1" not in said
    lacking = PythonNeed(version="3.99")
    _, seen, said = await run_with(builder, index, script, python=lacking, envs=envs)
    assert seen.exit_code == 69
    assert "This host has no Python 3.99, and uv could not fetch one" in said


@pytest.fixture
def uv_place() -> Generator[str]:
    """A directory with uv alone, which tasks can see: the /tmp of the host is not theirs."""
    place = Path("/var/lib") / f"yunhe-uv-{os.getpid()}"
    place.mkdir(0o755)
    shutil.copy2(UV, place / "uv")
    try:
        yield str(place)
    finally:
        shutil.rmtree(place)


async def test_what_is_shared_cannot_be_written_by_the_job_that_built_it_or_by_later_ones(
    builder: HostEngine, index: PackageIndex
) -> None:
    script = """
    cd "$VIRTUAL_ENV"
    for try in 'touch bin/new' 'rm bin/greeter' 'chmod -R u+w .' 'mv lib lib2' 'sh -c "echo >> bin/greeter"'; do
      sh -c "$try" 2> /dev/null && echo "could: $try"
    done
    greeter
    """
    for _ in range(2):
        _, seen, said = await run_with(builder, index, script, "greeter")
        assert seen.exit_code == 0, said
        assert "could" not in said


async def test_another_project_neither_uses_nor_sees_it(
    builder: HostEngine, index: PackageIndex, root: Path
) -> None:
    _, _, said = await run_with(builder, index, "echo $VIRTUAL_ENV", "greeter")
    asked = len(index.asked)
    place = own(said).strip()
    script = f"echo $VIRTUAL_ENV; ls {place} || echo no"
    order, seen, said = await run_with(builder, index, script, "greeter", project="p2")
    assert seen.exit_code == 0, said
    theirs = own(said).split("\n")[0]
    assert theirs != place
    assert said.rstrip().endswith("no")
    assert len(index.asked) > asked
    assert len(ready(root)) == 2
    assert order.project_id == "p2"
    mine, other = map(_status, (place, theirs))
    assert (mine.st_uid, mine.st_mode & 0o007) == (0, 0)
    assert mine.st_gid != other.st_gid


async def test_of_two_that_want_the_same_one_builds_and_the_other_waits(
    builder: HostEngine, index: PackageIndex
) -> None:
    orders = [await begin(builder, index, "greeter", "greeter==1.0") for _ in range(3)]
    ends = [await ended(builder, order.allocation_id, WITHIN_S) for order in orders]
    said = [(await log_of(builder, order.allocation_id)).decode() for order in orders]
    assert [seen.exit_code for seen in ends] == [0, 0, 0], said
    assert sum(path.endswith(".whl") for path in index.asked) == 1
    assert sum("waiting for another job" in text for text in said) == 2
    places = {line for text in said for line in text.splitlines() if line.startswith("hello")}
    assert len(places) == 1


async def test_a_wrapper_killed_in_the_middle_of_a_build_leaves_it_to_the_next(
    builder: HostEngine, index: PackageIndex, root: Path
) -> None:
    index.answers.clear()
    order = await begin(builder, index, "true", "greeter")
    (half,) = await building(root, 1)
    waiter = await begin(builder, index, "greeter", "greeter")
    await waiting(builder, waiter)
    os.kill(_wrapper_of(root, order), signal.SIGKILL)
    index.answers.set()
    seen = await ended(builder, waiter.allocation_id, WITHIN_S)
    assert seen.exit_code == 0, await log_of(builder, waiter.allocation_id)
    assert len(ready(root)) == 1
    assert len(kept(root)) == 1
    assert half not in kept(root)


async def building(root: Path, count: int) -> list[Path]:
    """Return the environments once there are so many, each with something in it."""
    with anyio.fail_after(WITHIN_S):
        while len(found := [path for path in kept(root) if (path / "bin").is_dir()]) < count:
            await anyio.sleep(0.02)
    return found


async def waiting(engine: HostEngine, order: LaunchOrder) -> None:
    """Return once a task says that it waits for another one."""
    with anyio.fail_after(WITHIN_S):
        while b"waiting for another job" not in await log_of(engine, order.allocation_id):
            await anyio.sleep(0.05)


def _wrapper_of(root: Path, order: LaunchOrder) -> int:
    text = (root / "runs" / order.allocation_id / "start.json").read_text()
    return int(text.split('"pid":')[1].split(",")[0].strip(" }\0\n"))


async def test_an_agent_that_comes_back_removes_what_is_half_built_and_keeps_what_is_whole(
    index: PackageIndex, root: Path
) -> None:
    async with HostEngine(_host(root)) as engine:
        await run_with(engine, index, "true", "greeter==1.0")
        (whole,) = kept(root)
        index.answers.clear()
        order = await begin(engine, index, "true", "greeter==2.0")
        await building(root, 2)
        os.kill(_wrapper_of(root, order), signal.SIGKILL)
        await ended(engine, order.allocation_id)
        kill_daemon(root)
    index.answers.set()
    async with HostEngine(_host(root)) as engine:
        await engine.hello()
        assert kept(root) == [whole]
        _, seen, _ = await run_with(engine, index, "greeter", "greeter==1.0")
        assert seen.exit_code == 0


async def test_the_one_used_longest_ago_goes_when_room_is_needed_and_one_in_use_stays(
    index: PackageIndex, root: Path
) -> None:
    async with HostEngine(_host(root, pythons_mib=30)) as engine:
        held = await begin(engine, index, "echo $VIRTUAL_ENV; sleep 600", "bulky", "greeter==1.0")
        await until(engine, held.allocation_id, lambda seen: seen.step == "step-1", WITHIN_S)
        (oldest,) = kept(root)
        for version in ("1.0", "2.0"):
            _, seen, said = await run_with(engine, index, "true", "bulky", f"greeter=={version}", "# other")
            assert seen.exit_code == 0, said
        sizes = sum(_bytes_below(path) for path in kept(root))
        assert sizes <= 30 << 20
        assert oldest in kept(root)
        assert (len(kept(root)), len(ready(root))) == (2, 2)
        await engine.stop(held.allocation_id, 1, grace_s=0)
        await ended(engine, held.allocation_id)


def _bytes_below(path: Path) -> int:
    return sum(file.lstat().st_blocks * 512 for file in path.rglob("*"))


async def test_what_does_not_fit_into_the_cache_is_for_its_job_alone_and_goes_with_it(
    index: PackageIndex, root: Path
) -> None:
    async with HostEngine(_host(root, pythons_mib=1)) as engine:
        _, seen, said = await run_with(engine, index, "greeter", "greeter==1.0", "bulky")
        assert seen.exit_code == 0, said
        assert "no room to keep" in said
        with anyio.fail_after(20):
            while kept(root):
                await anyio.sleep(0.05)


async def test_a_requirement_that_does_not_exist_is_named_with_its_line(
    builder: HostEngine, index: PackageIndex, root: Path
) -> None:
    lines = ("greeter==1.0", "# a comment", "no-such-package==7")
    _, seen, said = await run_with(builder, index, "echo never", *lines)
    assert seen.exit_code not in {0, None}
    assert seen.step == "python"
    assert "yunhe: Line 3 of requirements.txt cannot be installed: no-such-package==7" in said
    assert "Line 1" not in said
    assert "never" not in said
    with anyio.fail_after(20):
        while kept(root):
            await anyio.sleep(0.05)


async def test_a_version_that_the_host_lacks_is_said_with_the_remedy(
    builder: HostEngine, index: PackageIndex
) -> None:
    _, seen, said = await run_with(builder, index, "echo never", python=PythonNeed(version="3.99"))
    assert seen.exit_code == 69
    assert "This host has no Python 3.99" in said
    assert "install it on the host, or ask for one it has (" in said
    assert "never" not in said


async def test_a_build_is_in_the_limits_of_its_task(
    builder: HostEngine, index: PackageIndex, root: Path
) -> None:
    index.add("huge", "1.0", "", size_bytes=200_000_000)
    _, seen, _ = await run_with(builder, index, "true", "huge", disk_limit_bytes=60_000_000)
    assert seen.ending is Ending.DISK_FULL
    assert not ready(root)


async def test_a_command_beside_the_task_finds_the_same_python(
    builder: HostEngine, index: PackageIndex
) -> None:
    order = await begin(builder, index, "greeter; sleep 600", "greeter")
    await until(builder, order.allocation_id, lambda seen: seen.step == "step-1", WITHIN_S)
    async with builder.exec(order.allocation_id, ExecRequest(argv=("greeter",))) as session:
        said = b""
        while piece := await session.receive():
            said += piece
        assert await session.wait() == 0, said
    assert said in await log_of(builder, order.allocation_id)
    await builder.stop(order.allocation_id, 1, grace_s=0)
    await ended(builder, order.allocation_id)


async def test_requirements_that_name_files_are_for_their_job_alone(
    builder: HostEngine, index: PackageIndex, root: Path
) -> None:
    _, seen, said = await run_with(builder, index, "greeter", "-e ./nothing")
    assert seen.exit_code != 0
    assert not ready(root)
    _, seen, said = await run_with(builder, index, "greeter", f"--find-links {index.address}", "greeter")
    assert seen.exit_code == 0, said
    assert "for this job alone" in said
    with anyio.fail_after(20):
        while kept(root):
            await anyio.sleep(0.05)


async def test_a_job_that_is_stopped_while_it_waits_ends_while_the_other_goes_on(
    builder: HostEngine, index: PackageIndex
) -> None:
    index.answers.clear()
    first = await begin(builder, index, "true", "greeter")
    await until(builder, first.allocation_id, lambda seen: seen.step == "python", WITHIN_S)
    second = await begin(builder, index, "true", "greeter")
    await waiting(builder, second)
    await builder.stop(second.allocation_id, 1, grace_s=0)
    assert (await ended(builder, second.allocation_id)).ending is Ending.STOPPED
    index.answers.set()
    assert (await ended(builder, first.allocation_id, WITHIN_S)).exit_code == 0


async def test_a_sandboxed_task_has_one_too(index: PackageIndex, root: Path) -> None:
    async with HostEngine(_host(root, environment=sandbox_environment())) as engine:
        need = {"confinement": Confinement(network="host", runtime=SANDBOXED.runtime)}
        for _ in range(2):
            _, seen, said = await run_with(engine, index, "greeter; touch $VIRTUAL_ENV/x", "greeter", **need)
            assert seen.exit_code != 0, said
            assert "hello from" in said
        assert len(ready(root)) == 1


async def test_an_image_brings_its_own_python(builder: HostEngine, index: PackageIndex) -> None:
    with pytest.raises(UnsupportedError, match=r"brings its own Python|neither podman nor docker"):
        await begin(builder, index, "true", "greeter", image="python:3.12")


async def test_a_second_job_reaches_its_first_line_hardly_later_than_one_without(
    builder: HostEngine, index: PackageIndex
) -> None:
    await run_with(builder, index, "true", "greeter", "bulky")
    took: dict[bool, list[float]] = {True: [], False: []}
    for _ in range(5):
        for wanted in (True, False):
            script = "date +%s.%N"
            began = time.time()
            more = {} if wanted else {"python": None}
            _, seen, said = await run_with(builder, index, script, "greeter", "bulky", **more)
            assert seen.exit_code == 0, said
            took[wanted].append(float(said) - began)
    with_it, without = (sorted(took[wanted])[2] for wanted in (True, False))
    print(
        f"first line after {with_it:.3f} s with requirements, {without:.3f} s without: +{with_it - without:.3f} s"
    )
    assert with_it - without <= 1.5
