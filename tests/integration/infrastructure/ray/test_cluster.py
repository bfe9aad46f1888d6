"""A real Ray cluster under the platform: first contact, a task, a node that dies, a head that is started anew."""

import http.server
import threading
from collections.abc import AsyncGenerator, Callable, Generator
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import pytest

from engines.ray_cluster import RayCluster, RayIsMissingError, ray_cluster, ray_python
from yunhe.conformance.caller import EngineCaller, new_allocation_id
from yunhe.control.pools.model import PoolSpec
from yunhe.infrastructure.contract.kind import Check, Target
from yunhe.infrastructure.contract.model import Ending, Phase
from yunhe.infrastructure.ray.client import RayClient
from yunhe.infrastructure.ray.engine import RayEngine
from yunhe.infrastructure.ray.kind import RayKind
from yunhe.infrastructure.ray.target import read_target
from yunhe.kernel.errors import PoolUnreachableError
from yunhe.kernel.ids import NodeId, ProjectId
from yunhe.kernel.money import Prices
from yunhe.kernel.resources import Accelerators, Resources
from yunhe.runtime.settings import Settings
from yunhe.runtime.start import first_key_path, running
from yunhe.scheduling.orchestration.jobs.states import JobState
from yunhe.trading.applications.model import Submission
from yunhe.trading.demand.parse import parse_yaml
from yunhe.trading.trades.chain import verify
from yunhe.trading.trades.model import LedgerEntry

pytestmark = [pytest.mark.anyio, pytest.mark.engine, pytest.mark.drives("Ray"), pytest.mark.timeout(600)]
PATIENCE_S = 120.0
FPGA = Resources(cpu_millis=100, memory_mib=64, accelerators=(Accelerators("fpga", 1000),))
PLAIN = Resources(cpu_millis=100, memory_mib=64)

TASK = """
name: greeting
resources: {cpus: 0.5, memory: 128MB}
envs: {WHO: Ray}
setup: echo "to $WHO" > note.txt
run: |
  cat note.txt
  python3 -c 'import ray; print("ray", ray.__version__)'
"""


@pytest.fixture(scope="module")
def cluster() -> Generator[RayCluster, None, None]:
    try:
        ray_python()
    except RayIsMissingError as reason:
        pytest.skip(str(reason))
    with ray_cluster() as cluster:
        yield cluster


def engine_of(cluster: RayCluster) -> RayEngine:
    return RayEngine(RayClient(read_target(cluster.target())))


@asynccontextmanager
async def calling(cluster: RayCluster) -> AsyncGenerator[EngineCaller]:
    async with engine_of(cluster) as engine:
        yield EngineCaller(engine, NodeId("any"), ProjectId("default"), PLAIN, PATIENCE_S)


async def checks(target: Target) -> list[Check]:
    return [check async for check in RayKind().onboard(target)]


async def until(happened: Callable[[], bool]) -> None:
    with anyio.fail_after(PATIENCE_S):
        while not happened():
            await anyio.sleep(0.1)


# First contact


async def test_every_step_is_tried_and_a_job_has_really_run(cluster: RayCluster) -> None:
    seen = await checks(cluster.target())
    assert [(check.step, check.ok) for check in seen] == [
        ("reachable", True),
        ("token accepted", True),
        ("version", True),
        ("nodes", True),
        ("a job runs", True),
    ]
    assert "2: 3 cores" in seen[3].detail


async def test_nobody_there_and_somebody_else_there_are_told_apart(cluster: RayCluster) -> None:
    (nobody,) = await checks(Target(address="http://127.0.0.1:1"))
    assert (nobody.step, nobody.ok) == ("reachable", False)
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), http.server.SimpleHTTPRequestHandler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        (other,) = await checks(Target(address=f"http://127.0.0.1:{server.server_port}"))
    finally:
        server.shutdown()
        server.server_close()
    assert "not a Ray dashboard" in other.detail
    assert other.remedy != nobody.remedy


async def test_a_missing_and_a_wrong_token_are_told_apart_and_the_right_one_is_accepted(
    cluster: RayCluster, tmp_path: Path
) -> None:
    right, wrong = tmp_path / "right", tmp_path / "wrong"
    right.write_text("hush-" * 8)
    wrong.write_text("guess")
    with ray_cluster(workers=0, token="hush-" * 8) as guarded:
        nameless = (await checks(guarded.target()))[-1]
        refused = (await checks(guarded.target(token_file=str(wrong))))[-1]
        accepted = await checks(guarded.target(token_file=str(right)))
    assert (nameless.step, nameless.ok) == ("token accepted", False)
    assert "asks for a token" in nameless.detail
    assert (refused.step, refused.ok) == ("token accepted", False)
    assert "refuses our token" in refused.detail
    assert all(check.ok for check in accepted), accepted


