"""Plugins that are processes of their own: found, listed, chosen among, lost and found again."""

import signal
import time
import tomllib
from collections.abc import Generator
from pathlib import Path

import httpx
import msgspec
import pytest

from integration.control.plugins.processes import (
    FAKE_MANIFEST,
    add_pool,
    fake_folder,
    plugin,
    plugin_key,
    python_served,
    registering,
    until,
)
from integration.entrypoints.api.serving import Served, serving
from yunhe.control.plugins.model import InstanceState, PluginState
from yunhe.control.pools.model import PoolState
from yunhe.entrypoints.client import Client
from yunhe.kernel.errors import ForbiddenError
from yunhe.trading.accounts.model import KeyScope, Role

HEARTBEAT_S = 2.0


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Generator[Served]:
    with serving(tmp_path_factory.mktemp("home")) as running:
        yield running


@pytest.fixture(scope="module")
def client(served: Served) -> Generator[Client]:
    with served.client() as client:
        yield client


def state_of(client: Client, pool: str) -> PoolState:
    return client.pool(pool).state


@pytest.mark.feature(
    "C12",
    file="src/yunhe/control/plugins/kinds.py",
    old="return found | self._in_process.manifests",
    new="return self._in_process.manifests",
)
@pytest.mark.feature(
    "C14",
    file="src/yunhe/control/plugins/service.py",
    old="vendor=manifest.vendor,",
    new='vendor="",',
)
def test_a_plugin_started_at_run_time_is_listed_and_usable_within_ten_seconds(
    served: Served, client: Client, tmp_path: Path
) -> None:
    folder = fake_folder(tmp_path, "newcomer", "1.2")
    began = time.monotonic()
    with registering(python_served(folder), folder, served.url, plugin_key(client, name_of(folder)), "one"):
        until(lambda: plugin(client, "newcomer") is not None)
        pool = add_pool(client, "new-pool", "newcomer", cpus="3")
        assert time.monotonic() - began < 10
        assert pool.state is PoolState.READY
        assert [node.total.cpu_millis for node in pool.nodes] == [3000]
        shown = client.plugin("newcomer")
        assert (shown.version, shown.vendor, shown.state) == ("1.2", "Yunhe", PluginState.ACTIVE)
        assert "resize" in shown.powers
        assert set(shown.missing) == {"forward", "images", "gang", "services", "checkpoint", "volumes"}
        assert shown.pools == ("new-pool",)
        assert [one.state for one in shown.instances] == [InstanceState.ACTIVE]
        assert served.key not in repr(client.plugins())
        client.remove_pool("new-pool", force=True)


@pytest.mark.feature(
    "C13",
    "C16",
    file="src/yunhe/control/plugins/registry.py",
    old="OFFLINE_AFTER_S = 2.25 * HEARTBEAT_S",
    new="OFFLINE_AFTER_S = 22.5 * HEARTBEAT_S",
)
def test_a_killed_plugin_takes_only_its_own_pools_offline_within_three_heartbeats_until_it_is_back(
    served: Served, client: Client, tmp_path: Path
) -> None:
    for name in ("mortal", "other"):
        fake_folder(tmp_path / name, name)
    with registering(
        python_served(tmp_path / "other"), tmp_path / "other", served.url, plugin_key(client, "other"), "o"
    ):
        with registering(
            python_served(tmp_path / "mortal"),
            tmp_path / "mortal",
            served.url,
            plugin_key(client, "mortal"),
            "m-1",
        ) as process:
            until(lambda: plugin(client, "mortal") is not None and plugin(client, "other") is not None)
            add_pool(client, "of-mortal", "mortal")
            add_pool(client, "of-other", "other")
            process.send_signal(signal.SIGKILL)
            process.wait()
            took = until(lambda: state_of(client, "of-mortal") is PoolState.OFFLINE)
            assert took < 3 * HEARTBEAT_S
            assert "mortal" in client.pool("of-mortal").reason
            assert plugin_state(client, "mortal") is PluginState.OFFLINE
            assert state_of(client, "of-other") is PoolState.READY
        with registering(
            python_served(tmp_path / "mortal"),
            tmp_path / "mortal",
            served.url,
            plugin_key(client, "mortal"),
            "m-2",
        ):
            until(lambda: state_of(client, "of-mortal") is PoolState.READY)
            assert plugin_state(client, "mortal") is PluginState.ACTIVE
    for name in ("of-mortal", "of-other"):
        client.remove_pool(name, force=True)


