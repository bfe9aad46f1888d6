"""Workloads: generated, or read from traces in their published forms.

``log``: JSON lines, one task each (see ``Task``). What a platform's own jobs become is in ``recorded``.
``openb``: a pod list of the OpenB GPU cluster (CSV, packed or not). ``swf``: a log of the Parallel Workloads Archive, as
text or parquet. ``philly``: run times alone; arrivals are drawn. ``wfcommons``: a workflow with its dependencies (JSON).
"""

import csv
import gzip
import json
import math
import zlib
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from random import Random
from typing import Any

import msgspec

from yunhe.kernel.errors import FieldProblem, InvalidInputError, UnsupportedError
from yunhe.kernel.resources import Accelerators, Resources
from yunhe.simulator.model import SimulatedTask, Workload

SHAPES = tuple(
    Resources(cores * 1000, cores * gib * 1024, 0) for cores in (1, 2, 4, 8, 16) for gib in (1, 2, 4)
)
KINDS = ("log", "openb", "swf", "philly", "wfcommons")


def generated(tasks: int, per_second: float, seed: int) -> Workload:
    """Return tasks that arrive at random at a mean rate, most small and short, some large and long."""
    rng = Random(seed)  # noqa: S311 - chance, not secrets
    at = 0.0
    made: list[SimulatedTask] = []
    for _ in range(tasks):
        at += rng.expovariate(per_second)
        shape = SHAPES[min(int(rng.expovariate(0.35)), len(SHAPES) - 1)]
        run_s = min(max(rng.lognormvariate(5.5, 1.3), 1.0), 86_400.0)
        made.append(SimulatedTask(submitted_at=at, resources=shape, run_s=run_s))
    return Workload(f"generated-{tasks}", made)


def read(path: Path, kind: str, *, limit: int | None = None, seed: int = 0) -> Workload:
    """Return the workload in *path*, at most *limit* tasks of it."""
    readers = {"log": _log, "openb": _openb, "swf": _swf, "wfcommons": _wfcommons}
    if not path.exists():
        raise InvalidInputError(f"There is no {path}.", remedy="Name a file, and its form with --kind.")
    if kind == "philly":
        tasks = _philly(path, seed)
    elif kind in readers:
        tasks = readers[kind](path)
    else:
        raise InvalidInputError(
            f"No workload has the form {kind}.",
            remedy=f"Use one of {', '.join(KINDS)}.",
            fields=(FieldProblem("kind", "is not known", kind),),
        )
    try:
        kept = list(islice(tasks, limit))
    except InvalidInputError:
        raise
    except (ArithmeticError, EOFError, LookupError, OSError, TypeError, ValueError, zlib.error) as error:
        raise InvalidInputError(
            f"{path.name} is not in the form {kind}: {type(error).__name__}: {error}.",
            remedy=f"Say its form with --kind: {', '.join(KINDS)}.",
        ) from None
    if not kept:
        raise InvalidInputError(f"{path} has no task.", remedy="Give a file with at least one.")
    _check(path, kept)
    return Workload(path.name.partition(".")[0], kept)


def _check(path: Path, tasks: list[SimulatedTask]) -> None:
    """Refuse tasks that cannot be: each is named by its number, from 0 as in ``after``."""
    problems: list[FieldProblem] = []
    for number, task in enumerate(tasks):
        if not 0 < task.run_s < math.inf:
            problems.append(FieldProblem(f"tasks[{number}].run_s", "must be above 0", f"{task.run_s:g}"))
        if not -math.inf < task.submitted_at < math.inf:
            problems.append(FieldProblem(f"tasks[{number}].submitted_at", "must be a time in seconds"))
        if task.members < 1:
            problems.append(FieldProblem(f"tasks[{number}].members", "must be at least 1", str(task.members)))
        problems += [
            FieldProblem(f"tasks[{number}].after", "must name another task of this workload", str(before))
            for before in task.after
            if not 0 <= before < len(tasks) or before == number
        ]
    if problems:
        raise InvalidInputError(
            f"{path.name} has tasks that cannot be.", remedy="Fix those named.", fields=tuple(problems[:20])
        )


def _text(path: Path) -> str:
    return gzip.decompress(path.read_bytes()).decode() if path.suffix == ".gz" else path.read_text()


