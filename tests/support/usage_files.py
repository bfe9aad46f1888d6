"""Usage files as people export them, for tests of the reader."""

import csv
from collections.abc import Sequence
from pathlib import Path

import pytest

from yunhe.flexible.reading.rows import TraceReading, read_trace
from yunhe.flexible.reading.tables import read_table
from yunhe.kernel.errors import InvalidInputError

HEADER = ("vm", "ts", "cpu_used", "cores")
START = 1_700_000_100

Rows = list[list[object]]


def write(path: Path, header: Sequence[str], rows: Sequence[Sequence[object]], delimiter: str = ",") -> Path:
    with path.open("w", newline="") as file:
        csv.writer(file, delimiter=delimiter).writerows([header, *rows])
    return path


def two_vms(slots: int = 12) -> Rows:
    return [
        [name, START + 300 * slot, 0.25 * (number + 1), 2]
        for number, name in enumerate(("a", "b"))
        for slot in range(slots)
    ]


def read(path: Path) -> TraceReading:
    return read_trace(read_table(path))


def refused(path: Path) -> InvalidInputError:
    with pytest.raises(InvalidInputError) as caught:
        read(path)
    return caught.value


def fields_of(error: InvalidInputError) -> list[str]:
    return [field.field for field in error.fields]


def noted(reading: TraceReading, *words: str) -> bool:
    """Return whether one note has all of *words*."""
    return any(all(word in note for word in words) for note in reading.notes)
