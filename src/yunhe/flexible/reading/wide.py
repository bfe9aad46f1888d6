"""Tables with a column for each instance, as dashboards export them, turned into tables with a row for each sample."""

from collections.abc import Sequence

import numpy as np

from yunhe.flexible.reading.columns import ColumnMeaning, ColumnRole, recognised_role
from yunhe.flexible.reading.tables import Cells, Table

EVERY_OTHER = "*"
"""The name of all columns that are instances: ``--column cpu_used=*:percent``."""
LOOKED_AT = 1000
"""Cells of a column by which it is judged to hold numbers."""


def one_row_per_sample(
    table: Table, overrides: Sequence[ColumnMeaning]
) -> tuple[Table, tuple[ColumnMeaning, ...]]:
    """Return *table* and *overrides*; a table of one column of times and a column for each instance is turned first."""
    time = _time_of_wide(table, overrides)
    if time is None:
        return table, tuple(overrides)
    names = [name for name in table.columns if name != time]
    numbers = tuple(table.row_number(index) for index in range(table.rows))
    values, unit = _without_percent(_joined([table.columns[name] for name in names]))
    columns: dict[str, Cells] = {
        time: _joined([table.columns[time]] * len(names)),
        ColumnRole.INSTANCE: [name for name in names for _ in range(table.rows)],
        EVERY_OTHER: values,
    }
    said = tuple(overrides)
    if not any(meaning.role is ColumnRole.CPU_USED for meaning in said):
        said = (*said, ColumnMeaning(EVERY_OTHER, ColumnRole.CPU_USED, unit))
    return Table(table.source, columns, table.rows * len(names), 2, numbers * len(names)), said


def _time_of_wide(table: Table, overrides: Sequence[ColumnMeaning]) -> str | None:
    """Return the column of times if all others are instances; None: there is a row for each sample already."""
    said = {meaning.column: meaning.role for meaning in overrides}
    roles = {name: said.get(name, recognised_role(name)) for name in table.columns}
    if ColumnRole.INSTANCE in roles.values() or (ColumnRole.CPU_USED in roles.values()):
        return None
    if set(said) - {EVERY_OTHER} - {name for name, role in roles.items() if role is ColumnRole.TIME}:
        return None  # columns were named one by one
    times = [name for name, role in roles.items() if role is ColumnRole.TIME]
    others = [cells for name, cells in table.columns.items() if name not in times]
    return times[0] if len(times) == 1 and others and all(_is_numeric(cells) for cells in others) else None


def _is_numeric(cells: Cells) -> bool:
    """Return whether a column holds numbers, also as ``12.5%``; empty cells are gaps."""
    if isinstance(cells, np.ndarray):
        return bool(np.issubdtype(cells.dtype, np.number))
    filled = [cell for cell in cells[:LOOKED_AT] if cell and cell.strip().lower() not in ("nan", "null")]
    return bool(filled) and all(
        cell.strip().removesuffix("%").strip()[:1] in "+-.0123456789" for cell in filled
    )


def _without_percent(cells: Cells) -> tuple[Cells, str]:
    """Return cells and their unit, if all that are filled end in ``%``."""
    if isinstance(cells, np.ndarray) or not all(
        cell.rstrip().endswith("%") for cell in cells if cell.strip()
    ):
        return cells, ""
    return [cell.strip().removesuffix("%").rstrip() for cell in cells], "percent"


def _joined(parts: Sequence[Cells]) -> Cells:
    if all(isinstance(part, np.ndarray) for part in parts):
        return np.concatenate(parts)
    return [str(cell) for part in parts for cell in part]
