"""The ledger counts what passed, and refuses what is not in the inventory."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tools.features import ROOT, Proof, head_commit
from tools.ledger import (
    Record,
    judge,
    ranges,
    read_evidence,
    read_inventory,
    read_records,
    show_json,
    show_text,
)

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


TEST = "tests/a.py::test_it"


def run_ledger(
    tests: str, tmp_path: Path, inventory: Path, *arguments: str | Path
) -> subprocess.CompletedProcess[str]:
    folder = tmp_path / "tests"
    folder.mkdir()
    (folder / "test_some.py").write_text(f"import pytest\n{tests}")
    return subprocess.run(
        [sys.executable, "-m", "tools.ledger", "--inventory", inventory, "--tests", folder, *arguments],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )


def proof(row: str, test: str = TEST) -> Proof:
    return Proof(row, test, ())


def record(**outcomes: str) -> Record:
    return Record(
        "test", "2026-01-02T03:04:05+00:00", "abc1234", {f"tests/a.py::{n}": o for n, o in outcomes.items()}
    )


def test_only_marks_on_collected_tests_that_passed_prove_a_row(tmp_path: Path, inventory: Path) -> None:
    tests = (
        "@pytest.mark.feature('R01', 'R03')\ndef test_it(): pass\n"
        "@pytest.mark.feature('T01')\ndef test_not_run(): pass\n"
        "@pytest.mark.feature('R02')\ndef helper(): pass\n"
    )
    records = tmp_path / "records"
    records.mkdir()
    node = "::test_it"  # as pytest calls a test that is not below the root
    ran = {"at": "2026-01-02T03:04:05+00:00", "commit": "abc1234", "outcomes": {node: "passed"}}
    (records / "test.json").write_text(json.dumps(ran))
    done = run_ledger(tests, tmp_path, inventory, "--output", "json", "--records", records)
    assert done.returncode == 0, done.stderr
    said = json.loads(done.stdout)
    roles, trading = said["groups"]["R Roles & platforms"], said["groups"]["T Trading"]
    assert list(roles["proven"]) == ["R01", "R03"]
    assert (roles["rows"], roles["must"], roles["missing"]) == (3, 2, ["R02"])
    assert (trading["proven"], trading["missing"]) == ({}, ["T01"])
    assert list(said["unproven"]) == ["T01"]


def test_a_run_records_how_the_marked_tests_ended_and_no_others(tmp_path: Path) -> None:
    file = "tests/unit/runtime/test_modules.py"
    command = ["-m", "pytest", "-q", "-n0", "--record", str(tmp_path / "new" / "run.json"), file]
    subprocess.run([sys.executable, *command], cwd=ROOT, capture_output=True, check=True, timeout=120)
    (found,) = read_records(tmp_path / "new")
    assert found.name == "run"
    assert found.commit == head_commit()
    marked = f"{file}::test_the_table_lists_exactly_ten_modules_and_24_sub_modules"
    assert found.outcomes == {marked: "passed"}


@pytest.mark.parametrize("outcome", ["failed", "skipped", "error"])
def test_a_row_is_not_proven_by_a_test_that_did_not_pass_in_the_last_run(outcome: str) -> None:
    found = judge([], [proof("R01"), proof("R02")], [record(test_it=outcome)], {})
    assert found.proven == {}
    assert found.unproven == dict.fromkeys(("R01", "R02"), f"{TEST} {outcome}")


def test_every_test_of_a_row_must_pass_in_every_run_that_has_it() -> None:
    both = [proof("R01"), proof("R01", "tests/a.py::test_other")]
    assert list(judge([], both, [record(test_it="passed", test_other="passed")], {}).proven) == ["R01"]
    assert judge([], both, [record(test_it="passed")], {}).unproven == {
        "R01": "tests/a.py::test_other was not run"
    }
    again = record(test_it="failed")
    assert judge([], both[:1], [record(test_it="passed"), again], {}).proven == {}


def test_a_dated_page_of_evidence_stands_for_a_test_that_cannot_run_here(tmp_path: Path) -> None:
    page = tmp_path / "R01.md"
    page.write_text(f"# R01\ndate: 2026-01-02\ntest: {TEST}\nhardware: eight GPUs\n")
    found = judge([], [proof("R01", f"{TEST}[big]")], [record(test_it="skipped")], read_evidence(tmp_path))
    assert list(found.proven) == ["R01"]
    assert not found.problems


@pytest.mark.parametrize(
    ("page", "problem"),
    [
        (f"test: {TEST}\nhardware: GPUs", "does not say its date"),
        (f"date: yesterday\ntest: {TEST}\nhardware: GPUs", "'yesterday': write YYYY-MM-DD"),
        ("date: 2026-01-02\ntest: tests/a.py::test_other\nhardware: GPUs", "does not carry its mark"),
    ],
)
def test_evidence_without_a_date_or_of_another_test_is_an_error(
    tmp_path: Path, page: str, problem: str
) -> None:
    (tmp_path / "R01.md").write_text(page)
    (found,) = judge([], [proof("R01")], [], read_evidence(tmp_path)).problems
    assert problem in found


def test_a_row_that_does_not_exist_is_an_error(inventory: Path) -> None:
    found = judge(read_inventory(inventory), [proof("R99")], [], {})
    assert found.problems == [f"R99 is no row of the inventory, yet {TEST} proves it"]


def test_without_the_inventory_or_a_run_it_says_so() -> None:
    text = show_text(judge([], [proof("R01")], [], {}))
    assert "The inventory is not there.\nproven: none" in text
    assert "No full run is on record" in text
    assert "marked, not proven: R01" in text
    assert json.loads(show_json(judge([], [proof("R01")], [record(test_it="passed")], {})))["proven"] == {
        "R01": [TEST]
    }


def test_a_record_of_another_commit_is_told_as_such() -> None:
    text = show_text(judge([], [proof("R01")], [record(test_it="passed")], {}))
    assert (
        "recorded by test: 1 tests at 2026-01-02T03:04:05+00:00, commit abc1234; the sources are now at"
        in text
    )


def test_the_table_fits_a_terminal_and_adds_up(inventory: Path) -> None:
    found = judge(read_inventory(inventory), [proof("R01")], [record(test_it="passed")], {})
    lines = show_text(found).splitlines()
    assert [line.split()[-4:-1] for line in lines[1:3]] == [["1", "2", "3"], ["0", "1", "1"]]
    assert [line.split()[-1] for line in lines[1:3]] == ["R02", "all"]
    assert lines[3].split() == ["in", "all", "1", "3", "4"]


def test_tests_that_cannot_be_collected_are_an_error(tmp_path: Path, inventory: Path) -> None:
    broken = "import nowhere_to_be_found\n@pytest.mark.feature('R01')\ndef test_it(): pass\n"
    done = run_ledger(broken, tmp_path, inventory)
    assert done.returncode == 1
    assert "cannot be collected" in done.stderr


def test_runs_are_drawn_together() -> None:
    assert ranges(["R05", "R01", "R02", "R03", "S04", "S05"]) == "R01–R03 R05 S04–S05"


@given(st.sets(st.tuples(st.sampled_from("RST"), st.integers(1, 99)).map(lambda row: f"{row[0]}{row[1]:02}")))
def test_no_row_is_lost_when_runs_are_drawn_together(ids: set[str]) -> None:
    read: set[str] = set()
    for run in ranges(ids).split():
        first, _, last = run.partition("–")
        read |= {f"{run[0]}{n:02}" for n in range(int(first[1:]), int((last or first)[1:]) + 1)}
    assert read == ids
