"""The agent runs where the platform does not: old Pythons, no third-party code, one file."""

import ast
import subprocess
import sys
from importlib import resources
from pathlib import Path

import pytest

from yunhe.agent import AGENT_VERSION, PROTOCOL, failpoints
from yunhe.infrastructure.host.package import agent_file

ROOT = Path(str(resources.files("yunhe.agent")))
SOURCES = sorted(ROOT.rglob("*.py"))


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: str(path.relative_to(ROOT)))
def test_a_module_is_written_for_python_3_8_and_the_standard_library(path: Path) -> None:
    tree = ast.parse(path.read_text(), feature_version=(3, 8))
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            names = [node.module or ""]
        else:
            continue
        for name in names:
            assert name.split(".")[0] in sys.stdlib_module_names or name.startswith("yunhe.agent")
        assert "typing_extensions" not in names


def test_the_agent_is_one_file_that_runs_alone(tmp_path: Path) -> None:
    path = tmp_path / "agent.pyz"
    path.write_bytes(agent_file().data)
    command = [sys.executable, "-I", "-S", str(path), "version"]
    said = subprocess.run(command, capture_output=True, text=True, check=True, cwd=tmp_path).stdout.split()
    assert said[:2] == [str(AGENT_VERSION), str(PROTOCOL)]
    assert len(agent_file().data) < 200_000


def test_the_same_sources_give_the_same_file() -> None:
    first = agent_file()
    agent_file.cache_clear()
    assert agent_file() == first


def test_failpoints_have_names_of_their_own_and_each_is_in_the_code() -> None:
    assert len(set(failpoints.ALL)) == len(failpoints.ALL)
    code = "".join(path.read_text() for path in SOURCES if path.name != "failpoints.py")
    for name in failpoints.ALL:
        assert f'reach("{name}")' in code


def test_a_failpoint_nobody_asked_for_does_nothing() -> None:
    for name in failpoints.ALL:
        failpoints.reach(name)
