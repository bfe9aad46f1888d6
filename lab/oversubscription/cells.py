"""Cells of a table as the loaders need them: what cannot be read is named by row and column."""

import csv
import gzip
import zlib
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from yunhe.flexible.reading.tables import Cells, Table, separator
from yunhe.flexible.trace import Floats, Ints
from yunhe.kernel.errors import InvalidInputError

MISSING = frozenset({"", "nan", "none", "null"})


def is_table(path: Path) -> bool:
    """Return whether a file may hold samples."""
    return path.is_file() and path.name.endswith((".parquet", ".csv", ".csv.gz"))


def column_names(path: Path) -> set[str]:
    """Return the columns of a file without reading the rest of it."""
    if path.suffix == ".parquet":
        from pyarrow import parquet  # noqa: PLC0415 - an optional extra

        return set(parquet.read_schema(path).names)
    try:
        with (
            gzip.open(path, "rt", encoding="utf-8-sig")
            if path.suffix == ".gz"
            else path.open(encoding="utf-8-sig") as file
        ):
            header = file.readline(65536)
    except (UnicodeDecodeError, EOFError, zlib.error, gzip.BadGzipFile):
        raise InvalidInputError(f"{path.name} is not text.", remedy="Give a CSV file in UTF-8.") from None
    return {name.strip() for name in next(csv.reader([header], delimiter=separator(header)), [])}


Names = np.ndarray[tuple[int], np.dtype[np.str_ | np.int64]]


def distinct(parts: Sequence[Names]) -> tuple[tuple[str, ...], Ints]:
    """Return the different names in all *parts* in their order, and which of them each row has."""
    if len({part.dtype.kind for part in parts}) > 1:
        parts = [part.astype(np.str_) for part in parts]
    found, code = np.unique(np.concatenate(parts), return_inverse=True)
    return tuple(str(name) for name in found.tolist()), code


def names(table: Table, column: str) -> Names:
    """Return who each row is of: a number where the column holds numbers, else text."""
    cells = np.asarray(table.columns[column])
    if cells.dtype.kind == "f" and (cells == np.floor(cells)).all():
        return cells.astype(np.int64)
    return cells if cells.dtype.kind in "iu" else texts(table, column)


def texts(table: Table, column: str) -> Names:
    """Return who each row is of, as text."""
    cells = np.asarray(table.columns[column], dtype=np.str_)
    blank = [cell.strip().lower() in MISSING for cell in np.unique(cells).tolist()]
    if any(blank):
        row = next(row for row, cell in enumerate(cells.tolist()) if cell.strip().lower() in MISSING)
        raise _refusal(table, column, row, "no instance is named")
    return cells


def numbers(table: Table, column: str) -> Floats:
    """Return a column as numbers; an empty cell is NaN."""
    cells = table.columns[column]
    try:
        return np.asarray(cells, dtype=np.float64)
    except (ValueError, TypeError):
        return _one_by_one(table, column, cells)


def _one_by_one(table: Table, column: str, cells: Cells) -> Floats:
    found = np.full(len(cells), np.nan)
    for row, cell in enumerate(cells):
        text = str(cell).strip()
        if text.lower() not in MISSING:
            try:
                found[row] = float(text)
            except ValueError:
                raise _refusal(table, column, row, f"“{text}” is no number") from None
    return found


def whole_numbers(table: Table, column: str) -> Ints:
    """Return a column as whole numbers; none may be missing."""
    found = numbers(table, column)
    missing = ~np.isfinite(found)
    if missing.any():
        raise _refusal(table, column, int(np.argmax(missing)), "no number is given")
    return np.floor(found).astype(np.int64)


def _refusal(table: Table, column: str, row: int, what: str) -> InvalidInputError:
    return InvalidInputError(
        f"Row {table.first_row + row} of {table.source}, column {column}: {what}.",
        remedy="Mend the cell, or leave the row out.",
    )
