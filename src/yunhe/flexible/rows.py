"""From a table to a trace: every cell is used, repaired on request, or reported by row and column."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime

import numpy as np

from yunhe.flexible.columns import Meaning, Role, plain, understand
from yunhe.flexible.tables import Cells, Table
from yunhe.flexible.trace import (
    Bools,
    Dimension,
    Floats,
    Ints,
    Singles,
    Trace,
    carried_forward,
    most_frequent,
    on_slots,
)
from yunhe.kernel.errors import FieldProblem, InvalidInputError, TooLargeError
from yunhe.kernel.units import parse_cpu_millis, parse_memory_mib, show_duration

CARRY_S = 900
"""A gap up to this long holds the last value: collectors drift."""

MOST_TIMES_REQUEST = 4.0
"""Usage beyond this multiple of what was given means that the units differ."""

MOST_CELLS = 200_000_000
_FACTORS = {"millicores": 1e-3, "bytes": 1 / 1024**2, "KiB": 1 / 1024, "GiB": 1024.0, "MiB/s": 1024.0}


@dataclass(frozen=True, slots=True)
class Problem:
    """One cell that cannot be used as it stands."""

    row: int
    column: str
    problem: str
    value: str


@dataclass(frozen=True, slots=True)
class Reading:
    """A trace, what its columns were taken for, and everything worth knowing about the rows."""

    trace: Trace
    understood: tuple[Meaning, ...]
    notes: tuple[str, ...]
    repaired: tuple[Problem, ...] = ()
    autoscaled: frozenset[str] = field(default_factory=frozenset[str])


@dataclass(slots=True)
class _Columns:
    """Numbers being checked: which rows are usable, and what was wrong with the others."""

    table: Table
    usable: Bools
    problems: list[Problem]

    def report(self, rows: Bools, column: str, problem: str) -> None:
        """Write down each marked row and use it no more."""
        cells = self.table.columns[column]
        for row in np.flatnonzero(rows & self.usable):
            self.problems.append(Problem(int(row) + self.table.first_row, column, problem, str(cells[row])))
        self.usable &= ~rows


def read_trace(
    table: Table,
    overrides: Sequence[Meaning] = (),
    *,
    assume_cores: float | None = None,
    repair: bool = False,
) -> Reading:
    """Return the trace in *table*.

    Bad cells (text, negative, infinite, two values for one moment, units that differ) stop the reading with a
    list of them; with *repair* their rows are left out and listed. Missing values are gaps, and are counted.
    """
    understood = understand(tuple(table.columns), overrides)
    by_role = {meaning.role: meaning for meaning in understood}
    state = _Columns(table, np.ones(table.rows, dtype=np.bool_), [])
    notes: list[str] = []
    times = _times(state, by_role[Role.TIME].column, notes)
    names, codes = _instances(state, by_role[Role.INSTANCE].column)
    amounts, settled = _amounts(state, understood, notes)
    request = _requests(amounts, codes, len(names), assume_cores, notes)
    _usage_in_cores(amounts, settled, request, codes)
    _check_units(state, amounts, request, codes, settled)
    _check_duplicates(state, codes, times, amounts, by_role, notes)
    if state.problems and not repair:
        raise _refusal(table, state.problems)
    keep = state.usable
    trace = _gridded(names, codes[keep], times[keep], {d: v[keep] for d, v in amounts.items()}, request)
    notes.extend(_about(trace, times[keep], codes[keep]))
    scaled = _autoscaled(table, by_role, names, codes)
    return Reading(trace, tuple(settled.values()), tuple(notes), tuple(state.problems), scaled)


def _times(state: _Columns, column: str, notes: list[str]) -> Floats:
    cells = state.table.columns[column]
    numbers = _fast_numbers(cells)
    if numbers is None:
        numbers = np.array([_moment(str(cell)) for cell in cells])
    state.report(~np.isfinite(numbers), column, "is not a time: use seconds, milliseconds or ISO 8601")
    largest = float(np.nanmax(np.abs(np.where(np.isfinite(numbers), numbers, 0)), initial=0.0))
    for above, divisor, unit in ((1e17, 1e9, "nanoseconds"), (1e14, 1e6, "microseconds"), (1e11, 1e3, "ms")):
        if largest > above:
            notes.append(f"{column}: read as {unit} since 1970")
            return numbers / divisor
    if plain(column) in {"step", "slot"}:
        notes.append(f"{column}: read as 5-minute steps")
        return numbers * 300
    if largest < 1e8:
        notes.append(
            f"{column}: read as seconds from an unknown beginning, as the numbers are too small for dates"
        )
    return numbers


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


def _instances(state: _Columns, column: str) -> tuple[tuple[str, ...], Ints]:
    cells = state.table.columns[column]
    if not isinstance(cells, np.ndarray):
        cells = np.array([str(cell).strip() for cell in cells])
        state.report((cells == "") | (cells == "None"), column, "names no instance")
    names, codes = np.unique(cells, return_inverse=True)
    return tuple(str(name) for name in names.tolist()), codes.astype(np.int64)


_DIMENSIONS = {
    Role.CPU_USED: Dimension.CPU,
    Role.MEMORY_USED: Dimension.MEMORY,
    Role.DISK: Dimension.DISK,
    Role.NETWORK: Dimension.NETWORK,
}
_ALLOCATED = {Role.CPU_ALLOCATED: Dimension.CPU, Role.MEMORY_ALLOCATED: Dimension.MEMORY}
_MEMORY = frozenset({Role.MEMORY_USED, Role.MEMORY_ALLOCATED})

Amounts = dict[Role, Floats]


def _amounts(
    state: _Columns, understood: Sequence[Meaning], notes: list[str]
) -> tuple[Amounts, dict[str, Meaning]]:
    """Return numbers in our units by role; percent stays percent until sizes are known."""
    amounts: Amounts = {}
    settled = {meaning.column: meaning for meaning in understood}
    measured = [one for one in understood if one.role in _DIMENSIONS or one.role in _ALLOCATED]
    read = {meaning.column: _numbers(state, meaning) for meaning in measured}
    memory = [read[one.column][0] for one in measured if one.role in _MEMORY and not one.unit]
    largest_mib = max((float(np.nanmax(numbers, initial=0.0)) for numbers in memory), default=0.0)
    for meaning in measured:
        column, (numbers, written) = meaning.column, read[meaning.column]
        unit = written or meaning.unit or _guessed_unit(meaning, numbers, largest_mib, notes)
        settled[column] = Meaning(column, meaning.role, unit)
        state.report(np.isinf(numbers), column, "is infinite")
        state.report(numbers < 0, column, "is negative")
        missing = int(np.isnan(numbers).sum())
        if missing:
            first = int(np.argmax(np.isnan(numbers))) + state.table.first_row
            notes.append(f"{column}: {missing:,} cells are empty, the first in row {first}: gaps")
        scaled = numbers * _FACTORS.get(unit, 1.0)
        amounts[meaning.role] = amounts[meaning.role] + scaled if meaning.role in amounts else scaled
    return amounts, settled


def _fast_numbers(cells: Cells) -> Floats | None:
    if isinstance(cells, np.ndarray):
        return cells.astype(np.float64)
    try:
        return np.array([cell or "nan" for cell in cells], dtype=np.float64)
    except (ValueError, TypeError):
        return None


def _numbers(state: _Columns, meaning: Meaning) -> tuple[Floats, str]:
    """Return the numbers of a column, and the unit if the cells carry their own (``500m``, ``2Gi``)."""
    cells = state.table.columns[meaning.column]
    numbers = _fast_numbers(cells)
    if numbers is not None:
        return numbers, ""
    is_cpu = meaning.role in {Role.CPU_USED, Role.CPU_ALLOCATED}
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
    state.report(bad, meaning.column, "is not a number")
    if (~bare & ~bad & ~np.isnan(values)).any():
        state.report(bare, meaning.column, "has no unit while other cells of the column have one")
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


def _guessed_unit(meaning: Meaning, numbers: Floats, largest_memory: float, notes: list[str]) -> str:
    """Return the unit of a column whose name has none; both memory columns get the same one."""
    role, column = meaning.role, meaning.column
    if role in {Role.DISK, Role.NETWORK}:
        unit = "KiB/s"
    elif role is Role.CPU_USED and "util" in column.lower():
        unit = "percent" if float(np.nanmax(numbers, initial=0.0)) > 1.5 else "share"
    elif role in {Role.CPU_USED, Role.CPU_ALLOCATED}:
        return "cores"
    else:
        sizes = ((1e8, "bytes"), (4e6, "KiB"), (1024, "MiB"))
        unit = next((name for above, name in sizes if largest_memory > above), "GiB")
    notes.append(
        f"{column}: no unit in the name; read as {unit} from its size (--column {role}={column}:UNIT)"
    )
    return unit


def _requests(
    amounts: Amounts, codes: Ints, instances: int, assume_cores: float | None, notes: list[str]
) -> dict[Dimension, Floats]:
    """Return what each instance was given: the size it had most often, or what must be assumed."""
    request: dict[Dimension, Floats] = {}
    for role, dimension in _ALLOCATED.items():
        if role in amounts:
            request[dimension] = most_frequent(codes, amounts.pop(role), instances)
    if Dimension.CPU not in request:
        if assume_cores is not None:
            request[Dimension.CPU] = np.full(instances, assume_cores)
            notes.append(f"no column says how many cores were given: {assume_cores:g} assumed, as asked")
        else:
            peak = np.zeros(instances)
            np.fmax.at(peak, codes, amounts[Role.CPU_USED])
            request[Dimension.CPU] = 2.0 ** np.ceil(np.log2(np.maximum(peak, 0.125)))
            notes.append(
                "no column says how many cores were given: the next power of two above the highest use "
                "assumed (--assume-cores N to say otherwise)"
            )
    return request


def _usage_in_cores(
    amounts: Amounts, settled: dict[str, Meaning], request: dict[Dimension, Floats], codes: Ints
) -> None:
    for meaning in settled.values():
        dimension = _DIMENSIONS.get(meaning.role)
        if dimension is not None and dimension in request and meaning.unit in {"percent", "share"}:
            scale = 100.0 if meaning.unit == "percent" else 1.0
            amounts[meaning.role] = amounts[meaning.role] / scale * request[dimension][codes]
    if Dimension.MEMORY not in request:
        amounts.pop(Role.MEMORY_USED, None)


def _check_units(
    state: _Columns,
    amounts: Amounts,
    request: dict[Dimension, Floats],
    codes: Ints,
    settled: dict[str, Meaning],
) -> None:
    for meaning in settled.values():
        dimension = _DIMENSIONS.get(meaning.role)
        if dimension is None or dimension not in request or meaning.role not in amounts:
            continue
        given = request[dimension][codes]
        with np.errstate(invalid="ignore"):
            absurd = (given > 0) & (amounts[meaning.role] > MOST_TIMES_REQUEST * given)
        text = (
            f"is more than {MOST_TIMES_REQUEST:g} times what the instance was given: are the units the same?"
        )
        state.report(absurd, meaning.column, text)


def _check_duplicates(
    state: _Columns,
    codes: Ints,
    times: Floats,
    amounts: Amounts,
    by_role: dict[Role, Meaning],
    notes: list[str],
) -> None:
    order = np.lexsort((times, codes))
    order = order[state.usable[order]]
    same = (np.diff(codes[order]) == 0) & (np.diff(times[order]) == 0)
    if not same.any():
        return
    used = amounts[Role.CPU_USED][order]
    differs = same & (np.diff(used) != 0) & ~(np.isnan(used[1:]) | np.isnan(used[:-1]))
    marked = np.zeros(state.table.rows, dtype=np.bool_)
    marked[order[1:][differs]] = True
    exact = int(same.sum() - differs.sum())
    if exact:
        notes.append(f"{exact:,} rows repeat another row exactly: counted once")
    column = by_role[Role.TIME].column
    state.report(marked, column, "is there twice for this instance, with different usage")


def _refusal(table: Table, problems: list[Problem]) -> InvalidInputError:
    shown = problems[:20]
    kinds: dict[tuple[str, str], int] = {}
    for one in problems:
        kinds[one.column, one.problem] = kinds.get((one.column, one.problem), 0) + 1
    summary = "; ".join(f"{count:,} × {column} {problem}" for (column, problem), count in kinds.items())
    return InvalidInputError(
        f"{len(problems):,} cells of {table.source} cannot be used: {summary}.",
        remedy="Correct them, or let --repair leave those rows out and list them.",
        fields=tuple(FieldProblem(f"row {one.row}, {one.column}", one.problem, one.value) for one in shown),
    )


def _gridded(
    names: tuple[str, ...], codes: Ints, times: Floats, amounts: Amounts, request: dict[Dimension, Floats]
) -> Trace:
    period_s = _period_s(codes, times)
    first = int(times.min() // period_s)
    slot = (times // period_s).astype(np.int64) - first
    shape = (len(names), int(slot.max()) + 1)
    if shape[0] * shape[1] > MOST_CELLS:
        raise TooLargeError(
            f"{shape[0]:,} instances × {shape[1]:,} slots of {period_s} s are more than fit in memory.",
            remedy="Give a shorter time range, fewer instances, or coarser samples.",
        )
    usage: dict[Dimension, Singles] = {}
    for role, dimension in _DIMENSIONS.items():
        if role in amounts:
            known = ~np.isnan(amounts[role])
            grid = on_slots(codes[known], slot[known], amounts[role][known], shape)
            usage[dimension] = carried_forward(grid, CARRY_S // period_s)
    for dimension in usage:
        request.setdefault(dimension, np.zeros(len(names)))
    return Trace(names, first * period_s, period_s, usage, {one: request[one] for one in usage})


def _period_s(codes: Ints, times: Floats) -> int:
    order = np.lexsort((times, codes))
    steps = np.diff(times[order])[np.diff(codes[order]) == 0]
    steps = steps[steps > 0]
    if len(steps) == 0:
        raise InvalidInputError(
            f"{len(codes)} usable samples, and no instance has two at different times: nothing can be learned.",
            remedy="Give at least a few hours of samples for each instance.",
        )
    median = float(np.median(steps))
    for usual in (1, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600):
        if abs(median - usual) <= 0.1 * usual:
            return usual
    return max(1, round(median))


def _about(trace: Trace, times: Floats, codes: Ints) -> list[str]:
    notes: list[str] = []
    order = np.diff(times)[np.diff(codes) == 0]
    if (order < 0).any():
        notes.append(f"rows are not in order of time ({int((order < 0).sum()):,} steps back): sorted")
    gaps = np.isnan(trace.usage[Dimension.CPU])
    life = trace.slots - np.argmax(~gaps, axis=1)
    inside = int(gaps.sum() - (trace.slots - life).sum())
    if inside > 0:
        longest = _longest_run(gaps) * trace.period_s
        share = inside / max(1, int(life.sum()))
        notes.append(
            f"gaps: {100 * share:.1f} % of slots have no sample, the longest {show_duration(longest)}"
        )
    alone = int((np.bincount(codes) == 1).sum())
    if alone:
        notes.append(f"{alone} instances have a single sample: they count at what they were given")
    return notes


def _longest_run(gaps: Bools) -> int:
    longest = run = np.zeros(len(gaps), dtype=np.int64)
    started = np.zeros(len(gaps), dtype=np.bool_)
    for column in gaps.T:
        started |= ~column
        run = np.where(column & started, run + 1, 0)
        longest = np.maximum(longest, run)
    return int(longest.max(initial=0))


def _autoscaled(
    table: Table, by_role: dict[Role, Meaning], names: tuple[str, ...], codes: Ints
) -> frozenset[str]:
    if Role.AUTOSCALED not in by_role:
        return frozenset()
    cells = table.columns[by_role[Role.AUTOSCALED].column]
    yes = np.array([str(cell).strip().lower() in {"1", "true", "yes"} for cell in cells])
    return frozenset(names[code] for code in np.unique(codes[yes]))
