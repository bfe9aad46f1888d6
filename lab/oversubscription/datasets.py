"""Loaders: a folder of traces, each set recognised by the columns of its files, whatever their names.

| form | columns | sets |
|---|---|---|
| sized VMs on a clock | vm, ts (unix s), cores, cpu_pct; mem_cap_mb and mem_mb where there are | bitbrains-rnd |
| run-length VMs | id, timestamp, duration (ms), cpu_usage (MHz), and a file of id, cpu_count, cpu_capacity | opendc-traces |
| unsized VMs for weeks | vm, step, cpu_avg_pct | azure-v1-sample, one set per file |
| unsized VMs, one day per file | vm, step, cpu_pct; the file is named after its day | planetlab |
| unsized jobs, one day each | job, day, step, cpu_pct | google2011-vms |

Usage in cores is always ``percent / 100 × instance_cores``. A slot is 300 s and begins at a multiple of 300 s;
several samples in a slot are averaged, and a gap of up to 15 minutes holds the last value. Steps count slots from 0
(unix time 0 where no date is known); day *d* of jobs is the *d*-th day from 2011-05-01. A trace too short for
profiles of a week is walked through with those of an hour.
"""

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from pathlib import Path

import numpy as np

from lab.oversubscription.cells import column_names, distinct, is_table, names, numbers, texts, whole_numbers
from yunhe.flexible.reading.rows import CARRY_S
from yunhe.flexible.reading.tables import Cells, Table, read_table
from yunhe.flexible.replay import ELASTIC, LONG_LIVED, Schedule
from yunhe.flexible.trace import (
    DAY_S,
    Dimension,
    Floats,
    Ints,
    Singles,
    Trace,
    carried_forward,
    most_frequent,
    on_slots,
)
from yunhe.kernel.errors import InvalidInputError, YunheError

