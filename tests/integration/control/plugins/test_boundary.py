"""What an operator may bring in: plugins only from folders an administrator allowed, confined; options that run nothing."""

import json
import os
import shutil
import tempfile
from collections.abc import Generator
from pathlib import Path

import pytest

from integration.control.plugins.platform_process import PlatformProcess
from integration.control.plugins.processes import hosted_folder, until
from yunhe.control.plugins.model import Plugin
from yunhe.control.pools.model import PoolSpec
from yunhe.entrypoints.client import Client
from yunhe.kernel.errors import ForbiddenError
from yunhe.trading.accounts.model import Role

TASK_UID = 700_001
SPY = """
import json, os, resource, sys
from pathlib import Path
def reads(path):
    try:
        return bool(Path(path).read_bytes()) or True
    except OSError:
        return False
home = Path(sys.argv[1])
Path(os.environ["TMPDIR"], "seen.json").write_text(json.dumps({
    "uid": os.getuid(), "groups": os.getgroups(),
    "vault": reads(home / "vault.key"), "database": reads(home / "yunhe.db"), "first": reads(home / "first.key"),
    "server": reads(f"/proc/{os.getppid()}/environ"),
    "environment": sorted(os.environ),
    "processes": resource.getrlimit(resource.RLIMIT_NPROC)[0],
    "no_new_privs": "NoNewPrivs:\\t1" in Path("/proc/self/status").read_text(),
}))
os.execv(sys.executable, [sys.executable, "serve.py"])
"""


@pytest.fixture
def plugins() -> Generator[Path]:
    """A folder that only its owner writes to, and everybody can enter."""
    folder = Path(tempfile.mkdtemp(prefix="yunhe-plugins-"))
    folder.chmod(0o755)
    yield folder
    shutil.rmtree(folder)


@pytest.fixture
def platform(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Generator[PlatformProcess]:
    monkeypatch.setenv("A_SECRET_OF_THE_SERVER", "hunter2")
    with PlatformProcess(tmp_path / "home") as running:
        yield running
        with running.client() as client:
            for one in client.plugins():
                if one.processes:
                    client.remove_plugin(one.name, force=True)
            until(lambda: not any(one.processes for one in client.plugins()), 30)


@pytest.fixture
def operator(platform: PlatformProcess) -> Generator[Client]:
    with platform.client() as admin:
        admin.set_member("*", "olga", Role.OPERATOR)
        key = admin.create_key("olgas", user="olga").text
    with Client(platform.url, key) as client:
        yield client


def test_an_operator_starts_no_plugin_that_a_task_wrote(
    platform: PlatformProcess, operator: Client, plugins: Path
) -> None:
    folder, proof = hosted_folder(plugins / "evil", "evil"), plugins / "ran"
    (folder / "serve.py").write_text(f"open({str(proof)!r}, 'w').close()\n")
    plugins.chmod(0o777)  # where a task may write
    with pytest.raises(ForbiddenError, match="no administrator has allowed"):
        list(operator.add_plugin(str(folder)))
    with pytest.raises(ForbiddenError):
        operator.allow_plugins(str(plugins))
    with platform.client() as admin:
        admin.allow_plugins(str(plugins))
    with pytest.raises(ForbiddenError, match="others can write"):
        list(operator.add_plugin(str(folder)))
    plugins.chmod(0o755)
    if os.geteuid() == 0:
        os.chown(folder / "serve.py", TASK_UID, TASK_UID)
        with pytest.raises(ForbiddenError, match=r"serve\.py"):
            list(operator.add_plugin(str(folder)))
    (plugins / "outside").symlink_to("/tmp")
    with pytest.raises(ForbiddenError, match="no administrator has allowed"):
        list(operator.add_plugin(str(plugins / "outside")))
    assert not proof.exists()
    assert [one.directory for one in operator.plugin_folders()] == [str(plugins)]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a plugin a user of its own")
def test_a_hosted_plugin_runs_as_its_own_user_and_reads_nothing_of_the_server(
    platform: PlatformProcess, operator: Client, plugins: Path
) -> None:
    command = json.dumps(["python", "spy.py", str(platform.home)])
    folder = hosted_folder(plugins / "spy", "spy", command=command)
    (folder / "spy.py").write_text(SPY)
    other = hosted_folder(plugins / "other", "other")
    with platform.client() as admin:
        admin.allow_plugins(str(plugins))
    added = list(operator.add_plugin(str(folder)))[-1]
    assert isinstance(added, Plugin), added
    second = list(operator.add_plugin(str(other)))[-1]
    assert isinstance(second, Plugin)
    (process,) = added.processes
    (beside,) = second.processes
    assert process.uid != beside.uid
    assert process.uid not in (None, 0)
    home = Path(tempfile.gettempdir()) / f"yunhe-plugin-{process.instance}"
    seen = json.loads((home / "seen.json").read_text())
    assert seen["uid"] == process.uid
    assert seen["groups"] == []
    assert [seen[what] for what in ("vault", "database", "first", "server")] == [False] * 4
    assert "A_SECRET_OF_THE_SERVER" not in seen["environment"]
    assert "YUNHE_DATABASE" not in seen["environment"]
    assert seen["no_new_privs"]
    assert 0 < seen["processes"] <= 256
    operator.remove_plugin("spy", force=True)
    until(lambda: not home.exists(), 30)


@pytest.mark.parametrize(
    ("kind", "target", "options"),
    [
        ("ssh", "nobody@127.0.0.1", {"ssh_config": "PATH"}),
        ("slurm", "nobody@127.0.0.1", {"ssh_config": "PATH"}),
        ("kubernetes", "x", {"kubeconfig": "PATH"}),
        ("ray", "http://127.0.0.1:1", {"token_file": "PATH"}),
    ],
)
def test_options_that_run_programs_or_read_the_servers_files_are_an_administrators(
    platform: PlatformProcess,
    operator: Client,
    tmp_path: Path,
    kind: str,
    target: str,
    options: dict[str, str],
) -> None:
    ran = tmp_path / "ran"
    path = tmp_path / "config"
    path.write_text(f"Host *\n  ProxyCommand touch {ran}\n")
    spec = PoolSpec(name="sly", kind=kind, target=target, options=dict.fromkeys(options, str(path)))
    with pytest.raises(ForbiddenError) as refused:
        list(operator.add_pool(spec))
    assert [field.field for field in refused.value.fields] == [f"options.{name}" for name in options]
    assert not ran.exists()
