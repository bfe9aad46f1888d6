"""A command beside a running job, over a WebSocket.

The first message is an ``ExecRequest``. Then binary messages are standard input one way and output the other;
text messages are ``{"resize": [rows, columns]}`` and ``{"eof": true}``. The server ends with ``{"exit": code}``,
or with ``{"problem": …}`` at any time.
"""

import anyio
import msgspec
from litestar import Router, WebSocket, websocket
from litestar.datastructures import State
from litestar.exceptions import WebSocketDisconnect
from litestar.params import FromPath

from yunhe.control.pools.model import ExecRequest, ExecSession
from yunhe.entrypoints.api.caller import Caller, authenticate
from yunhe.entrypoints.api.problems import as_yunhe_error, logger, problem_of
from yunhe.entrypoints.api.request_ids import request_id_of
from yunhe.kernel.errors import FieldProblem, InvalidInputError, YunheError
from yunhe.kernel.validation import read_json
from yunhe.trading.accounts.model import Action, Principal

FIRST_MESSAGE_S = 10.0
MOST_LINES = 10_000
"""Of a terminal, and of its columns."""
ARGV_LIMIT_CHARACTERS = 128 * 1024
_POLICY_VIOLATION = 1008

Socket = WebSocket[Principal, str, State]


class Control(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a text message may say while a command runs."""

    resize: tuple[int, int] | None = None
    eof: bool = False


@websocket("/jobs/{job_id:str}/exec")
async def run_beside(job_id: FromPath[str], socket: Socket) -> None:
    """Run a command beside a running job."""
    await socket.accept()
    try:
        caller = Caller(socket.app.state.platform, await authenticate(socket), socket.app.state.rates)
        job = await caller.job(job_id, Action.RUN)
        with anyio.fail_after(FIRST_MESSAGE_S):
            request = _checked(read_json(await _first_text(socket), ExecRequest))
        async with caller.platform.orchestration.exec(job.id, request) as session:
            code = await _converse(socket, session)
        await socket.send_text(msgspec.json.encode({"exit": code}).decode())
        await socket.close()
    except Exception as error:  # noqa: BLE001 - told to the caller, and logged when nobody expected it
        await refuse(socket, alone(error))


async def _first_text(socket: Socket) -> bytes:
    """Return the first message, which must be text."""
    message = await socket.receive()
    if message["type"] == "websocket.disconnect":
        raise WebSocketDisconnect(detail="the caller left")
    return (message.get("text") or "").encode(errors="replace")


def _checked(request: ExecRequest) -> ExecRequest:
    """Return *request* if a process can be started as it says."""
    problems: list[FieldProblem] = []
    if not request.argv or not request.argv[0]:
        problems.append(FieldProblem("argv", "must name a program"))
    if sum(len(argument) for argument in request.argv) > ARGV_LIMIT_CHARACTERS:
        problems.append(FieldProblem("argv", f"must be at most {ARGV_LIMIT_CHARACTERS} characters"))
    if not request.tty or _is_terminal(request.rows, request.columns):
        sizes = ()
    else:
        sizes = (
            FieldProblem("rows, columns", f"must be 1 to {MOST_LINES}", f"{request.rows}, {request.columns}"),
        )
    if problems or sizes:
        raise InvalidInputError(
            "This command cannot be run.", remedy="Fix what is listed.", fields=(*problems, *sizes)
        )
    return request


def _is_terminal(rows: int, columns: int) -> bool:
    return 0 < rows <= MOST_LINES and 0 < columns <= MOST_LINES


def alone(error: Exception) -> Exception:
    """Return the error that ended a group of tasks."""
    while isinstance(error, ExceptionGroup):
        error = error.exceptions[0]
    return error


async def refuse(socket: Socket, error: Exception) -> None:
    """Tell a caller who is still there why the session has ended, and end it."""
    if isinstance(error, WebSocketDisconnect):
        return
    late = isinstance(error, TimeoutError)
    known = InvalidInputError("No request came in time.") if late else as_yunhe_error(error)
    request_id = request_id_of(socket.scope)
    if type(known) is YunheError:
        logger.error("a session beside a job failed", exc_info=error)
    text = msgspec.json.encode({"problem": problem_of(known, request_id)}).decode()
    try:
        await socket.send_text(text)
        await socket.close(code=_POLICY_VIOLATION, reason=known.code)
    except WebSocketDisconnect:
        return


async def _converse(socket: Socket, session: ExecSession) -> int:
    """Carry bytes both ways until the command has ended; a caller who leaves ends it."""
    async with anyio.create_task_group() as group:
        group.start_soon(_carry_input, socket, session)
        while data := await session.receive():
            await socket.send_bytes(data)
        group.cancel_scope.cancel()
    return await session.wait()


async def _carry_input(socket: Socket, session: ExecSession) -> None:
    while True:
        message = await socket.receive()
        if message["type"] == "websocket.disconnect":
            raise WebSocketDisconnect(detail="the caller left")
        if (data := message.get("bytes")) is not None:
            if data:
                await session.send(data)
            continue
        control = read_json((message.get("text") or "{}").encode(errors="replace"), Control)
        if control.resize is not None:
            if not _is_terminal(*control.resize):
                raise InvalidInputError(
                    "A terminal cannot have this size.",
                    fields=(FieldProblem("resize", f"must be 1 to {MOST_LINES}", str(control.resize)),),
                )
            await session.resize(*control.resize)
        if control.eof:
            await session.send(b"")


router = Router("/", route_handlers=[run_beside])
