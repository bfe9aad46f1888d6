"""Programs of a task: with which signals they begin, what executes a script, how their end is told."""

from __future__ import annotations

import os
import signal

COULD_NOT_START = 125
"""The exit code of a task of which no step could be executed."""


def restore_signals() -> None:
    """Let a program that we are about to become meet signals as if nobody had started it: ignored ones are inherited."""
    signal.set_wakeup_fd(-1)
    for name in ("CHLD", "HUP", "INT", "PIPE", "QUIT", "TERM", "XFSZ"):
        signal.signal(getattr(signal, f"SIG{name}"), signal.SIG_DFL)


def exit_code(status: int) -> int:
    """Return a wait status as shells do: 128 and the signal for what a signal ended."""
    return 128 + os.WTERMSIG(status) if os.WIFSIGNALED(status) else os.WEXITSTATUS(status)


def program_of(path: str) -> tuple[str, list[str]]:
    """Return what executes the script at *path*: what its first line says, else bash, else sh."""
    with open(path, "rb") as file:
        if file.read(2) == b"#!":
            return path, [path]
    shell = "/bin/bash" if os.access("/bin/bash", os.X_OK) else "/bin/sh"
    return shell, [shell, path]
