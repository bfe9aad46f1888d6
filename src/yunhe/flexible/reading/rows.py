"""From a table to a trace: every cell is used, repaired on request, or reported by row and column."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from yunhe.flexible.reading.cells import (
    USED,
    CellProblem,
    Samples,
    Sheet,
    read_amounts,
    read_instances,
    read_times,
    sheet_of,
)
from yunhe.flexible.reading.columns import ColumnMeaning, ColumnRole, understand
from yunhe.flexible.reading.sizes import Requests, settle_sizes, shown, use_in_our_units
from yunhe.flexible.reading.tables import Table
from yunhe.flexible.reading.wide import EVERY_OTHER, one_row_per_sample
from yunhe.flexible.trace import Bools, Dimension, Floats, Ints, Singles, Trace, carried_forward, on_slots
from yunhe.kernel.errors import FieldProblem, InvalidInputError, TooLargeError
from yunhe.kernel.units import show_duration

CARRY_S = 900
"""A gap up to this long holds the last value: collectors drift."""

LEAST_LEFT = 0.5
"""Where repairing leaves less of the rows than this, the file is misunderstood, not damaged."""

MOST_CELLS = 200_000_000
YES = frozenset({"1", "1.0", "true", "yes", "y"})
NO = frozenset({"0", "0.0", "false", "no", "n", "", "none", "nan", "null"})


@dataclass(frozen=True, slots=True)
class TraceReading:
    """A trace, what its columns were taken for, and everything worth knowing about the rows."""

    trace: Trace
    understood: tuple[ColumnMeaning, ...]
    notes: tuple[str, ...]
    repaired: tuple[CellProblem, ...] = ()
    autoscaled: frozenset[str] = field(default_factory=frozenset[str])
    ignored: tuple[str, ...] = ()
    """Columns of which nothing was made."""


def read_trace(
    table: Table,
    overrides: Sequence[ColumnMeaning] = (),
    *,
    assume_cores: float | None = None,
    repair: bool = False,
) -> TraceReading:
    """Return the trace in *table*.

    Bad cells (text, negative, infinite, two values for one moment, units that differ, a clock that was wrong)
    stop the reading with a list of them; with *repair* their rows are left out and listed, unless they are most
    of the file. Missing values are gaps, and are counted.
    """
    given = len(table.columns)
    table, overrides = one_row_per_sample(table, overrides)
    understood = understand(tuple(table.columns), overrides)
    sheet = sheet_of(table)
    if EVERY_OTHER in table.columns:
        sheet.notes.append(f"a column for each of {given - 1} instances, read as the CPU each used")
    samples, settled = _samples(sheet, understood.meanings)
    request = settle_sizes(samples, assume_cores)
    use_in_our_units(samples, request)
    _check_duplicates(samples)
    scaled = _autoscaled(samples)
    if sheet.problems and (not repair or sheet.usable.sum() < LEAST_LEFT * table.rows):
        raise _refusal(table, sheet.problems, repaired=repair)
    samples, request = _with_samples_only(samples, request)
    trace = _gridded(samples, request)
    sheet.notes.extend(_about(trace, samples.times, samples.codes))
    used = tuple(one for one in settled if _is_used(one.role, trace))
    return TraceReading(
        trace,
        used,
        tuple(sheet.notes),
        tuple(sheet.problems),
        scaled,
        tuple(column for column in table.columns if column not in {one.column for one in used}),
    )


def _samples(sheet: Sheet, meanings: Sequence[ColumnMeaning]) -> tuple[Samples, tuple[ColumnMeaning, ...]]:
    by_role = {meaning.role: meaning for meaning in meanings}
    times = read_times(sheet, by_role[ColumnRole.TIME])
    names, codes = read_instances(sheet, by_role[ColumnRole.INSTANCE].column)
    amounts, measured = read_amounts(sheet, meanings)
    by_role |= {meaning.role: meaning for meaning in measured}
    others = tuple(
        replace(one, unit="") for one in meanings if one.column not in {two.column for two in measured}
    )
    return Samples(sheet, names, codes, times, amounts, by_role), (*others, *measured)


def _is_used(role: ColumnRole, trace: Trace) -> bool:
    return (
        role not in {ColumnRole.MEMORY_USED, ColumnRole.MEMORY_ALLOCATED} or Dimension.MEMORY in trace.usage
    )


def _check_duplicates(samples: Samples) -> None:
    """Make one row of those of one instance and moment; report those that contradict each other."""
    sheet = samples.sheet
    order = np.lexsort((samples.times, samples.codes))
    order = order[sheet.usable[order]]
    repeats = (np.diff(samples.codes[order]) == 0) & (np.diff(samples.times[order]) == 0)
    if not repeats.any():
        return
    group = np.concatenate([[0], np.cumsum(~repeats)])
    leader = order[np.concatenate([[True], ~repeats])]
    differs = np.zeros(len(order), dtype=np.bool_)
    for values in samples.amounts.values():
        known = ~np.isnan(values[order])
        groups, first = np.unique(group[known], return_index=True)
        agreed = np.full(len(leader), np.nan)
        agreed[groups] = values[order][known][first]
        differs |= known & (values[order] != agreed[group])
        values[leader] = agreed
    contradicts, again = (np.zeros(len(sheet.usable), dtype=np.bool_) for _ in range(2))
    contradicts[order[differs]] = True
    again[order[1:][repeats & ~differs[1:]]] = True
    text = "is there twice for this instance, with different usage"
    sheet.report(contradicts, samples.columns[ColumnRole.TIME].column, text)
    if again.any():
        sheet.notes.append(f"{int(again.sum()):,} rows repeat another row: counted once")
        sheet.usable &= ~again


def _with_samples_only(samples: Samples, request: Requests) -> tuple[Samples, Requests]:
    """Return the usable rows, and only the instances that have some CPU sample among them."""
    keep = samples.sheet.usable
    sampled = keep & ~np.isnan(samples.amounts[ColumnRole.CPU_USED])
    present = np.bincount(samples.codes[sampled], minlength=len(samples.names)) > 0
    if not present.all():
        gone = [name for name, here in zip(samples.names, present, strict=True) if not here]
        samples.sheet.notes.append(f"left out, as no usable CPU sample is there: {shown(gone)}")
    keep = keep & present[samples.codes]
    renumbered = np.cumsum(present) - 1
    return (
        replace(
            samples,
            names=tuple(name for name, here in zip(samples.names, present, strict=True) if here),
            codes=renumbered[samples.codes[keep]],
            times=samples.times[keep],
            amounts={role: values[keep] for role, values in samples.amounts.items()},
        ),
        {dimension: sizes[present] for dimension, sizes in request.items()},
    )


def _refusal(table: Table, problems: list[CellProblem], *, repaired: bool) -> InvalidInputError:
    shown = problems[:20]
    kinds: dict[tuple[str, str], int] = {}
    for one in problems:
        kinds[one.column, one.problem] = kinds.get((one.column, one.problem), 0) + 1
    summary = "; ".join(f"{count:,} × {column} {problem}" for (column, problem), count in kinds.items())
    return InvalidInputError(
        f"{len(problems):,} cells of {table.source} cannot be used: {summary}.",
        remedy="So much is not to be repaired: say what the columns are with --column ROLE=COLUMN:UNIT."
        if repaired
        else "Correct them, or let --repair leave those rows out and list them.",
        fields=tuple(FieldProblem(f"row {one.row}, {one.column}", one.problem, one.value) for one in shown),
    )


def _gridded(samples: Samples, request: Requests) -> Trace:
    names, codes, times = samples.names, samples.codes, samples.times
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
    for role, dimension in USED.items():
        if role in samples.amounts:
            amounts = samples.amounts[role]
            known = ~np.isnan(amounts)
            grid = on_slots(codes[known], slot[known], amounts[known], shape)
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


def _autoscaled(samples: Samples) -> frozenset[str]:
    if ColumnRole.AUTOSCALED not in samples.columns:
        return frozenset()
    column = samples.columns[ColumnRole.AUTOSCALED].column
    said = np.array([str(cell).strip().lower() for cell in samples.sheet.table.columns[column]])
    yes, no = np.isin(said, list(YES)), np.isin(said, list(NO))
    samples.sheet.report(~yes & ~no, column, "is neither true nor false")
    return frozenset(samples.names[code] for code in np.unique(samples.codes[yes]))
