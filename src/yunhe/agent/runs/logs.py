"""A task's output: written in segments by its wrapper, read by the agent, oldest segments dropped at the limit.

``START``           a segment, named by the offset of its first byte; the newest grows
``START.SIZE.z``    an older one, compressed; it stands for SIZE bytes of output
``START.marks``     when its pieces came, and from which stream: one record for each

The limit is one of bytes on the disk. So a log that compresses well keeps many times as much output.
"""

from __future__ import annotations

import contextlib
import functools
import os
import struct
import time
import zlib
from typing import NamedTuple

SMALLEST_SEGMENT_BYTES = 16 * 1024
LARGEST_SEGMENT_BYTES = 1024 * 1024
SEGMENTS = 8
MARK_EVERY_MS = 50
"""Output of one stream that comes within so long has one mark."""
STREAMS = ("", "stdout", "stderr")
"""The first: both, as they came."""
_MARK = struct.Struct("<QQB")
_LOOKS = 5


class Segment(NamedTuple):
    """A part of the log that is kept."""

    start: int
    name: str
    size: int
    """Of the output in it; -1 while it may grow."""


class OutputMark(NamedTuple):
    """From byte *offset* on, output came at this time from this stream, up to the next mark."""

    offset: int
    at_ms: int
    stream: str


