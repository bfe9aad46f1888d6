"""A fault that is planted is noticed; one that is not, and one that only breaks the program, is told."""

from pathlib import Path

import pytest

from tools.features import Edit, Fault, Proof, collect
from tools.prove import Ended, cases, declared_badly, judge, plant, run_tests

SUM = "src/yunhe/summing.py"
WRONG: Fault = (Edit(SUM, "a + b", "a"),)
HARMLESS: Fault = (Edit(SUM, "a + b", "b + a"),)
BROKEN: Fault = (Edit(SUM, "a + b", "a + missing"),)


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A repository of one function and one test, whose sources only this copy has."""
    package = tmp_path / "tree" / "src" / "yunhe"
    package.mkdir(parents=True)
    (package / "__init__.py").touch()
    (package / "summing.py").write_text("def add(a, b):\n    return a + b\n")
    tests = tmp_path / "tree" / "tests"
    tests.mkdir()
    (tests / "test_sum.py").write_text(
        "import subprocess, sys\nfrom yunhe.summing import add\n"
        "def test_it(): assert add(1, 2) == 3\n"
        "def test_in_a_process_of_its_own():\n"
        "    code = 'from yunhe.summing import add; raise SystemExit(add(1, 2))'\n"
        "    assert subprocess.run([sys.executable, '-c', code]).returncode == 3\n"
    )
    return tmp_path / "tree"


@pytest.mark.parametrize(
    ("fault", "outcomes"),
    [
        (WRONG, ["killed", "killed"]),
        (HARMLESS, ["survived", "survived"]),
        (BROKEN, ["broken", "killed"]),  # a child process that crashes is a wrong answer to its parent
    ],
)
def test_the_verdict_is_that_of_the_planted_sources_in_child_processes_too(
    tree: Path, fault: Fault, outcomes: list[str]
) -> None:
    tests = [f"tests/test_sum.py::{name}" for name in ("test_it", "test_in_a_process_of_its_own")]
    plant(fault, tree)
    found = run_tests(tree, tests, "-n0")
    assert [judge([found[test]])[0] for test in tests] == outcomes


def test_sources_that_cannot_be_imported_prove_nothing(tree: Path) -> None:
    plant((Edit(SUM, "def add", "def other"),), tree)
    found = run_tests(tree, ["tests/test_sum.py::test_it"], "-n0")
    assert judge(found.values())[0] == "broken"


def test_a_test_that_is_skipped_is_not_counted_as_one_that_survives() -> None:
    assert judge([Ended("skipped", "no Go here")]) == ("not run", "no Go here")


@pytest.mark.parametrize(
    ("fault", "problem"),
    [
        ((), "declares no fault"),
        ((Edit("Makefile", "no such text", ""),), "is found 0 times in Makefile, not once"),
        ((Edit("Makefile", "pytest", ""),), "times in Makefile, not once"),
        ((Edit("nowhere.py", "x", ""),), "is found 0 times in nowhere.py"),
        ((Edit("Makefile", "VENV := .venv", "VENV := .venv"),), "changes nothing"),
    ],
)
def test_a_fault_must_be_declared_and_found_exactly_once(fault: Fault, problem: str) -> None:
    (found,) = declared_badly([Proof("R01", "tests/a.py::test_it", fault)] * 2)
    assert "tests/a.py::test_it (R01)" in found
    assert problem in found


def test_rows_of_the_same_tests_share_a_fault_and_others_do_not() -> None:
    proofs = [
        Proof("R01", "tests/a.py::test_it[1]", WRONG),
        Proof("R01", "tests/a.py::test_it[2]", WRONG),
        Proof("R02", "tests/a.py::test_it[1]", WRONG),
        Proof("R02", "tests/a.py::test_it[2]", WRONG),
        Proof("R03", "tests/a.py::test_it[2]", WRONG),
        Proof("R03", "tests/a.py::test_other", HARMLESS),
    ]
    assert [(case.rows, len(case.tests), case.fault) for case in cases(proofs)] == [
        (("R01", "R02"), 2, WRONG),
        (("R03",), 1, WRONG),
        (("R03",), 1, HARMLESS),
    ]


def test_marks_are_read_with_all_their_edits(tmp_path: Path) -> None:
    (tmp_path / "test_some.py").write_text(
        "import pytest\n"
        "@pytest.mark.feature('R01', file='a.py', old='x', new='y', also=[('b.py', 'v', 'w')])\n"
        "@pytest.mark.feature('R02')\n"
        "def test_it(): pass\n"
    )
    (first, second) = collect(tmp_path)
    assert (first.row, first.fault) == ("R01", (Edit("a.py", "x", "y"), Edit("b.py", "v", "w")))
    assert (second.row, second.fault) == ("R02", ())
    assert second.test.endswith("::test_it")
