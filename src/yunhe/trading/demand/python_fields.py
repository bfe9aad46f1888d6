"""How the Python environment of a task is read."""

import re
from typing import Any, cast

from yunhe.trading.demand import amounts
from yunhe.trading.demand.model import PythonSpec
from yunhe.trading.demand.reader import Reader, Readers

VERSION = re.compile(r"3(\.\d{1,3}){0,2}")
_LONGEST_LINE = 4096
_LEADS_ELSEWHERE = re.compile(r"\s*(-r|-c|--requirement|--constraint)\b")


def python(reader: Reader, field: str, value: object) -> PythonSpec:
    """Read which Python environment a task wants."""
    given = reader.mapping(field, value)
    read = reader.fields(f"{field}.", given, _READERS, {})
    if isinstance(value, dict) and not any(given.values()):
        reader.note(field, 'is empty: give version ("3.12"), requirements, or both')
    return PythonSpec(**cast("dict[str, Any]", read))


def _version(reader: Reader, field: str, value: object) -> str:
    if isinstance(value, int | float):
        reader.note(field, 'is a number, in which 3.10 is 3.1: put it in quotes, "3.10"', value)
        return ""
    version = reader.text(field, value)
    if version and not VERSION.fullmatch(version):
        reader.note(field, "must be a version of Python such as 3.12 or 3.12.4", version)
    return version


def _requirements(reader: Reader, field: str, value: object) -> str | tuple[str, ...]:
    if isinstance(value, str):
        try:
            return amounts.inner_path(value)
        except ValueError as error:
            reader.note(field, str(error), value)
            return ""
    lines = reader.texts(field, value)
    for number, line in enumerate(lines):
        if len(line) > _LONGEST_LINE or set(line) & set("\0\r\n"):
            reader.note(f"{field}[{number}]", f"must be one line of at most {_LONGEST_LINE} characters")
        elif _LEADS_ELSEWHERE.match(line):
            reader.note(
                f"{field}[{number}]", "leads to another file: name that file in requirements instead", line
            )
    return lines


_READERS: Readers = {"version": _version, "requirements": _requirements}


def check_python(reader: Reader, known: dict[str, object]) -> None:
    """Note what the environment does not agree on with other fields."""
    wanted = known.get("python")
    if not isinstance(wanted, PythonSpec):
        return
    if known.get("image"):
        reader.note("python", "is for tasks without an image, which brings its own Python: keep one")
    if isinstance(wanted.requirements, str) and not (known.get("workdir") or known.get("file_mounts")):
        reader.note(
            "python.requirements",
            "names a file, and the task sends none: set workdir, or list the lines here",
            wanted.requirements,
        )
