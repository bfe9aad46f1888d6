"""The log's file: bounded by rotation, shared by the server processes of one home, and read back for its errors."""

import errno
import fcntl
import os
from collections import deque
from collections.abc import Iterator
from pathlib import Path

import msgspec

OLDER_FILES = 3
"""``server.log.1`` (the newest of them) to ``server.log.3``."""
FILE_BYTES = 8 << 20

_ERROR_MARKS = (b'"level":"error"', b'"level":"critical"')


class LoggedError(msgspec.Struct, frozen=True):
    """A line of level error or critical."""

    time: str
    logger: str
    message: str
    traceback: str = ""

    @property
    def sentence(self) -> str:
        """Return what happened in one line: the message, and the exception where there was one."""
        raised = self.traceback.strip().rpartition("\n")[2].strip()
        return f"{self.message}: {raised}" if raised else self.message


class LogFile:
    """Appends whole lines; a file that would grow beyond *file_bytes* becomes ``.1``, and the oldest is deleted."""

    def __init__(self, path: Path, file_bytes: int = FILE_BYTES) -> None:
        self._path = path
        self._file_bytes = file_bytes

    def append(self, line: bytes) -> None:
        """Write *line* whole or not at all; raise ``OSError`` when there is no room."""
        while True:
            handle = os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
            try:
                fcntl.flock(handle, fcntl.LOCK_EX)
                if self._is_current(handle) and not self._rotated(handle, len(line)):
                    return _write_whole(handle, line)
            finally:
                os.close(handle)

    def _is_current(self, handle: int) -> bool:
        """Return whether another process has not rotated the file between our opening and locking it."""
        try:
            return os.path.samestat(os.fstat(handle), self._path.stat())
        except FileNotFoundError:
            return False

    def _rotated(self, handle: int, more_bytes: int) -> bool:
        size = os.fstat(handle).st_size
        if size == 0 or size + more_bytes <= self._file_bytes:
            return False
        for number in range(OLDER_FILES - 1, 0, -1):
            if older_file(self._path, number).exists():
                older_file(self._path, number).replace(older_file(self._path, number + 1))
        self._path.replace(older_file(self._path, 1))
        return True


def older_file(path: Path, number: int) -> Path:
    """Return the *number*-th newest of the files that were rotated away."""
    return path.with_name(f"{path.name}.{number}")


def log_files(path: Path) -> list[Path]:
    """Return the files of a log that exist, oldest first."""
    files = [*(older_file(path, number) for number in range(OLDER_FILES, 0, -1)), path]
    return [file for file in files if file.exists()]


def last_errors(path: Path, count: int) -> tuple[int, tuple[LoggedError, ...]]:
    """Return how many errors the log's files hold, and the last *count*; lines that are no JSON are skipped."""
    found = 0
    last: deque[LoggedError] = deque(maxlen=count)
    for error in _errors(path):
        found += 1
        last.append(error)
    return found, tuple(last)


def _errors(path: Path) -> Iterator[LoggedError]:
    decoder = msgspec.json.Decoder(LoggedError)
    for file in log_files(path):
        try:
            with file.open("rb") as lines:
                for line in lines:
                    if any(mark in line for mark in _ERROR_MARKS):
                        try:
                            yield decoder.decode(line)
                        except (msgspec.MsgspecError, UnicodeDecodeError):
                            continue
        except OSError:
            continue  # rotated away meanwhile


def _write_whole(handle: int, line: bytes) -> None:
    before = os.fstat(handle).st_size
    if os.write(handle, line) < len(line):
        os.ftruncate(handle, before)
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
