"""Print which rows of the feature inventory are proven by tests, group by group.

A row is proven when every test that carries its mark (``@pytest.mark.feature("A08", …)``) passed in the last full run.
``make test`` and ``make test-engines`` record their outcomes below ``.cache/features``. A test that needs hardware the
full run lacks counts by a committed page ``docs/evidence/ROW.md`` whose first lines are ``date: YYYY-MM-DD``,
``test: NODE ID`` and ``hardware: …``.
"""

import argparse
import datetime as dt
import json
import re
import sys
from collections.abc import Iterable, Sequence
from itertools import groupby
from pathlib import Path
from typing import NamedTuple

from tools.features import ROOT, Proof, collect, head_commit

INVENTORY = ROOT.parent / "shared" / "spec" / "inventory.md"
RECORDS = ROOT / ".cache" / "features"
EVIDENCE = ROOT / "docs" / "evidence"
GROUP = re.compile(r"## ([A-Z])\. (.+?) \(\d+ rows\)")
ROW = re.compile(r"\| *\d+ *\| *([A-Z]\d+) *\| *(\w+) *\|")
FIELD = re.compile(r"(date|test|hardware): *(.+)")


class Row(NamedTuple):
    """A feature: its ID, its group, and whether it is to be built."""

    id: str
    group: str
    kind: str


class Record(NamedTuple):
    """What one run of the tests left behind: when, at which commit, and how each marked test ended."""

    name: str
    at: str
    commit: str
    outcomes: dict[str, str]


class Ledger(NamedTuple):
    """The rows, the tests of those that are proven, why the other marked rows are not, and what is wrong."""

    rows: Sequence[Row]
    proven: dict[str, list[str]]
    unproven: dict[str, str]
    records: Sequence[Record]
    problems: Sequence[str]


