"""The ledger counts what is marked, and refuses what is not in the inventory."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tools import ledger

INVENTORY = """# Inventory
| Group | Rows |
|---|---|
| Roles | 3 |

## R. Roles & platforms (3 rows)

| # | ID | Kind | Feature | Source | Works means |
|---|---|---|---|---|---|
| 1 | R01 | must | Consumer | S2 | A consumer can order |
| 2 | R02 | must | Provider | S2 | A provider | sees |
| 3 | R03 | reference | Context | S2 | Recorded |

## T. Trading (1 rows)

| # | ID | Kind | Feature | Source | Works means |
|---|---|---|---|---|---|
| 4 | T01 | must | Layer | S2 | Starts |
"""


@pytest.fixture
def inventory(tmp_path: Path) -> Path:
    path = tmp_path / "inventory.md"
    path.write_text(INVENTORY)
    return path


def run_ledger(
    tests: str, tmp_path: Path, inventory: Path, *arguments: str
) -> subprocess.CompletedProcess[str]:
    folder = tmp_path / "tests"
    folder.mkdir()
    (folder / "test_some.py").write_text(f"import pytest\n{tests}")
    return subprocess.run(
        [sys.executable, ledger.__file__, "--inventory", inventory, "--tests", folder, *arguments],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )


def run_main(
    monkeypatch: pytest.MonkeyPatch, inventory: Path, proofs: dict[str, list[str]], *arguments: str
) -> int:
    def collect(tests: Path) -> dict[str, list[str]]:
        return proofs

    monkeypatch.setattr(ledger, "collect", collect)
    monkeypatch.setattr(sys, "argv", ["ledger.py", "--inventory", str(inventory), *arguments])
    return ledger.main()


def test_only_marks_on_collected_tests_prove_a_row(tmp_path: Path, inventory: Path) -> None:
    tests = (
        "@pytest.mark.feature('R01', 'R03')\ndef test_it(): pass\n"
        "@pytest.mark.feature('R02')\ndef helper(): pass\n"
    )
    done = run_ledger(tests, tmp_path, inventory, "--output", "json")
    assert done.returncode == 0
    groups = json.loads(done.stdout)["groups"]
    roles, trading = groups["R Roles & platforms"], groups["T Trading"]
    assert list(roles["proven"]) == ["R01", "R03"]
    assert (roles["rows"], roles["must"], roles["missing"]) == (3, 2, ["R02"])
    assert (trading["proven"], trading["missing"]) == ({}, ["T01"])


def test_a_row_that_does_not_exist_is_an_error(
    inventory: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_main(monkeypatch, inventory, {"R99": ["tests/a.py::test_it"]}) == 1
    assert "R99 is no row of the inventory, yet tests/a.py::test_it proves it" in capsys.readouterr().out


@pytest.mark.parametrize("output", ["text", "json"])
def test_without_the_inventory_it_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], output: str
) -> None:
    assert run_main(monkeypatch, tmp_path / "nowhere.md", {"R01": ["t"]}, "--output", output) == 0
    said = capsys.readouterr().out
    if output == "text":
        assert said.strip() == "The inventory is not there; rows marked as proven: R01"
    else:
        assert json.loads(said) == {"inventory": False, "groups": {}, "unknown": [], "proven": {"R01": ["t"]}}


def test_the_table_fits_a_terminal_and_adds_up(inventory: Path) -> None:
    lines = ledger.show_text(ledger.read_inventory(inventory), {"R01": ["t"]}, []).splitlines()
    assert [line.split()[-4:-1] for line in lines[1:-1]] == [["1", "2", "3"], ["0", "1", "1"]]
    assert [line.split()[-1] for line in lines[1:-1]] == ["R02", "all"]
    assert lines[-1].split() == ["in", "all", "1", "3", "4"]


def test_tests_that_cannot_be_collected_are_an_error(tmp_path: Path, inventory: Path) -> None:
    done = run_ledger("import nowhere_to_be_found\n", tmp_path, inventory)
    assert done.returncode == 1
    assert "cannot be collected" in done.stderr


def test_runs_are_drawn_together() -> None:
    assert ledger.ranges(["R05", "R01", "R02", "R03", "S04", "S05"]) == "R01–R03 R05 S04–S05"


@given(st.sets(st.tuples(st.sampled_from("RST"), st.integers(1, 99)).map(lambda row: f"{row[0]}{row[1]:02}")))
def test_no_row_is_lost_when_runs_are_drawn_together(ids: set[str]) -> None:
    read: set[str] = set()
    for run in ledger.ranges(ids).split():
        first, _, last = run.partition("–")
        read |= {f"{run[0]}{n:02}" for n in range(int(first[1:]), int((last or first)[1:]) + 1)}
    assert read == ids
