"""A program at a terminal: what a person types and sees."""

import fcntl
import os
import pty
import select
import signal
import struct
import subprocess
import termios
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self


class Terminal:
    """A program whose input, output and errors are one terminal; killed at the end of the block."""

    def __init__(
        self,
        command: Sequence[str | Path],
        *,
        cwd: Path,
        env: Mapping[str, str],
        size: tuple[int, int] | None = None,
    ) -> None:
        """*size* is rows and columns; a terminal without one says 0 of both."""
        self._ours, theirs = pty.openpty()
        if size is not None:
            self._tell(size)
        self.process = subprocess.Popen(
            command, cwd=cwd, env=env, stdin=theirs, stdout=theirs, stderr=theirs, start_new_session=True
        )
        os.close(theirs)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.process.kill()
        self.process.wait()
        os.close(self._ours)

    def type(self, text: bytes) -> None:
        """Type *text*."""
        os.write(self._ours, text)

    def resize(self, rows: int, columns: int) -> None:
        """Change the size of the window, and tell the program."""
        self._tell((rows, columns))
        self.process.send_signal(signal.SIGWINCH)

    def until(self, wanted: bytes, within_s: float = 40.0) -> bytes:
        """Return what is shown up to and with *wanted*."""
        seen = self._read(wanted, within_s)
        assert wanted in seen, seen
        return seen

    def rest(self, within_s: float = 60.0) -> bytes:
        """Return what is shown until the program has ended."""
        return self._read(None, within_s)

    def _read(self, wanted: bytes | None, within_s: float) -> bytes:
        seen, give_up = b"", time.monotonic() + within_s
        while wanted is None or wanted not in seen:
            ready = select.select([self._ours], [], [], max(0.0, give_up - time.monotonic()))[0]
            assert ready, seen
            try:
                piece = os.read(self._ours, 65536)
            except OSError:  # what a terminal says when its last user has left
                piece = b""
            if not piece:
                break
            seen += piece
        return seen

    def _tell(self, size: tuple[int, int]) -> None:
        fcntl.ioctl(self._ours, termios.TIOCSWINSZ, struct.pack("HHHH", *size, 0, 0))
