"""What the body of each verb must look like; every problem of a body is found at once and names its field."""

from __future__ import annotations

import re
from typing import Any, Callable

from yunhe.agent.protocol.refusals import INVALID, Refusal

Check = Callable[[Any, str, "list[dict[str, str]]"], None]

_NAME = r"[A-Za-z0-9][A-Za-z0-9_.-]{0,99}"
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_IMAGE = r"([A-Za-z0-9][A-Za-z0-9./:@_-]*)?"
_EGRESS = r"\d{1,3}(\.\d{1,3}){3}(/\d{1,2})?(:\d{1,5}(-\d{1,5})?)?"
_MOST = 2**53


def _problem(problems: list[dict[str, str]], field: str, problem: str, value: object) -> None:
    problems.append({"field": field, "problem": problem, "value": repr(value)[:80]})


def text(pattern: str = r"[\s\S]*", longest: int = 1024 * 1024, says: str = "") -> Check:
    """Accept a string that matches *pattern* as a whole."""
    form = re.compile(pattern)

    def check(value: Any, field: str, problems: list[dict[str, str]]) -> None:
        if not isinstance(value, str):
            _problem(problems, field, "must be text", value)
        elif "\0" in value or len(value) > longest or form.fullmatch(value) is None:
            _problem(problems, field, says or f"must match {pattern} and have no NUL", value)

    return check


def integer(low: int = 0, high: int = _MOST) -> Check:
    """Accept a whole number in a range."""

    def check(value: Any, field: str, problems: list[dict[str, str]]) -> None:
        if not isinstance(value, int) or isinstance(value, bool) or not low <= value <= high:
            _problem(problems, field, f"must be a whole number from {low} to {high}", value)

    return check


def number(low: float, high: float) -> Check:
    """Accept a number in a range; JSON's NaN and infinities are in none."""

    def check(value: Any, field: str, problems: list[dict[str, str]]) -> None:
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not low <= value <= high:
            _problem(problems, field, f"must be a number from {low:g} to {high:g}", value)

    return check


def flag(value: Any, field: str, problems: list[dict[str, str]]) -> None:
    """Accept true or false."""
    if not isinstance(value, bool):
        _problem(problems, field, "must be true or false", value)


def nothing_or(check: Check) -> Check:
    """Accept null, or what *check* accepts."""

    def check_or_none(value: Any, field: str, problems: list[dict[str, str]]) -> None:
        if value is not None:
            check(value, field, problems)

    return check_or_none


def many(check: Check, most: int, fewest: int = 0) -> Check:
    """Accept a list of what *check* accepts."""

    def check_each(value: Any, field: str, problems: list[dict[str, str]]) -> None:
        if not isinstance(value, list) or not fewest <= len(value) <= most:
            _problem(problems, field, f"must be a list of {fewest} to {most}", value)
            return
        for index, item in enumerate(value):
            check(item, f"{field}[{index}]", problems)

    return check_each


def variables(value: Any, field: str, problems: list[dict[str, str]]) -> None:
    """Accept environment variables; the values of bad ones are not repeated, they may be secret."""
    if not isinstance(value, dict):
        _problem(problems, field, "must be an object of text values", type(value).__name__)
        return
    for name, content in value.items():
        if _VARIABLE.fullmatch(name) is None:
            _problem(problems, f"{field}.{name[:80]}", "is not a name for a variable", name)
        if not isinstance(content, str) or "\0" in content:
            problems.append({"field": f"{field}.{name[:80]}", "problem": "must be text without NUL"})


def record(required: dict[str, Check], optional: dict[str, Check] | None = None) -> Check:
    """Accept an object with exactly these fields."""
    known = {**required, **(optional or {})}

    def check(value: Any, field: str, problems: list[dict[str, str]]) -> None:
        if not isinstance(value, dict):
            _problem(problems, field or "body", "must be an object", value)
            return
        above = f"{field}." if field else ""
        missing = [name for name in required if name not in value]
        problems.extend({"field": above + name, "problem": "is missing"} for name in missing)
        for name, content in value.items():
            if name in known:
                known[name](content, above + name, problems)
            else:
                problems.append({"field": above + str(name)[:80], "problem": "is not known"})

    return check


