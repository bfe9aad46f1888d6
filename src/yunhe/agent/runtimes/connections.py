"""A connection to a port inside a task: made in the task's network, as its user, and handed to the daemon."""

from __future__ import annotations

import array
import errno
import os
import socket
from typing import Any

from yunhe.agent.runs.directory import Run
from yunhe.agent.runtimes.table import sandbox_of

CONNECT_WITHIN_S = 5.0
_LOOPBACK = ((socket.AF_INET, "127.0.0.1"), (socket.AF_INET6, "::1"))


def connect_job(order: dict[str, Any], handles: list[int]) -> None:
    """Send the connected socket over the one of *handles*, or the number of the fault and no socket.

    A socket stays in the network in which it was made, so the daemon needs to be in none but its own.
    """
    line = socket.socket(fileno=handles[0])
    try:
        sandbox = sandbox_of(order, Run(order["runs"], order["allocation_id"]))
        sandbox.attach()
        pid = sandbox.fork()
    except OSError as fault:
        _tell(line, fault.errno or errno.ESRCH)
        return
    if pid != 0:
        os.waitpid(pid, 0)
        return
    try:
        sandbox.enter()
        sandbox.confine()
        with _connected(order["port"]) as made:
            _tell(line, 0, made.fileno())
    except OSError as fault:
        _tell(line, fault.errno or errno.ETIMEDOUT)
    finally:
        os._exit(0)


def _connected(port: int) -> socket.socket:
    """Return a connection to *port* of the loopback device; of two refusals, the first is raised."""
    refused: OSError | None = None
    for family, address in _LOOPBACK:
        made = None
        try:
            made = socket.socket(family, socket.SOCK_STREAM)
            made.settimeout(CONNECT_WITHIN_S)
            made.connect((address, port))
        except OSError as fault:
            refused = refused or fault
            if made is not None:
                made.close()
        else:
            made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            return made
    raise refused or OSError(errno.ECONNREFUSED, "no loopback device")


def _tell(line: socket.socket, fault: int, handle: int = -1) -> None:
    rights = array.array("i", [handle] if handle >= 0 else [])
    line.sendmsg([bytes([fault])], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, rights)] if rights else [])
