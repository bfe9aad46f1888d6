"""Forks whatever must run as somebody else or outlive the agent, from a small process that has no threads.

The daemon keeps one spawner and asks it over a socket: one length-prefixed JSON order, with the file handles the
child needs; the answer is the child's process ID. The spawner ends when the daemon does; its children do not.
"""

from __future__ import annotations

import array
import gc
import json
import os
import signal
import socket
import struct
import sys
import time
from typing import Any, Callable

from yunhe.agent.files.archives import pack_job, unpack_job
from yunhe.agent.files.removal import clean_job
from yunhe.agent.files.scratch import spare_job
from yunhe.agent.runtimes.commands import command_job
from yunhe.agent.runtimes.connections import connect_job
from yunhe.agent.runtimes.wrapper import Wrapper

_LENGTH = struct.Struct(">I")
_MAX_HANDLES = 4
_FIRST_ANSWER_WITHIN_S = 10.0
_ANSWER_WITHIN_S = 2.0
"""A fork takes milliseconds; the daemon serves nobody while it waits. The first answer includes the start."""
_END_WITHIN_S = 2.0

Job = Callable[["dict[str, Any]", "list[int]"], None]


def _task_job(order: dict[str, Any], _handles: list[int]) -> None:
    Wrapper(order).run()


JOBS: dict[str, Job] = {
    "task": _task_job,
    "command": command_job,
    "connect": connect_job,
    "unpack": unpack_job,
    "pack": pack_job,
    "clean": clean_job,
    "spare": spare_job,
}


class Spawner:
    """The daemon's end of the line to its spawner; started again if it is gone."""

    def __init__(self, command: list[str]) -> None:
        self._command = command
        self._line: socket.socket | None = None
        self._pid = 0

    def spawn(self, job: str, order: dict[str, Any], handles: list[int] | None = None) -> int:
        """Fork a process for *order*; return its process ID."""
        message = json.dumps({"job": job, "order": order}).encode()
        try:
            try:
                line = self._send(message, handles or [])
            except BrokenPipeError:
                self.close()  # it was gone before it had heard all of the order, so it has not carried it out
                line = self._send(message, handles or [])
            answer = _receive(line, _LENGTH.size)
            line.settimeout(_ANSWER_WITHIN_S)
        except socket.timeout as fault:  # a TimeoutError only from Python 3.10 on
            self._kill()  # it must not carry the order out later
            raise ConnectionResetError("the spawner did not answer in time") from fault
        except OSError:
            self.close()
            raise
        return _LENGTH.unpack(answer)[0]

    def _send(self, message: bytes, handles: list[int]) -> socket.socket:
        if self._line is None:
            self._line = self._start()
        rights = array.array("i", handles)
        ancillary = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, rights)] if handles else []
        self._line.sendmsg([_LENGTH.pack(len(message))], ancillary)
        self._line.sendall(message)
        return self._line

    def _start(self) -> socket.socket:
        ours, theirs = socket.socketpair()
        ours.settimeout(_FIRST_ANSWER_WITHIN_S)
        os.set_inheritable(theirs.fileno(), True)
        command = [*self._command, "spawner", "--line", str(theirs.fileno())]
        self._pid = os.posix_spawn(command[0], command, dict(os.environ))
        theirs.close()
        return ours

    def _kill(self) -> None:
        """End a spawner that stands still; what it has started goes on."""
        os.kill(self._pid, signal.SIGKILL)
        self.close()

    def close(self) -> None:
        """Let the spawner end; what it has started goes on."""
        if self._line is None:
            return
        self._line.close()
        self._line = None
        until = time.monotonic() + _END_WITHIN_S
        while os.waitpid(self._pid, os.WNOHANG)[0] == 0 and time.monotonic() < until:
            time.sleep(0.005)


def serve(handle: int) -> None:
    """Fork for whoever holds the other end of *handle*, until it is closed."""
    line = socket.socket(fileno=handle)
    line.set_inheritable(False)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # children are reaped by the kernel
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    gc.collect()
    gc.freeze()  # keep the collector from touching, and so copying, pages the children share with us
    while True:
        try:
            length, handles = _receive_with_handles(line)
            request = json.loads(_receive(line, length))
            request["order"]["spawner"] = os.getpid()
        except ConnectionError:
            return
        pid = os.fork()
        if pid == 0:
            line.close()
            _run_child(request, handles)
        for passed in handles:
            os.close(passed)
        line.sendall(_LENGTH.pack(pid))


def _run_child(request: dict[str, Any], handles: list[int]) -> None:
    """Do the job and end; nothing returns into the spawner's loop."""
    code = 1
    try:
        os.setsid()
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        JOBS[request["job"]](request["order"], handles)
        code = 0
    except BaseException as fault:  # noqa: BLE001 - the last frame of this process
        sys.stderr.write(f"{request['job']}: {type(fault).__name__}: {fault}\n")
        sys.stderr.flush()
    finally:
        os._exit(code)  # also where there is no room for those words


def _receive(line: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        piece = line.recv(size - len(data))
        if not piece:
            raise ConnectionResetError("the other end of the line is gone")
        data += piece
    return data


def _receive_with_handles(line: socket.socket) -> tuple[int, list[int]]:
    rights = array.array("i")
    room = socket.CMSG_SPACE(_MAX_HANDLES * rights.itemsize)
    data, ancillary, _, _ = line.recvmsg(_LENGTH.size, room)
    if not data:
        raise ConnectionResetError("the other end of the line is gone")
    for level, kind, content in ancillary:
        if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
            rights.frombytes(content[: len(content) - len(content) % rights.itemsize])
    return _LENGTH.unpack(data + _receive(line, _LENGTH.size - len(data)))[0], list(rights)
