"""Print which rows of the feature inventory are proven by tests, group by group.

A row is proven when a test that pytest collects carries ``@pytest.mark.feature("A08")``; whether those tests pass is
what ``make test`` and ``make test-engines`` say.
"""

import argparse
import contextlib
import io
import json
import re
import sys
from collections.abc import Iterable
from itertools import groupby
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).resolve().parent.parent
INVENTORY = ROOT.parent / "shared" / "spec" / "inventory.md"
GROUP = re.compile(r"## ([A-Z])\. (.+?) \(\d+ rows\)")
ROW = re.compile(r"\| *\d+ *\| *([A-Z]\d+) *\| *(\w+) *\|")


class Row(NamedTuple):
    """A feature: its ID, its group, and whether it is to be built."""

    id: str
    group: str
    kind: str


class Marks:
    """Collects the feature IDs of every collected test."""

    def __init__(self) -> None:
        self.proofs: dict[str, list[str]] = {}

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        """Note which test proves which row."""
        for item in session.items:
            for mark in item.iter_markers("feature"):
                for feature in mark.args:
                    self.proofs.setdefault(feature, []).append(item.nodeid)


def main() -> int:
    """Print the ledger; return 1 where a test proves a row that does not exist."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--inventory", type=Path, default=INVENTORY)
    parser.add_argument("--tests", type=Path, default=ROOT / "tests")
    parser.add_argument("--output", choices=["text", "json"], default="text")
    options = parser.parse_args()
    proofs = collect(options.tests)
    rows = read_inventory(options.inventory) if options.inventory.exists() else []
    unknown = sorted(proofs.keys() - {row.id for row in rows}) if rows else []
    show = show_json if options.output == "json" else show_text
    print(show(rows, proofs, unknown))
    return 1 if unknown else 0


def collect(tests: Path) -> dict[str, list[str]]:
    """Return the tests that prove each row; give up where the tests cannot be collected."""
    marks = Marks()
    noise = io.StringIO()
    with contextlib.redirect_stdout(noise):
        status = pytest.main(
            ["--collect-only", "-q", "-n0", "--rootdir", str(ROOT), str(tests)], plugins=[marks]
        )
    if status not in {pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED}:
        raise SystemExit(f"The tests cannot be collected:\n{noise.getvalue()}")
    return marks.proofs


def read_inventory(path: Path) -> list[Row]:
    """Return every row of the inventory with its group."""
    rows: list[Row] = []
    group = ""
    for line in path.read_text().splitlines():
        if heading := GROUP.match(line):
            group = f"{heading[1]} {heading[2]}"
        elif row := ROW.match(line):
            rows.append(Row(row[1], group, row[2]))
    return rows


def show_text(rows: list[Row], proofs: dict[str, list[str]], unknown: list[str]) -> str:
    """Return the ledger for people."""
    if not rows:
        return f"The inventory is not there; rows marked as proven: {ranges(proofs) or 'none'}"
    lines = [f"{'group':46} {'proven':>6} {'must':>5} {'rows':>5}  missing (must)"]
    for group, members in by_group(rows):
        must = [row.id for row in members if row.kind == "must"]
        missing = [id_ for id_ in must if id_ not in proofs]
        proven = sum(row.id in proofs for row in members)
        gap = "all" if missing == must else ranges(missing) or "–"
        lines.append(f"{group[:46]:46} {proven:6d} {len(must):5d} {len(members):5d}  {gap}")
    must_in_all = sum(row.kind == "must" for row in rows)
    proven_in_all = sum(row.id in proofs for row in rows)
    lines.append(f"{'in all':46} {proven_in_all:6d} {must_in_all:5d} {len(rows):5d}")
    lines += [f"✗ {id_} is no row of the inventory, yet {proofs[id_][0]} proves it" for id_ in unknown]
    return "\n".join(lines)


def show_json(rows: list[Row], proofs: dict[str, list[str]], unknown: list[str]) -> str:
    """Return the ledger for programs."""
    groups = {
        group: {
            "rows": len(members),
            "must": sum(row.kind == "must" for row in members),
            "proven": {row.id: proofs[row.id] for row in members if row.id in proofs},
            "missing": [row.id for row in members if row.kind == "must" and row.id not in proofs],
        }
        for group, members in by_group(rows)
    }
    unsorted = {} if rows else {"proven": proofs}
    ledger = {"inventory": bool(rows), "groups": groups, "unknown": unknown, **unsorted}
    return json.dumps(ledger, indent=2, ensure_ascii=False)


def by_group(rows: list[Row]) -> list[tuple[str, list[Row]]]:
    """Return the rows of each group, in the inventory's order of groups and the order of IDs."""
    return [(group, sorted(members)) for group, members in groupby(rows, lambda row: row.group)]


def ranges(ids: Iterable[str]) -> str:
    """Return IDs with runs drawn together: ``R01–R05 R07``."""
    runs: list[list[str]] = []
    for id_ in sorted(ids):
        follows = runs and runs[-1][-1][0] == id_[0] and int(id_[1:]) == int(runs[-1][-1][1:]) + 1
        if follows:
            runs[-1].append(id_)
        else:
            runs.append([id_])
    return " ".join(run[0] if len(run) == 1 else f"{run[0]}–{run[-1]}" for run in runs)


if __name__ == "__main__":
    sys.exit(main())
