"""Tables as they come: CSV or Parquet, columns by name, nothing interpreted yet."""

import csv
import gzip
import io
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from yunhe.kernel.errors import InvalidInputError, NotFoundError, UnsupportedError

Cells = list[str] | np.ndarray[Any, np.dtype[Any]]
"""Text as it stands in a CSV file, or an array where the source is typed."""


@dataclass(frozen=True, slots=True)
class Table:
    """Columns of equal length; ``first_row`` is the number a person would give the first of them."""

    source: str
    columns: Mapping[str, Cells]
    rows: int
    first_row: int


def read_table(path: Path) -> Table:
    """Read a ``.csv``, ``.csv.gz`` or ``.parquet`` file."""
    if not path.is_file():
        raise NotFoundError(f"There is no file {path}.", remedy="Check the name, or try --demo.")
    if path.suffix == ".parquet":
        return _read_parquet(path)
    return _read_csv(path)


def _read_csv(path: Path) -> Table:
    raw = path.read_bytes()
    try:
        raw = gzip.decompress(raw) if path.suffix == ".gz" else raw
        text = raw.decode("utf-8-sig")
    except (UnicodeDecodeError, gzip.BadGzipFile):
        raise InvalidInputError(
            f"{path.name} is not text.", remedy="Give a CSV file in UTF-8, or a file that ends in .parquet."
        ) from None
    head = text[:4096].splitlines()
    if len(head) < 2:
        raise InvalidInputError(
            f"{path.name} has no rows.",
            remedy="The first line must name the columns, the others hold samples.",
        )
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=separator(head[0]))
    header = [name.strip() for name in next(reader)]
    rows = [row for row in reader if row]
    short = next((number for number, row in enumerate(rows, 2) if len(row) != len(header)), None)
    if short is not None:
        found = len(rows[short - 2])
        raise InvalidInputError(
            f"Row {short} of {path.name} has {found} cells, the header has {len(header)}.",
            remedy="Every row must have a cell for every column; leave a cell empty where a value is missing.",
        )
    columns = {name: [row[i] for row in rows] for i, name in enumerate(header)}
    return Table(path.name, columns, len(rows), first_row=2)


def separator(header: str) -> str:
    """Return what separates the cells of a table with this first line."""
    return max(",;\t", key=header.count)


def _read_parquet(path: Path) -> Table:
    try:
        import pyarrow as pa  # noqa: PLC0415 - an optional extra
        from pyarrow import parquet  # noqa: PLC0415 - an optional extra
    except ImportError:
        raise UnsupportedError(
            "Reading Parquet needs pyarrow, which is not installed.",
            remedy="pip install 'yunhe[parquet]', or convert the file to CSV.",
        ) from None
    try:
        table = parquet.read_table(path)
    except pa.ArrowException as error:
        raise InvalidInputError(
            f"{path.name} is not a Parquet file: {error}", remedy="Give a file written as Parquet."
        ) from None
    columns: dict[str, Cells] = {}
    for name in table.column_names:
        column = table[name].combine_chunks()
        if pa.types.is_dictionary(column.type):
            column = column.dictionary_decode()
        if pa.types.is_timestamp(column.type):
            column = column.cast(pa.timestamp("ms", tz=column.type.tz)).cast(pa.int64())
        numeric = pa.types.is_integer(column.type) or pa.types.is_floating(column.type)
        if numeric and column.null_count:
            column = column.cast(pa.float64())
        columns[name] = column.to_numpy(zero_copy_only=False) if numeric else column.to_pylist()
    return Table(path.name, columns, table.num_rows, first_row=1)
