"""Bodies are read in bounded time and answered in bounded length, whatever is in them."""

import time
from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from yunhe.entrypoints.api.bodies import BATCH_LIMIT_BYTES, BODY_LIMIT_BYTES, READ_AT_ONCE_BYTES, read_body
from yunhe.entrypoints.api.problems import problem_of
from yunhe.entrypoints.wire import Batch, NewProject, PriceTerms
from yunhe.kernel.errors import MOST_PROBLEMS, InvalidInputError, YunheError
from yunhe.trading.applications.model import Submission

ON_THE_LOOP_S = 0.05
IN_A_THREAD_S = 1.5
"""A thread lets go of the interpreter every few milliseconds; this only bounds the work of one request."""


def fields(size: int) -> bytes:
    """Return fields that nobody knows, each 18 bytes long."""
    return b",".join(b'"rsourcs%06x":0' % number for number in range((size - 40) // 18))


def graph(size: int) -> bytes:
    components = [{"name": f"c{number}"} for number in range(size // 120)]
    links = [{"from": f"no-such-name-{number}", "to": "x" * 60} for number in range(size // 160)]
    return msgspec.json.encode({"task": {"run": "true", "components": components, "links": links}})


def twice(_: int) -> bytes:
    outputs = ["o" * 4 + str(number % 9) for number in range(999)]
    return msgspec.json.encode({"task": {"run": "true", "outputs": outputs}})


def deep(size: int) -> bytes:
    return b"[" * (size // 2) + b"]" * (size // 2)


HOSTILE: dict[str, tuple[Any, Callable[[int], bytes]]] = {
    "unknown fields": (NewProject, lambda size: b"{" + fields(size) + b"}"),
    "unknown fields of a task": (Submission, lambda size: b'{"task":{' + fields(size) + b"}}"),
    "unknown fields of a batch": (
        Batch,
        lambda size: b'{"submissions":[{"task":{' + fields(size) + b"}}]}",
    ),
    "a long name": (NewProject, lambda size: b'{"' + b"x" * (size - 10) + b'":0}'),
    "a long value": (NewProject, lambda size: b'{"id":["' + b"x" * (size - 20) + b'"]}'),
    "a long word": (Submission, lambda size: b'{"task":{"run":"x","tier":"' + b"h" * (size - 40) + b'"}}'),
    "deep lists": (Submission, deep),
    "NUL escaped": (NewProject, lambda size: b'{"id":"' + b"\\\\u0000" * ((size - 12) // 7) + b'"}'),
    "NULs": (NewProject, lambda size: b'{"id":[' + b",".join([b'"\\u0000"'] * ((size - 20) // 9)) + b"]}"),
    "a graph without ends": (Submission, graph),
    "outputs named twice": (Submission, twice),
    "prices": (PriceTerms, lambda size: b'{"high":{' + fields(size) + b"}}"),
    "many empty submissions": (Batch, lambda _: b'{"submissions":[' + b"{}," * 990 + b"{}]}"),
}


def refused(body: bytes, kind: Any) -> tuple[YunheError | None, float]:
    began = time.thread_time()
    try:
        read_body(body, kind)
    except YunheError as error:
        return error, time.thread_time() - began
    return None, time.thread_time() - began


@pytest.mark.parametrize("name", HOSTILE)
def test_what_is_read_on_the_loop_takes_less_than_50_ms(name: str) -> None:
    kind, make = HOSTILE[name]
    body = make(READ_AT_ONCE_BYTES)
    assert len(body) <= READ_AT_ONCE_BYTES
    refused(body, kind)  # types are inspected once
    assert min(refused(body, kind)[1] for _ in range(3)) < ON_THE_LOOP_S


@pytest.mark.parametrize("size", [BODY_LIMIT_BYTES, 2 * BATCH_LIMIT_BYTES])
@pytest.mark.parametrize("name", HOSTILE)
def test_a_large_body_takes_bounded_time_and_has_a_short_answer(name: str, size: int) -> None:
    kind, make = HOSTILE[name]
    error, took_s = refused(make(size), kind)
    assert took_s < IN_A_THREAD_S
    if error is not None:
        answer = msgspec.json.encode(problem_of(error))
        assert len(answer) < 64 * 1024
        assert len(error.fields) <= MOST_PROBLEMS


def test_more_than_fifty_problems_are_told_as_fifty_and_more() -> None:
    with pytest.raises(InvalidInputError, match="More than 50 fields are wrong") as told:
        read_body(b"{" + b",".join(b'"f%d":0' % number for number in range(200)) + b"}", NewProject)
    assert len(told.value.fields) == MOST_PROBLEMS