def plugin_state(client: Client, name: str) -> PluginState:
    return client.plugin(name).state


def test_the_newest_version_is_called_and_the_older_one_leaves(
    served: Served, client: Client, tmp_path: Path
) -> None:
    old, new = fake_folder(tmp_path / "9", "aging", "1.9"), fake_folder(tmp_path / "10", "aging", "1.10")
    with registering(python_served(old), old, served.url, plugin_key(client, name_of(old)), "old") as leaving:
        until(lambda: plugin(client, "aging") is not None)
        with registering(python_served(new), new, served.url, plugin_key(client, name_of(new)), "new"):
            until(lambda: client.plugin("aging").version == "1.10")
            assert leaving.wait(20) == 0
            assert client.plugin("aging").state is PluginState.ACTIVE


def name_of(folder: Path) -> str:
    return tomllib.loads((folder / "plugin.toml").read_text())["name"]


def key_of(served: Served, name: str) -> str:
    with served.client() as client:
        return plugin_key(client, name)


def put(served: Served, name: str, manifest: dict[str, object], key: str = "") -> httpx.Response:
    return httpx.put(
        f"{served.url}/v1/plugins/{name}/instances/x",
        headers={"Authorization": f"Bearer {key or key_of(served, name)}"},
        json={"manifest": manifest, "address": "127.0.0.1:1", "certificate": "", "token": "t"},
    )


def declared(name: str) -> dict[str, object]:
    return {**tomllib.loads(FAKE_MANIFEST.read_text()), "name": name}


@pytest.mark.parametrize("more", [{"contract": 2}, {"contract": 99, "unheard_of": True}])
def test_a_contract_we_do_not_speak_is_refused_before_the_rest_of_the_manifest_is_read(
    served: Served, more: dict[str, object]
) -> None:
    answer = put(served, "future", declared("future") | more)
    assert answer.status_code == 422
    told = answer.json()
    assert f"version {more['contract']} of the plugin contract; this platform speaks 1" in told["detail"]
    assert told["remedy"]


def test_an_incomplete_manifest_is_refused_with_each_of_its_faults(served: Served) -> None:
    answer = put(served, "faulty", {"name": "faulty", "version": "", "vendor": "", "summary": "s"})
    assert answer.status_code == 400
    named = {problem["field"] for problem in answer.json()["fields"]}
    assert {"version", "vendor", "entry", "missing.resize", "fields"} <= named


@pytest.mark.parametrize("name", ["fake", "Not-A-Name"])
def test_a_name_that_is_taken_or_no_name_is_refused(served: Served, name: str) -> None:
    assert put(served, name, declared(name)).status_code in (400, 409)


def test_a_plugin_is_registered_with_the_key_of_its_name_alone(served: Served, client: Client) -> None:
    client.set_member("*", "olga", Role.OPERATOR)
    operator = client.create_key("olgas", user="olga").text
    theirs = client.create_key("theirs", scope=KeyScope(plugin="theirs")).text
    for key in (
        operator,
        served.key,
        theirs,
    ):  # version 999 of another's plugin would get its launches, secrets and all
        assert put(served, "mine", declared("mine") | {"version": "999"}, key).status_code == 403
    assert put(served, "mine", declared("mine"), "yp_made-up_key").status_code == 401
    assert plugin(client, "mine") is None
    with served.client(operator) as olga, pytest.raises(ForbiddenError):
        olga.create_key("sly", scope=KeyScope(plugin="mine"))
    with served.client(theirs) as nobody:
        assert nobody.projects() == ()
        with pytest.raises(ForbiddenError):
            nobody.create_key("more")
        with pytest.raises(ForbiddenError):
            nobody.secrets("default")
    denied = [one for one in client.audit() if one.action == "plugin register" and one.outcome == "denied"]
    assert {one.user for one in denied} >= {"olga", "admin"}


def test_a_token_never_comes_out_again_nor_lies_readable_in_the_database(
    served: Served, client: Client
) -> None:
    manifest = declared("secretive")
    httpx.put(
        f"{served.url}/v1/plugins/secretive/instances/x",
        headers={"Authorization": f"Bearer {key_of(served, 'secretive')}"},
        json={"manifest": manifest, "address": "127.0.0.1:1", "certificate": "", "token": "hush-hush-42"},
    ).raise_for_status()
    assert b"hush-hush-42" not in msgspec.json.encode(client.plugins())
    assert all(b"hush-hush-42" not in path.read_bytes() for path in served.settings.home.glob("yunhe.db*"))
