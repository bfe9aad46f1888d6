"""What nobody calls is found, and what is excepted is still there and still without a caller."""

import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

from vulture import Vulture

ROOT = Path(__file__).resolve().parents[3]


def settings() -> dict[str, Any]:
    return tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["vulture"]


def test_a_function_that_nobody_calls_fails_the_check(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("def called(): ...\ndef planted(): ...\ncalled()\n")
    found = subprocess.run(
        [sys.executable, "-m", "vulture", "--config", str(ROOT / "pyproject.toml"), str(tmp_path)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert found.returncode == 3
    assert "unused function 'planted'" in found.stdout
    assert "'called'" not in found.stdout


def test_every_exception_names_something_that_is_there_and_unused() -> None:
    finder = Vulture(ignore_decorators=settings()["ignore_decorators"])
    finder.scavenge([str(ROOT / "src")], exclude=settings()["exclude"])
    unused = {item.name for item in finder.get_unused_code()}
    assert {name for name in settings()["ignore_names"] if "*" not in name} - unused == set()