def _log(path: Path) -> Iterator[SimulatedTask]:
    for number, line in enumerate(_text(path).splitlines(), start=1):
        if not line.strip():
            continue
        try:
            yield msgspec.json.decode(line, type=SimulatedTask)
        except msgspec.DecodeError as error:
            raise InvalidInputError(
                f"Line {number} of {path.name} is not a task: {error}.",
                remedy='Write one task per line: {"submitted_at": 0, "run_s": 60, "resources": {"cpu_millis": 1000}}.',
            ) from None


def _openb(path: Path) -> Iterator[SimulatedTask]:
    for row in csv.DictReader(_text(path).splitlines()):
        milli = int(row["num_gpu"]) * int(row["gpu_milli"])
        created, deleted = float(row.get("creation_time") or 0), float(row.get("deletion_time") or 3600)
        kind = row.get("gpu_spec") or "*"
        yield SimulatedTask(
            submitted_at=created,
            resources=Resources(
                int(row["cpu_milli"]),
                int(row["memory_mib"]),
                0,
                (Accelerators(kind, milli),) if milli else (),
            ),
            run_s=max(deleted - created, 1.0),
        )


def _swf(path: Path) -> Iterator[SimulatedTask]:
    """Jobs of one process per member, one core each; what was cancelled before it ran is left out."""
    rows = _parquet(path) if path.suffix == ".parquet" else _swf_lines(path)
    for row in rows:
        run_s, processors = float(row["run_time"]), int(row["processors"])
        if run_s > 0 and processors > 0:
            yield SimulatedTask(
                submitted_at=float(row["submit_time"]),
                resources=Resources(1000, 1024, 0),
                run_s=run_s,
                members=processors,
            )


def _swf_lines(path: Path) -> Iterator[dict[str, Any]]:
    for line in _text(path).splitlines():
        fields = line.split()
        if fields and not line.startswith(";"):
            used, asked = int(fields[4]), int(fields[7])
            yield {"submit_time": fields[1], "run_time": fields[3], "processors": used if used > 0 else asked}


def _parquet(path: Path) -> Iterator[dict[str, Any]]:
    """Yield rows whose columns may be named in any of the usual ways."""
    for row in _rows(path):
        named = {key.lower().replace(" ", "_"): value for key, value in row.items()}

        def first(*names: str, found: dict[str, Any] = named) -> Any:
            return next((found[name] for name in names if found.get(name) not in (None, -1)), 0)

        yield {
            "submit_time": first("submit_time", "submit", "submit_s"),
            "run_time": first("run_time", "runtime", "run_s", "run"),
            "processors": first(
                "procs",
                "used_procs",
                "num_procs",
                "allocated_processors",
                "procs",
                "req_procs",
                "processors",
                "n_procs",
            ),
        }


def _rows(path: Path) -> Iterator[dict[str, Any]]:
    try:
        import pyarrow.parquet as pq  # noqa: PLC0415 - an extra
    except ImportError:
        raise UnsupportedError(
            "Reading parquet needs the extra ``parquet``.", remedy="pip install 'yunhe[parquet]'"
        ) from None
    for batch in pq.ParquetFile(path).iter_batches():
        yield from batch.to_pylist()


def _philly(path: Path, seed: int) -> Iterator[SimulatedTask]:
    """Run times are the trace's; arrivals are drawn at one every five seconds, sizes among the usual."""
    rng, at = Random(seed), 0.0  # noqa: S311 - chance, not secrets
    for row in _rows(path):
        at += rng.expovariate(0.2)
        run_s = float(next(iter(row.values())))
        if run_s > 0:
            yield SimulatedTask(submitted_at=at, resources=rng.choice(SHAPES), run_s=run_s)


def _wfcommons(path: Path) -> Iterator[SimulatedTask]:
    document = json.loads(_text(path))
    workflow = document["workflow"]
    known = {
        task["id"]: task for task in workflow.get("specification", {}).get("tasks", workflow.get("tasks", []))
    }
    measured = {task["id"]: task for task in workflow.get("execution", {}).get("tasks", [])}
    number = {name: index for index, name in enumerate(known)}
    for name, task in known.items():
        ran = measured.get(name, task)
        cores = int(ran.get("coreCount") or task.get("cores") or 1)
        memory = int((ran.get("memoryInBytes") or 0) / 2**20) or 512
        yield SimulatedTask(
            submitted_at=0.0,
            resources=Resources(cores * 1000, memory, 0),
            run_s=max(float(ran.get("runtimeInSeconds") or ran.get("runtime") or 1.0), 0.001),
            after=tuple(number[parent] for parent in task.get("parents", []) if parent in number),
        )
