"""Joins standard input and output to the daemon's socket, starting the daemon when there is none.

Imports little: it stays for as long as the platform is connected.
"""

from __future__ import annotations

import os
import select
import socket
import sys
import time

START_WITHIN_S = 15.0
_PIECE = 65536


def run(root: str, daemon_command: list[str]) -> int:
    """Carry bytes in both directions until one side ends."""
    os.makedirs(root, exist_ok=True)
    line = _connect(root) or _start(root, daemon_command)
    if line is None:
        sys.stderr.write(f"The agent in {root} does not start.\n{_last_words(root)}")
        return 1
    try:
        _carry(line)
    except (ConnectionError, BrokenPipeError):
        return 2  # the daemon or the platform is gone; whoever is left connects again
    return 0


def _connect(root: str) -> socket.socket | None:
    line = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    directory = os.open(root, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        line.connect(f"/proc/self/fd/{directory}/agent.sock")
    except (FileNotFoundError, ConnectionRefusedError):
        line.close()
        return None
    finally:
        os.close(directory)
    return line


def _start(root: str, command: list[str]) -> socket.socket | None:
    """Start the daemon, away from this terminal and session, and wait until it listens."""
    until = time.monotonic() + START_WITHIN_S
    pid = 0
    while time.monotonic() < until:
        if pid == 0 or _ended(pid):
            pid = _spawn_daemon(root, command)
        line = _connect(root)
        if line is not None:
            return line
        time.sleep(0.01)
    return None


def _spawn_daemon(root: str, command: list[str]) -> int:
    nothing = os.open(os.devnull, os.O_RDWR)
    words = os.open(os.path.join(root, "agent.log"), os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    try:
        pid = os.fork()
        if pid == 0:
            os.setsid()
            os.chdir("/")
            os.dup2(nothing, 0)
            os.dup2(words, 1)
            os.dup2(words, 2)
            os.execv(command[0], command)
        return pid
    finally:
        os.close(nothing)
        os.close(words)


def _ended(pid: int) -> bool:
    """Return whether that daemon has ended; one that found another at work does so at once."""
    done, status = os.waitpid(pid, os.WNOHANG)
    if done and status != 0:
        time.sleep(0.2)
    return done != 0


def _last_words(root: str) -> str:
    try:
        with open(os.path.join(root, "agent.log"), errors="replace") as file:
            return file.read()[-2000:]
    except FileNotFoundError:
        return ""


def _carry(line: socket.socket) -> None:
    poll = select.poll()
    poll.register(0, select.POLLIN | select.POLLHUP)
    poll.register(line, select.POLLIN | select.POLLHUP)
    while True:
        for handle, _ in poll.poll():
            data = os.read(0, _PIECE) if handle == 0 else line.recv(_PIECE)
            if not data:
                return
            if handle == 0:
                line.sendall(data)
            else:
                _write_all(data)


def _write_all(data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(1, view) :]
