"""Tables as they come: CSV or Parquet, columns by name, nothing interpreted yet."""

import csv
import gzip
import io
import zlib
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from yunhe.kernel.errors import FieldProblem, InvalidInputError, NotFoundError, UnsupportedError

Cells = list[str] | np.ndarray[Any, np.dtype[Any]]
"""Text as it stands in a CSV file, or an array where the source is typed."""


@dataclass(frozen=True, slots=True)
class Table:
    """Columns of equal length; ``first_row`` is the number a person would give the first of them.

    ``row_numbers`` says it of every row where lines were left blank between them.
    """

    source: str
    columns: Mapping[str, Cells]
    rows: int
    first_row: int
    row_numbers: tuple[int, ...] = ()

    def row_number(self, index: int) -> int:
        """Return the number under which a person finds the row *index*."""
        return self.row_numbers[index] if self.row_numbers else index + self.first_row


def read_table(path: Path) -> Table:
    """Read a ``.csv``, ``.csv.gz`` or ``.parquet`` file."""
    if not path.is_file():
        raise NotFoundError(f"There is no file {path}.", remedy="Check the name, or try --demo.")
    if path.suffix == ".parquet":
        return _read_parquet(path)
    return _read_csv(path)


def _read_csv(path: Path) -> Table:
    text = _text(path)
    head = text[:4096].splitlines()
    if len(head) < 2:
        raise InvalidInputError(
            f"{path.name} has no rows.",
            remedy="The first line must name the columns, the others hold samples.",
        )
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=separator(head[0]))
    try:
        header = _distinct(path.name, next(reader))
        numbered = [
            (number, row) for number, row in enumerate(reader, 2) if len(row) > 1 or "".join(row).strip()
        ]
    except csv.Error as error:
        raise InvalidInputError(
            f"{path.name} cannot be read beyond line {reader.line_num}: {error}.",
            remedy="Fix that line: a quote may be open, or the file is not text.",
        ) from None
    for number, row in numbered:
        if len(row) != len(header):
            raise InvalidInputError(
                f"Row {number} of {path.name} has {len(row)} cells, the header has {len(header)}.",
                remedy="Every row must have a cell for every column; leave a cell empty where a value is missing.",
            )
    columns = {name: [row[i] for _, row in numbered] for i, name in enumerate(header)}
    row_numbers = tuple(number for number, _ in numbered)
    unbroken = not numbered or row_numbers[-1] == len(numbered) + 1
    return Table(path.name, columns, len(numbered), 2, () if unbroken else row_numbers)


def _text(path: Path) -> str:
    raw = path.read_bytes()
    try:
        raw = gzip.decompress(raw) if path.suffix == ".gz" else raw
    except (EOFError, zlib.error) as error:
        raise InvalidInputError(
            f"{path.name} is cut short or damaged: {error}.",
            remedy="Copy or export it again; gzip -t says whether a file is whole.",
        ) from None
    except gzip.BadGzipFile as error:
        raise InvalidInputError(
            f"{path.name} is not what gzip writes: {error}.",
            remedy="Give a CSV file in UTF-8, plain or packed with gzip, or a file that ends in .parquet.",
        ) from None
    try:
        return raw.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise InvalidInputError(
            f"{path.name} is not text.", remedy="Give a CSV file in UTF-8, or a file that ends in .parquet."
        ) from None


def _distinct(source: str, header: Sequence[str]) -> list[str]:
    """Return the names of the columns; one without a name gets its number, two of one name are refused."""
    names = [name.strip() or f"column {number}" for number, name in enumerate(header, 1)]
    twice = [name for name, count in Counter(names).items() if count > 1]
    if not twice:
        return names
    raise InvalidInputError(
        f"{source} has several columns of one name.",
        remedy="Rename all but one of them in the first line: which one counts cannot be guessed.",
        fields=tuple(
            FieldProblem(
                name,
                "names columns " + " and ".join(str(n) for n, one in enumerate(names, 1) if one == name),
            )
            for name in twice
        ),
    )


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
        names = _distinct(path.name, parquet.read_schema(path).names)
        table = parquet.read_table(path)
    except pa.ArrowException as error:
        raise InvalidInputError(
            f"{path.name} is not a Parquet file: {error}", remedy="Give a file written as Parquet."
        ) from None
    columns: dict[str, Cells] = {}
    for number, name in enumerate(names):
        column = table.column(number).combine_chunks()
        if pa.types.is_dictionary(column.type):
            column = column.dictionary_decode()
        if pa.types.is_timestamp(column.type):
            column = column.cast(pa.timestamp("ms", tz=column.type.tz)).cast(pa.int64())
        numeric = pa.types.is_integer(column.type) or pa.types.is_floating(column.type)
        if numeric and column.null_count:
            column = column.cast(pa.float64())
        columns[name] = column.to_numpy(zero_copy_only=False) if numeric else column.to_pylist()
    return Table(path.name, columns, table.num_rows, first_row=1)
