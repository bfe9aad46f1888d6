"""What went wrong, for people (✗ problem, → remedy) and for programs (problem JSON)."""

import sys
import tempfile
import traceback
from itertools import pairwise

import msgspec

from yunhe.entrypoints.cli.terminal.clean import clean, clean_json
from yunhe.entrypoints.wire import Problem
from yunhe.kernel.errors import InvalidInputError, YunheError


def wants_json(arguments: list[str]) -> bool:
    """Return whether the caller asked for JSON, even on a line that cannot be parsed."""
    own = arguments[: arguments.index("--")] if "--" in arguments else arguments
    return any(
        (flag in {"--output", "-o"} and value == "json") or flag == "--output=json"
        for flag, value in pairwise([*own, ""])
    )


def problem_of(error: YunheError) -> Problem:
    """Return *error* in the form the API answers with (RFC 9457)."""
    return Problem(
        type=f"urn:yunhe:problem:{error.code}",
        title=error.code.replace("-", " ").capitalize(),
        status=error.status,
        code=error.code,
        detail=error.problem,
        remedy=error.remedy,
        fields=error.fields,
        retryable=error.retryable,
    )


def problem_lines(error: YunheError) -> list[str]:
    """Return *error* as lines: the problem, each field, the remedy."""
    lines = [f"✗ {error.problem}", *(f"    {field}" for field in error.fields)]
    if error.remedy:
        lines.append(f"  → {error.remedy}")
    return lines


def show_problem(error: YunheError, *, as_json: bool) -> None:
    """Write *error* to standard error."""
    if as_json:
        sys.stderr.write(clean_json(msgspec.json.encode(problem_of(error))) + "\n")
    else:
        sys.stderr.write(clean("\n".join(problem_lines(error))) + "\n")


def local_problem(error: OSError) -> YunheError:
    """Return what this machine refused: a path that is not there, not ours or full."""
    where = f"{error.filename}: " if error.filename else ""
    return InvalidInputError(
        f"{where}{error.strerror or error}.",
        remedy="Check that the path exists and that you may write there.",
    )


def unforeseen(error: Exception) -> YunheError:
    """Return that we failed, once the traceback is kept in a file to report."""
    with tempfile.NamedTemporaryFile("w", prefix="yunhe-fault-", suffix=".log", delete=False) as log:
        log.writelines(traceback.format_exception(error))
    first_line = str(error).partition("\n")[0]
    return YunheError(
        f"This is a fault of yunhe, not yours: {type(error).__name__}: {first_line}",
        remedy=f"Please report it with {log.name}; `yunhe doctor` may tell more.",
    )