SLOT_S = 300
MOST_CELLS = 400_000_000
"""Instances × slots beyond which times are in another unit than the form says, or memory would not do."""
FIRST_DAY = datetime(2011, 5, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class DataSet:
    """One pool of instances: its traces in order of time, how it is walked, what had to be assumed."""

    name: str
    traces: tuple[Trace, ...]
    schedule: Schedule
    sizes: str
    tuned_until_s: int | None = None
    """The numbers of the default were chosen on what begins before; none where they were chosen on other traces."""

    def fingerprint(self) -> str:
        """Return what tells these very instances and times from any others."""
        told = [(trace.start_s, trace.slots, trace.instances) for trace in self.traces]
        return sha256(repr(told).encode()).hexdigest()[:16]


@dataclass(frozen=True, slots=True)
class Skipped:
    """A folder that was not used, and why."""

    name: str
    reason: str
    known_form: bool
    """Whether it was meant to be read; most folders simply hold something else."""


Tables = dict[Path, Table]
Loader = Callable[[str, Tables], list[DataSet]]


def load_folder(folder: Path, wanted: Sequence[str]) -> tuple[list[DataSet], list[Skipped]]:
    """Return every set found in the folders below *folder*, and what was skipped."""
    found: list[DataSet] = []
    skipped: list[Skipped] = []
    for place in sorted(child for child in folder.iterdir() if child.is_dir()):
        if wanted and not any(name.split("/")[0] == place.name for name in wanted):
            continue
        try:
            sets = _load_set(place)
        except Exception as error:  # noqa: BLE001 - whatever is wrong with one set, the others are read
            skipped.append(Skipped(place.name, failure_text(error), known_form=True))
            continue
        if not sets:
            skipped.append(Skipped(place.name, "no file has the columns of a known form", known_form=False))
        found += [one for one in sets if not wanted or {one.name, place.name} & set(wanted)]
    return found, skipped


def failure_text(error: Exception) -> str:
    """Return in one line why a set could not be used."""
    return str(error) if isinstance(error, YunheError) else f"{type(error).__name__}: {error}"


def part_of(data: DataSet, share: float, seed: int) -> DataSet:
    """Return the set with a random *share* of its instances, to see how much a result depends on them."""
    if share >= 1:
        return data
    random = np.random.default_rng(seed)
    traces = tuple(trace.only(random.random(len(trace.instances)) < share) for trace in data.traces)
    return replace(data, traces=traces)


def _load_set(folder: Path) -> list[DataSet]:
    by_loader: dict[Loader, Tables] = {}
    for path in sorted(folder.rglob("*")):
        if is_table(path):
            columns = column_names(path)
            loader = next((load for needed, load in FORMS if needed <= columns), None)
            if loader is not None:
                by_loader.setdefault(loader, {})[path] = read_table(path)
    return [one for loader, tables in by_loader.items() for one in loader(folder.name, tables)]


def _sized(name: str, tables: Tables) -> list[DataSet]:
    parts = list(tables.values())
    vms, code = distinct([names(part, "vm") for part in parts])
    memory = all({"mem_cap_mb", "mem_mb"} <= set(part.columns) for part in parts)
    column = {
        key: _together(parts, key)
        for key in ("cores", "cpu_pct", *(("mem_cap_mb", "mem_mb") if memory else ()))
    }
    slot = np.concatenate([whole_numbers(part, "ts") for part in parts]) // SLOT_S
    first = int(slot.min())
    cores = most_frequent(code, column["cores"], len(vms))
    usage = {Dimension.CPU: column["cpu_pct"] / 100 * cores[code]}
    request = {Dimension.CPU: cores}
    if memory:
        usage[Dimension.MEMORY] = column["mem_mb"]
        request[Dimension.MEMORY] = most_frequent(code, column["mem_cap_mb"], len(vms))
    shape = (len(vms), int(slot.max()) - first + 1)
    grids = {one: _grid(code, slot - first, value, shape) for one, value in usage.items()}
    return [_with_sizes(name, Trace(vms, first * SLOT_S, SLOT_S, grids, request))]


def _together(parts: Iterable[Table], column: str) -> Floats:
    return np.concatenate([numbers(part, column) for part in parts])


def _with_sizes(name: str, trace: Trace) -> DataSet:
    """Return the set of those that ever had a size; an instance that was never on has none."""
    known = trace.request[Dimension.CPU] > 0
    left = "" if known.all() else f" ({int((~known).sum())} without one left out)"
    return DataSet(name, (trace.only(known),), _schedule(trace), f"from the trace{left}")


def _schedule(trace: Trace) -> Schedule:
    return LONG_LIVED if trace.duration_s >= LONG_LIVED.least_s else ELASTIC


def _run_length(name: str, tables: Tables) -> list[DataSet]:
    sets: list[DataSet] = []
    for path, table in tables.items():
        meta = read_table(_sizes_of(path))
        named = [str(one) for one in meta.columns["id"]]
        cores = dict(zip(named, numbers(meta, "cpu_count"), strict=True))
        speed = dict(zip(named, numbers(meta, "cpu_capacity"), strict=True))
        vms, code = distinct([texts(table, "id")])
        size = np.array([cores.get(vm, 0.0) for vm in vms])
        capacity = np.array([speed.get(vm, np.nan) for vm in vms])
        used = numbers(table, "cpu_usage") / capacity[code] * size[code]
        grid, first = _runs(table, code, used, len(vms))
        trace = Trace(vms, first * SLOT_S, SLOT_S, {Dimension.CPU: grid}, {Dimension.CPU: size})
        sets.append(_with_sizes(name if len(tables) == 1 else f"{name}/{path.stem}", trace))
    return sets


def _runs(table: Table, code: Ints, used: Floats, instances: int) -> tuple[Singles, int]:
    """Return instances × slots of rows that each cover the time before them, and the first slot."""
    end_s = whole_numbers(table, "timestamp") / 1000
    begin = ((end_s - whole_numbers(table, "duration") / 1000) // SLOT_S).astype(np.int64)
    length = np.maximum(1, (end_s // SLOT_S).astype(np.int64) - begin)
    rows = np.repeat(np.arange(len(code)), length)
    within = np.arange(len(rows)) - np.repeat(np.cumsum(length) - length, length)
    slot, first = begin[rows] + within, int(begin.min())
    shape = (instances, int(slot.max()) - first + 1)
    return _grid(code[rows], slot - first, used[rows], shape), first


def _sizes_of(path: Path) -> Path:
    """Return the file with the sizes: named like the trace where there are several, else the only one."""
    alike = path.with_name(path.name.replace("_trace", "_meta"))
    if alike != path and alike.is_file():
        return alike
    needed = {"id", "cpu_count", "cpu_capacity"}
    others = [
        one
        for one in sorted(path.parent.iterdir())
        if one != path and is_table(one) and needed <= column_names(one)
    ]
    if len(others) != 1:
        raise InvalidInputError(
            f"{path.name} needs one file of sizes beside it, {len(others)} have the columns.",
            remedy=f"Put a file with the columns {', '.join(sorted(needed))} beside it.",
        )
    return others[0]


def _unsized_weeks(name: str, tables: Tables) -> list[DataSet]:
    traces = {path: _stepped(table, "vm", "cpu_avg_pct", 4.0, 0) for path, table in tables.items()}
    return [
        DataSet(f"{name}/{path.stem}", (trace,), _schedule(trace), "4 vCPU each assumed")
        for path, trace in traces.items()
    ]


def _unsized_days(name: str, tables: Tables) -> list[DataSet]:
    days: list[Trace] = []
    for number, (path, table) in enumerate(tables.items()):
        date = re.search(r"(\d{4})(\d{2})(\d{2})", path.stem)
        days.append(_stepped(table, "vm", "cpu_pct", 2.0, _date_s(path, date) if date else number * DAY_S))
    days.sort(key=lambda trace: trace.start_s)
    return [DataSet(name, tuple(days), ELASTIC, "2 vCPU each assumed")]


def _date_s(path: Path, date: re.Match[str]) -> int:
    year, month, day = map(int, date.groups())
    try:
        return int(datetime(year, month, day, tzinfo=UTC).timestamp())
    except ValueError:
        raise InvalidInputError(
            f"{path.name} is named after a day that does not exist.",
            remedy="Name each file after its day: YYYYMMDD.",
        ) from None


def _unsized_jobs(name: str, tables: Tables) -> list[DataSet]:
    days: list[Trace] = []
    for table in tables.values():
        day_of_row = whole_numbers(table, "day")
        columns = {
            "job": texts(table, "job"),
            "step": whole_numbers(table, "step"),
            "cpu_pct": numbers(table, "cpu_pct"),
        }
        for day in np.unique(day_of_row):
            rows = np.flatnonzero(day_of_row == day)
            part: dict[str, Cells] = {key: cells[rows] for key, cells in columns.items()}
            one_day = Table(table.source, part, len(rows), table.first_row)
            start_s = int((FIRST_DAY + timedelta(days=int(day) - 1)).timestamp())
            days.append(_stepped(one_day, "job", "cpu_pct", 4.0, start_s))
    days.sort(key=lambda trace: trace.start_s)
    return [DataSet(name, tuple(days), ELASTIC, "4 vCPU each assumed")]


FORMS: tuple[tuple[frozenset[str], Loader], ...] = (
    (frozenset({"vm", "ts", "cores", "cpu_pct"}), _sized),
    (frozenset({"id", "timestamp", "duration", "cpu_usage"}), _run_length),
    (frozenset({"vm", "step", "cpu_avg_pct"}), _unsized_weeks),
    (frozenset({"job", "day", "step", "cpu_pct"}), _unsized_jobs),
    (frozenset({"vm", "step", "cpu_pct"}), _unsized_days),
)


def _stepped(table: Table, key: str, column: str, cores: float, start_s: int) -> Trace:
    instances, code = distinct([texts(table, key)])
    step = whole_numbers(table, "step")
    if (step < 0).any():
        row = table.first_row + int(np.argmax(step < 0))
        raise InvalidInputError(
            f"Row {row} of {table.source}, column step: {int(step.min())} lies before the first slot.",
            remedy="Steps count slots of 300 s from 0.",
        )
    used = numbers(table, column) / 100 * cores
    grid = _grid(code, step, used, (len(instances), int(step.max()) + 1))
    request = {Dimension.CPU: np.full(len(instances), cores)}
    return Trace(instances, start_s, SLOT_S, {Dimension.CPU: grid}, request)


def _grid(code: Ints, slot: Ints, value: Floats, shape: tuple[int, int]) -> Singles:
    if shape[0] * shape[1] > MOST_CELLS:
        raise InvalidInputError(
            f"The times span {shape[1]:,} slots of {SLOT_S} s.", remedy="Give times in the unit of the form."
        )
    known = np.isfinite(value)
    return carried_forward(on_slots(code[known], slot[known], value[known], shape), CARRY_S // SLOT_S)
