"""The platform on real hosts: onboarding over SSH, live perception, a cut connection, a bill, a resize."""

import json
import statistics
import time
from collections.abc import AsyncGenerator, Generator
from contextlib import asynccontextmanager
from itertools import pairwise
from pathlib import Path

import anyio
import pytest

from integration.infrastructure.host.sshd import SshServer, ssh_server
from integration.infrastructure.host.test_metering import TREE
from integration.scheduling.orchestration.stage import finished, over_ssh
from support import apart
from support.agent_roots import agent_root, kill_daemon
from yunhe.control.pools.model import PoolSpec, PoolState
from yunhe.control.pools.monitor import LOOK_EVERY_S
from yunhe.kernel.money import Prices
from yunhe.kernel.resources import Resources
from yunhe.runtime.platform import Platform
from yunhe.runtime.start import first_key_path, running
from yunhe.scheduling.decision.model import Placed, Waiting
from yunhe.scheduling.orchestration.jobs.model import Job
from yunhe.scheduling.orchestration.jobs.states import JobState
from yunhe.trading.accounts.model import Principal
from yunhe.trading.applications.model import Submission
from yunhe.trading.demand.model import ResourceSpec, Task
from yunhe.trading.trades.chain import verify
from yunhe.trading.trades.model import CostQuery, LedgerEntry

pytestmark = pytest.mark.anyio

PRICES = Prices(cpu_core_hour_micros=50_000_000, memory_gib_hour_micros=10_000_000)


class Stage:
    def __init__(self, platform: Platform, who: Principal) -> None:
        self.platform = platform
        self.who = who

    async def submit(self, run: str, **fields: object) -> Job:
        task = Task(run=run, **fields)  # pyright: ignore[reportArgumentType]
        return (await self.platform.applications.submit(self.who, (Submission(task=task),)))[0]

    async def log(self, job: Job) -> str:
        return b"".join([piece.data async for piece in self.platform.orchestration.logs(job.id)]).decode()

    async def until(self, job: Job, state: JobState) -> None:
        with anyio.fail_after(30):
            while (await self.platform.orchestration.job(job.id)).state is not state:
                await anyio.sleep(0.05)

    async def billed(self, job: Job) -> list[LedgerEntry]:
        with anyio.fail_after(60):
            while True:
                lines = [line async for line in self.platform.trades.export()]
                mine = [line for line in lines if isinstance(line, LedgerEntry) and line.job_id == job.id]
                if mine and mine[-1].final:
                    assert verify(lines).ok
                    return mine
                await anyio.sleep(0.1)


@asynccontextmanager
async def stage(home: Path) -> AsyncGenerator[Stage, None]:
    async with running(apart.settings(home)) as platform:
        yield Stage(platform, await platform.accounts.authenticate(first_key_path(home).read_text().strip()))


async def add(platform: Platform, spec: PoolSpec) -> None:
    checks = [check async for check in platform.pools.add(spec)]
    assert all(check.ok for check in checks), checks
    await platform.trades.publish_prices((await platform.pools.pool(spec.name)).id, PRICES)


@pytest.fixture
def root() -> Generator[Path, None, None]:
    with agent_root() as root:
        yield root


@pytest.fixture(scope="module")
def server() -> Generator[SshServer, None, None]:
    with ssh_server() as server:
        yield server


@pytest.mark.feature(
    "P10",
    file="src/yunhe/control/pools/store.py",
    old="state=PoolState.CONNECTING,",
    new="state=PoolState.READY,",
)
@pytest.mark.parametrize("user", ["root", "member"])
async def test_a_node_is_active_only_after_its_agent_has_shaken_hands(
    tmp_path: Path, server: SshServer, user: str
) -> None:
    async with stage(tmp_path) as s:
        wrong = over_ssh(server, user, python="python9")
        checks = [check async for check in s.platform.pools.add(wrong)]
        assert not checks[-1].ok
        assert checks[-1].remedy
        assert await s.platform.pools.pools() == ()
        adding = s.platform.pools.add(over_ssh(server, user))
        sent = False
        async for check in adding:
            assert check.ok, check
            sent = sent or check.step == "agent sent"
            (pool,) = await s.platform.pools.pools()
            assert pool.state is PoolState.CONNECTING
            assert pool.nodes == ()
            plan = await s.platform.applications.plan(
                (await s.platform.accounts.projects(s.who))[0].id, Task(run="true")
            )
            assert isinstance(plan, Waiting)
        assert sent
        (pool,) = await s.platform.pools.pools()
        assert pool.state is PoolState.READY
        assert pool.isolation == ("per-project" if user == "root" else "one-project")
        plan = await s.platform.applications.plan(
            (await s.platform.accounts.projects(s.who))[0].id, Task(run="true")
        )
        assert isinstance(plan, Placed)
        job = await finished(s.platform, await s.submit("echo over ssh"))
        assert job.state is JobState.SUCCEEDED, job.reason
        assert await s.log(job) == "over ssh\n"


