"""One sandbox: made in the namespaces of a task of the host, entered by ``runsc exec``, gone with those namespaces."""

from __future__ import annotations

import contextlib
import errno
import json
import os
from typing import Any, Callable

from yunhe.agent.limits.limits import LimitGroup
from yunhe.agent.runs.directory import Run
from yunhe.agent.runs.environment import PATH
from yunhe.agent.runs.users import end_with_parent
from yunhe.agent.runtimes.interface import STARTED, RunHelper
from yunhe.agent.runtimes.namespaces import MS_NO_DEVICES, MS_NO_PROGRAMS, MS_NO_SETUID, mount
from yunhe.agent.runtimes.process.sandbox import ProcessSandbox
from yunhe.agent.runtimes.sandboxed import runsc

_PRIVATE = 'umask 077; exec "$@"'
_KEY = "number-"
_TOLD = f"printf {STARTED} >&3; exec 3>&-; "
_END_SESSION = """
for file in /proc/[0-9]*/stat; do
  read -r line < "$file" || continue
  number=${line%% *}
  set -- ${line##*) }
  [ "$4" = "$SESSION" ] && kill -9 "$number"
done 2> /dev/null
"""


class SandboxedSandbox(ProcessSandbox):
    """The host's files as a task sees them, behind a kernel of the task's own."""

    hides = True

    def __init__(self, order: dict[str, Any], run: Run) -> None:
        super().__init__(order, run)
        self._program: str = order["runtime"]["program"]
        self._handle = -1
        self._key = f"{_KEY}{os.urandom(8).hex()}"
        """The name of the file with the number that the process of ``execute`` has inside."""

    def arrange(self) -> None:
        """Give the namespaces the files of a task, and a place for the records of the sandbox."""
        super().arrange()
        os.mkdir(runsc.PLACE)
        mount(
            "tmpfs",
            runsc.PLACE,
            "tmpfs",
            MS_NO_SETUID | MS_NO_DEVICES | MS_NO_PROGRAMS,
            "mode=0700,size=1m",
        )
        with open(f"{runsc.PLACE}/config.json", "w", encoding="utf-8") as file:
            file.write(runsc.bundle(self.order, self.run))

    def prepare(self, group: LimitGroup, run_helper: RunHelper) -> None:
        """Make the namespaces and, in them and in *group*, the sandbox."""
        super().prepare(group, run_helper)
        code, said = run_helper(
            runsc.command(self._program, "run", "--detach", f"--bundle={runsc.PLACE}", runsc.NAME),
            inside=True,
        )
        if code != 0:
            raise OSError(f"no sandbox: {runsc.last_words(said) or f'runsc ended with {code}'}")

    def enter(self) -> None:
        """Leave the host's files for the task's; ``runsc`` may lie where the task sees nothing, so it is opened before."""
        self._handle = os.open(self._program, os.O_RDONLY | os.O_CLOEXEC)
        super().enter()

    def confine(self) -> None:
        """Do nothing: who enters the sandbox stays what it is outside, and is the task's user inside."""

    def execute(self, program: str, argv: list[str], report: int | None = None) -> None:
        """Become the line to a program in the sandbox; its exit code is that program's."""
        if not os.access(program, os.X_OK):
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), program)
        options = [f"--internal-pid-file={runsc.PLACE}/{self._key}"]
        if report is not None:
            os.set_inheritable(report, True)
            options.append(f"--pass-fd={report}:3")
        script = _PRIVATE if report is None else _TOLD + _PRIVATE
        argv = ["/bin/sh", "-c", script, argv[0], program, *argv[1:]]
        self._become_process(argv, self.environment, *options)

    def _become_process(self, argv: list[str], environment: dict[str, str], *options: str) -> None:
        process = runsc.process(argv, environment, self.order["uid"], os.getcwd())
        process["terminal"] = os.isatty(0)
        handle = os.memfd_create("process", 0)  # neither a file nor an argument: there are secrets in it
        os.write(handle, json.dumps(process).encode())
        self._become_runsc("exec", *options, f"--process=/proc/self/fd/{handle}", runsc.NAME)

    def _become_runsc(self, *words: str) -> None:
        os.execve(self._handle, runsc.command(self._program, *words), {"PATH": PATH})

    def ask_to_end(self, pids: list[int]) -> None:
        """Ask every process inside to end; those of the sandbox itself are not the task's."""
        with contextlib.suppress(OSError):  # it has ended by itself
            self._beside(lambda: self._become_runsc("kill", "--all", runsc.NAME, "TERM"))

    def inside(self) -> set[int]:
        """Return the processes of the task's user inside, without those of commands beside the task."""
        heard, told = os.pipe()
        try:
            helper = self._beside(lambda: self._become_runsc("ps", "--format=table", runsc.NAME), told)
        except OSError:
            helper = 0  # it has ended
        os.close(told)
        with os.fdopen(heard, "rb") as file:
            rows = [line.split() for line in file.read().decode(errors="replace").splitlines()]
        if helper:
            os.waitpid(helper, 0)
        mine = {int(row[1]): int(row[2]) for row in rows if row[:1] == [str(self.order["uid"])]}
        beside = self._commands()
        while grown := {pid for pid, parent in mine.items() if parent in beside} - beside:
            beside |= grown
        return set(mine) - beside

    def _commands(self) -> set[int]:
        """Return the processes inside that commands beside the task began with."""
        found: set[int] = set()
        if self._first is None:
            return found
        place = f"/proc/{self._first.pid}/root{runsc.PLACE}"
        with contextlib.suppress(OSError, ValueError):
            for name in os.listdir(place):
                if name.startswith(_KEY) and name != self._key:
                    with open(f"{place}/{name}") as file:
                        found.add(int(file.read()))
        return found

    def end_command(self, pid: int) -> None:
        """End what the command has left in the sandbox: it began a session there, as every command does."""
        if self._first is None:
            return
        try:
            with open(f"/proc/{self._first.pid}/root{runsc.PLACE}/{self._key}") as file:
                environment = {"PATH": PATH, "SESSION": file.read().strip()}
            helper = self._beside(lambda: self._become_process(["/bin/sh", "-c", _END_SESSION], environment))
            os.waitpid(helper, 0)
        except OSError:
            return  # it never began, or the whole sandbox has ended

    def _beside(self, become: Callable[[], None], output: int | None = None) -> int:
        """Start a process in the namespaces, outside the task's limits; return its ID."""
        pid = self.fork()
        if pid == 0:
            try:
                end_with_parent()
                os.setsid()
                silence = os.open(os.devnull, os.O_RDWR)
                for handle in (0, 1, 2):
                    os.dup2(silence if output is None or handle != 1 else output, handle)
                self.enter()
                os.chdir("/")
                become()
            finally:
                os._exit(1)
        return pid
