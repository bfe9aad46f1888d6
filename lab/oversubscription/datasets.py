"""Loaders: a folder of traces, each set recognised by the columns of its files, whatever their names.

| form | columns | sets |
|---|---|---|
| sized VMs on a clock | vm, ts (unix s), cores, cpu_pct, mem_cap_mb, mem_mb … | bitbrains-rnd |
| run-length VMs | id, timestamp, duration (ms), cpu_usage (MHz) with a ``*_meta`` file of cpu_count, cpu_capacity | opendc-traces |
| unsized VMs for weeks | vm, step, cpu_avg_pct | azure-v1-sample, one set per file |
| unsized VMs, one day per file | vm, step, cpu_pct; the file is named after its day | planetlab |
| unsized jobs, one day each | job, day, step, cpu_pct | google2011-vms |

Usage in cores is always ``percent / 100 × instance_cores``. A slot is 300 s and begins at a multiple of 300 s;
several samples in a slot are averaged, and a gap of up to 15 minutes holds the last value.
"""

import gzip
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from hashlib import sha256
from pathlib import Path

import numpy as np

from yunhe.flexible.replay import ELASTIC, LONG_LIVED, Schedule
from yunhe.flexible.rows import CARRY_S
from yunhe.flexible.tables import Table, read_table
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
from yunhe.kernel.errors import YunheError

SLOT_S = 300


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
        except YunheError as error:
            skipped.append(Skipped(place.name, str(error)))
            continue
        if not sets:
            skipped.append(Skipped(place.name, "no file has the columns of a known form"))
        found += [one for one in sets if not wanted or {one.name, place.name} & set(wanted)]
    return found, skipped


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
        if path.name.endswith((".parquet", ".csv", ".csv.gz")):
            columns = _column_names(path)
            loader = next((load for needed, load in FORMS if needed <= columns), None)
            if loader is not None:
                by_loader.setdefault(loader, {})[path] = read_table(path)
    return [one for loader, tables in by_loader.items() for one in loader(folder.name, tables)]


def _column_names(path: Path) -> set[str]:
    if path.suffix == ".parquet":
        from pyarrow import parquet  # noqa: PLC0415 - an optional extra

        return set(parquet.read_schema(path).names)
    with gzip.open(path, "rt") if path.suffix == ".gz" else path.open() as file:
        return set(file.readline(65536).strip().split(","))


