"""What went wrong, for people (✗ problem, → remedy) and for programs (problem JSON)."""

import sys
from itertools import pairwise

import msgspec

from yunhe.entrypoints.wire import Problem
from yunhe.kernel.errors import YunheError


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
        sys.stderr.write(msgspec.json.encode(problem_of(error)).decode() + "\n")
    else:
        sys.stderr.write("\n".join(problem_lines(error)) + "\n")