# A task


async def test_one_task_from_its_yaml_to_its_bill(cluster: RayCluster, tmp_path: Path) -> None:
    async with running(Settings(home=tmp_path)) as platform:
        spec = PoolSpec(name="ray", kind="ray", target=cluster.url)
        seen = [check async for check in platform.pools.add(spec)]
        assert all(check.ok for check in seen), seen
        pool = await platform.pools.pool("ray")
        prices = Prices(cpu_core_hour_micros=50_000_000, memory_gib_hour_micros=10_000_000)
        await platform.trades.publish_prices(pool.id, prices)
        who = await platform.accounts.authenticate(first_key_path(tmp_path).read_text().strip())
        task = parse_yaml(TASK)
        (job,) = await platform.applications.submit(who, (Submission(task=task),))
        with anyio.fail_after(PATIENCE_S):
            done = [change async for change in platform.orchestration.changes(job.id)][-1]
        assert done.state is JobState.SUCCEEDED, done.reason
        log = b"".join([piece.data async for piece in platform.orchestration.logs(job.id)]).decode()
        assert log.startswith("to Ray\nray 2.")
        with anyio.fail_after(PATIENCE_S):
            while True:
                lines = [line async for line in platform.trades.export()]
                mine = [line for line in lines if isinstance(line, LedgerEntry) and line.job_id == job.id]
                if mine and mine[-1].final:
                    break
                await anyio.sleep(0.2)
        assert verify(lines).ok
        assert sum(line.used.cpu_us for line in mine) > 100_000, "an import of Ray takes longer than that"
        assert sum(line.amount_micros for line in mine) > 0


# What is asked for


async def test_a_custom_resource_leads_to_the_node_that_has_it(cluster: RayCluster) -> None:
    async with calling(cluster) as caller:
        nodes = (await caller.engine.inventory()).nodes
        (holder,) = [node.id for node in nodes if node.total.accelerator_milli("fpga")]
        order = await caller.run("true", resources=FPGA)
        seen = await caller.ended(order.allocation_id)
        assert (seen.exit_code, seen.node_id) == (0, holder)
        await caller.engine.release(order.allocation_id, 1)


async def test_a_stop_while_ray_has_no_room_ends_it_before_it_has_begun(cluster: RayCluster) -> None:
    async with calling(cluster) as caller:
        all_of_it = Resources(accelerators=(Accelerators("fpga", 2000),))
        first = await caller.run("sleep 60", resources=all_of_it)
        await caller.running(first.allocation_id)
        second = await caller.run("echo ran", resources=all_of_it)
        await caller.engine.stop(second.allocation_id, 1)
        await caller.engine.stop(first.allocation_id, 1, grace_s=0)
        seen = await caller.ended(second.allocation_id)
        assert (seen.phase, seen.ending, seen.log_bytes) == (Phase.EXITED, Ending.STOPPED, 0)


# What breaks


async def test_a_node_that_dies_leaves_its_allocation_unknown_and_nothing_running(
    cluster: RayCluster,
) -> None:
    async with calling(cluster) as caller:
        order = await caller.run("echo $$\nsleep 600", resources=FPGA)
        await caller.until(order.allocation_id, lambda seen: seen.log_bytes > 0)
        pid = int(await caller.log(order.allocation_id))
        cluster.workers[0].kill_raylet()
        seen = await caller.ended(order.allocation_id)
        assert (seen.phase, seen.exit_code) == (Phase.UNKNOWN, None)
        assert seen.detail
        await until(lambda: not Path(f"/proc/{pid}").exists())
        other = await caller.run("echo still here")
        assert (await caller.ended(other.allocation_id)).exit_code == 0
        assert len((await caller.engine.inventory()).nodes) == 1


async def test_a_head_that_is_started_anew_is_used_again_and_what_is_gone_is_said(
    cluster: RayCluster,
) -> None:
    async with calling(cluster) as caller:
        order = await caller.run("true")
        await caller.ended(order.allocation_id)
        before = await caller.engine.observe()
        assert cluster.head is not None
        cluster.head.end()
        with pytest.raises(PoolUnreachableError):
            await caller.engine.observe()
        with pytest.raises(PoolUnreachableError):
            await caller.engine.stop(new_allocation_id(), 1)
        cluster.start_head()
        after = await caller.engine.observe()
        assert after.version > before.version
        assert after.allocations == ()
        assert "started anew" in after.notices[0]
        again = await caller.run("echo back")
        assert (await caller.ended(again.allocation_id)).exit_code == 0
