"""What the platform keeps is its user's alone, and no password is where others can read it."""

import stat
from collections.abc import Generator
from pathlib import Path

import pytest

from integration.entrypoints.api.serving import free_port
from integration.entrypoints.cli.conftest import Shell
from support.agent_roots import agent_root
from support.postgres import new_database
from yunhe.entrypoints.cli.session.context import Config, Context, save_config
from yunhe.entrypoints.cli.session.daemon import running


def modes(home: Path) -> dict[str, int]:
    return {path.name: stat.S_IMODE(path.stat().st_mode) for path in home.iterdir() if path.is_file()}


@pytest.fixture
def root() -> Generator[str]:
    with agent_root() as folder:
        yield str(folder)


def test_login_before_up_leaves_nothing_that_others_can_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, root: str
) -> None:
    tmp_path.chmod(0o755)
    home = tmp_path / "home"
    monkeypatch.setenv("YUNHE_HOME", str(home))
    save_config(Config().holding("far", Context(url="https://far.example", key="yk_1")))
    assert stat.S_IMODE(home.stat().st_mode) == 0o700
    home.chmod(0o755)  # as older versions left it, with a database that everybody could read
    (home / "yunhe.db").touch(mode=0o644)
    shell = Shell(home=home, cwd=tmp_path)
    try:
        done = shell("up", "--port", str(free_port()), "--no-sample", "--agent-root", root)
        assert done.returncode == 0, done.stderr
        assert stat.S_IMODE(home.stat().st_mode) == 0o700
        assert {name: oct(mode) for name, mode in modes(home).items() if mode & 0o077} == {}
        assert {"yunhe.db", "vault.key", "first.key", "config.json", "server.log"} <= set(modes(home))
    finally:
        shell("down")


@pytest.mark.drives("postgresql")
def test_up_keeps_the_password_of_the_database_out_of_the_arguments(
    tmp_path: Path, postgres: str, root: str
) -> None:
    url = new_database(postgres, f"up_{tmp_path.name.replace('-', '_')}"[:40].lower())
    url = url.replace("://yunhe@", "://yunhe:hunter2@")
    shell = Shell(home=tmp_path / "home", cwd=tmp_path, extra={"YUNHE_DATABASE": url})
    try:
        done = shell("up", "--port", str(free_port()), "--no-sample", "--agent-root", root)
        assert done.returncode == 0, done.stderr
        server = running(tmp_path / "home")
        assert server is not None
        assert b"hunter2" not in Path(f"/proc/{server.pid}/cmdline").read_bytes()
        assert not (tmp_path / "home" / "yunhe.db").exists(), (
            "the server does not use the database it was given"
        )
    finally:
        shell("down")


@pytest.mark.parametrize(
    "url", ["postgresql://yunhe:hunter2@db/yunhe", "postgresql://yunhe@db/yunhe?password=hunter2"]
)
@pytest.mark.parametrize("command", ["up", "serve"])
def test_a_password_on_the_command_line_is_refused(tmp_path: Path, command: str, url: str) -> None:
    refused = Shell(home=tmp_path, cwd=tmp_path).inside(command, "--database", url)
    assert refused.returncode == 1
    assert "YUNHE_DATABASE" in refused.stderr
    assert "hunter2" not in refused.stderr


@pytest.mark.parametrize("url", ["http://yunhe.example:8600", "http://10.1.2.3:8600"])
def test_a_key_is_not_sent_in_clear(tmp_path: Path, url: str) -> None:
    shell = Shell(home=tmp_path, cwd=tmp_path)
    refused = shell.inside("login", url, typed="yk_secret\n")
    assert refused.returncode == 1
    assert "in clear" in refused.stderr
    shell.extra = {"YUNHE_URL": url, "YUNHE_KEY": "yk_secret"}
    refused = shell.inside("ps")
    assert refused.returncode == 1
    assert "in clear" in refused.stderr
    assert not (tmp_path / "config.json").exists()


def test_a_home_that_everybody_shares_is_refused(tmp_path: Path) -> None:
    tmp_path.chmod(0o1777)
    refused = Shell(home=tmp_path, cwd=tmp_path).inside("serve")
    assert refused.returncode == 1
    assert "YUNHE_HOME" in refused.stderr
    assert stat.S_IMODE(tmp_path.stat().st_mode) == 0o1777
