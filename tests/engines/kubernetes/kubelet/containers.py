"""One start of one container: a real local process, its limits, its output and its end."""

import contextlib
import datetime as dt
import json
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterable, Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import anyio
import anyio.to_thread
from anyio.abc import Process

from engines.kubernetes.kubelet.logs import LogWriter
from yunhe.agent.limits.limits import LimitsBackend

LAUNCHER = Path(__file__).with_name("launcher.py")
KILLED = 128 + signal.SIGKILL
NOTE = "/dev/termination-log"
NOTE_BYTES = 4096
"""As much of its last words as a kubelet hands on."""


@dataclass(frozen=True)
class Mount:
    """A folder or file of the host, and where the container sees it."""

    source: Path
    target: str
    read_only: bool = False


@dataclass(frozen=True)
class Plan:
    """All a container needs to start."""

    command: list[str]
    environment: dict[str, str]
    directory: str
    host_name: str
    mounts: list[Mount] = field(default_factory=list[Mount])
    user: dict[str, int] = field(default_factory=dict[str, int])
    cpu_millis: int = 0
    memory_mib: int = 0
    note: str = NOTE
    """The file in which the container leaves its last words."""


class Run:
    """A container that was started; it is over once ``ended`` is set."""

    def __init__(self, plan: Plan, folder: Path, keeper: LimitsBackend, group_name: str) -> None:
        self.plan = plan
        self.name = group_name
        self.started_at = now()
        self.ended_at = ""
        self.exit_code = 0
        self.reason = self.message = ""
        self.is_started = False
        self.ended = anyio.Event()
        self.log = folder / "log"
        self.group = keeper.group(group_name)
        self.group_folders = sorted({f"{path}/{group_name}" for path in keeper.paths.values()})
        self._folder = folder
        self._pid = 0
        self._launched = anyio.Event()

    @classmethod
    def lost(cls, plan: Plan, folder: Path, keeper: LimitsBackend, name: str) -> "Run":
        """Return a start of which nothing is known but that it is over."""
        run = cls(plan, folder, keeper, name)
        run.exit_code, run.reason, run.ended_at = KILLED, "ContainerStatusUnknown", now()
        run.message = "The container could not be located when the pod was terminated"
        run._launched.set()
        run.ended.set()
        return run

    async def execute(self, on_start: Callable[[], Awaitable[None]]) -> None:
        """Run the container from start to end; call *on_start* once its command runs."""
        self._folder.mkdir(parents=True)
        note = self._folder / "last-words"
        note.touch()
        note.chmod(0o666)
        self.group.create(self.plan.cpu_millis, self.plan.memory_mib)
        log = LogWriter(self.log)
        try:
            spec = self.describe(self.plan.command) | {
                "mounts": [
                    vars(mount) | {"source": str(mount.source)}
                    for mount in (*self.plan.mounts, Mount(note, self.plan.note))
                ],
                "root": str(self._folder / "root"),
                "layers": str(self._folder / "layers"),
            }
            launched = await launch(spec, self._folder / "spec.json")
            self._pid, self.message = launched.pid, launched.error
            self.is_started = not launched.error
            self._launched.set()
            async with launched.process, anyio.create_task_group() as tasks:
                for stream in ("stdout", "stderr"):
                    tasks.start_soon(_copy, getattr(launched.process, stream), log, stream)
                if self.is_started:
                    await on_start()
                self.exit_code = await launched.process.wait()
            self.reason = self._why()
            self.message = self.message or note.read_bytes()[:NOTE_BYTES].decode(errors="replace")
        finally:
            log.close()
            with anyio.CancelScope(shield=True):
                await anyio.to_thread.run_sync(self._clean)
            self.ended_at = now()
            self._launched.set()
            self.ended.set()

    def describe(self, command: list[str], *, terminal: bool = False) -> dict[str, Any]:
        """Return what the launcher must know for *command* in this container."""
        return {
            "command": command,
            "environment": self.plan.environment,
            "directory": self.plan.directory,
            "host_name": self.plan.host_name,
            "user": self.plan.user,
            "groups": self.group_folders,
            "terminal": terminal,
        }

    def describe_exec(self, command: list[str], *, terminal: bool) -> dict[str, Any]:
        """Return what the launcher must know for *command* beside the one that runs."""
        return self.describe(command, terminal=terminal) | {"enter": self._pid}

    async def stop(self, grace_s: float) -> None:
        """Ask politely, wait, then kill; the first process of a container may well ignore the asking."""
        await self._launched.wait()
        self._signal(signal.SIGTERM)
        with anyio.move_on_after(grace_s):
            await self.ended.wait()
        self._signal(signal.SIGKILL)
        with anyio.CancelScope(shield=True), anyio.move_on_after(15):
            await self.ended.wait()

    def _signal(self, number: signal.Signals) -> None:
        if self._pid and not self.ended.is_set():
            with contextlib.suppress(ProcessLookupError):
                os.kill(self._pid, number)

    def _why(self) -> str:
        if not self.is_started:
            return "StartError"
        if self.exit_code == KILLED and self.group.oom_kills():
            return "OOMKilled"
        return "Error" if self.exit_code else "Completed"

    def _clean(self) -> None:
        self.group.kill()
        self.group.remove()


@dataclass(frozen=True)
class Launched:
    """The launcher's process, the PID of the command it started, and why it could not if so."""

    process: Process
    pid: int
    error: str


async def launch(
    spec: Mapping[str, Any], file: Path, *, stdio: int = subprocess.PIPE, stdin: int = subprocess.DEVNULL
) -> Launched:
    """Start the launcher and wait until its command runs or could not be started."""
    _write_secretly(file, json.dumps(spec))
    reader, writer = os.pipe()
    process = await anyio.open_process(
        [sys.executable, "-I", "-S", str(LAUNCHER), str(file), str(writer)],
        stdin=stdin,
        stdout=stdio,
        stderr=stdio,
        pass_fds=[writer],
        start_new_session=True,
        env={},
    )
    os.close(writer)
    said = await anyio.to_thread.run_sync(_read_all, reader)
    report = dict(line.split(" ", 1) for line in said.splitlines())
    return Launched(
        process, int(report.get("pid", 0)), report.get("error", "" if report else "the launcher failed")
    )


def now() -> str:
    """Return the time as Kubernetes writes it."""
    return f"{dt.datetime.now(dt.UTC):%Y-%m-%dT%H:%M:%SZ}"


def _write_secretly(file: Path, text: str) -> None:
    file.touch(mode=0o600)
    file.write_text(text)


def _read_all(handle: int) -> str:
    with os.fdopen(handle) as file:
        return file.read()


async def _copy(source: AsyncIterable[bytes], log: LogWriter, stream: str) -> None:
    async for data in source:
        log.write(stream, data)
