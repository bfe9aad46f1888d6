"""A terminal of eighty columns, to see what a person sees."""

import fcntl
import os
import pty
import re
import struct
import subprocess
import termios
from typing import NamedTuple

from integration.entrypoints.cli.conftest import YUNHE, Shell

ROWS, COLUMNS = 50, 80
ERASE_LINE = "\x1b[2K"
_CONTROL = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]|\x1b\][^\x07]*\x07")


class Screen(NamedTuple):
    """What was on the terminal when the command had ended."""

    code: int
    lines: tuple[str, ...]

    @property
    def text(self) -> str:
        return "\n".join(self.lines)


def at_a_terminal(shell: Shell, *words: str, within_s: float = 120.0) -> Screen:
    """Run ``yunhe WORDS`` at a terminal without colours."""
    master, slave = pty.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", ROWS, COLUMNS, 0, 0))
    process = subprocess.Popen(
        [*YUNHE, *words],
        cwd=shell.cwd,
        env={**shell.environment, "NO_COLOR": "1", "TERM": "xterm"},
        stdin=slave,
        stdout=slave,
        stderr=slave,
        start_new_session=True,
    )
    os.close(slave)
    try:
        heard = _read_all(master)
        code = process.wait(within_s)
    finally:
        os.close(master)
        if process.poll() is None:
            process.kill()
            process.wait()
    plain = _CONTROL.sub("", heard.decode(errors="replace").replace(ERASE_LINE, "\r"))
    return Screen(code, tuple(line.rpartition("\r")[2] for line in plain.replace("\r\n", "\n").split("\n")))


def _read_all(master: int) -> bytes:
    heard = b""
    while True:
        try:
            piece = os.read(master, 65536)
        except OSError:  # what a terminal says when its last user has left
            return heard
        if not piece:
            return heard
        heard += piece
