"""Plugins that the platform starts itself: they outlive it, come back when they die, and stay within their limits."""

import os
import signal
from collections.abc import Generator
from pathlib import Path

import pytest

from integration.control.plugins.platform_process import PlatformProcess
from integration.control.plugins.processes import add_pool, hosted_folder, until
from yunhe.control.plugins.model import Plugin, PluginProcess, PluginState
from yunhe.control.plugins.supervisor import start_ticks
from yunhe.control.pools.model import Check, PoolState
from yunhe.entrypoints.client import Client
from yunhe.kernel.errors import ConflictError, InvalidInputError, NotFoundError


@pytest.fixture(scope="module")
def platform(tmp_path_factory: pytest.TempPathFactory) -> Generator[PlatformProcess]:
    with PlatformProcess(tmp_path_factory.mktemp("hosting") / "home") as running:
        running.allow_plugins()
        yield running
        with running.client() as client:
            hosted = [one for one in client.plugins() if one.processes]
            pids = [process.pid for one in hosted for process in one.processes if process.pid]
            for one in hosted:
                client.remove_plugin(one.name, force=True)
            until(lambda: not any(start_ticks(pid) for pid in pids), 30)


@pytest.fixture
def client(platform: PlatformProcess) -> Generator[Client]:
    with platform.client() as client:
        yield client


def added(client: Client, folder: Path, *, upgrades: str = "") -> Plugin:
    told = list(client.add_plugin(str(folder), upgrades=upgrades))
    assert all(step.ok for step in told if isinstance(step, Check))
    assert isinstance(told[-1], Plugin)
    return told[-1]


def only_process(client: Client, name: str) -> PluginProcess:
    (process,) = client.plugin(name).processes
    return process


@pytest.mark.feature(
    "C11",
    file="src/yunhe/control/plugins/supervisor.py",
    old="return process.pid is not None and start_ticks(process.pid) == process.start_ticks",
    new="return False",
)
def test_a_plugin_is_a_process_of_its_own_that_survives_the_restart_of_the_core(
    platform: PlatformProcess, tmp_path: Path
) -> None:
    with platform.client() as client:
        pid = added(client, hosted_folder(tmp_path / "p", "survivor")).processes[0].pid
        add_pool(client, "of-survivor", "survivor")
    assert pid is not None
    assert os.getpgid(pid) == pid != os.getpgid(platform.pid)
    for kill in (False, True):
        platform.stop(kill=kill)
        assert start_ticks(pid) is not None
        platform.start()
        with platform.client() as client:
            until(lambda client=client: client.pool("of-survivor").state is PoolState.READY)
            assert only_process(client, "survivor").pid == pid
            assert client.plugin("survivor").state is PluginState.ACTIVE
            assert list(client.check_pool("of-survivor"))


def test_a_hosted_plugin_that_dies_is_started_again_and_its_pools_come_back(
    client: Client, tmp_path: Path
) -> None:
    added(client, hosted_folder(tmp_path / "p", "phoenix"))
    add_pool(client, "of-phoenix", "phoenix")
    before = only_process(client, "phoenix").pid
    assert before is not None
    os.kill(before, signal.SIGKILL)
    until(lambda: only_process(client, "phoenix").pid not in (before, None))
    until(lambda: client.plugin("phoenix").state is PluginState.ACTIVE)
    assert only_process(client, "phoenix").restarts == 1
    assert any(isinstance(step, Check) and step.ok for step in client.check_pool("of-phoenix"))


def test_an_upgrade_changes_the_process_and_the_old_one_leaves(client: Client, tmp_path: Path) -> None:
    old = added(client, hosted_folder(tmp_path / "1", "growing", "1")).processes[0].pid
    add_pool(client, "of-growing", "growing")
    upgraded = added(client, hosted_folder(tmp_path / "2", "growing", "2"), upgrades="growing")
    assert upgraded.version == "2"
    assert old is not None
    until(lambda: start_ticks(old) is None, 30)
    until(lambda: len(client.plugin("growing").processes) == 1)
    assert client.pool("of-growing").state is PoolState.READY
    with pytest.raises(ConflictError, match="newer"):
        list(client.add_plugin(str(hosted_folder(tmp_path / "3", "growing", "1.5"))))
    with pytest.raises(NotFoundError):
        list(client.add_plugin(str(hosted_folder(tmp_path / "4", "shrinking")), upgrades="shrinking"))
    with pytest.raises(InvalidInputError, match="not growing"):
        list(client.add_plugin(str(tmp_path / "4"), upgrades="growing"))


def test_one_that_takes_too_much_memory_is_ended_and_the_reason_is_told(
    client: Client, tmp_path: Path
) -> None:
    folder = hosted_folder(tmp_path / "p", "glutton")
    with (folder / "plugin.toml").open("a") as manifest:
        manifest.write("\n[limits]\nmemory_mib = 20\n")
    serve = folder / "serve.py"
    serve.write_text(
        serve.read_text().replace("import sys\n", "import sys, resource\nresource.setrlimit = print\n")
    )
    told: list[object] = []
    with pytest.raises(ConflictError, match="may use 20"):
        told += list(client.add_plugin(str(folder)))
    until(lambda: "glutton" not in {one.name for one in client.plugins()})


def test_one_that_does_not_start_says_so_with_what_it_wrote_and_leaves_nothing(
    client: Client, tmp_path: Path
) -> None:
    folder = hosted_folder(
        tmp_path / "p", "broken", command='["python", "-c", "raise SystemExit(\'no config\')"]'
    )
    with pytest.raises(ConflictError, match="no config"):
        list(client.add_plugin(str(folder)))
    until(lambda: "broken" not in {one.name for one in client.plugins()})
    with pytest.raises(InvalidInputError):
        list(client.add_plugin(str(tmp_path / "nowhere")))
    with pytest.raises(InvalidInputError):
        list(client.add_plugin("relative/path"))


def test_a_plugin_in_use_is_removed_only_by_force_and_then_its_process_ends(
    client: Client, tmp_path: Path
) -> None:
    added(client, hosted_folder(tmp_path / "p", "wanted"))
    add_pool(client, "of-wanted", "wanted")
    pid = only_process(client, "wanted").pid
    assert pid is not None
    with pytest.raises(ConflictError, match="of-wanted"):
        client.remove_plugin("wanted")
    with pytest.raises(ConflictError, match="part of the platform"):
        client.remove_plugin("local", force=True)
    client.remove_plugin("wanted", force=True)
    until(lambda: start_ticks(pid) is None)
    until(lambda: client.pool("of-wanted").state is PoolState.OFFLINE)
    assert "wanted" not in {one.name for one in client.plugins()}
    failed = [step for step in client.check_pool("of-wanted") if isinstance(step, Check)]
    assert [step.ok for step in failed] == [False]
    assert "yunhe plugin add" in failed[0].remedy
