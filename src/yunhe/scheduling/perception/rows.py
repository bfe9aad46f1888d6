"""Rows of a table in a file: cells read by name, and everything that is wrong noted with its line and column."""

import csv
import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NoReturn, TypeVar

from yunhe.kernel.errors import FieldProblem, InvalidInputError
from yunhe.kernel.validation import nearest

T = TypeVar("T")
BEYOND = ""
"""Where a row keeps what it has beyond its columns."""


class BadCellError(ValueError):
    """One cell that cannot be read."""

    def __init__(self, problem: FieldProblem) -> None:
        super().__init__(problem.problem)
        self.problem = problem


class FileRow:
    """One line of a table; an empty cell is unknown."""

    def __init__(self, where: str, cells: dict[str, str]) -> None:
        self.where = where
        self._cells = cells
        if BEYOND in cells:
            raise BadCellError(FieldProblem(where, "has more cells than there are columns"))

    def text(self, column: str) -> str:
        """Return a cell; empty if there is none."""
        return (self._cells.get(column) or "").strip()

    def name(self, column: str) -> str:
        """Return a cell that must not be empty."""
        return self.text(column) or self.refuse(column, "is empty")

    def number(self, column: str, *, least: float = 0.0, most: float = math.inf) -> float | None:
        """Return a number, or None for an empty cell."""
        text = self.text(column)
        if not text:
            return None
        try:
            value = float(text)
        except ValueError:
            self.refuse(column, "is not a number", text)
        if not least <= value <= most or math.isinf(value):
            limits = f"at least {least:g}" if most == math.inf else f"from {least:g} to {most:g}"
            self.refuse(column, f"must be {limits}", text)
        return value

    def known(self, column: str) -> float:
        """Return a number that must not be empty."""
        value = self.number(column)
        return self.refuse(column, "is empty") if value is None else value

    def count(self, column: str) -> int | None:
        """Return a whole number, or None for an empty cell."""
        value = self.number(column)
        return None if value is None else round(value)

    def yes(self, column: str) -> bool:
        """Return whether a cell says yes; empty does."""
        text = self.text(column).lower() or "yes"
        if text not in {"yes", "no"}:
            self.refuse(column, "must be yes or no", text)
        return text == "yes"

    def words(self, column: str) -> tuple[str, ...]:
        """Read ``word;word``."""
        return tuple(word for part in self.text(column).split(";") if (word := part.strip()))

    def pairs(self, column: str) -> dict[str, str]:
        """Read ``key=value;key=value``."""
        found: dict[str, str] = {}
        for word in self.words(column):
            key, equals, value = word.partition("=")
            if not equals or not key:
                self.refuse(column, "must be key=value;key=value", word)
            found[key] = value
        return found

    def refuse(self, column: str, problem: str, value: str = "") -> NoReturn:
        """Raise what is wrong with a cell."""
        raise BadCellError(FieldProblem(f"{self.where}: {column}", problem, value))


def read_rows(path: Path, columns: tuple[str, ...], read: Callable[[FileRow], T]) -> list[T]:
    """Return what *read* makes of each row; a missing file has none. Every problem of the file is told at once."""
    if not path.exists():
        return []
    found: list[T] = []
    problems: list[FieldProblem] = []
    try:
        with path.open(newline="", encoding="utf-8-sig") as file:
            table = csv.DictReader(file, restkey=BEYOND)
            problems += _unknown(path.name, table.fieldnames or [], columns)
            for cells in table:
                try:
                    found.append(read(FileRow(f"{path.name}:{table.line_num}", cells)))
                except BadCellError as bad:
                    problems.append(bad.problem)
    except (UnicodeDecodeError, csv.Error) as error:
        problems.append(FieldProblem(path.name, f"is no CSV in UTF-8: {error}"))
    if problems:
        raise InvalidInputError(
            f"{path.name} cannot be read.",
            remedy="Fix what is listed; an unknown value is an empty cell.",
            fields=tuple(problems),
        )
    return found


def _unknown(file: str, given: Sequence[str], columns: tuple[str, ...]) -> list[FieldProblem]:
    """Return columns that nobody would read: a misspelt one must not pass as unknown."""
    return [
        FieldProblem(
            f"{file}: {name}", "is no column of this file", did_you_mean=nearest(name, list(columns))
        )
        for name in given
        if name not in columns
    ]
