"""``yunhe logs``: what a job printed."""

import re
import sys
import time
from collections import deque
from collections.abc import Iterable
from typing import Annotated

import msgspec
import typer

from yunhe.entrypoints.cli.session.connection import connected, find_job
from yunhe.entrypoints.cli.terminal.log_lines import LineFilter, LogLine, line_text, lines_of, raw
from yunhe.entrypoints.cli.terminal.screen import Format, JobArgument, OutputOption, PlainApp, err
from yunhe.entrypoints.client import Client
from yunhe.kernel.errors import InvalidInputError
from yunhe.kernel.units import parse_duration_s
from yunhe.scheduling.orchestration.jobs.model import Job, LogPiece

FIRST_TAIL_BYTES = 256 * 1024
"""How much is read for the last lines at first; eight times as much where that does not hold enough of them."""

app = PlainApp()


class LogWishes(msgspec.Struct, frozen=True, kw_only=True):
    """Which lines to show and how."""

    lines: LineFilter
    timestamps: bool
    as_json: bool
    tail: int | None

    @property
    def plain(self) -> bool:
        """Return whether the output is wanted byte by byte."""
        return self == LogWishes(lines=LineFilter(), timestamps=False, as_json=False, tail=None)


@app.command()
def logs(  # noqa: PLR0913 - each is an option
    job: JobArgument,
    *,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Go on until the job ends.")] = False,
    attempt: Annotated[int, typer.Option(min=0, help="Only this attempt; 0 is all of them.")] = 0,
    tail: Annotated[
        int | None, typer.Option("--tail", "-n", min=0, help="Only the last lines, of the last attempt.")
    ] = None,
    since: Annotated[str, typer.Option(help="Only lines of the last while: 10m, 2h.")] = "",
    timestamps: Annotated[
        bool, typer.Option("--timestamps", "-t", help="Begin each line with when it came.")
    ] = False,
    grep: Annotated[
        str, typer.Option(metavar="PATTERN", help="Only lines that this regular expression matches.")
    ] = "",
    stream: Annotated[str, typer.Option(help="stdout or stderr, of a task with separate_stderr: true.")] = "",
    output: OutputOption = Format.TABLE,
) -> None:
    """Show a job's output; it stays readable after its pool is gone.

    With -f it goes on until the job ends, through lost connections; Ctrl-C leaves the job running. Where output is
    missing, a line says how much. --output json prints an object for each line.

    Examples:
      yunhe logs train
      yunhe logs -f job_06d1t8k2m4
      yunhe logs train --tail 20 --timestamps
      yunhe logs train --since 10m --grep 'loss|error'
      yunhe logs train --stream stderr --output json
    """
    lines = LineFilter(since=_since(since), grep=_pattern(grep), stream=_stream(stream))
    wishes = LogWishes(lines=lines, timestamps=timestamps, as_json=output is Format.JSON, tail=tail)
    with connected() as client:
        found = find_job(client, job)
        try:
            _show(client, found, wishes, attempt=attempt, follow=follow)
        except KeyboardInterrupt:
            err().print(f"\nThe job goes on.   stop it   yunhe stop {found.id}")
            raise typer.Exit(130) from None
        for one in client.job(found.id).attempts:
            if one.log_lost and attempt in (0, one.number):
                err().print(f"✗ some output of attempt {one.number} is not here: {one.log_lost}")


def _show(client: Client, job: Job, wishes: LogWishes, *, attempt: int, follow: bool) -> None:
    if wishes.plain:
        for data in raw(client.logs(job.id, attempt=attempt, follow=follow)):
            sys.stdout.buffer.write(data)
            sys.stdout.buffer.flush()
        return
    offset = 0
    if wishes.tail is not None and job.attempts:
        attempt = attempt or job.attempts[-1].number
        offset = _show_tail(client, job, wishes, attempt)
        if not follow:
            return
    pieces = client.logs(job.id, attempt=attempt, offset=offset, follow=follow, marks=True)
    for line in lines_of(_of_streams(pieces, job, wishes), offset):
        if wishes.lines.takes(line):
            _print(line, wishes)


def _show_tail(client: Client, job: Job, wishes: LogWishes, attempt: int) -> int:
    """Show the last lines that are there now; return where the output goes on."""
    most = wishes.tail or 0
    kept_bytes = next((one.log_bytes for one in job.attempts if one.number == attempt), 0)
    window = FIRST_TAIL_BYTES
    while True:
        start = max(0, kept_bytes - window)
        pieces = list(client.logs(job.id, attempt=attempt, offset=start, marks=True))
        every = list(lines_of(_of_streams(pieces, job, wishes), start))
        whole = every[1:] if start else every  # the first may be the rest of a line
        last = deque((line for line in whole if wishes.lines.takes(line)), maxlen=most)
        if not start or len(last) >= most:
            for line in last:
                _print(line, wishes)
            return pieces[-1].offset + len(pieces[-1].data) if pieces else start
        window *= 8


def _of_streams(pieces: Iterable[LogPiece], job: Job, wishes: LogWishes) -> Iterable[LogPiece]:
    """Yield *pieces*; refuse to tell streams apart that are not."""
    for piece in pieces:
        if wishes.lines.stream and piece.data and not any(mark.stream for mark in piece.marks):
            raise InvalidInputError(
                f"The log of {job.name} does not tell its streams apart.",
                remedy="Set separate_stderr: true in the task (or --separate-stderr) and run it again, on a pool of hosts.",
            )
        yield piece


def _print(line: LogLine, wishes: LogWishes) -> None:
    text = (
        msgspec.json.encode(line)
        if wishes.as_json
        else line_text(line, timestamps=wishes.timestamps).encode()
    )
    sys.stdout.buffer.write(text + b"\n")
    sys.stdout.buffer.flush()


def _since(text: str) -> float | None:
    try:
        return time.time() - parse_duration_s(text) if text else None
    except ValueError as error:
        raise typer.BadParameter(f"--since: {error}") from None


def _pattern(text: str) -> re.Pattern[str] | None:
    try:
        return re.compile(text) if text else None
    except re.error as error:
        raise typer.BadParameter(f"--grep {text!r} is not a regular expression: {error}") from None


def _stream(text: str) -> str:
    if text not in ("", "stdout", "stderr"):
        raise typer.BadParameter(f"--stream must be stdout or stderr, not {text!r}")
    return text
