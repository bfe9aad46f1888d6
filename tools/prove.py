"""Plant the fault declared beside every feature mark and see that the marked test fails.

A mark says which rows its test proves and a plausible wrong answer: in *file*, *old* becomes *new*. Each fault is planted
alone in a copy of the tree, and only the tests of its mark run there. A test is proven when it passes without the fault
and fails under it. One that passes under it survives: it would not notice that the row is broken. One that stops with an
error of the program (a name that is gone, a fixture that fails) is no proof either: the fault is not a wrong answer.

``--check`` runs no test: it verifies that every mark declares a fault and that its text is found exactly once.
"""

import argparse
import datetime as dt
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import NamedTuple
from xml.etree import ElementTree as ET

from tools.features import ROOT, Fault, Proof, collect

HANGS_AFTER_S = 1200
PROGRAM_ERRORS = (
    "AttributeError", "ImportError", "IndentationError", "KeyError", "ModuleNotFoundError", "NameError",
    "SyntaxError", "TypeError", "UnboundLocalError",
)  # fmt: skip
PROVEN = "killed"


class Case(NamedTuple):
    """What is planted at once: one fault, the rows whose marks declare it, and the tests that must fail."""

    fault: Fault
    rows: tuple[str, ...]
    tests: tuple[str, ...]

    @property
    def function(self) -> str:
        """The node ID of the first test, without its parameters."""
        return self.tests[0].partition("[")[0]


class Verdict(NamedTuple):
    """How the tests of a case ended under the fault, what the first failure said, and how long that took."""

    case: Case
    outcome: str
    said: str
    seconds: float


class Ended(NamedTuple):
    """How one test ended: ``passed``, ``failed``, ``error`` or ``skipped``, and what it said."""

    outcome: str
    said: str


def main() -> int:
    """Print one line for each fault; return 1 where a row is not proven."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("rows", nargs="*", help="only these rows (all when none is named)")
    parser.add_argument("-n", dest="workers", type=int, default=2, help="how many faults at a time")
    parser.add_argument(
        "-m", dest="expression", default="", help="only tests whose marks match, as in pytest"
    )
    parser.add_argument("--tests", type=Path, default=ROOT / "tests")
    parser.add_argument("--write", type=Path, help="also write the table to this page")
    parser.add_argument("--check", action="store_true", help="verify the declared faults and run nothing")
    options = parser.parse_args()
    chosen = [proof for proof in collect(options.tests) if not options.rows or proof.row in options.rows]
    problems = [f"no test carries the mark of {row}" for row in {*options.rows} - {p.row for p in chosen}]
    problems += declared_badly(chosen)
    for problem in problems:
        print(f"✗ {problem}")
    if options.check or problems:
        print(
            f"{len(cases(chosen))} faults declared for {len({p.row for p in chosen})} rows, {len(problems)} problems"
        )
        return 1 if problems else 0
    verdicts = prove(cases(chosen), options.workers, options.expression)
    if options.write:
        options.write.write_text(page(verdicts))
    print(summary(verdicts))
    return 0 if all(verdict.outcome == PROVEN for verdict in verdicts) else 1


def declared_badly(proofs: Iterable[Proof]) -> list[str]:
    """Return what is wrong with the faults declared: none, unchanged text, or text not found exactly once."""
    problems: dict[str, None] = {}
    for proof in proofs:
        where = f"{proof.function} ({proof.row})"
        if not proof.fault:
            problems[f"{where} declares no fault: give its mark file, old and new"] = None
        for edit in proof.fault:
            path = ROOT / edit.file
            found = path.read_text().count(edit.old) if path.is_file() else 0
            if found != 1:
                problems[f"{where}: {edit.old!r} is found {found} times in {edit.file}, not once"] = None
            elif edit.old == edit.new:
                problems[f"{where}: its fault changes nothing in {edit.file}"] = None
    return list(problems)


def cases(proofs: Iterable[Proof]) -> list[Case]:
    """Return the faults by row; rows of the same tests with the same fault are one case."""
    tests_of: dict[tuple[str, str, Fault], dict[str, None]] = {}
    for proof in proofs:
        if proof.fault:
            tests_of.setdefault((proof.row, proof.function, proof.fault), {})[proof.test] = None
    rows_of: dict[tuple[Fault, tuple[str, ...]], list[str]] = {}
    for (row, _, fault), tests in tests_of.items():
        rows_of.setdefault((fault, tuple(tests)), []).append(row)
    return [Case(fault, tuple(rows), tests) for (fault, tests), rows in rows_of.items()]


def prove(chosen: Sequence[Case], workers: int, expression: str) -> list[Verdict]:
    """Run the tests without any fault, then each case under its own; print every verdict as it comes."""
    with tempfile.TemporaryDirectory(prefix="yunhe-prove-") as folder:
        base = Path(folder) / "base" / ROOT.name
        copy_tree(base)
        tests = list(dict.fromkeys(test for case in chosen for test in case.tests))
        began_at = time.monotonic()
        without = run_tests(base, tests, "-n", str(workers), "--dist", "loadfile", "-m", expression)
        print(f"{len(tests)} tests without a fault: {time.monotonic() - began_at:.0f} s", flush=True)
        pool = ThreadPoolExecutor(workers)
        try:
            verdicts = pool.map(partial(under_fault, base=base, without=without), chosen)
            return [show(verdict) for verdict in verdicts]
        finally:
            pool.shutdown(cancel_futures=True)


def copy_tree(target: Path) -> None:
    """Copy the files of the repository to *target*, with the data beside it in reach."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT, capture_output=True, text=True, check=True,
    )  # fmt: skip
    for name in filter(None, listed.stdout.split("\0")):
        if (ROOT / name).is_file():
            (target / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, target / name)
    share_data(target)


