"""Lines that must not be forgotten: append-only, each with its checksum; a bad tail is set aside, never guessed at."""

from __future__ import annotations

import errno
import json
import os
import time
import zlib
from typing import Any

from yunhe.agent.durable import sync_directory


class Journal:
    """A file of JSON objects, one per line."""

    def __init__(self, path: str) -> None:
        self._path = path
        self.notice = ""
        """What the operator should hear of, if the file was damaged."""
        self.entries = self._load()
        self._file = self._open()
        self.lines = len(self.entries)

    def _open(self) -> int:
        return os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)

    def _load(self) -> list[dict[str, Any]]:
        try:
            with open(self._path, "rb") as file:
                data = file.read()
        except FileNotFoundError:
            return []
        entries: list[dict[str, Any]] = []
        good = 0
        for line in data.splitlines(keepends=True):
            entry = _decode(line)
            if entry is None:
                self._quarantine(data[good:], good)
                break
            entries.append(entry)
            good += len(line)
        return entries

    def _quarantine(self, tail: bytes, good: int) -> None:
        aside = f"{self._path}.quarantine-{time.time_ns()}"
        with open(aside, "wb") as file:
            file.write(tail)
            file.flush()
            os.fsync(file.fileno())
        os.truncate(self._path, good)
        self.notice = (
            f"{os.path.basename(self._path)}: {len(tail)} damaged bytes after byte {good} were set aside in "
            f"{os.path.basename(aside)}; what lies before them is in use."
        )

    def append(self, entry: dict[str, Any], *, sync: bool = True) -> None:
        """Add *entry*; with *sync* it is on the disk when this returns. A failed write leaves no part of it."""
        line = _encode(entry)
        size = os.fstat(self._file).st_size
        try:
            _write_whole(self._file, line)
            if sync:
                os.fsync(self._file)
        except OSError:
            os.ftruncate(self._file, size)
            raise
        self.lines += 1

    def rewrite(self, entries: list[dict[str, Any]]) -> None:
        """Replace the whole file, durably and all at once."""
        fresh = f"{self._path}.new"
        with open(fresh, "wb") as file:
            file.write(b"".join(_encode(entry) for entry in entries))
            file.flush()
            os.fsync(file.fileno())
        os.replace(fresh, self._path)
        sync_directory(os.path.dirname(self._path))
        os.close(self._file)
        self._file = self._open()
        self.lines = len(entries)

    def close(self) -> None:
        """Let go of the file."""
        os.close(self._file)


def _write_whole(handle: int, line: bytes) -> None:
    if os.write(handle, line) < len(line):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


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
