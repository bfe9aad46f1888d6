"""What went wrong, for people (✗ problem, → remedy) and for programs (problem JSON)."""

import json
import sys

from yunhe.kernel.errors import YunheError


def wants_json(arguments: list[str]) -> bool:
    """Return whether the caller asked for JSON, even on a line that cannot be parsed."""
    own = arguments[: arguments.index("--")] if "--" in arguments else arguments
    pairs = zip(own, [*own[1:], ""], strict=True)
    return any(
        (flag in {"--output", "-o"} and value == "json") or flag == "--output=json" for flag, value in pairs
    )


def problem_document(error: YunheError) -> dict[str, object]:
    """Return *error* in the form the API answers with (RFC 9457)."""
    return {
        "type": f"urn:yunhe:problem:{error.code}",
        "title": error.problem,
        "status": error.status,
        "code": error.code,
        "detail": str(error),
        "remedy": error.remedy,
        "fields": [
            {
                "field": field.field,
                "problem": field.problem,
                "value": field.value,
                "did_you_mean": field.did_you_mean,
            }
            for field in error.fields
        ],
        "retryable": error.retryable,
    }


def problem_lines(error: YunheError) -> list[str]:
    """Return *error* as lines: the problem, each field, the remedy."""
    lines = [f"✗ {error.problem}", *(f"    {field}" for field in error.fields)]
    if error.remedy:
        lines.append(f"  → {error.remedy}")
    return lines


def show_problem(error: YunheError, *, as_json: bool) -> None:
    """Write *error* to standard error."""
    if as_json:
        sys.stderr.write(json.dumps(problem_document(error), ensure_ascii=False) + "\n")
    else:
        sys.stderr.write("\n".join(problem_lines(error)) + "\n")
