"""A command beside a task: as its user, in its directory and its limits, for as long as somebody listens."""

from __future__ import annotations

import contextlib
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
from yunhe.agent.runs.users import adopt_orphans, end_with_parent
from yunhe.agent.runtimes.interface import Sandbox
from yunhe.agent.runtimes.programs import COULD_NOT_START, exit_code, restore_signals
from yunhe.agent.runtimes.table import sandbox_of

KILLED = 128 + signal.SIGKILL


def command_job(order: dict[str, Any], handles: list[int]) -> None:
    """Run the command; write its exit code to the status pipe, or end it when nobody reads that any more."""
    status_end, input_end, output_end = handles
    sandbox = sandbox_of(order, Run(order["runs"], order["allocation_id"]))
    sandbox.attach()
    heard, told = os.pipe()
    parent = sandbox.fork()
    if parent == 0:
        try:
            os.close(status_end)
            _be_parent(order, sandbox, told, input_end, output_end)
        finally:
            os._exit(COULD_NOT_START)
    for handle in (told, input_end, output_end):
        os.close(handle)
    code = _wait(heard, status_end)
    kill_descendants(parent)
    os.kill(parent, signal.SIGKILL)
    os.waitpid(parent, 0)
    sandbox.end_command(parent)
    os.write(status_end, json.dumps({"exit_code": code}).encode())


def _wait(heard: int, status_end: int) -> int:
    """Return the exit code that is told, or that of a killed command once the reader of the status pipe has gone."""
    poll = select.poll()
    poll.register(heard, select.POLLIN)
    poll.register(status_end, 0)  # only its hang-up is of interest
    ready = dict(poll.poll())
    return int(os.read(heard, 16) or KILLED) if heard in ready else KILLED


def _be_parent(order: dict[str, Any], sandbox: Sandbox, told: int, input_end: int, output_end: int) -> None:
    """Start the command, tell its exit code, and stay the parent of all that it leaves behind.

    Orphans go to the first process of their namespace unless a parent in it adopts them; there nobody could tell
    that they were the command's.
    """
    end_with_parent()
    adopt_orphans()
    pid = os.fork()
    if pid == 0:
        try:
            _become_command(order, sandbox, input_end, output_end)
        except BaseException as fault:  # noqa: BLE001 - nothing may return into the job's code
            os.write(2, f"{order['argv'][0]}: {fault}\n".encode())
        os._exit(COULD_NOT_START + 2)
    os.close(input_end)
    os.close(output_end)
    with contextlib.suppress(ChildProcessError):  # nothing is left, and nothing can come
        while True:
            ended, status = os.waitpid(-1, 0)
            if ended == pid:
                os.write(told, str(exit_code(status)).encode())
    signal.pause()


def _become_command(order: dict[str, Any], sandbox: Sandbox, input_end: int, output_end: int) -> None:
    restore_signals()
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
    sandbox.environment = {**sandbox.environment, BESIDE: "1"}
    _execute(order["argv"], sandbox)


def _execute(argv: list[str], sandbox: Sandbox) -> None:
    """Become the program, found along the task's PATH.

    Not by ``os.execvpe``: it imports a module, and by now we are a user who may not be able to read any.
    """
    directories = [""] if "/" in argv[0] else sandbox.environment.get("PATH", PATH).split(":")
    for directory in directories:
        try:
            sandbox.execute(os.path.join(directory, argv[0]), argv)
        except (FileNotFoundError, NotADirectoryError):
            continue
    raise FileNotFoundError(errno.ENOENT, "no such command")
