"""What ``yunhe plugin new`` writes is a plugin."""

import subprocess
import sys
from pathlib import Path

import pytest

from yunhe.infrastructure.contract.manifest import read_manifest


def yunhe(*arguments: str, folder: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "yunhe.entrypoints.cli", "plugin", *arguments],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )


def test_a_new_plugin_passes_the_conformance_kit_as_written(tmp_path: Path) -> None:
    written = yunhe("new", "torque", folder=tmp_path)
    assert written.returncode == 0, written.stderr
    assert read_manifest(tmp_path / "torque" / "plugin.toml").name == "torque"
    kit = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-W", "error", "test_plugin.py"],
        cwd=tmp_path / "torque",
        capture_output=True,
        text=True,
        check=False,
    )
    assert kit.returncode == 0, kit.stdout
    summary = kit.stdout.splitlines()[-1]
    assert "failed" not in summary
    assert int(summary.split()[0]) >= 40, summary


@pytest.mark.parametrize("language", ["python", "go"])
def test_a_new_plugin_has_its_own_name_everywhere(tmp_path: Path, language: str) -> None:
    assert yunhe("new", "torque", "--language", language, folder=tmp_path).returncode == 0
    texts = [path.read_text() for path in (tmp_path / "torque").rglob("*") if path.is_file()]
    assert len(texts) >= 4
    assert not [text for text in texts if "example-engine" in text or "go-plugin" in text]


def test_nothing_is_written_where_something_is(tmp_path: Path) -> None:
    (tmp_path / "torque").mkdir()
    (tmp_path / "torque" / "mine.txt").write_text("mine")
    refused = yunhe("new", "torque", folder=tmp_path)
    assert refused.returncode == 1
    assert "not empty" in refused.stderr
    assert [path.name for path in (tmp_path / "torque").iterdir()] == ["mine.txt"]


@pytest.mark.parametrize("name", ["Torque", "-torque", "my plugin", "../up", "t" * 41, "torque-"])
def test_a_name_that_no_pool_could_have_is_refused(tmp_path: Path, name: str) -> None:
    refused = yunhe("new", "--", name, folder=tmp_path)
    assert refused.returncode == 1
    assert "cannot be a plugin's name" in refused.stderr
    assert list(tmp_path.iterdir()) == []
