"""A plugin registers, is heard of regularly, leaves without failing a call, and outlives the platform."""

import signal
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

import anyio
import pytest

from integration.infrastructure.plugin.platform_stub import PlatformStub, platform_stub
from support.go_plugin import built_go_plugin
from support.repository import REPOSITORY
from yunhe.conformance.caller import EngineCaller, new_allocation_id
from yunhe.conformance.plugin_promises import plugin_process
from yunhe.infrastructure.contract.kind import Target
from yunhe.infrastructure.contract.manifest import read_manifest
from yunhe.infrastructure.contract.model import Phase
from yunhe.infrastructure.remote.channels import PluginAddress
from yunhe.infrastructure.remote.kind import RemoteKind
from yunhe.kernel.ids import ProjectId
from yunhe.kernel.resources import Resources

FAKE = REPOSITORY / "src/yunhe/infrastructure/fake/plugin.toml"
PATIENCE_S = 20.0


def python_manifest() -> Path:
    return FAKE


def until(happened: Callable[[], object]) -> None:
    give_up_at = time.monotonic() + PATIENCE_S
    while not happened():
        assert time.monotonic() < give_up_at, "it did not happen"
        time.sleep(0.02)


def environment(stub: PlatformStub, instance: str, key: str = "k-secret") -> dict[str, str]:
    return {"YUNHE_URL": stub.url, "YUNHE_PLUGIN_KEY": key, "YUNHE_PLUGIN_INSTANCE": instance}


@pytest.fixture(params=[python_manifest, built_go_plugin], ids=["python", "go"])
def manifest_path(request: pytest.FixtureRequest) -> Path:
    return request.param()


@pytest.mark.timeout(600)
def test_it_registers_with_its_manifest_sends_heartbeats_and_says_goodbye(manifest_path: Path) -> None:
    manifest = read_manifest(manifest_path)
    with platform_stub() as stub:
        path = f"/v1/plugins/{manifest.name}/instances/a"
        with plugin_process(manifest_path, environment=environment(stub, "a")) as plugin:
            until(lambda: stub.heartbeats.get(path, 0) >= 3)
            told = stub.instances[path]
            assert told["manifest"]["name"] == manifest.name
            assert told["address"] == plugin.where.address
            assert told["certificate"] == plugin.where.certificate != ""
            assert told["token"] == plugin.where.token != ""
            plugin.process.send_signal(signal.SIGTERM)
            assert plugin.process.wait(PATIENCE_S) == 0
        assert stub.departed == [path]


@pytest.mark.timeout(600)
def test_a_platform_that_goes_and_comes_back_finds_the_plugin_again(manifest_path: Path) -> None:
    with ExitStack() as stack:
        with platform_stub() as first:
            port = int(first.url.rpartition(":")[2])
            plugin = stack.enter_context(plugin_process(manifest_path, environment=environment(first, "a")))
            until(lambda: first.instances)
        time.sleep(0.5)
        assert plugin.process.poll() is None
        with platform_stub(port) as second:
            until(lambda: second.instances)


@pytest.mark.timeout(600)
def test_a_wrong_key_is_told_and_tried_again_and_registers_nothing(
    manifest_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    with platform_stub() as stub:
        with plugin_process(manifest_path, environment=environment(stub, "a", "k-wrong")) as plugin:
            time.sleep(1.5)
            assert plugin.process.poll() is None
            assert stub.instances == {}
        assert "it answered 401" in capfd.readouterr().err


@pytest.mark.anyio
@pytest.mark.timeout(600)
async def test_an_upgrade_fails_no_call_and_cuts_no_stream(tmp_path: Path) -> None:
    """The pool is the Go example's directory, so that the next instance finds what the one before began."""
    manifest_path = built_go_plugin()
    target = Target(address=str(tmp_path / "pool"))
    with platform_stub() as stub, ExitStack() as stack:

        def where() -> PluginAddress:
            newest = list(stub.instances.values())[-1]
            return PluginAddress(newest["address"], newest["certificate"], newest["token"])

        first = stack.enter_context(plugin_process(manifest_path, environment=environment(stub, "a")))
        until(lambda: stub.instances)
        kind = RemoteKind(first.manifest, where)
        async with kind.connect(target) as engine:
            node = (await engine.inventory()).nodes[0]
            caller = EngineCaller(engine, node.id, ProjectId("p"), Resources(), PATIENCE_S)
            lines = "\n".join(f"echo line-{n}\nsleep 0.1" for n in range(50))
            order = await caller.run(lines)
            heard: list[bytes] = []
            asked = 0

            async def follow() -> None:
                heard.append(await caller.log(order.allocation_id, follow=True))

            async def ask() -> None:
                nonlocal asked
                while not heard:
                    await engine.inventory()
                    await engine.stop(new_allocation_id(), 1)
                    await engine.observe(beyond=10**9, wait_s=0.2)
                    asked += 1

            def upgrade() -> None:
                stack.enter_context(plugin_process(manifest_path, environment=environment(stub, "b")))

            async with anyio.create_task_group() as tasks:
                tasks.start_soon(follow)
                tasks.start_soon(ask)
                await anyio.sleep(0.5)
                await anyio.to_thread.run_sync(upgrade)
                assert await anyio.to_thread.run_sync(first.process.wait, PATIENCE_S) == 0
            assert heard == [b"".join(b"line-%d\n" % n for n in range(50))]
            assert asked > 5
            assert (await caller.ended(order.allocation_id)).phase is Phase.EXITED


@pytest.mark.anyio
@pytest.mark.timeout(600)
async def test_a_plugin_killed_and_started_anew_knows_what_it_began(tmp_path: Path) -> None:
    target = Target(address=str(tmp_path / "pool"))
    where: list[PluginAddress] = []
    with ExitStack() as stack:
        first = stack.enter_context(plugin_process(built_go_plugin()))
        where.append(first.where)
        kind = RemoteKind(first.manifest, lambda: where[-1])
        async with kind.connect(target) as engine:
            node = (await engine.inventory()).nodes[0]
            caller = EngineCaller(engine, node.id, ProjectId("p"), Resources(), PATIENCE_S)
            order = await caller.run("echo started\nsleep 1\nexit 7", token=3)
            first.process.kill()
            first.process.wait()
            where.append(stack.enter_context(plugin_process(built_go_plugin())).where)
            seen = await caller.ended(order.allocation_id)
            assert (seen.exit_code, seen.token) == (7, 3)
            await engine.launch(order)
            assert await caller.log(order.allocation_id) == b"started\n"