def _sized(name: str, tables: Tables) -> list[DataSet]:
    columns = {
        column: np.concatenate(
            [_numbers(table, column) for table in tables.values() if column in table.columns]
        )
        for column in ("vm", "ts", "cores", "cpu_pct", "mem_cap_mb", "mem_mb")
    }
    vms, code = np.unique(columns["vm"].astype(np.int64), return_inverse=True)
    slot = (columns["ts"] // SLOT_S).astype(np.int64)
    first = int(slot.min())
    shape = (len(vms), int(slot.max()) - first + 1)
    cores = most_frequent(code, columns["cores"], len(vms))
    usage = {Dimension.CPU: columns["cpu_pct"] / 100 * cores[code]}
    request = {Dimension.CPU: cores}
    if len(columns["mem_mb"]) == len(code):
        usage[Dimension.MEMORY] = columns["mem_mb"]
        request[Dimension.MEMORY] = most_frequent(code, columns["mem_cap_mb"], len(vms))
    grids = {one: _grid(code, slot - first, value, shape) for one, value in usage.items()}
    trace = Trace(tuple(str(vm) for vm in vms), first * SLOT_S, SLOT_S, grids, request)
    return [DataSet(name, (trace.only(cores > 0),), LONG_LIVED, "from the trace")]


def _run_length(name: str, tables: Tables) -> list[DataSet]:
    sets: list[DataSet] = []
    for path, table in tables.items():
        meta_path = path.with_name(path.name.replace("_trace", "_meta"))
        if meta_path == path or not meta_path.is_file():
            continue
        meta = read_table(meta_path)
        ids = [str(one) for one in meta.columns["id"]]
        cores = dict(zip(ids, _numbers(meta, "cpu_count"), strict=True))
        speed = dict(zip(ids, _numbers(meta, "cpu_capacity"), strict=True))
        vms, code = np.unique([str(one) for one in table.columns["id"]], return_inverse=True)
        size = np.array([cores.get(vm, 0.0) for vm in vms])
        capacity = np.array([speed.get(vm, np.nan) for vm in vms])
        used = _numbers(table, "cpu_usage") / capacity[code] * size[code]
        end_s = _numbers(table, "timestamp") / 1000
        begin = ((end_s - _numbers(table, "duration") / 1000) // SLOT_S).astype(np.int64)
        length = np.maximum(1, (end_s // SLOT_S).astype(np.int64) - begin)
        rows = np.repeat(np.arange(len(code)), length)
        within = np.arange(len(rows)) - np.repeat(np.cumsum(length) - length, length)
        slot, first = begin[rows] + within, int(begin.min())
        known = np.isfinite(used[rows])
        shape = (len(vms), int(slot.max()) - first + 1)
        grid = _grid(code[rows][known], (slot - first)[known], used[rows][known], shape)
        trace = Trace(
            tuple(vms.tolist()), first * SLOT_S, SLOT_S, {Dimension.CPU: grid}, {Dimension.CPU: size}
        )
        label = name if len(tables) == 1 else f"{name}/{path.stem}"
        sets.append(DataSet(label, (trace.only(size > 0),), LONG_LIVED, "from the trace"))
    return sets


def _unsized_weeks(name: str, tables: Tables) -> list[DataSet]:
    return [
        DataSet(
            f"{name}/{path.stem}",
            (_stepped(table, "vm", "cpu_avg_pct", 4.0, 0),),
            LONG_LIVED,
            "4 vCPU each assumed",
        )
        for path, table in tables.items()
    ]


def _unsized_days(name: str, tables: Tables) -> list[DataSet]:
    days: list[Trace] = []
    for number, (path, table) in enumerate(tables.items()):
        date = re.search(r"(\d{4})(\d{2})(\d{2})", path.stem)
        start_s = _midnight_s(*map(int, date.groups())) if date else number * DAY_S
        days.append(_stepped(table, "vm", "cpu_pct", 2.0, start_s))
    days.sort(key=lambda trace: trace.start_s)
    return [DataSet(name, tuple(days), ELASTIC, "2 vCPU each assumed")]


def _unsized_jobs(name: str, tables: Tables) -> list[DataSet]:
    days: list[Trace] = []
    for table in tables.values():
        day_of_row = _numbers(table, "day").astype(np.int64)
        for day in np.unique(day_of_row):
            rows = np.flatnonzero(day_of_row == day)
            part = {key: _picked(table, key, rows) for key in ("job", "step", "cpu_pct")}
            one_day = Table(table.source, part, len(rows), table.first_row)
            days.append(_stepped(one_day, "job", "cpu_pct", 4.0, _midnight_s(2011, 5, int(day))))
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
    names, code = np.unique(np.asarray(table.columns[key], dtype=np.str_), return_inverse=True)
    step = _numbers(table, "step").astype(np.int64)
    used = _numbers(table, column) / 100 * cores
    grid = _grid(code, step, used, (len(names), int(step.max()) + 1))
    request = {Dimension.CPU: np.full(len(names), cores)}
    return Trace(tuple(str(one) for one in names), start_s, SLOT_S, {Dimension.CPU: grid}, request)


def _grid(code: Ints, slot: Ints, value: Floats, shape: tuple[int, int]) -> Singles:
    known = np.isfinite(value)
    return carried_forward(on_slots(code[known], slot[known], value[known], shape), CARRY_S // SLOT_S)


def _numbers(table: Table, column: str) -> Floats:
    return np.asarray(table.columns[column], dtype=np.float64)


def _picked(table: Table, column: str, rows: Ints) -> "np.ndarray[tuple[int], np.dtype[np.str_]]":
    return np.asarray(table.columns[column], dtype=np.str_)[rows]


def _midnight_s(year: int, month: int, day: int) -> int:
    return int(datetime(year, month, day, tzinfo=UTC).timestamp())