class LogWriter:
    """Appends to the newest segment, compresses the others and keeps the whole below its limit."""

    def __init__(self, directory: str, limit_bytes: int, offset: int = 0, *, compress: bool = True) -> None:
        self._directory = directory
        self._limit_bytes = limit_bytes
        self._compress = compress
        self._segment_bytes = max(SMALLEST_SEGMENT_BYTES, min(LARGEST_SEGMENT_BYTES, limit_bytes // SEGMENTS))
        self._file: int | None = None
        self._marks: int | None = None
        self._marked = ("", 0)
        self._start = offset
        self.offset = offset
        """Bytes of output so far, kept or not."""

    def write(self, data: bytes, stream: str = "") -> None:
        """Append *data*; what finds no room on the disk is lost, but counted."""
        view = memoryview(data)
        while view:
            if self._file is None or self.offset - self._start >= self._segment_bytes:
                self._rotate()
            room = self._start + self._segment_bytes - self.offset
            try:
                self._mark(stream)
                written = os.write(self._file if self._file is not None else -1, view[:room])
            except OSError:
                self._give_up_segment()
                self.offset += len(view)
                return
            self.offset += written
            view = view[written:]

    def _mark(self, stream: str) -> None:
        now_ms = time.time_ns() // 1_000_000
        before, at_ms = self._marked
        if stream == before and 0 <= now_ms - at_ms < MARK_EVERY_MS:
            return
        os.write(
            self._marks if self._marks is not None else -1,
            _MARK.pack(self.offset, now_ms, STREAMS.index(stream)),
        )
        self._marked = (stream, now_ms)

    def _rotate(self) -> None:
        self.close()
        self._start, self._marked = self.offset, ("", 0)
        try:
            self._compress_older()
            self._file, self._marks = (
                self._open(self._path(self._start)),
                self._open(self._marks_path(self._start)),
            )
        except OSError:
            self.close()
        self._drop_oldest()

    @staticmethod
    def _open(path: str) -> int:
        return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)

    def _compress_older(self) -> None:
        """Compress every segment before the newest; whole, or it stays as it is."""
        for segment in segments_of(self._directory) if self._compress else ():
            if segment.size >= 0 or segment.start >= self._start:
                continue
            path = self._path(segment.start)
            with open(path, "rb") as file:
                data = file.read()
            fresh = f"{path}.new"
            with open(fresh, "wb") as file:
                file.write(zlib.compress(data, 1))
            os.replace(fresh, f"{path}.{len(data)}.z")
            os.unlink(path)

    def _give_up_segment(self) -> None:
        """Go on in a new segment after a gap; one that holds nothing is not kept."""
        if self._file is not None and self.offset == self._start:
            for path in (self._path(self._start), self._marks_path(self._start)):
                with contextlib.suppress(FileNotFoundError):
                    os.unlink(path)
        self.close()

    def _drop_oldest(self) -> None:
        """Drop the oldest segments until the newest has room within the limit."""
        kept = segments_of(self._directory)
        sizes = [self._size(segment) for segment in kept]
        most = max(0, self._limit_bytes - self._segment_bytes)
        while len(kept) > 1 and sum(sizes[:-1]) > most:
            segment = kept.pop(0)
            sizes.pop(0)
            for name in (segment.name, os.path.basename(self._marks_path(segment.start))):
                with contextlib.suppress(FileNotFoundError):
                    os.unlink(os.path.join(self._directory, name))

    def _size(self, segment: Segment) -> int:
        try:
            return os.stat(os.path.join(self._directory, segment.name)).st_size
        except FileNotFoundError:
            return 0

    def _path(self, start: int) -> str:
        return os.path.join(self._directory, f"{start:020d}")

    def _marks_path(self, start: int) -> str:
        return f"{self._path(start)}.marks"

    def close(self) -> None:
        """Close the newest segment."""
        for handle in (self._file, self._marks):
            if handle is not None:
                os.close(handle)
        self._file = self._marks = None


def segments_of(directory: str) -> list[Segment]:
    """Return what is kept, oldest first; a segment that is just being compressed comes once."""
    found: dict[int, Segment] = {}
    try:
        names = os.listdir(directory)
    except FileNotFoundError:
        return []
    for name in names:
        start, _, rest = name.partition(".")
        if not rest:
            found.setdefault(int(start), Segment(int(start), name, -1))
        elif rest.endswith(".z"):
            found[int(start)] = Segment(int(start), name, int(rest[:-2]))
    return [found[start] for start in sorted(found)]


def segments(directory: str) -> list[int]:
    """Return the offset at which each segment starts, oldest first."""
    return [segment.start for segment in segments_of(directory)]


def end_of_log(directory: str) -> int:
    """Return how many bytes of output there have been."""
    last = Segment(0, "", 0)
    for _ in range(_LOOKS):
        last = (segments_of(directory) or [last])[-1]
        if last.size >= 0:
            return last.start + last.size
        with contextlib.suppress(FileNotFoundError):  # just compressed
            return last.start + os.stat(os.path.join(directory, last.name)).st_size
    return last.start


def read_log(directory: str, offset: int, size: int) -> tuple[int, bytes]:
    """Return up to *size* bytes from *offset*, or from the oldest kept byte after it, and where they start."""
    for _ in range(_LOOKS):
        kept = segments_of(directory)
        try:
            for index, segment in enumerate(kept):
                if index + 1 < len(kept) and kept[index + 1].start <= offset:
                    continue
                begin = max(offset, segment.start)
                data = _read_segment(directory, segment, begin - segment.start, size)
                if data:
                    return begin, data
        except FileNotFoundError:
            continue  # compressed or dropped since we listed it
        break
    return offset, b""


def _read_segment(directory: str, segment: Segment, skip: int, size: int) -> bytes:
    path = os.path.join(directory, segment.name)
    if segment.size >= 0:
        return _decompressed(path)[skip : skip + size]
    with open(path, "rb") as file:
        file.seek(skip)
        return file.read(size)


@functools.lru_cache(maxsize=2)
def _decompressed(path: str) -> bytes:
    """Return a segment that does not change any more; one that the host's disk has spoilt is empty."""
    with open(path, "rb") as file:
        try:
            return zlib.decompress(file.read())
        except zlib.error:
            return b""


def read_marks(directory: str, start: int, end: int) -> list[OutputMark]:
    """Return the marks of the output from *start* to *end*, which lies in one segment, with the one that *start* is under."""
    begins = [first for first in segments(directory) if first <= start]
    if not begins:
        return []
    try:
        with open(os.path.join(directory, f"{begins[-1]:020d}.marks"), "rb") as file:
            data = file.read()
    except FileNotFoundError:
        return []
    whole = len(data) - len(data) % _MARK.size
    found: list[OutputMark] = []
    for offset, at_ms, number in _MARK.iter_unpack(data[:whole]):
        if offset >= end:
            break
        if offset <= start:
            found.clear()
        found.append(OutputMark(max(offset, start), at_ms, STREAMS[number] if number < len(STREAMS) else ""))
    return found
