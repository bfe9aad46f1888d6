"""What each instance was given, and what it used of that: sizes settled, units held against each other."""

import numpy as np

from yunhe.flexible.reading.cells import ALLOCATED, SHARES, USED, Samples
from yunhe.flexible.reading.columns import CLOCKS, ColumnRole
from yunhe.flexible.trace import Bools, Dimension, Floats, most_frequent
from yunhe.kernel.errors import FieldProblem, InvalidInputError

MOST_TIMES_REQUEST = 4.0
"""Usage beyond this multiple of what was given means that the units differ."""

MOST_TIMES_SIZE = 64.0
"""A size this many times that of the same instance elsewhere is in another unit, and no resize."""

MOST_CORES = 2048.0
"""No machine has more: the unit is another."""

UNSAID_CORES = 16.0
"""Where neither the unit nor any size is known, larger numbers may as well be percent or MHz."""

Requests = dict[Dimension, Floats]


def settle_sizes(samples: Samples, assume_cores: float | None) -> Requests:
    """Return what each instance was given: the size it had most often, or what must be assumed.

    Takes the sizes out of the amounts. A size in another unit than the rest is reported, and so is an instance
    that has none.
    """
    request = {
        dimension: _most_often(samples, role, dimension)
        for role, dimension in ALLOCATED.items()
        if role in samples.amounts
    }
    if Dimension.CPU in request:
        _fill_missing_cores(samples, request[Dimension.CPU], assume_cores)
    elif assume_cores is not None:
        request[Dimension.CPU] = np.full(len(samples.names), assume_cores)
        samples.sheet.notes.append(
            f"no column says how many cores were given: {assume_cores:g} assumed, as asked"
        )
    else:
        request[Dimension.CPU] = _cores_from_use(samples)
    _judge_memory(samples, request)
    return request


def _most_often(samples: Samples, role: ColumnRole, dimension: Dimension) -> Floats:
    sheet, column = samples.sheet, samples.columns[role].column
    size = samples.amounts.pop(role)
    if dimension is Dimension.CPU:
        text = (
            f"is more cores than a machine has: if it is millicores, say --column {role}={column}:millicores"
        )
        sheet.report(size > MOST_CORES, column, text)
    known = sheet.usable & (size > 0)
    usual = most_frequent(samples.codes, np.where(known, size, np.nan), len(samples.names))
    here = usual[samples.codes]
    far = known & ((size > MOST_TIMES_SIZE * here) | (size * MOST_TIMES_SIZE < here))
    text = (
        f"is {MOST_TIMES_SIZE:g} times more or less than this instance has elsewhere: are the units the same?"
    )
    sheet.report(far, column, text)
    resized = known & ~far & (size != here)
    if resized.any():
        count = len(np.unique(samples.codes[resized]))
        sheet.notes.append(
            f"{column}: {count} instances change size, first in row {sheet.first(resized)}; "
            "the size each has most often counts"
        )
    if (nothing := sheet.usable & (size == 0)).any():
        sheet.notes.append(
            f"{column}: {int(nothing.sum()):,} cells are 0, the first in row {sheet.first(nothing)}: they say nothing"
        )
    return usual


def _fill_missing_cores(samples: Samples, cores: Floats, assume_cores: float | None) -> None:
    missing = (cores == 0) & _in_use(samples)
    if not missing.any():
        return
    if assume_cores is not None:
        cores[missing] = assume_cores
        samples.sheet.notes.append(
            f"{int(missing.sum())} instances have no cores in any row: {assume_cores:g} assumed, as asked"
        )
        return
    rows = missing[samples.codes]
    column = samples.columns[ColumnRole.CPU_ALLOCATED].column
    text = "says in no row how many cores this instance was given: fill it in, or say --assume-cores N"
    samples.sheet.report(samples.first_of_each(missing), column, text)
    samples.sheet.usable &= ~rows


def _in_use(samples: Samples) -> Bools:
    return np.bincount(samples.codes[samples.sheet.usable], minlength=len(samples.names)) > 0