NAME = text(_NAME, says="must be 1 to 100 letters, digits, '-', '_' or '.', the first a letter or digit")
TOKEN = integer()
ACCELERATOR = record({"kind": text(), "milli": integer()}, {"memory_mib": integer()})
RESOURCES = record(
    {},
    {
        "cpu_millis": integer(),
        "memory_mib": integer(),
        "disk_mib": integer(),
        "accelerators": many(ACCELERATOR, 64),
    },
)
EGRESS = text(_EGRESS, 40, "must be a block of IPv4 addresses, with :PORT or :FIRST-LAST if wanted")
PYTHON = record(
    {},
    {
        "version": text(r"(\d+(\.\d+){0,2})?", 20, "must be a version such as 3.12"),
        "requirements": many(text(r"[^\r\n]*", 4096, "must be a line"), 1000),
        "file": text(r"(?!/).*", 4096, "must be a path in the job's directory"),
    },
)
STEP = record({"name": text(longest=200), "script": text()})
_COMMANDED: dict[str, Check] = {"allocation_id": NAME, "token": TOKEN}

SHAPES: dict[str, Check] = {
    "hello": record({"protocol": integer(), "oldest_protocol": integer()}),
    "describe": record({}),
    "account": record({}),
    "inventory": record({}),
    "launch": record(
        {
            **_COMMANDED,
            "project_id": NAME,
            "node_id": text(longest=255),
            "resources": RESOURCES,
            "steps": many(STEP, 100, fewest=1),
        },
        {
            "image": text(_IMAGE, 1000, "must be the name of an image: letters, digits and ./:@_-"),
            "envs": variables,
            "secrets": variables,
            "timeout_s": nothing_or(number(0, 1e9)),
            "grace_s": number(0, 86_400),
            "log_limit_bytes": integer(16 * 1024),
            "separate_stderr": flag,
            "python": PYTHON,
            "disk_limit_bytes": nothing_or(integer()),
            "expires_ms": nothing_or(integer()),
            "privileged": flag,
            "runtime": text("[a-z]{0,32}", says="must be the name of a runtime, or left out"),
            "network": text("(none|host)?", says="must be none or host, or left out"),
            "egress": many(many(EGRESS, 200), 4),
        },
    ),
    "stop": record(_COMMANDED, {"grace_s": number(0, 86_400)}),
    "release": record(_COMMANDED),
    "observe": record({}, {"beyond": integer(-1), "wait_s": number(0, 3600), "changes": flag}),
    "logs": record({"allocation_id": NAME}, {"offset": integer(), "follow": flag, "marks": flag}),
    "usage": record({}, {"beyond": integer(-1)}),
    "resize": record({**_COMMANDED, "resources": RESOURCES}),
    "pin": record({**_COMMANDED, "cores": many(integer(0, 65_535), 4096)}),
    "pause": record(_COMMANDED),
    "resume": record(_COMMANDED),
    "put_archive": record(
        {
            **_COMMANDED,
            "project_id": NAME,
            "path": text(longest=4096),
            "digest": text(r"[0-9a-f]{64}"),
            "size_bytes": integer(0, 2**40),
        },
        {"resources": RESOURCES},
    ),
    "get_archive": record({"allocation_id": NAME, "paths": many(text(longest=4096), 1000)}),
    "exec": record(
        {"allocation_id": NAME, "argv": many(text(), 1000, fewest=1)},
        {"tty": flag, "rows": integer(1, 10_000), "columns": integer(1, 10_000)},
    ),
    "forward": record({"allocation_id": NAME, "port": integer(1, 65_535)}),
    "upgrade": record({"digest": text(r"[0-9a-f]{64}"), "size_bytes": integer(1, 2**26)}),
}


def check_body(verb: Any, body: Any, shapes: dict[str, Check] = SHAPES) -> None:
    """Refuse *body* unless it has the shape of *verb*."""
    shape = shapes.get(verb) if isinstance(verb, str) else None
    if shape is None:
        raise Refusal(
            INVALID,
            f"This agent has no verb {str(verb)[:40]!r}.",
            fields=[{"field": "verb", "problem": "is not known", "value": repr(verb)[:80]}],
        )
    problems: list[dict[str, str]] = []
    shape(body, "", problems)
    if problems:
        words = "; ".join(f"{problem['field']} {problem['problem']}" for problem in problems[:5])
        raise Refusal(INVALID, f"{verb}: {words}.", fields=problems)
