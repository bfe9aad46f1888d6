"""How JSON bodies are read: straight into the type a handler asks for, with all that is wrong told at once."""

from typing import Any

import msgspec
from litestar import Request

from yunhe.entrypoints.wire import Batch
from yunhe.kernel.errors import FieldProblem, InvalidInputError
from yunhe.kernel.validation import plain_json, read
from yunhe.trading.applications.model import Submission
from yunhe.trading.demand.model import Task
from yunhe.trading.demand.parse import parse_task

_ANY_TASK = Task(run="true")


class StrictRequest(Request[Any, Any, Any]):
    """A request whose body is decoded once, strictly."""

    async def json(self) -> Any:
        """Return the body as the handler's ``data``."""
        field = self.route_handler.parsed_data_field
        return read_body(await self.body(), Any if field is None else field.annotation)


def read_body(body: bytes, kind: Any) -> Any:
    """Return *body* as *kind*; tasks in it are read by the one reader of tasks."""
    value, problems = plain_json(body), list[FieldProblem]()
    if kind is Submission:
        value = _with_task(value, "task", problems)
    elif kind is Batch and isinstance(value, dict) and isinstance(value.get("submissions"), list):
        value["submissions"] = [
            _with_task(item, f"submissions[{index}].task", problems)
            for index, item in enumerate(value["submissions"])
        ]
    return read(value, kind, tuple(problems))


def _with_task(submission: object, path: str, problems: list[FieldProblem]) -> object:
    if not isinstance(submission, dict) or "task" not in submission:
        return submission
    try:
        submission["task"] = parse_task(
            submission["task"], plan=True
        )  # what takes jobs refuses what is planned only
    except InvalidInputError as error:
        problems += [
            msgspec.structs.replace(problem, field=_below(path, problem.field)) for problem in error.fields
        ]
        submission["task"] = _ANY_TASK
    return submission


def _below(path: str, field: str) -> str:
    return path if field == "task" else f"{path}.{field}"
