"""``yunhe exec``: a command, or a shell, beside a running job."""

import os
import signal
import sys
import termios
import tty
from collections.abc import Generator
from contextlib import contextmanager, suppress
from typing import Annotated

import anyio
import typer
from websockets.exceptions import ConnectionClosed

from yunhe.control.pools.model import ExecRequest
from yunhe.entrypoints.cli.session.connection import connected, find_job
from yunhe.entrypoints.cli.session.context import Context, current_context
from yunhe.entrypoints.cli.terminal.screen import JobArgument, PlainApp
from yunhe.entrypoints.client import AsyncClient
from yunhe.entrypoints.client.exec import ExecStream
from yunhe.kernel.errors import InvalidInputError, YunheError

app = PlainApp()
CHUNK_BYTES = 64 * 1024


@app.command()
def exec_(
    job: JobArgument,
    command: Annotated[list[str], typer.Argument(metavar="-- COMMAND", help="What to run.")],
    *,
    interactive: Annotated[bool, typer.Option("--interactive", "-i", help="Pass standard input on.")] = False,
    terminal: Annotated[bool, typer.Option("--tty", "-t", help="Give it a terminal.")] = False,
) -> None:
    """Run a command beside a running job: as its user, in its directory, within its limits.

    The exit code is the command's.

    Examples:
      yunhe exec train -- ls -la
      yunhe exec -it train -- sh
      cat patch.py | yunhe exec -i train -- python -
    """
    raise typer.Exit(run_beside(job, tuple(command), interactive=interactive, terminal=terminal))


def run_beside(job: str, argv: tuple[str, ...], *, interactive: bool, terminal: bool) -> int:
    """Run a command beside a job, joined to our own input and output; return its exit code."""
    if terminal and not sys.stdin.isatty():
        raise InvalidInputError("There is no terminal to pass on.", remedy="Leave out -t, or use a terminal.")
    context = current_context()
    with connected(context) as client:
        found = find_job(client, job)
    request = ExecRequest(argv=argv)
    if terminal:
        rows, columns = _terminal_size()
        request = ExecRequest(argv=argv, tty=True, rows=rows, columns=columns)
    return anyio.run(_exec, context, found.id, request, interactive or terminal)


async def _exec(context: Context, job_id: str, request: ExecRequest, interactive: bool) -> int:  # noqa: FBT001 - anyio.run passes by position
    async with (
        AsyncClient(context.url, context.key, verify=context.ca_file or True) as client,
        client.exec(job_id, request) as session,
    ):
        refusal: YunheError | None = None
        with _raw_terminal() if request.tty else _as_it_is():
            async with anyio.create_task_group() as group:
                group.start_soon(_pass_input, session, interactive)
                if request.tty:
                    group.start_soon(_pass_size, session)
                refusal = await _pass_output(session)
                group.cancel_scope.cancel()
        if refusal is not None:
            raise refusal
        return session.exit_code or 0


async def _pass_output(session: ExecStream) -> YunheError | None:
    """Write what comes until the command ends; return why, where it was refused or cut off."""
    try:
        while data := await session.receive():
            await _write_whole(sys.stdout.fileno(), data)
    except YunheError as error:
        return error
    return None


async def _write_whole(handle: int, data: bytes) -> None:
    """Write all of *data*, also where whoever reads it has made the pipe one that takes a part or nothing."""
    rest = memoryview(data)
    while rest:
        try:
            rest = rest[os.write(handle, rest) :]
        except BlockingIOError:
            await anyio.wait_writable(handle)


async def _pass_input(session: ExecStream, interactive: bool) -> None:  # noqa: FBT001 - a task group passes by position
    try:
        while interactive:
            with suppress(PermissionError):  # a file, or /dev/null: what it has can be read at once
                await anyio.wait_readable(sys.stdin.fileno())
            data = os.read(sys.stdin.fileno(), CHUNK_BYTES)
            if not data:
                break
            await session.send(data)
        await session.send(b"")
    except ConnectionClosed:
        return  # the command has ended; its output tells how


async def _pass_size(session: ExecStream) -> None:
    with anyio.open_signal_receiver(signal.SIGWINCH) as changes:
        async for _ in changes:
            await session.resize(*_terminal_size())


def _terminal_size() -> tuple[int, int]:
    """Return rows and columns; a terminal that nobody told its size (a serial line, a script's) says 0."""
    columns, rows = os.get_terminal_size(sys.stdin.fileno())
    return rows or 24, columns or 80


@contextmanager
def _raw_terminal() -> Generator[None]:
    """Let every key through, and put the terminal back whatever happens."""
    before = termios.tcgetattr(sys.stdin)
    try:
        tty.setraw(sys.stdin)
        yield
    finally:
        termios.tcsetattr(sys.stdin, termios.TCSADRAIN, before)


@contextmanager
def _as_it_is() -> Generator[None]:
    yield
