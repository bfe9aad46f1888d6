"""How JSON bodies are read: bounded first, then into the type a handler asks for, with all that is wrong told at once.

Reading JSON holds the interpreter until it is done, in whatever thread: so a document is bounded in bytes and in values,
and a batch is cut into its tasks before any of them is read.
"""

from collections.abc import Callable
from typing import Any

import anyio
import anyio.to_thread
import msgspec
from litestar import Request

from yunhe.entrypoints.wire import Batch
from yunhe.kernel.errors import MOST_PROBLEMS, FieldProblem, InvalidInputError, TooLargeError
from yunhe.kernel.units import KIB, MIB
from yunhe.kernel.validation import plain_json, read
from yunhe.trading.applications.model import BATCH_LIMIT, SavedPlan, Submission
from yunhe.trading.demand.model import Task
from yunhe.trading.demand.parse import parse_task

BODY_LIMIT_BYTES = MIB
"""The largest JSON document: a task with its scripts, a pool with its options."""
BATCH_LIMIT_BYTES = 8 * MIB
"""The largest batch; each task in it is a document of its own."""
MOST_VALUES = 50_000
"""In one document, as commas and opening brackets tell, also those in texts."""
MOST_VALUES_IN_BATCH = 300_000
READ_AT_ONCE_BYTES = 16 * KIB
"""Longer bodies are read in a thread, a few at a time."""

_ANY_TASK = Task(run="true")
_READERS = anyio.CapacityLimiter(2)


class StrictRequest(Request[Any, Any, Any]):
    """A request whose body is decoded once, strictly."""

    async def json(self) -> Any:
        """Return the body as the handler's ``data``."""
        field, body = self.route_handler.parsed_data_field, await self.body()
        kind = Any if field is None else field.annotation
        if len(body) <= READ_AT_ONCE_BYTES:
            return read_body(body, kind)
        return await anyio.to_thread.run_sync(read_body, body, kind, limiter=_READERS)


class _RawBatch(msgspec.Struct, forbid_unknown_fields=True):
    submissions: list[msgspec.Raw]


def read_body(body: bytes, kind: Any) -> Any:
    """Return *body* as *kind*; tasks in it are read by the one reader of tasks."""
    problems = list[FieldProblem]()
    if kind is Batch:
        return read({"submissions": _batch(body, problems)}, kind, tuple(problems))
    value = plain_json(_bounded(body, "The body", MOST_VALUES))
    if kind is Submission:
        value = _with_task(value, "task", problems)
    elif kind is SavedPlan and isinstance(value, dict):
        tasks: Any = value.get("tasks")
        for index, task in enumerate(tasks if isinstance(tasks, list) else []):
            if isinstance(task, dict):
                path = f"tasks[{index}].submission.task"
                task["submission"] = _with_task(task.get("submission"), path, problems)
    return read(value, kind, tuple(problems))


def _batch(body: bytes, problems: list[FieldProblem]) -> list[object]:
    """Return the submissions of a batch, read one by one until there are more problems than are told."""
    try:
        bounded = _bounded(body, "The batch", MOST_VALUES_IN_BATCH, BATCH_LIMIT_BYTES)
        raw = msgspec.json.decode(bounded, type=_RawBatch).submissions
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise InvalidInputError(
            f"This is not a batch: {error}.", remedy='Send {"submissions": […]}, each with a task.'
        ) from None
    if len(raw) > BATCH_LIMIT:
        raise InvalidInputError(
            f"A batch has at most {BATCH_LIMIT} submissions; this one has {len(raw)}.",
            remedy="Send them in several batches.",
            fields=(FieldProblem("submissions", f"must be 1 to {BATCH_LIMIT}", str(len(raw))),),
        )
    read_so_far = list[object]()
    for index, item in enumerate(raw):
        path = f"submissions[{index}]"
        if len(problems) > MOST_PROBLEMS:
            break
        try:
            value = plain_json(_bounded(bytes(item), path, MOST_VALUES))
            read_so_far.append(read(_with_task(value, f"{path}.task", problems), Submission))
        except InvalidInputError as error:
            problems += _moved(error, lambda field, path=path: _below(path, field))
    return read_so_far


def _bounded(document: bytes, what: str, most_values: int, most_bytes: int = BODY_LIMIT_BYTES) -> bytes:
    """Return *document* if it is read quickly, whatever is in it."""
    if len(document) > most_bytes:
        raise TooLargeError(f"{what} is larger than {most_bytes // KIB} KiB.", remedy="Move data to files.")
    if len(document) > most_values and sum(map(document.count, (b",", b"[", b"{"))) > most_values:
        raise TooLargeError(
            f"{what} has more than {most_values} values.", remedy="Send less at once, or move data to files."
        )
    return document


def _with_task(submission: object, path: str, problems: list[FieldProblem]) -> object:
    if not isinstance(submission, dict) or "task" not in submission:
        return submission
    try:
        submission["task"] = parse_task(
            submission["task"], plan=True
        )  # what takes jobs refuses what is planned only
    except InvalidInputError as error:
        problems += _moved(error, lambda field: path if field == "task" else f"{path}.{field}")
        submission["task"] = _ANY_TASK
    return submission


def _moved(error: InvalidInputError, to: Callable[[str], str]) -> list[FieldProblem]:
    """Return the problems of a part as those of the whole."""
    found = error.fields or (FieldProblem("(whole)", error.problem),)
    return [msgspec.structs.replace(problem, field=to(problem.field)) for problem in found]


def _below(path: str, field: str) -> str:
    return path if field == "(whole)" else f"{path}.{field}"