@pytest.mark.feature(
    "P11",
    file="src/yunhe/agent/daemon/machine.py",
    old='"cpu_millis": min(total["cpu_millis"], cpu_millis),',
    new='"cpu_millis": 0,',
)
@pytest.mark.feature(
    "P11",
    file="src/yunhe/control/pools/monitor.py",
    old="await anyio.sleep(LOOK_EVERY_S)",
    new="await anyio.sleep(10 * LOOK_EVERY_S)",
)
async def test_the_agent_reports_live_compute_at_its_period(tmp_path: Path, root: Path) -> None:
    async with stage(tmp_path) as s:
        await add(s.platform, PoolSpec(name="here", kind="local", options={"root": str(root)}))
        await s.submit("while :; do :; done", timeout=25, resources=ResourceSpec(cpus=1))
        reports: dict[float, Resources] = {}
        (node,) = (await s.platform.pools.pool("here")).nodes
        with anyio.move_on_after(22):
            while True:
                (node,) = (await s.platform.pools.pool("here")).nodes
                reports[node.seen_at] = node.used
                await anyio.sleep(0.2)
    times = sorted(reports)
    assert len(times) >= 3
    periods = [later - earlier for earlier, later in pairwise(times[1:])]
    assert statistics.median(periods) == pytest.approx(LOOK_EVERY_S, rel=0.5), periods
    assert node.total.cpu_millis > 0
    assert node.total.memory_mib > 0
    assert all(0 < used.memory_mib < node.total.memory_mib for used in reports.values())
    assert reports[times[-1]].cpu_millis >= 400, "a busy core does not show in what is reported"


async def test_what_happens_while_ssh_is_cut_arrives_afterwards_once(
    tmp_path: Path, server: SshServer
) -> None:
    await cut_for(tmp_path, server, 10.0)


@pytest.mark.engine
async def test_what_happens_while_ssh_is_cut_for_30_s_arrives_afterwards_once(
    tmp_path: Path, server: SshServer
) -> None:
    await cut_for(tmp_path, server, 30.0)


async def cut_for(home: Path, server: SshServer, cut_s: float) -> None:
    lines = round(2 * (cut_s + 4))
    async with stage(home) as s:
        await add(s.platform, over_ssh(server, "root"))
        writer = await s.submit(f"for i in $(seq {lines}); do echo line $i; sleep 0.5; done; exit 7")
        short = await s.submit("sleep 3; echo in the gap; exit 3")
        await s.until(writer, JobState.RUNNING)
        await s.until(short, JobState.RUNNING)
        await anyio.sleep(1)
        server.cut()
        try:
            await anyio.sleep(cut_s)
        finally:
            server.mend()
        with anyio.fail_after(90):
            ended = [job async for job in s.platform.orchestration.changes(writer.id)][-1]
            gone = [job async for job in s.platform.orchestration.changes(short.id)][-1]
        assert (ended.state, ended.exit_code, len(ended.attempts)) == (JobState.FAILED, 7, 1)
        assert (gone.state, gone.exit_code, len(gone.attempts)) == (JobState.FAILED, 3, 1)
        assert await s.log(writer) == "".join(f"line {n + 1}\n" for n in range(lines))
        assert await s.log(short) == "in the gap\n"
        billed = await s.billed(writer)
        assert [entry.final for entry in billed].count(True) == 1
        meters = ended.attempts[0].meters
        assert sum(entry.used.cpu_us for entry in billed) == meters.cpu_us
        assert meters.wall_ms > lines * 500


async def test_the_bill_of_a_tree_whose_agent_died_is_what_the_kernel_told_it(
    tmp_path: Path, root: Path
) -> None:
    await bill_of_a_tree(tmp_path, root, 4.0, 0.01)


@pytest.mark.engine
async def test_the_bill_of_thirty_core_seconds_is_within_half_a_percent(tmp_path: Path, root: Path) -> None:
    await bill_of_a_tree(tmp_path, root, 30.0, 0.005)


