"""A job's output as lines: each with its time and stream; what was cut is told where it is missing."""

import re
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime

import msgspec

from yunhe.scheduling.orchestration.jobs.model import LogPiece


class LogLine(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One line of output, or the place of what is missing."""

    attempt: int
    offset: int
    at: float | None = None
    """When its first byte came; seconds since the epoch."""
    stream: str = ""
    line: str = ""
    cut_bytes: int = 0
    """How much output is missing here; there is no line then."""


class LineFilter(msgspec.Struct, frozen=True, kw_only=True):
    """Which lines somebody wants to see; what is missing is always among them."""

    since: float | None = None
    grep: re.Pattern[str] | None = None
    stream: str = ""

    def takes(self, line: LogLine) -> bool:
        """Return whether a line is wanted."""
        if line.cut_bytes:
            return True
        late = self.since is None or (line.at is not None and line.at >= self.since)
        found = self.grep is None or self.grep.search(line.line) is not None
        return late and found and self.stream in ("", line.stream)


class CutWatch:
    """Notices where output is missing between pieces."""

    def __init__(self, offset: int = 0) -> None:
        self._attempt = 0
        self._offset = offset

    def before(self, piece: LogPiece) -> int:
        """Return how many bytes are missing before *piece*, which follows those that were asked about."""
        expected = self._offset if piece.attempt == self._attempt or not self._attempt else 0
        self._attempt, self._offset = piece.attempt, piece.offset + len(piece.data)
        return max(0, piece.offset - expected)


def cut_text(cut_bytes: int) -> str:
    """Return the line that stands for output which is missing."""
    return f"[yunhe: {cut_bytes:,} bytes of output are missing here: more than the task's log_limit, or lost]"


def raw(pieces: Iterable[LogPiece], offset: int = 0) -> Iterator[bytes]:
    """Yield the output as it is, with a line of its own for what is missing."""
    cuts, at_start = CutWatch(offset), True
    for piece in pieces:
        cut_bytes = cuts.before(piece)
        if cut_bytes:
            yield f"{'' if at_start else chr(10)}{cut_text(cut_bytes)}\n".encode()
        if piece.data:
            yield piece.data
            at_start = piece.data.endswith(b"\n")


def lines_of(pieces: Iterable[LogPiece], offset: int = 0) -> Iterator[LogLine]:
    """Yield the lines of output, those of each stream whole."""
    cuts, begun = CutWatch(offset), dict[str, tuple[LogLine, bytearray]]()
    attempt = 0
    for piece in pieces:
        cut_bytes = cuts.before(piece)
        if cut_bytes or piece.attempt != attempt:
            yield from _flush(begun)
        attempt = piece.attempt
        if cut_bytes:
            yield LogLine(attempt=attempt, offset=piece.offset - cut_bytes, cut_bytes=cut_bytes)
        for start, data, at, stream in _runs(piece):
            place = start
            for part in _by_newline(data):
                fresh = LogLine(attempt=attempt, offset=place, at=at, stream=stream)
                first, text = begun.setdefault(stream, (fresh, bytearray()))
                text += part
                place += len(part)
                if part.endswith(b"\n"):
                    del begun[stream]
                    yield _whole(first, text)
    yield from _flush(begun)


def _runs(piece: LogPiece) -> Iterator[tuple[int, bytes, float | None, str]]:
    """Yield the parts of a piece that have one mark."""
    marks = [(mark.offset, mark.at_ms / 1000, mark.stream) for mark in piece.marks]
    runs: list[tuple[int, float | None, str]] = [*marks] if marks else [(piece.offset, None, "")]
    ends = [start for start, _, _ in runs[1:]] + [piece.offset + len(piece.data)]
    for (start, at, stream), end in zip(runs, ends, strict=True):
        yield start, piece.data[start - piece.offset : end - piece.offset], at, stream


def _by_newline(data: bytes) -> list[bytes]:
    parts = [part + b"\n" for part in data.split(b"\n")]
    parts[-1] = parts[-1][:-1]
    return [part for part in parts if part]


def _flush(begun: dict[str, tuple[LogLine, bytearray]]) -> Iterator[LogLine]:
    for first, text in begun.values():
        yield _whole(first, text)
    begun.clear()


def _whole(first: LogLine, text: bytearray) -> LogLine:
    return msgspec.structs.replace(first, line=text.decode(errors="replace").removesuffix("\n"))


def line_text(line: LogLine, *, timestamps: bool) -> str:
    """Return a line as people read it."""
    if line.cut_bytes:
        return cut_text(line.cut_bytes)
    if not timestamps:
        return line.line
    when = (
        "-" if line.at is None else f"{datetime.fromtimestamp(line.at, UTC):%Y-%m-%dT%H:%M:%S.%f}"[:-3] + "Z"
    )
    return f"{when} {line.line}"
