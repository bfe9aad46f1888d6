"""A task's output: written in segments by its wrapper, read by the agent, oldest segments dropped at the limit."""

from __future__ import annotations

import os

SMALLEST_SEGMENT_BYTES = 16 * 1024
SEGMENTS = 8


class LogWriter:
    """Appends to the newest segment and keeps the whole below its limit."""

    def __init__(self, directory: str, limit_bytes: int, offset: int = 0) -> None:
        self._directory = directory
        self._segment_bytes = max(SMALLEST_SEGMENT_BYTES, limit_bytes // SEGMENTS)
        self._most = max(1, limit_bytes // self._segment_bytes)
        self._file: int | None = None
        self._start = offset
        self.offset = offset
        """Bytes of output so far, kept or not."""

    def write(self, data: bytes) -> None:
        """Append *data*; what finds no room on the disk is lost, but counted."""
        view = memoryview(data)
        while view:
            if self._file is None or self.offset - self._start >= self._segment_bytes:
                self._rotate()
            room = self._start + self._segment_bytes - self.offset
            try:
                written = os.write(self._file if self._file is not None else -1, view[:room])
            except OSError:
                self._give_up_segment()
                self.offset += len(view)
                return
            self.offset += written
            view = view[written:]

    def _rotate(self) -> None:
        self.close()
        self._start = self.offset
        try:
            self._file = os.open(
                self._path(self._start), os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600
            )
        except OSError:
            self._file = None
        self._drop_oldest()

    def _give_up_segment(self) -> None:
        """Go on in a new segment after a gap; one that holds nothing is not kept, as it would count as one."""
        if self._file is not None and self.offset == self._start:
            os.unlink(self._path(self._start))
        self.close()

    def _drop_oldest(self) -> None:
        """Drop the oldest segments beyond the limit; those that a full disk cut short count by what they hold."""
        starts = segments(self._directory)
        sizes = [os.stat(self._path(start)).st_size for start in starts]
        while len(starts) > self._most and sum(sizes) > (self._most - 1) * self._segment_bytes:
            os.unlink(self._path(starts.pop(0)))
            sizes.pop(0)

    def _path(self, start: int) -> str:
        return os.path.join(self._directory, f"{start:020d}")

    def close(self) -> None:
        """Close the newest segment."""
        if self._file is not None:
            os.close(self._file)
        self._file = None


def segments(directory: str) -> list[int]:
    """Return the offset at which each segment starts, oldest first."""
    try:
        return sorted(int(name) for name in os.listdir(directory))
    except FileNotFoundError:
        return []


def end_of_log(directory: str) -> int:
    """Return how many bytes of output there have been."""
    starts = segments(directory)
    if not starts:
        return 0
    try:
        return starts[-1] + os.stat(os.path.join(directory, f"{starts[-1]:020d}")).st_size
    except FileNotFoundError:
        return starts[-1]


def read_log(directory: str, offset: int, size: int) -> tuple[int, bytes]:
    """Return up to *size* bytes from *offset*, or from the oldest kept byte after it, and where they start."""
    starts = segments(directory)
    for index, start in enumerate(starts):
        following = starts[index + 1] if index + 1 < len(starts) else None
        if following is not None and following <= offset:
            continue
        begin = max(offset, start)
        try:
            with open(os.path.join(directory, f"{start:020d}"), "rb") as file:
                file.seek(begin - start)
                data = file.read(size)
        except FileNotFoundError:
            continue  # rotated away since we listed it: the next one holds the oldest kept byte
        if data:
            return begin, data
    return offset, b""