async def bill_of_a_tree(home: Path, root: Path, wanted_s: float, tolerance: float) -> None:
    async with stage(home) as s:
        await add(s.platform, PoolSpec(name="here", kind="local", options={"root": str(root)}))
        job = await s.submit(TREE, envs={"WANTED_S": str(wanted_s)}, resources=ResourceSpec(cpus=2))
        with anyio.fail_after(250):
            async for piece in s.platform.orchestration.logs(job.id, follow=True):
                if b"midway" in piece.data:
                    break
            kill_daemon(root)
            killed_at = time.time()
            job = [change async for change in s.platform.orchestration.changes(job.id)][-1]
        assert job.state is JobState.SUCCEEDED, job.reason
        told = json.loads((await s.log(job)).splitlines()[-1])
        assert 0.5 * wanted_s <= told["midway_s"] < 0.75 * wanted_s
        assert killed_at < told["ended_at"], "the agent was not killed midway"
        billed_s = sum(entry.used.cpu_us for entry in await s.billed(job)) / 1e6
        print(f"billed {billed_s:.3f} s, rusage {told['cpu_s']:.3f} s, {told['children']} children")
        assert abs(billed_s / told["cpu_s"] - 1) < tolerance
        report = await s.platform.trades.costs(CostQuery(job_id=job.id))
        assert report.amount_micros > 0


async def test_a_running_job_is_resized_in_place_and_both_sizes_are_billed(
    tmp_path: Path, root: Path
) -> None:
    async with stage(tmp_path) as s:
        await add(s.platform, PoolSpec(name="here", kind="local", options={"root": str(root), "cpus": "2"}))
        job = await s.submit("echo $$; sleep 8; echo $$", resources=ResourceSpec(cpus=0.5, memory="256MB"))
        await s.until(job, JobState.RUNNING)
        resized = await s.platform.orchestration.resize(job.id, Resources(cpu_millis=1500))
        assert resized.attempts[0].resources == Resources(cpu_millis=1500, memory_mib=256)
        waiting = await s.submit("true", resources=ResourceSpec(cpus=1))
        await anyio.sleep(1)
        assert "0.5 free" in (await s.platform.orchestration.job(waiting.id)).reason
        job = await finished(s.platform, job)
        first, second = (await s.log(job)).split()
        assert first == second
        sizes = [
            entry.reserved.cpu_us / (entry.to_ms - entry.from_ms)
            for entry in await s.billed(job)
            if entry.to_ms > entry.from_ms
        ]
        assert set(sizes) <= {500.0, 1500.0}
        assert sizes[-1] == 1500.0
        assert (await finished(s.platform, waiting)).state is JobState.SUCCEEDED


async def test_a_price_that_changes_midway_bills_each_part_of_a_real_job_at_its_own(
    tmp_path: Path, root: Path
) -> None:
    async with stage(tmp_path) as s:
        await add(s.platform, PoolSpec(name="here", kind="local", options={"root": str(root)}))
        pool = await s.platform.pools.pool("here")
        busy = await s.submit("while :; do :; done", resources=ResourceSpec(cpus=0.5), timeout=8)
        await s.until(busy, JobState.RUNNING)
        await anyio.sleep(5)
        dear = Prices(cpu_core_hour_micros=100_000 * PRICES.cpu_core_hour_micros)
        published = await s.platform.trades.publish_prices(pool.id, dear)
        job = await finished(s.platform, busy)
        before, after = await s.billed(job)
        assert (before.price_version, after.price_version) == (published.version - 1, published.version)
        started_at = job.attempts[0].started_at
        assert started_at is not None
        assert before.to_ms == after.from_ms == pytest.approx(1000 * (published.since - started_at), abs=2)
        cpu_us = before.used.cpu_us + after.used.cpu_us
        assert cpu_us == job.attempts[0].meters.cpu_us > 10**6
        assert before.used.cpu_us == pytest.approx(cpu_us * before.to_ms / after.to_ms, abs=2)
        core_price = before.used.cpu_us * PRICES.cpu_core_hour_micros / 3.6e9
        memory_price = before.used.memory_mib_ms * PRICES.memory_gib_hour_micros / (1024 * 3.6e6)
        assert before.amount_micros == pytest.approx(core_price + memory_price, abs=2)
        assert after.amount_micros == pytest.approx(
            after.used.cpu_us * dear.cpu_core_hour_micros / 3.6e9, abs=2
        )
