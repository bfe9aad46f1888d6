"""Lines that must not be forgotten: append-only, each with its checksum; a bad tail is set aside, never guessed at.

The file is longer than its lines: the zeros that follow them are room reserved for lines that must find it.
"""

from __future__ import annotations

import json
import os
import time
import zlib
from typing import Any, BinaryIO, Callable, Iterable

from yunhe.agent.durable import reserve, sync_directory, write_whole

_RESERVE_STEP_BYTES = 64 * 1024


class Journal:
    """A file of JSON objects, one per line."""

    def __init__(self, path: str, take: Callable[[dict[str, Any]], None]) -> None:
        """Give every entry that is there to *take*, one after the other: they are many and are not held here."""
        self._path = path
        self.notice = ""
        """What the operator should hear of, if the file was damaged."""
        self._end = 0
        self.lines = 0
        if os.path.exists(path):
            with open(path, "rb") as file:
                self._load(file, take)
        self._file = self._open()

    def _open(self) -> int:
        return os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)

    def _load(self, file: BinaryIO, take: Callable[[dict[str, Any]], None]) -> None:
        for line in file:
            entry = _decode(line)
            if entry is None:
                file.seek(self._end)
                tail = file.read().rstrip(b"\0")
                if tail:
                    self._quarantine(tail, self._end)
                return
            take(entry)
            self._end += len(line)
            self.lines += 1

    def _quarantine(self, tail: bytes, good: int) -> None:
        aside = f"{self._path}.quarantine-{time.time_ns()}"
        went = f"were set aside in {os.path.basename(aside)}"
        try:
            _write_file(aside, [tail])
        except OSError as fault:
            went = f"were dropped, since they could not be set aside ({fault.strerror})"
        os.truncate(self._path, good)
        self.notice = (
            f"{os.path.basename(self._path)}: {len(tail)} damaged bytes after byte {good} {went}; "
            "what lies before them is in use."
        )

    def reserve(self, size_bytes: int) -> None:
        """Have room on the disk for so many bytes of lines; raise ``OSError`` where there is none."""
        if os.fstat(self._file).st_size < self._end + size_bytes:
            reserve(self._path, self._end + max(size_bytes, _RESERVE_STEP_BYTES))

    def append(self, entry: dict[str, Any], *, sync: bool = True) -> None:
        """Add *entry*; with *sync* it is on the disk when this returns. A failed write leaves no part of it."""
        line = _encode(entry)
        try:
            os.lseek(self._file, self._end, os.SEEK_SET)
            write_whole(self._file, line)
            if sync:
                os.fsync(self._file)
        except OSError:
            os.ftruncate(self._file, self._end)
            raise
        self._end += len(line)
        self.lines += 1

    def rewrite(self, entries: Iterable[dict[str, Any]]) -> None:
        """Replace the whole file, durably and all at once; only one line is held in memory."""
        fresh = f"{self._path}.new"
        lines, size_bytes = _write_file(fresh, map(_encode, entries))
        os.replace(fresh, self._path)
        sync_directory(os.path.dirname(self._path))
        os.close(self._file)
        self._file, self._end = self._open(), size_bytes
        self.lines = lines

    def close(self) -> None:
        """Let go of the file."""
        os.close(self._file)


def _write_file(path: str, pieces: Iterable[bytes]) -> tuple[int, int]:
    """Write a new file, durably; leave nothing of it where that fails. Return how many pieces and bytes it has."""
    count = 0
    try:
        with open(path, "wb") as file:
            for count, piece in enumerate(pieces, 1):  # noqa: B007 - the last number is their count
                file.write(piece)
            file.flush()
            os.fsync(file.fileno())
            return count, file.tell()
    except OSError:
        if os.path.exists(path):
            os.unlink(path)
        raise


def _encode(entry: dict[str, Any]) -> bytes:
    text = json.dumps(entry, separators=(",", ":")).encode()
    return b"%08x %s\n" % (zlib.crc32(text), text)


def _decode(line: bytes) -> dict[str, Any] | None:
    checksum, _, text = line.rstrip(b"\n").partition(b" ")
    if not line.endswith(b"\n") or checksum != b"%08x" % zlib.crc32(text):
        return None
    try:
        entry: Any = json.loads(text)
    except ValueError:
        return None
    return entry if isinstance(entry, dict) else None
