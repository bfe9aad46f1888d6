"""From cells to numbers: names, times and amounts in our units, each bad cell kept with its row and column."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime

import numpy as np

from yunhe.flexible.reading.columns import ColumnMeaning, ColumnRole, plain
from yunhe.flexible.reading.tables import Cells, Table
from yunhe.flexible.trace import DAY_S, Bools, Dimension, Floats, Ints
from yunhe.kernel.units import parse_cpu_millis, parse_memory_mib, show_duration

USED = {
    ColumnRole.CPU_USED: Dimension.CPU,
    ColumnRole.MEMORY_USED: Dimension.MEMORY,
    ColumnRole.DISK: Dimension.DISK,
    ColumnRole.NETWORK: Dimension.NETWORK,
}
ALLOCATED = {ColumnRole.CPU_ALLOCATED: Dimension.CPU, ColumnRole.MEMORY_ALLOCATED: Dimension.MEMORY}
SHARES = {"percent": 100.0, "share": 1.0}
"""Units that say nothing until it is known what they are a share of."""

Amounts = dict[ColumnRole, Floats]

_MEMORY = frozenset({ColumnRole.MEMORY_USED, ColumnRole.MEMORY_ALLOCATED})
_SAY_CORES = frozenset({"cores", "cpu_cores", "vcpus", "vcpu", "cpu_count", "cpus"})
_FACTORS = {
    "millicores": 1e-3,
    "percent of a core": 1e-2,
    "GHz": 1e3,
    "bytes": 1 / 1024**2,
    "KiB": 1 / 1024,
    "GiB": 1024.0,
    "MiB/s": 1024.0,
}
_EPOCHS = (("ns", 1e17, 1e9), ("us", 1e14, 1e6), ("ms", 1e11, 1e3), ("s", 1e8, 1.0))
"""A time since 1970 is at least so large in each unit, and so many of them are a second."""

_STRAYS = 0.05
"""Rows apart from the others are strays in time up to this share; more are another part of the trace."""


@dataclass(frozen=True, slots=True)
class CellProblem:
    """One cell that cannot be used as it stands."""

    row: int
    column: str
    problem: str
    value: str


@dataclass(slots=True)
class Sheet:
    """A table being checked: which rows are usable, what was wrong with the others, what is worth saying."""

    table: Table
    usable: Bools
    problems: list[CellProblem] = field(default_factory=list[CellProblem])
    notes: list[str] = field(default_factory=list[str])

    def report(self, rows: Bools, column: str, problem: str) -> None:
        """Write down each marked row and use it no more."""
        cells = self.table.columns[column]
        for row in np.flatnonzero(rows & self.usable):
            number = self.table.row_number(int(row))
            self.problems.append(CellProblem(number, column, problem, str(cells[row]).strip()))
        self.usable &= ~rows

    def first(self, rows: Bools) -> int:
        """Return the number of the first marked row."""
        return self.table.row_number(int(np.argmax(rows)))


@dataclass(slots=True)
class Samples:
    """The rows of a sheet as numbers: whose, when, how much."""

    sheet: Sheet
    names: tuple[str, ...]
    codes: Ints
    times: Floats
    amounts: Amounts
    columns: dict[ColumnRole, ColumnMeaning]
    """The column of each role, its unit settled; of disk and network the last of several."""

    def first_of_each(self, instances: Bools) -> Bools:
        """Return the first usable row of each marked instance."""
        rows = np.flatnonzero(instances[self.codes] & self.sheet.usable)
        first = np.zeros(len(self.codes), dtype=np.bool_)
        first[rows[np.unique(self.codes[rows], return_index=True)[1]]] = True
        return first


def sheet_of(table: Table) -> Sheet:
    """Return *table* with every row usable so far."""
    return Sheet(table, np.ones(table.rows, dtype=np.bool_))


def read_instances(sheet: Sheet, column: str) -> tuple[tuple[str, ...], Ints]:
    """Return the names of the instances, and which of them each row is about."""
    cells = sheet.table.columns[column]
    if not isinstance(cells, np.ndarray):
        cells = np.array([str(cell).strip() for cell in cells])
        sheet.report((cells == "") | (cells == "None"), column, "names no instance")
    elif cells.dtype.kind == "f":
        sheet.report(np.isnan(cells), column, "names no instance")
    names, codes = np.unique(cells, return_inverse=True)
    return tuple(str(name) for name in names.tolist()), codes.astype(np.int64)


def read_times(sheet: Sheet, meaning: ColumnMeaning) -> Floats:
    """Return when each row was, in seconds; a time that cannot belong to the others is reported."""
    column = meaning.column
    cells = sheet.table.columns[column]
    numbers = _plain_numbers(cells)
    if numbers is None:
        numbers = np.array([_moment(str(cell)) for cell in cells])
    sheet.report(~np.isfinite(numbers), column, "is not a time: use seconds, milliseconds or ISO 8601")
    if not sheet.usable.any():
        return numbers
    times = numbers / _per_second(sheet, meaning, numbers)
    _report_strays(sheet, column, times)
    return times


def _per_second(sheet: Sheet, meaning: ColumnMeaning, numbers: Floats) -> float:
    """Return how many of the column's units are a second, going by what most of its cells are.

    Dates are nearly equal numbers; what runs from an unknown beginning is spread from there. The size of a
    date says its unit even where the name of the column says another.
    """
    column, known = meaning.column, np.abs(numbers[sheet.usable])
    quarter, half = np.quantile(known, (0.25, 0.5), method="lower")
    if plain(column) in {"step", "slot"} and half < 1e8:
        sheet.notes.append(f"{column}: read as 5-minute steps")
        return 1 / 300
    from_beginning = half < 1e8 or 0.2 * half < quarter < 0.75 * half
    if from_beginning:
        unit = meaning.unit or "s"
        sheet.notes.append(f"{column}: read as {unit} from an unknown beginning, as the numbers are no dates")
        return next(divisor for name, _, divisor in _EPOCHS if name == unit)
    unit, least, divisor = next(one for one in _EPOCHS if half > one[1])
    if unit != "s" or meaning.unit not in {"", "s"}:
        sheet.notes.append(f"{column}: read as {unit} since 1970")
    with np.errstate(invalid="ignore"):
        other = (np.abs(numbers) <= least) | (np.abs(numbers) > 1000 * least)
    sheet.report(other, column, f"is not in {unit} since 1970 as the other times are")
    return divisor


def _report_strays(sheet: Sheet, column: str, times: Floats) -> None:
    """Report the few times that lie further from all others than these last: a clock was wrong.

    They would stretch the trace to years of gaps.
    """
    ordered = np.unique(times[sheet.usable])
    breaks = np.flatnonzero(np.diff(ordered) > DAY_S)
    if len(breaks) == 0:
        return
    firsts, lasts = ordered[np.r_[0, breaks + 1]], ordered[np.r_[breaks, len(ordered) - 1]]
    part = np.searchsorted(firsts, times, side="right") - 1
    rows = np.bincount(part[sheet.usable], minlength=len(firsts))
    large = np.flatnonzero(rows > max(1, _STRAYS * rows.sum()))
    if len(large) == 0:
        return
    begin, end = float(firsts[large[0]]), float(lasts[large[-1]])
    span = max(end - begin, DAY_S)
    stray = sheet.usable & ((times < begin - span) | (times > end + span))
    sheet.report(stray, column, f"lies more than {show_duration(span)} from every other time")


def _moment(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        pass
    try:
        moment = datetime.fromisoformat(text.strip())
    except ValueError:
        return float("nan")
    return moment.timestamp() if moment.tzinfo else (moment - datetime(1970, 1, 1)).total_seconds()  # noqa: DTZ001 - naive means UTC here


def read_amounts(
    sheet: Sheet, meanings: Sequence[ColumnMeaning]
) -> tuple[Amounts, tuple[ColumnMeaning, ...]]:
    """Return numbers in our units by role, and each column with its unit settled.

    Shares stay shares, and MHz stay MHz, until it is known of what.
    """
    amounts: Amounts = {}
    settled: list[ColumnMeaning] = []
    measured = [
        one
        for one in meanings
        if one.role in USED or one.role in ALLOCATED or one.role is ColumnRole.CPU_CLOCK
    ]
    read = {meaning.column: _numbers(sheet, meaning) for meaning in measured}
    memory = [
        read[one.column][0]
        for one in measured
        if one.role in _MEMORY and not one.unit and not _says_share(one)
    ]
    largest_mib = max((float(np.nanmax(numbers, initial=0.0)) for numbers in memory), default=0.0)
    for meaning in measured:
        column, (numbers, written) = meaning.column, read[meaning.column]
        said = written or meaning.unit
        unit = said or _guessed_unit(sheet, meaning, numbers, largest_mib)
        settled.append(ColumnMeaning(column, meaning.role, unit, guessed=not said))
        sheet.report(np.isinf(numbers), column, "is infinite")
        sheet.report(numbers < 0, column, "is negative")
        missing = np.isnan(numbers)
        if missing.any():
            sheet.notes.append(
                f"{column}: {int(missing.sum()):,} cells are empty, the first in row {sheet.first(missing)}: gaps"
            )
        scaled = numbers * _FACTORS.get(unit, 1.0)
        amounts[meaning.role] = amounts[meaning.role] + scaled if meaning.role in amounts else scaled
    return amounts, tuple(settled)


def _plain_numbers(cells: Cells) -> Floats | None:
    if isinstance(cells, np.ndarray):
        return cells.astype(np.float64)
    try:
        return np.array([cell or "nan" for cell in cells], dtype=np.float64)
    except (ValueError, TypeError):
        return None


def _numbers(sheet: Sheet, meaning: ColumnMeaning) -> tuple[Floats, str]:
    """Return the numbers of a column, and the unit if the cells carry their own (``500m``, ``2Gi``)."""
    cells = sheet.table.columns[meaning.column]
    numbers = _plain_numbers(cells)
    if numbers is not None:
        return numbers, ""
    is_cpu = meaning.role in {ColumnRole.CPU_USED, ColumnRole.CPU_ALLOCATED}
    values = np.full(len(cells), np.nan)
    bare, bad = np.zeros(len(cells), dtype=np.bool_), np.zeros(len(cells), dtype=np.bool_)
    for row, cell in enumerate(cells):
        text = str(cell).strip()
        if text.lower() in {"", "nan", "null", "none"}:
            continue
        bare[row] = _is_number(text)
        try:
            values[row] = float(text) if bare[row] else _with_unit(text, is_cpu=is_cpu)
        except ValueError:
            bad[row] = True
    sheet.report(bad, meaning.column, "is not a number")
    if (~bare & ~bad & ~np.isnan(values)).any():
        sheet.report(bare, meaning.column, "has no unit while other cells of the column have one")
        return values, "cores" if is_cpu else "MiB"
    return values, ""


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _with_unit(text: str, *, is_cpu: bool) -> float:
    return parse_cpu_millis(text) / 1000 if is_cpu else float(parse_memory_mib(text))


def _says_share(meaning: ColumnMeaning) -> bool:
    return meaning.role in {ColumnRole.CPU_USED, ColumnRole.MEMORY_USED} and "util" in meaning.column.lower()


def _guessed_unit(sheet: Sheet, meaning: ColumnMeaning, numbers: Floats, largest_memory: float) -> str:
    """Return the unit of a column whose name has none; both memory columns get the same one."""
    role, column = meaning.role, meaning.column
    why = ""
    if role in {ColumnRole.DISK, ColumnRole.NETWORK}:
        unit = "KiB/s"
    elif role is ColumnRole.CPU_CLOCK:
        unit = "MHz"
    elif _says_share(meaning):
        unit = "percent" if float(np.nanmax(numbers, initial=0.0)) > 1.5 else "share"
        why = " from its size"
    elif role in {ColumnRole.CPU_USED, ColumnRole.CPU_ALLOCATED}:
        unit = "cores"
        if plain(column) in _SAY_CORES:
            return unit
    else:
        sizes = ((1e8, "bytes"), (4e6, "KiB"), (1024, "MiB"))
        unit = next((name for above, name in sizes if largest_memory > above), "GiB")
        why = " from its size"
    sheet.notes.append(
        f"{column}: no unit in the name; read as {unit}{why} (--column {role}={column}:UNIT to say otherwise)"
    )
    return unit
