"""A new vendor is a new plugin and nothing else: not a line of the core knows of it."""

import json
import re
from collections.abc import Generator
from pathlib import Path

import pytest

import yunhe
from integration.control.plugins.platform_process import PlatformProcess
from integration.entrypoints.cli.conftest import Shell
from yunhe.infrastructure.contract.manifest import read_manifest

CORE = Path(yunhe.__file__).parent
TEXTS = [path for path in CORE.rglob("*") if path.suffix in (".py", ".toml", ".proto", ".pyi")]
VENDORS = sorted(
    path.parent for path in (CORE / "infrastructure").glob("*/plugin.toml") if path.parent.name != "fake"
)
"""What joins other people's engines; the fake one is for tests and skeletons, which may name it."""


@pytest.fixture
def shell(tmp_path: Path) -> Generator[Shell]:
    with PlatformProcess(tmp_path / "home") as platform:
        known = {"YUNHE_URL": platform.url, "YUNHE_KEY": platform.key}
        shell = Shell(tmp_path / "user", tmp_path, known)
        yield shell
        shell("plugin", "rm", "-y", "--force", "acme")


def said(shell: Shell, *words: str | Path) -> str:
    done = shell(*words)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.feature(
    "C04",
    file="src/yunhe/control/plugins/kinds.py",
    old="return found | self._in_process.manifests",
    new="return self._in_process.manifests",
)
def test_a_vendor_that_nobody_has_heard_of_joins_with_its_plugin_alone(shell: Shell) -> None:
    assert "acme" not in said(shell, "pool", "kinds")
    said(shell, "plugin", "new", "acme")
    said(shell, "plugin", "allow", "acme")
    said(shell, "plugin", "add", "acme")
    said(shell, "pool", "add", "acme", "one", "--name", "acme-one", "--price", "cpu=3600/h")
    said(shell, "pool", "check", "acme-one")
    ran = shell("run", "-y", "--pool", "acme-one", "--cpus", "1", "--", "echo from acme\nsleep 0.5\nexit 3")
    assert (ran.returncode, ran.stdout) == (3, "from acme\n"), ran.stderr
    (line,) = json.loads(said(shell, "cost", "--by", "pool", "-o", "json"))["lines"]
    assert line["amount_micros"] >= 500_000, "a core-second costs 1"


@pytest.mark.feature(
    "C04",
    file="src/yunhe/control/plugins/kinds.py",
    old="return name in self._in_process.manifests",
    new='return name == "slurm" or name in self._in_process.manifests',
)
@pytest.mark.parametrize("folder", VENDORS, ids=lambda folder: folder.name)
def test_no_file_outside_a_vendors_folder_names_it(folder: Path) -> None:
    name = read_manifest(folder / "plugin.toml").name
    word = re.compile(rf"(?<![A-Za-z]){re.escape(name)}(?![A-Za-z])", re.IGNORECASE)
    knowing = [path for path in TEXTS if folder not in path.parents and word.search(path.read_text())]
    assert not knowing
    assert len(VENDORS) >= 3