def _cores_from_use(samples: Samples) -> Floats:
    """Return the next power of two above the highest use, where that is known to be cores."""
    sheet, used = samples.sheet, samples.columns[ColumnRole.CPU_USED]
    if used.unit in SHARES or used.unit in CLOCKS:
        raise InvalidInputError(
            f"{used.column} is a share of the cores given ({used.unit}), and no column says how many those are.",
            remedy="Say --assume-cores N if all instances have as many, or --column cpu_allocated=COLUMN.",
            fields=(FieldProblem(ColumnRole.CPU_ALLOCATED, "no column of a known name"),),
        )
    peak = np.zeros(len(samples.names))
    cores = np.where(sheet.usable, samples.amounts[ColumnRole.CPU_USED], np.nan)
    np.fmax.at(peak, samples.codes, cores)
    if used.guessed and peak.max(initial=0.0) > UNSAID_CORES:
        row = int(np.nanargmax(cores))
        raise InvalidInputError(
            f"{used.column} may be cores, percent or MHz: neither its name nor a column of sizes says which.",
            remedy=f"Say --column cpu_used={used.column}:cores, or :percent together with --assume-cores N.",
            fields=(
                FieldProblem(
                    f"row {sheet.table.row_number(row)}, {used.column}", "is its highest", f"{cores[row]:g}"
                ),
            ),
        )
    sheet.notes.append(
        "no column says how many cores were given: the next power of two above the highest use "
        "assumed (--assume-cores N to say otherwise)"
    )
    return 2.0 ** np.ceil(np.log2(np.maximum(peak, 0.125)))


def _judge_memory(samples: Samples, request: Requests) -> None:
    """Leave memory out where nothing says how much was given: of all instances, or of some."""
    if ColumnRole.MEMORY_USED not in samples.amounts:
        request.pop(Dimension.MEMORY, None)
        return
    notes, used = samples.sheet.notes, samples.columns[ColumnRole.MEMORY_USED]
    if Dimension.MEMORY not in request:
        del samples.amounts[ColumnRole.MEMORY_USED]
        notes.append(
            f"{used.column}: not used, as no column says how much memory was given "
            "(--column memory_allocated=COLUMN)"
        )
        return
    missing = (request[Dimension.MEMORY] == 0) & _in_use(samples)
    if missing.any():
        samples.amounts[ColumnRole.MEMORY_USED][missing[samples.codes]] = np.nan
        names = [samples.names[one] for one in np.flatnonzero(missing)]
        notes.append(
            f"{samples.columns[ColumnRole.MEMORY_ALLOCATED].column}: {shown(names)} have no memory in any row: "
            "theirs is not judged"
        )


def shown(names: list[str]) -> str:
    """Return how many there are, with the first few by name."""
    return f"{len(names)} instances ({', '.join(names[:5])}{' …' if len(names) > 5 else ''})"


def use_in_our_units(samples: Samples, request: Requests) -> None:
    """Turn shares and MHz into cores and MiB, now that it is known of what; report what no unit explains."""
    _shares_of_clock(samples)
    for role in (ColumnRole.CPU_USED, ColumnRole.MEMORY_USED):
        if role not in samples.amounts or samples.columns[role].unit not in {*SHARES, *CLOCKS}:
            continue
        share = samples.amounts[role] / SHARES.get(samples.columns[role].unit, 1.0)
        _note_above_all(samples, role, share)
        samples.amounts[role] = share * request[USED[role]][samples.codes]
    _report_absurd(samples, request)


def _shares_of_clock(samples: Samples) -> None:
    clock = samples.amounts.pop(ColumnRole.CPU_CLOCK, None)
    used = samples.columns[ColumnRole.CPU_USED]
    if used.unit not in CLOCKS:
        return
    if clock is None:
        raise InvalidInputError(
            f"{used.column} is in {used.unit}, and no column says how many the instance has.",
            remedy="Say --column cpu_clock=COLUMN:MHz, or give usage in cores or percent.",
            fields=(FieldProblem(ColumnRole.CPU_CLOCK, "no column of a known name"),),
        )
    amount = samples.amounts[ColumnRole.CPU_USED]
    without = (amount > 0) & ~(clock > 0)
    samples.sheet.report(without, used.column, "cannot be compared: the row does not say how many there are")
    samples.amounts[ColumnRole.CPU_USED] = np.divide(
        amount, clock, out=np.zeros_like(amount), where=clock > 0
    )


def _note_above_all(samples: Samples, role: ColumnRole, share: Floats) -> None:
    above = samples.sheet.usable & (share > 1)
    if not above.any():
        return
    used = samples.columns[role]
    hint = (
        f"; percent of one core: --column {role}={used.column}:core_pct"
        if role is ColumnRole.CPU_USED
        else ""
    )
    samples.sheet.notes.append(
        f"{used.column}: {int(above.sum()):,} cells are above all that was given, the highest at "
        f"{100 * float(share[above].max()):.0f} %, the first in row {samples.sheet.first(above)}{hint}"
    )


def _report_absurd(samples: Samples, request: Requests) -> None:
    text = f"is more than {MOST_TIMES_REQUEST:g} times what the instance was given: are the units the same?"
    for role, dimension in USED.items():
        if role in samples.amounts and dimension in request:
            given = request[dimension][samples.codes]
            absurd = (given > 0) & (samples.amounts[role] > MOST_TIMES_REQUEST * given)
            samples.sheet.report(absurd, samples.columns[role].column, text)
