"""A host whose disk has no room, or no inodes, fails no job, forgets none, and takes work again once it can."""

from collections.abc import AsyncGenerator, Generator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import NamedTuple

import anyio
import pytest

from faults.full_hosts import ALWAYS, FullHost, small_host
from support import apart
from support.agent_roots import agent_root
from support.small_disks import fill, fill_inodes
from yunhe.agent import failpoints
from yunhe.agent.package import sources_of
from yunhe.control.pools.model import Pool, PoolSpec
from yunhe.infrastructure.host.engine import HostEngine
from yunhe.infrastructure.host.package import AgentFile, pack
from yunhe.kernel.money import Prices
from yunhe.runtime.platform import Platform
from yunhe.runtime.start import first_key_path, running
from yunhe.scheduling.orchestration.jobs.model import Job
from yunhe.scheduling.orchestration.jobs.states import FINAL, JobState
from yunhe.trading.applications.model import Submission
from yunhe.trading.demand.model import ResourceSpec, Task

pytestmark = pytest.mark.anyio

JOBS = 20


@pytest.fixture
def root() -> Generator[Path]:
    with small_host() as root:
        yield root


@pytest.fixture
def witness(root: Path) -> Path:
    """Return where jobs write what they did, on a disk that has room."""
    folder = root.parent.parent / "witness"
    folder.mkdir()
    folder.chmod(0o777)
    return folder


SAMPLE = {"before-claim", "before-exit-record"}
"""Part of `make test`; every other point is filled beside the engines."""


@pytest.mark.parametrize("lacking", ["bytes", "inodes"])
@pytest.mark.parametrize(
    "point",
    [
        ALWAYS,
        *(pytest.param(name, marks=() if name in SAMPLE else pytest.mark.engine) for name in failpoints.ALL),
    ],
)
async def test_a_disk_that_fills_at_any_write_loses_no_allocation_and_no_agent(
    root: Path, witness: Path, point: str, lacking: str
) -> None:
    host = FullHost(root, witness, point, inodes=lacking == "inodes")
    async with HostEngine(host.target()) as engine:
        problems = await host.live(engine)
        assert not problems, problems
        assert not await host.recover(engine)


MAIN = b"import sys\nfrom yunhe.agent.__main__ import main\nsys.exit(main())\n"


class Change(NamedTuple):
    """A line of the agent, and what it was before it was right."""

    module: str
    right: str
    wrong: str


class PlantedEngine(HostEngine):
    """An engine that ships an agent with a fault."""

    changes: tuple[Change, ...] = ()

    def program(self) -> AgentFile:
        members = {"__main__.py": MAIN, **sources_of("yunhe.agent")}
        for change in self.changes:
            name = f"yunhe/agent/{change.module}.py"
            text = members[name].decode()
            assert change.right in text, "the planted fault has lost its place"
            members[name] = text.replace(change.right, change.wrong).encode()
        return pack(members)


class ReservesHoles(PlantedEngine):
    """The samples of a task are a sparse file: a page that finds no room ends the daemon that writes to it."""

    changes = (
        Change("runs/node", "run.reserve(samples=SAMPLES_BYTES)", "run.reserve()"),
        Change(
            "runs/meters",
            "reserve(path, SAMPLES_BYTES)",
            "reserve(path, 0); os.truncate(path, SAMPLES_BYTES)",
        ),
    )


class ReservesNothing(PlantedEngine):
    """Each record needs room of its own when it is written, and is lost where there is none."""

    changes = (
        Change("runs/directory", "for name in RESERVED:", "for name in ():"),
        Change("runtimes/wrapper", "if fault.errno not in HOST_FAULTS:", "if True:"),
    )


class IsAlwaysReady(PlantedEngine):
    """A node that can claim nothing goes on getting work."""

    changes = (Change("runs/fitness", "        disk = os.statvfs(self._root)\n", "        return None\n"),)


@pytest.mark.parametrize(
    ("planted", "point", "lacking", "words"),
    [
        (ReservesHoles, "before-start-record", "bytes", "the agent died"),
        (ReservesNothing, "before-exit-record", "bytes", "is unknown"),
        (ReservesNothing, "before-exit-record", "inodes", "is unknown"),
        (ReservesNothing, "before-start-record", "inodes", "does not end"),
        (IsAlwaysReady, ALWAYS, "inodes", "says that it is ready"),
    ],
)
async def test_an_agent_that_trusts_its_disk_is_caught(
    root: Path, witness: Path, planted: type[PlantedEngine], point: str, lacking: str, words: str
) -> None:
    host = FullHost(root, witness, point, inodes=lacking == "inodes")
    async with planted(host.target()) as engine:
        problems = await host.live(engine)
    assert any(words in problem for problem in problems), problems


