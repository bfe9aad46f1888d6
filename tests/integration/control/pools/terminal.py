"""A terminal of eighty columns, to see what a person sees."""

import re
from typing import NamedTuple

from integration.entrypoints.cli.conftest import Shell

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
    with shell.terminal(*words, size=(ROWS, COLUMNS), NO_COLOR="1", TERM="xterm") as terminal:
        heard = terminal.rest(within_s)
        code = terminal.process.wait(within_s)
    plain = _CONTROL.sub("", heard.decode(errors="replace").replace(ERASE_LINE, "\r"))
    return Screen(code, tuple(line.rpartition("\r")[2] for line in plain.replace("\r\n", "\n").split("\n")))