def main() -> int:
    """Print the ledger; return 1 where a mark or a page of evidence names something that does not exist."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--inventory", type=Path, default=INVENTORY)
    parser.add_argument("--tests", type=Path, default=ROOT / "tests")
    parser.add_argument("--records", type=Path, default=RECORDS)
    parser.add_argument("--evidence", type=Path, default=EVIDENCE)
    parser.add_argument("--output", choices=["text", "json"], default="text")
    options = parser.parse_args()
    ledger = judge(
        read_inventory(options.inventory) if options.inventory.exists() else [],
        collect(options.tests),
        read_records(options.records),
        read_evidence(options.evidence),
    )
    show = show_json if options.output == "json" else show_text
    print(show(ledger))
    return 1 if ledger.problems else 0


def judge(
    rows: Sequence[Row],
    proofs: Sequence[Proof],
    records: Sequence[Record],
    evidence: dict[str, dict[str, str]],
) -> Ledger:
    """Return which of the marked rows are proven by the records or by evidence."""
    proven: dict[str, list[str]] = {}
    unproven: dict[str, str] = {}
    problems = [_problem_with(row, page, proofs) for row, page in evidence.items()]
    for row, members in groupby(sorted(proofs), lambda proof: proof.row):
        tests = list(members)
        shown_elsewhere = evidence.get(row, {}).get("test")
        missing = [
            f"{proof.test} {outcome}"
            for proof in tests
            if (outcome := outcome_of(proof.test, records)) != "passed" and proof.function != shown_elsewhere
        ]
        if missing:
            unproven[row] = missing[0]
        else:
            proven[row] = [proof.test for proof in tests]
    known = {row.id for row in rows}
    problems += [
        f"{row} is no row of the inventory, yet {test} proves it"
        for row, test in {proof.row: proof.test for proof in reversed(proofs)}.items()
        if known and row not in known
    ]
    return Ledger(rows, proven, unproven, records, sorted(filter(None, problems)))


def outcome_of(test: str, records: Sequence[Record]) -> str:
    """Return how a test ended in the last run of each kind: the worst, or ``was not run``."""
    outcomes = [record.outcomes[test] for record in records if test in record.outcomes]
    worse = [outcome for outcome in outcomes if outcome != "passed"]
    return worse[0] if worse else (outcomes or ["was not run"])[0]


def _problem_with(row: str, page: dict[str, str], proofs: Sequence[Proof]) -> str:
    """Return what is wrong with a page of evidence, or nothing."""
    absent = [field for field in ("date", "test", "hardware") if field not in page]
    if absent:
        return f"the evidence for {row} does not say its {' and '.join(absent)}"
    try:
        dt.date.fromisoformat(page["date"])
    except ValueError:
        return f"the evidence for {row} has the date {page['date']!r}: write YYYY-MM-DD"
    if page["test"] not in {proof.function for proof in proofs if proof.row == row}:
        return f"the evidence for {row} names {page['test']}, which does not carry its mark"
    return ""


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


def read_records(folder: Path) -> list[Record]:
    """Return what the last run of each kind left in *folder*."""
    return [Record(path.stem, **json.loads(path.read_text())) for path in sorted(folder.glob("*.json"))]


def read_evidence(folder: Path) -> dict[str, dict[str, str]]:
    """Return the fields of every page of evidence by its row."""
    return {
        path.stem: {
            found[1]: found[2] for line in path.read_text().splitlines() if (found := FIELD.match(line))
        }
        for path in sorted(folder.glob("*.md"))
    }


def show_text(ledger: Ledger) -> str:
    """Return the ledger for people."""
    lines = list(_table(ledger)) if ledger.rows else ["The inventory is not there."]
    if not ledger.rows:
        lines.append(f"proven: {ranges(ledger.proven) or 'none'}")
    if not ledger.records:
        lines.append("No full run is on record: run `make test` and `make test-engines` first.")
    head = head_commit()
    for record in ledger.records:
        stale = "" if record.commit == head else f"; the sources are now at {head}"
        lines.append(
            f"recorded by {record.name}: {len(record.outcomes)} tests at {record.at}, commit {record.commit}{stale}"
        )
    lines += [f"marked, not proven: {row}: {why}" for row, why in ledger.unproven.items()]
    lines += [f"✗ {problem}" for problem in ledger.problems]
    return "\n".join(lines)


def _table(ledger: Ledger) -> Iterable[str]:
    yield f"{'group':46} {'proven':>6} {'must':>5} {'rows':>5}  missing (must)"
    for group, members in by_group(ledger.rows):
        must = [row.id for row in members if row.kind == "must"]
        missing = [id_ for id_ in must if id_ not in ledger.proven]
        proven = sum(row.id in ledger.proven for row in members)
        gap = "all" if missing == must else ranges(missing) or "–"
        yield f"{group[:46]:46} {proven:6d} {len(must):5d} {len(members):5d}  {gap}"
    must_in_all = sum(row.kind == "must" for row in ledger.rows)
    proven_in_all = sum(row.id in ledger.proven for row in ledger.rows)
    yield f"{'in all':46} {proven_in_all:6d} {must_in_all:5d} {len(ledger.rows):5d}"


def show_json(ledger: Ledger) -> str:
    """Return the ledger for programs."""
    groups = {
        group: {
            "rows": len(members),
            "must": sum(row.kind == "must" for row in members),
            "proven": {row.id: ledger.proven[row.id] for row in members if row.id in ledger.proven},
            "missing": [row.id for row in members if row.kind == "must" and row.id not in ledger.proven],
        }
        for group, members in by_group(ledger.rows)
    }
    answer = {
        "inventory": bool(ledger.rows),
        "records": [
            {"name": record.name, "at": record.at, "commit": record.commit} for record in ledger.records
        ],
        "groups": groups,
        "proven": ledger.proven,
        "unproven": ledger.unproven,
        "problems": ledger.problems,
    }
    return json.dumps(answer, indent=2, ensure_ascii=False)


def by_group(rows: Sequence[Row]) -> list[tuple[str, list[Row]]]:
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
