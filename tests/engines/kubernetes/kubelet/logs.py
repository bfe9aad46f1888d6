"""A container's output in a file, in the lines that container runtimes write: time, stream, whole or part, text."""

import datetime as dt
import time
from collections.abc import AsyncIterator, Callable, Mapping
from pathlib import Path
from typing import NamedTuple

import anyio

POLL_S = 0.05


class LogWriter:
    """Writes what a container says, keeping every byte."""

    def __init__(self, path: Path) -> None:
        self._file = path.open("ab", buffering=0)

    def write(self, stream: str, data: bytes) -> None:
        """Write one piece of output; a line that is not yet whole is marked so."""
        stamp = timestamp(time.time_ns())
        lines = data.split(b"\n")
        records = [(b"F", line) for line in lines[:-1]] + [(b"P", line) for line in lines[-1:] if line]
        prefix = f"{stamp} {stream} ".encode()
        self._file.write(b"".join(prefix + tag + b" " + line + b"\n" for tag, line in records))

    def close(self) -> None:
        """Close the file."""
        self._file.close()


class LogQuery(NamedTuple):
    """What of a log to read."""

    follow: bool = False
    timestamps: bool = False
    tail_lines: int | None = None
    limit_bytes: int | None = None
    since: str = ""
    """A time in the form of the file's own, so that text compares as time."""


def log_query(parameters: Mapping[str, str]) -> LogQuery:
    """Return the query that the kubelet's URL asks for."""
    tail, limit = parameters.get("tailLines"), parameters.get("limitBytes")
    since = ""
    if "sinceSeconds" in parameters:
        since = timestamp(time.time_ns() - int(parameters["sinceSeconds"]) * 10**9)
    elif "sinceTime" in parameters:
        moment = dt.datetime.fromisoformat(parameters["sinceTime"])
        since = timestamp(int(moment.timestamp()) * 10**9 + moment.microsecond * 1000)
    return LogQuery(
        follow=parameters.get("follow") == "true",
        timestamps=parameters.get("timestamps") == "true",
        tail_lines=int(tail) if tail is not None else None,
        limit_bytes=int(limit) if limit is not None else None,
        since=since,
    )


async def read_log(path: Path, query: LogQuery, is_over: Callable[[], bool]) -> AsyncIterator[bytes]:
    """Yield the output; with *follow*, until the container has ended and all is read."""
    left = query.limit_bytes
    async for record in _records(path, query, is_over):
        data = _as_said(record, query)
        if left is not None:
            data = data[:left]
            left -= len(data)
        if data:
            yield data
        if left == 0:
            return


async def _records(path: Path, query: LogQuery, is_over: Callable[[], bool]) -> AsyncIterator[bytes]:
    with path.open("rb") as file:
        records = file.readlines()
        kept = len(records) if query.tail_lines is None else query.tail_lines
        for record in records[len(records) - min(kept, len(records)) :]:
            yield record
        while query.follow:
            was_over = is_over()
            lines = file.readlines()
            for record in lines:
                yield record
            if was_over and not lines:
                return
            await anyio.sleep(POLL_S)


def _as_said(record: bytes, query: LogQuery) -> bytes:
    stamp, _, tag, text = record.split(b" ", 3)
    if query.since and stamp.decode() < query.since:
        return b""
    said = text if tag == b"F" else text[:-1]
    return stamp + b" " + said if query.timestamps else said


def timestamp(at_ns: int) -> str:
    """Return a time as RFC 3339 with nanoseconds."""
    whole = dt.datetime.fromtimestamp(at_ns // 10**9, dt.UTC)
    return f"{whole:%Y-%m-%dT%H:%M:%S}.{at_ns % 10**9:09d}Z"
