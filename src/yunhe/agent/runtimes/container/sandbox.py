"""One container: made by the engine, entered by the steps, removed by the engine once its first process is killed."""

from __future__ import annotations

import errno
import os
import signal
import time
from typing import Any

from yunhe.agent.limits.limits import LimitGroup
from yunhe.agent.runs.directory import Run
from yunhe.agent.runs.processes import Identity, is_alive
from yunhe.agent.runs.users import LARGEST_USERS_BYTES, named
from yunhe.agent.runtimes.container import engine
from yunhe.agent.runtimes.container.environment import environment_inside
from yunhe.agent.runtimes.interface import RunHelper, Sandbox
from yunhe.agent.runtimes.namespaces import Namespaces

_RECORD = "container"
_REMOVED_WITHIN_S = 5.0


def recorded_first(run: Run) -> Identity | None:
    """Return who is first in the container of *run*, if one was made."""
    record = run.record(_RECORD)
    return None if record is None else Identity(**record)


class ContainerSandbox(Sandbox):
    """The namespaces of a container."""

    def __init__(self, order: dict[str, Any], run: Run) -> None:
        super().__init__(order, run)
        self._first: Identity | None = None
        self._namespaces: Namespaces | None = None
        self._layer = ""
        """The directory of what the container changed, while there is a container."""

    def prepare(self, group: LimitGroup, run_helper: RunHelper) -> None:
        """Have the engine make the container, and record who is first in it, for whoever must end it without us."""
        wanted = self.order["runtime"]
        if self.network.resolver:
            with open(self.run.at("resolv.conf"), "w", encoding="utf-8") as file:
                file.write(self.network.resolver)
                os.fchmod(file.fileno(), 0o644)
        code, said = run_helper(engine.start(self.order, self.run, group, self.network))
        if code != 0:
            why = engine.last_line(said) or "the container engine could not be run"
            raise OSError(f"no container of image {wanted['image']}: {why}")
        code, said = run_helper(engine.question(wanted["program"], self.run.id))
        first, self._layer = engine.found(said if code == 0 else "", self.run.id)
        self._first = first
        self.first_pid = first.pid
        self.run.write_record(_RECORD, first._asdict())
        self.disk_paths = [self._layer] if self._layer else []
        self._open(first)
        self.network.connect(first.pid)
        self._name_user()

    def _name_user(self) -> None:
        """Let the task's user have a name in the container's own files."""
        pid = self.fork()
        if pid == 0:
            try:
                self.enter()
                for path, line in named(self.order["uid"], self.run.work).items():
                    with open(os.open(path, os.O_RDWR | os.O_CREAT, 0o644), "r+b") as file:
                        if os.fstat(file.fileno()).st_size > LARGEST_USERS_BYTES:
                            continue  # an image's own file is read outside of the task's limits
                        text = line.encode() + file.read(LARGEST_USERS_BYTES)
                        os.fchmod(file.fileno(), 0o644)  # the engine may have made it for root alone
                        file.seek(0)
                        file.write(text)
            finally:
                os._exit(0)
        os.waitpid(pid, 0)

    def attach(self) -> None:
        """Open the container whose first process is recorded."""
        first = recorded_first(self.run)
        if first is None:
            raise OSError(errno.ESRCH, "its container has not been made yet")
        self._open(first)

    def _open(self, first: Identity) -> None:
        self._namespaces = Namespaces(first)
        self.environment = environment_inside(first.pid, self.environment, self.order["chosen"])

    def fork(self) -> int:
        """Fork a process that is among the container's."""
        return self._opened().fork()

    def enter(self) -> None:
        """Leave the host's files for the container's."""
        self._opened().enter()

    def _opened(self) -> Namespaces:
        if self._namespaces is None:
            raise OSError(errno.ESRCH, "its container has not been made yet")
        return self._namespaces

    def kill(self) -> None:
        """Kill the first process; the engine then removes the container."""
        if self._first is not None and is_alive(self._first):
            os.kill(self._first.pid, signal.SIGKILL)

    def clean_up(self) -> None:
        """Wait for the engine to remove the container, which it does once its first process is gone; help if need be."""
        until = time.monotonic() + _REMOVED_WITHIN_S
        while self._layer and os.path.exists(self._layer):
            if time.monotonic() > until:
                self._layer = ""
            time.sleep(0.05)
        if self._layer:
            return
        command = engine.removal(self.order["runtime"]["program"], self.run.id)
        silence = [(os.POSIX_SPAWN_OPEN, handle, os.devnull, os.O_RDWR, 0) for handle in (0, 1, 2)]
        pid = os.posix_spawn(command[0], command, dict(os.environ), file_actions=silence)
        os.waitpid(pid, 0)