def share_data(tree: Path) -> None:
    """Let *tree* find the folder of data that lies beside the repository, where there is one."""
    data = ROOT.parent / "shared"
    if data.is_dir():
        (tree.parent / "shared").symlink_to(data)


def under_fault(case: Case, base: Path, without: dict[str, Ended]) -> Verdict:
    """Return how the tests of *case* end in a copy of *base* that holds its fault."""
    before = [without.get(test, Ended("skipped", "not selected, or not run")) for test in case.tests]
    for ended in before:
        if ended.outcome != "passed":
            word = "not run" if ended.outcome == "skipped" else "fails as it is"
            return Verdict(case, word, ended.said, 0)
    began_at = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="yunhe-fault-") as folder:
        tree = Path(folder) / ROOT.name
        shutil.copytree(base, tree)
        share_data(tree)
        plant(case.fault, tree)
        try:
            found = run_tests(tree, case.tests, "-x", "-n0", within_s=HANGS_AFTER_S)
        except subprocess.TimeoutExpired:
            found = {case.function: Ended("error", f"did not end within {HANGS_AFTER_S} s")}
    outcome, said = judge(found.values())
    return Verdict(case, outcome, said, time.monotonic() - began_at)


def plant(fault: Fault, tree: Path) -> None:
    """Write *fault* into *tree*; where it is in a compiled kernel, what was compiled with it goes."""
    for edit in fault:
        path = tree / edit.file
        path.write_text(path.read_text().replace(edit.old, edit.new))
        if any((path.parent / "__pycache__").glob(f"{path.stem}.*.nbi")):
            for index in tree.rglob("*.nbi"):
                index.unlink()


def judge(found: Iterable[Ended]) -> tuple[str, str]:
    """Return ``killed``, ``survived``, ``broken`` or ``not run``, and what the first failure said."""
    by_outcome = {ended.outcome: ended.said for ended in reversed(list(found))}
    if "error" in by_outcome:
        return "broken", by_outcome["error"]
    if "failed" in by_outcome:
        said = by_outcome["failed"]
        return ("broken" if said.startswith(PROGRAM_ERRORS) else PROVEN), said
    return ("survived", "") if "passed" in by_outcome else ("not run", by_outcome.get("skipped", ""))


