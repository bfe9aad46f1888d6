"""What the server refused comes back as the error it was raised as."""

import msgspec

from yunhe.entrypoints.wire import Problem
from yunhe.kernel.errors import BY_CODE, NotFoundError, YunheError


class ServerUnreachableError(YunheError):
    """The server did not answer; whether it heard the call is not known."""

    code = "server-unreachable"
    status = 503
    retryable = True


def error_of(status: int, body: bytes) -> YunheError:
    """Return the error that an answer of *status* stands for."""
    if status == 404 and not body:
        return NotFoundError("There is no such thing.")
    try:
        problem = msgspec.json.decode(body, type=Problem)
    except msgspec.MsgspecError:
        return YunheError(
            f"The server answered {status} without saying why.",
            remedy="Is this the address of a Yunhe server?",
        )
    remedy = problem.remedy
    kind = BY_CODE.get(problem.code, YunheError)
    if kind is YunheError and problem.request_id:
        remedy = f"{remedy} (request {problem.request_id})"
    return kind(problem.detail, remedy=remedy, fields=problem.fields)


def unreachable(url: str, cause: Exception) -> ServerUnreachableError:
    """Return what to say when *url* does not answer."""
    return ServerUnreachableError(
        f"{url} does not answer: {cause}.",
        remedy="Start a server with yunhe up, or check the address with yunhe config.",
    )