class TwoHosts:
    """A platform with a host on a small disk and one with room."""

    def __init__(self, platform: Platform, small: Path, witness: Path, key: str) -> None:
        self.platform = platform
        self.small = small
        self._witness = witness
        self.key = key

    async def add(self, name: str, root: Path) -> None:
        prices = Prices(cpu_core_hour_micros=50_000, memory_gib_hour_micros=10_000)
        options = {"root": str(root), "cpus": "4", "memory": "4GB", "writable": str(self._witness)}
        spec = PoolSpec(name=name, kind="local", options=options, prices=prices)
        checks = [check async for check in self.platform.pools.add(spec)]
        assert all(check.ok for check in checks), checks

    async def run(self, jobs: int) -> list[Job]:
        """Return jobs that may not be repeated, once each has ended."""
        script = f'echo ran >> "{self._witness}/$YUNHE_JOB_ID"'
        task = Task(run=script, resources=ResourceSpec(cpus=1))
        who = await self.platform.accounts.authenticate(self.key)
        accepted = await self.platform.applications.submit(who, (Submission(task=task),) * jobs)
        with anyio.fail_after(60):
            return [await self.ended(job) for job in accepted]

    async def ended(self, job: Job) -> Job:
        while (now := await self.platform.orchestration.job(job.id)).state not in FINAL:
            await anyio.sleep(0.05)
        return now

    def wrote(self) -> dict[str, str]:
        return {path.name: path.read_text() for path in self._witness.iterdir()}

    async def until(self, name: str, standing: str) -> Pool:
        with anyio.fail_after(10):
            while (pool := await self.platform.pools.pool(name)).standing != standing:
                await anyio.sleep(0.05)
        return pool


@asynccontextmanager
async def two_hosts(home: Path, small: Path, witness: Path) -> AsyncGenerator[TwoHosts]:
    with agent_root() as roomy:
        async with running(apart.settings(home)) as platform:
            hosts = TwoHosts(platform, small, witness, first_key_path(home).read_text().strip())
            await hosts.add("small", small)
            await hosts.add("roomy", roomy)
            yield hosts


async def test_jobs_that_a_host_without_inodes_refuses_all_run_elsewhere_and_it_is_unfit_until_it_has_some(
    tmp_path: Path, root: Path, witness: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    async with two_hosts(tmp_path, root, witness) as hosts:
        ballast = root.parent / "ballast"
        fill_inodes(ballast)
        ended = await hosts.run(JOBS)
        refused = sum(attempt.ending == "turned-away" for job in ended for attempt in job.attempts)
        with capsys.disabled():
            print(f"\n{len(ended)} jobs ended, {refused} attempts were turned away")
        assert [(job.state, job.reason) for job in ended if job.state is not JobState.SUCCEEDED] == []
        assert hosts.wrote() == {job.id: "ran\n" for job in ended}
        pool = await hosts.until("small", "unfit")
        assert "inodes are free" in pool.reason
        graph = await hosts.platform.perception.graph("small")
        assert [(one.state, one.reason) for one in graph.vertices if one.id == pool.nodes[0].id] == [
            ("not ready", pool.nodes[0].reason)
        ]
        for file in ballast.iterdir():
            file.unlink()
        await hosts.until("small", "ready")
        await hosts.platform.pools.drain("roomy")
        (job,) = await hosts.run(1)
        assert (job.state, job.attempts[-1].pool_name) == (JobState.SUCCEEDED, "small")


TALKS = """\
echo first
touch {0}/begun
until [ -e {0}/full ]; do sleep 0.05; done
head -c 2000000 /dev/zero | tr '\\0' x
touch {0}/said
until [ -e {0}/room ]; do sleep 0.05; done
echo last
"""


async def comes(path: Path) -> None:
    with anyio.fail_after(30):
        while not await anyio.Path(path).exists():
            await anyio.sleep(0.05)


async def test_output_that_finds_no_room_on_its_host_is_told_as_lost_and_what_follows_is_kept(
    tmp_path: Path, root: Path, witness: Path
) -> None:
    async with two_hosts(tmp_path, root, witness) as hosts:
        await hosts.platform.pools.drain("roomy")
        who = await hosts.platform.accounts.authenticate(hosts.key)
        task = Task(run=TALKS.format(witness), resources=ResourceSpec(cpus=1))
        (job,) = await hosts.platform.applications.submit(who, (Submission(task=task),))
        await comes(witness / "begun")
        ballast = root.parent / "ballast"
        fill(ballast)
        (witness / "full").touch()
        await comes(witness / "said")
        await anyio.sleep(0.5)  # until its wrapper has read what it said
        ballast.unlink()
        (witness / "room").touch()
        with anyio.fail_after(60):
            ended = await hosts.ended(job)
        assert ended.state is JobState.SUCCEEDED, ended.reason
        (attempt,) = ended.attempts
        pieces = [piece async for piece in hosts.platform.orchestration.logs(job.id, follow=False)]
        kept = b"".join(piece.data for piece in pieces)
        assert kept.startswith(b"first\n")
        assert kept.endswith(b"last\n")
        lost = len("first\nlast\n") + 2_000_000 - len(kept)
        assert lost > 0
        assert attempt.log_lost.startswith(f"{lost} of ")
        assert "some of its log is lost" in ended.reason