def run_tests(
    tree: Path, tests: Sequence[str], *arguments: str, within_s: float | None = None
) -> dict[str, Ended]:
    """Run tests of *tree* on its own sources and return how each ended, by node ID.

    Raises ``subprocess.TimeoutExpired`` where they have not ended *within_s*.
    """
    report = tree.parent / f"{tree.name}.xml"
    environment = {**os.environ, "PYTHONPATH": str(tree / "src"), "CI": "1"}
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", f"--junitxml={report}", *arguments, *tests],
        cwd=tree, env=environment, capture_output=True, text=True, check=False, timeout=within_s,
    )  # fmt: skip
    if not report.exists():
        return {"pytest": Ended("error", (done.stdout + done.stderr).strip()[-200:])}
    named = {_spelled(test): test for test in tests}
    found: dict[str, Ended] = {}
    for case in ET.parse(report).iter("testcase"):
        spelled = f"{case.get('classname')}.{case.get('name')}"
        found[named.get(spelled, spelled)] = _ended(case)
    return found


def _spelled(test: str) -> str:
    """Return a node ID as JUnit's report spells it: ``tests.unit.test_a.test_it[1]``."""
    path, _, name = test.partition("::")
    return f"{path.removesuffix('.py').replace('/', '.')}.{name.replace('::', '.')}"


def _ended(case: ET.Element) -> Ended:
    for tag, outcome in (("error", "error"), ("failure", "failed"), ("skipped", "skipped")):
        for element in case.iter(tag):
            said = " ".join((element.get("message") or "").split())
            unclear = said.startswith("ExceptionGroup") and "AssertionError" not in (element.text or "")
            return Ended("error" if unclear else outcome, said)
    return Ended("passed", "")


def show(verdict: Verdict) -> Verdict:
    """Print a verdict and return it."""
    case = verdict.case
    print(
        f"{verdict.outcome:9} {verdict.seconds:5.0f} s  {' '.join(case.rows):12} {case.function}\n"
        f"{'':21}{change(case.fault)}\n{'':21}{verdict.said[:110]}",
        flush=True,
    )
    return verdict


def change(fault: Fault) -> str:
    """Return a fault on one line."""
    return "; ".join(f"{edit.file}: {_short(edit.old)} → {_short(edit.new)}" for edit in fault)


def _short(text: str) -> str:
    return " ".join(text.split())[:70] or "(nothing)"


def summary(verdicts: Sequence[Verdict]) -> str:
    """Return how many rows are proven, and which are not."""
    rows = {row for verdict in verdicts for row in verdict.case.rows}
    open_rows = {row for verdict in verdicts if verdict.outcome != PROVEN for row in verdict.case.rows}
    left = f"; not proven: {' '.join(sorted(open_rows))}" if open_rows else ""
    return f"{len(verdicts)} faults planted: {len(rows - open_rows)} of {len(rows)} rows proven{left}"


def page(verdicts: Sequence[Verdict]) -> str:
    """Return the table as a page, with the date and the commit."""
    lines = [
        "# Proofs",
        "",
        f"Written by `make prove` on {dt.datetime.now(dt.UTC).date()}. Each fault was planted alone; `killed` means that the test",
        "passes without it and fails under it. CONTRIBUTING.md says what the other outcomes mean.",
        "",
        f"{summary(verdicts)}.",
        "",
        "| rows | test | fault | outcome | s |",
        "|---|---|---|---|---|",
    ]
    for case, outcome, said, seconds in verdicts:
        test = case.function.rpartition("::")[2]
        why = f": {said[:80]}" if outcome != PROVEN and said else ""
        cells = (" ".join(case.rows), f"`{test}`", f"`{change(case.fault)}`", outcome + why, f"{seconds:.0f}")
        lines.append(f"| {' | '.join(cell.replace('|', '¦') for cell in cells)} |")
    return "\n".join([*lines, ""])


if __name__ == "__main__":
    sys.exit(main())
