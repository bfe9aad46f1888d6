"""Pieces of output as the database keeps them: compressed, with the marks behind the data."""

import zlib
from collections.abc import Iterable

import msgspec

from yunhe.control.pools.model import LogChunk, LogMark

_MARKS = msgspec.json.Decoder(tuple[LogMark, ...])


def packed(data: bytes, marks: Iterable[LogMark]) -> bytes:
    """Return *data* compressed, and *marks* behind it."""
    return zlib.compress(data, 1) + zlib.compress(msgspec.json.encode(tuple(marks)), 1)


def unpacked(stored: bytes) -> tuple[bytes, tuple[LogMark, ...]]:
    """Return the data and the marks of what was stored; what earlier versions stored has none."""
    reader = zlib.decompressobj()
    data = reader.decompress(stored) + reader.flush()
    behind = reader.unused_data
    return data, _MARKS.decode(zlib.decompress(behind)) if behind else ()


def marks_of(chunk: LogChunk, now: float) -> tuple[LogMark, ...]:
    """Return the marks of a chunk; of an engine that does not tell them, when the platform fetched it."""
    return chunk.marks or (LogMark(chunk.offset, round(now * 1000)),)


def within(marks: Iterable[LogMark], start: int, end: int) -> tuple[LogMark, ...]:
    """Return the marks of the output from *start* to *end*, with the one that *start* is under."""
    found: list[LogMark] = []
    for mark in marks:
        if mark.offset >= end:
            break
        if mark.offset <= start:
            found.clear()
        found.append(LogMark(max(mark.offset, start), mark.at_ms, mark.stream))
    return tuple(found)
