"""``up`` after ``down`` brings back what was up: at the same address, from the same home."""

from pathlib import Path

import pytest

from integration.entrypoints.api.serving import free_port
from integration.entrypoints.cli.conftest import Shell
from support.agent_roots import agent_root
from support.repository import REPOSITORY


def test_up_again_serves_where_it_served_and_another_home_is_a_platform_of_its_own(tmp_path: Path) -> None:
    shell, port, other_port = Shell(tmp_path / "user", REPOSITORY), free_port(), free_port()
    other = tmp_path / "second platform"
    with agent_root() as root, agent_root() as other_root:
        words = ("up", "--no-sample", "--agent-root", str(root))
        elsewhere = ("up", "--home", str(other), "--no-sample", "--agent-root", str(other_root))
        try:
            assert f":{port}/docs" in ok(shell, *words, "--port", str(port))
            taken = shell(*words, "--port", str(other_port))
            assert taken.returncode != 0
            assert f"runs already, at http://127.0.0.1:{port}" in taken.stderr
            assert "again   yunhe up\n" in ok(shell, "down")
            assert f":{port}/docs" in ok(shell, *words)
            assert f":{other_port}/docs" in ok(shell, *elsewhere, "--port", str(other_port))
            contexts = ok(shell, "config", "ls", "--output", "json")
            assert f":{port}" in contexts
            assert f":{other_port}" in contexts
            assert "second-platform" in contexts
            said = ok(shell, "down", "--home", str(other))
            assert f"yunhe up --home '{other}'" in said
            assert f":{other_port}/docs" in ok(shell, *elsewhere)
        finally:
            shell("down")
            shell("down", "--home", str(other))


def ok(shell: Shell, *words: str) -> str:
    done = shell(*words, timeout_s=110.0)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


@pytest.mark.parametrize("verb", ["up", "down"])
def test_the_home_is_explained_where_it_can_be_named(verb: str, tmp_path: Path) -> None:
    assert "--home" in Shell(tmp_path / "user", REPOSITORY)(verb, "--help").stdout
