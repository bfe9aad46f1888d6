"""``python -m lab.skypilot_files FOLDER``: read every task file of a folder, plan it, and say what becomes of its fields."""

import argparse
import sys
from collections import Counter
from pathlib import Path
from typing import NamedTuple, cast

from lab.skypilot_files.world import federation
from yunhe.entrypoints.cli.session.task_files import GivenTask, Overrides, tasks_from
from yunhe.kernel.errors import YunheError
from yunhe.kernel.ids import JobId, ProjectId
from yunhe.scheduling.decision.decide import decide
from yunhe.scheduling.decision.model import Placed
from yunhe.scheduling.perception.snapshot import Snapshot
from yunhe.trading.demand.deconstruct import deconstruct
from yunhe.trading.demand.parse import read_documents
from yunhe.trading.demand.skypilot.cases import Effect

SHORTEST = 12


class FileResult(NamedTuple):
    """What came of one file."""

    name: str
    effects: Counter[Effect]
    placed: int = 0
    tasks: int = 0
    unsaid: tuple[str, ...] = ()
    """Fields that were given and of which nothing is said."""
    refused: str = ""
    runnable: bool = False
    waits: str = ""


def leaves(path: str, value: object) -> list[str]:
    """Return the fields that a document has, as far down as they are fields and not values."""
    entries = cast("dict[str, object]", value)
    if path.split("[", maxsplit=1)[0] in {
        "",
        "resources",
        "service",
        "resources.any_of",
        "resources.ordered",
    }:
        if isinstance(value, dict):
            prefix = f"{path}." if path else ""
            return [leaf for key, entry in entries.items() for leaf in leaves(f"{prefix}{key}", entry)]
        if isinstance(value, list):
            items = cast("list[object]", value)
            return [leaf for number, item in enumerate(items) for leaf in leaves(f"{path}[{number}]", item)]
    return [] if value is None else [path]


def unsaid(documents: list[dict[str, object]], given: list[GivenTask]) -> tuple[str, ...]:
    """Return the fields of a file of which no note speaks."""
    said = {note.field for one in given for note in one.notes}
    return tuple(
        field
        for document in documents
        for field in leaves("", document)
        if not any(one == field or one.startswith((f"{field}.", f"{field}[")) for one in said)
    )


def tried(path: Path, world: Snapshot) -> FileResult:
    """Read one file and plan its tasks."""
    try:
        given = tasks_from([str(path)], [], Overrides(), plan=True, sent=False)
    except YunheError as error:
        why = "; ".join(map(str, error.fields)) or error.problem
        return FileResult(path.name, Counter(), refused=why)
    decisions = [decide(deconstruct(one.task, JobId("j"), ProjectId("p"), 0.0), world) for one in given]
    waits = next((one.nearest_first[0].detail for one in decisions if not isinstance(one, Placed)), "")
    documents = cast("list[dict[str, object]]", read_documents(path.read_bytes()))
    return FileResult(
        path.name,
        Counter(note.effect for one in given for note in one.notes),
        sum(isinstance(one, Placed) for one in decisions),
        len(given),
        unsaid(documents, given),
        runnable=not any(
            one.task.planned_only or one.task.service or one.task.num_nodes > 1 for one in given
        ),
        waits=waits,
    )


def regions_in(folder: Path) -> list[str]:
    """Return the regions that files name, so that there are pools in them."""
    found: set[str] = set()
    for path in sorted(folder.iterdir()):
        for line in path.read_text().splitlines():
            word = line.split("#")[0].strip().removeprefix("- ")
            if word.startswith(("infra:", "region:")):
                parts = word.partition(":")[2].strip(" '\"").split("/")
                found.add(parts[0] if word.startswith("region") else parts[1] if len(parts) > 1 else "")
    return sorted(found - {"", "*"})


def report(results: list[FileResult]) -> str:
    """Return the table of every file, and the sums."""
    width = max(SHORTEST, *(len(result.name) for result in results))
    lines = [f"{'file':<{width}}  read  honoured  meaning  note  planned only  placed  run"]
    for one in results:
        counts = [
            one.effects[effect] for effect in (Effect.HONOURED, Effect.MEANING, Effect.NOTE, Effect.PLANNED)
        ]
        told = "{:>8}  {:>7}  {:>4}  {:>12}".format(*counts)
        run = "as it is" if one.runnable else "refused: planned only"
        placed = f"{one.placed} of {one.tasks}"
        row = f"no    {one.refused}" if one.refused else f"yes   {told}  {placed:>6}  {run}"
        lines.append(
            f"{one.name:<{width}}  {row}" + (f"  UNSAID {', '.join(one.unsaid)}" if one.unsaid else "")
        )
    read = [one for one in results if not one.refused and not one.unsaid]
    lines += [
        "",
        f"{len(read)} of {len(results)} files read with a meaning for every field ({len(read) / len(results):.1%})",
        f"{sum(one.placed == one.tasks for one in read)} of them placed whole in the made-up federation",
        f"{sum(one.runnable for one in read)} of them yunhe run takes as they are",
    ]
    waiting = Counter(one.waits for one in read if one.waits)
    lines += [f"{count} waits: {why}" for why, count in waiting.most_common()]
    return "\n".join(lines)


def main() -> int:
    """Print the report of a folder."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path, help="where the task files lie")
    folder: Path = parser.parse_args().folder
    world = federation(regions_in(folder))
    print(report([tried(path, world) for path in sorted(folder.iterdir()) if path.is_file()]))
    return 0


if __name__ == "__main__":
    sys.exit(main())
