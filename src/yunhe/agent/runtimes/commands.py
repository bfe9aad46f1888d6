"""A command beside a task: as its user, in its directory and its limits, for as long as somebody listens."""

from __future__ import annotations

import errno
import fcntl
import json
import os
import select
import signal
import termios
from typing import Any

from yunhe.agent.limits.limits import LimitsBackend
from yunhe.agent.runs.directory import Run
from yunhe.agent.runs.environment import BESIDE, PATH
from yunhe.agent.runs.processes import kill_descendants
from yunhe.agent.runs.users import adopt_orphans
from yunhe.agent.runtimes.interface import Sandbox
from yunhe.agent.runtimes.table import sandbox_of
from yunhe.agent.runtimes.wrapper import COULD_NOT_START, exit_code

_LOOK_EVERY_MS = 50


def command_job(order: dict[str, Any], handles: list[int]) -> None:
    """Run the command; write its exit code to the status pipe, or end it when nobody reads that any more."""
    status_end, input_end, output_end = handles
    adopt_orphans()
    sandbox = sandbox_of(order, Run(order["runs"], order["allocation_id"]))
    sandbox.attach()
    pid = sandbox.fork()
    if pid == 0:
        try:
            _become_command(order, sandbox, input_end, output_end)
        except BaseException as fault:  # noqa: BLE001 - nothing may return into the job's code
            os.write(2, f"{order['argv'][0]}: {fault}\n".encode())
        os._exit(COULD_NOT_START + 2)
    os.close(input_end)
    os.close(output_end)
    code = _wait(pid, status_end)
    kill_descendants(os.getpid())
    os.write(status_end, json.dumps({"exit_code": code}).encode())


def _wait(pid: int, status_end: int) -> int:
    """Return the exit code of *pid*; kill it once the reader of the status pipe has gone."""
    poll = select.poll()
    poll.register(status_end, 0)  # only its hang-up is of interest
    while True:
        ended, status = os.waitpid(-1, os.WNOHANG)
        if ended == pid:
            return exit_code(status)
        if ended == 0 and poll.poll(_LOOK_EVERY_MS):
            os.kill(pid, signal.SIGKILL)
            return exit_code(os.waitpid(pid, 0)[1])


def _become_command(order: dict[str, Any], sandbox: Sandbox, input_end: int, output_end: int) -> None:
    for caught in (signal.SIGCHLD, signal.SIGPIPE, signal.SIGINT, signal.SIGTERM):
        signal.signal(caught, signal.SIG_DFL)
    os.setsid()
    if order["tty"]:
        fcntl.ioctl(input_end, termios.TIOCSCTTY, 0)
    keeper = LimitsBackend(order["keeper"]["kind"], order["keeper"]["paths"])
    keeper.group(order["allocation_id"]).join()
    os.dup2(input_end, 0)
    os.dup2(output_end, 1)
    os.dup2(output_end, 2)
    sandbox.enter()
    os.chdir(order["work"])
    sandbox.confine()
    _execute(order["argv"], {**sandbox.environment, BESIDE: "1"})


def _execute(argv: list[str], environment: dict[str, str]) -> None:
    """Become the program, found along the task's PATH.

    Not by ``os.execvpe``: it imports a module, and by now we are a user who may not be able to read any.
    """
    directories = [""] if "/" in argv[0] else environment.get("PATH", PATH).split(":")
    for directory in directories:
        try:
            os.execve(os.path.join(directory, argv[0]), argv, environment)
        except (FileNotFoundError, NotADirectoryError):
            continue
    raise FileNotFoundError(errno.ENOENT, "no such command")
