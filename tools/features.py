"""Read which tests prove which rows of the feature inventory, and the fault declared beside each mark."""

import contextlib
import io
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).resolve().parent.parent


class Edit(NamedTuple):
    """In *file* (from the root of the repository), *old* is replaced by *new*."""

    file: str
    old: str
    new: str


Fault = tuple[Edit, ...]
"""A plausible wrong answer: mostly one edit; several where a constraint is kept in more than one place."""


class Proof(NamedTuple):
    """A test that carries the mark of a row; *fault* must make it fail, and is empty where none is declared."""

    row: str
    test: str
    fault: Fault

    @property
    def function(self) -> str:
        """The node ID of the test without its parameters."""
        return self.test.partition("[")[0]


class _Marks:
    """A pytest plugin that notes the feature marks of every collected test."""

    def __init__(self) -> None:
        self.proofs: list[Proof] = []

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        """Note which test proves which row."""
        for item in session.items:
            for mark in item.iter_markers("feature"):
                self.proofs += [Proof(row, item.nodeid, _fault(**mark.kwargs)) for row in mark.args]


def _fault(file: str = "", old: str = "", new: str = "", also: Sequence[tuple[str, str, str]] = ()) -> Fault:
    """Return the fault that the keywords of a mark declare."""
    return (Edit(file, old, new), *(Edit(*edit) for edit in also)) if file else ()


def collect(tests: Path = ROOT / "tests") -> list[Proof]:
    """Return every proof below *tests*, by row; exit where the tests cannot be collected."""
    files = [str(path) for path in sorted(_marked(tests))]
    if not files:
        return []
    marks = _Marks()
    output = io.StringIO()
    with contextlib.redirect_stdout(output):
        status = pytest.main(
            ["--collect-only", "-qq", "-n0", "--rootdir", str(ROOT), *files], plugins=[marks]
        )
    if status not in {pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED}:
        raise SystemExit(f"The tests cannot be collected:\n{output.getvalue()}")
    return sorted(marks.proofs, key=lambda proof: proof.row)


def head_commit() -> str:
    """Return the commit that is checked out, or ``unknown`` outside a repository."""
    done = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    return done.stdout.strip() or "unknown"


def _marked(tests: Path) -> Iterator[Path]:
    """Yield the test files that hold a mark; the others need not be imported."""
    for path in tests.rglob("test_*.py"):
        if "mark.feature(" in path.read_text():
            yield path
