"""The supervisor: keeps the plugin processes that this platform starts running, within their limits, or lets them go.

Each is a process group of its own that outlives the server: a server that comes back finds it by PID and start time.
Whatever it does, it can harm only the pools of its own kind.
"""

import contextlib
import logging
import os
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import anyio
import anyio.to_thread

from yunhe.control.plugins import store
from yunhe.control.plugins.confine import confined
from yunhe.control.plugins.folders import require_allowed
from yunhe.control.plugins.registry import Registry
from yunhe.control.plugins.store import Process
from yunhe.kernel.backoff import delay_s
from yunhe.kernel.clock import Clock
from yunhe.kernel.errors import YunheError
from yunhe.storage.database import Connection, Database
from yunhe.storage.vault import Vault

TICK_S = 1.0
OUTPUT_SHOWN = 400
MOST_LOG_BYTES = 8 << 20
KEPT_LOG_BYTES = 1 << 20
"""What is left of a log that has grown too long: its end."""
FIRST_PAUSE_S = 0.5
LONGEST_PAUSE_S = 60.0
STEADY_S = 60.0
"""One that ran this long starts again without a pause."""
LEAVE_WITHIN_S = 30.0
"""How long one that was superseded may take to finish what it began."""
END_WITHIN_S = 5.0
PASSED_ON = ("LANG", "LC_ALL", "PYTHONPATH")

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessSettings:
    """What processes are started with."""

    host: str
    """Which machine this is: a server tends only the processes of its own."""
    logs: Path
    environment: Mapping[str, str]
    """How a plugin finds the platform: its address and, where it has its own, its certificate."""


class Supervisor:
    """Tends the processes of this machine."""

    def __init__(
        self, database: Database, registry: Registry, vault: Vault, clock: Clock, around: ProcessSettings
    ) -> None:
        self._database = database
        self._registry = registry
        self._vault = vault
        self._clock = clock
        self._around = around
        self._children: dict[str, subprocess.Popen[bytes]] = {}
        self._woken = anyio.Event()

    async def run(self) -> None:
        """Tend processes until cancelled; they go on without us."""
        while True:
            self._woken = anyio.Event()
            await self.tend()
            with anyio.move_on_after(TICK_S):
                await self._woken.wait()

    def wake(self) -> None:
        """Say that a process is to start or to leave."""
        self._woken.set()

    def output_of(self, instance: str) -> str:
        """Return the end of what a process wrote."""
        return tail_of(log_path(self._around.logs, instance), OUTPUT_SHOWN).decode(errors="replace").strip()

    @property
    def host(self) -> str:
        """Return which machine this is."""
        return self._around.host

    async def tend(self) -> None:
        """Look at every process once and do what it needs."""
        processes = await self._database.read(
            lambda connection: store.read_processes(connection, host=self._around.host)
        )
        memory_mib = await anyio.to_thread.run_sync(memory_by_group) if processes else {}
        for process in processes:
            await anyio.to_thread.run_sync(cut_log, log_path(self._around.logs, process.instance))
            active = self._registry.active(process.plugin)
            newer = {other.instance for other in processes if other.added_at > process.added_at}
            if process.leaving_since is None and active is not None and active.instance in newer:
                await self._note(process, leaving_since=self._clock())
            elif self._runs(process):
                await self._tend_running(process, memory_mib.get(process.pid or 0, 0))
            else:
                await self._tend_ended(process)

    async def require_allowed(self, directory: str) -> None:
        """Raise unless plugins may be started from a folder of this machine."""
        allowed = [one.directory for one in await self._database.read(store.read_folders)]
        await anyio.to_thread.run_sync(require_allowed, directory, allowed)

    async def is_within_memory(self, process: Process) -> bool:
        """Return whether a process lives and takes no more memory than its manifest lets it."""
        used_mib = (await anyio.to_thread.run_sync(memory_by_group)).get(process.pid or 0, 0)
        return 0 < used_mib <= process.manifest.limits.memory_mib

    async def _tend_running(self, process: Process, used_mib: int) -> None:
        """Keep a running process within its limits, and its departure within its time."""
        limit_mib = process.manifest.limits.memory_mib
        if process.leaving_since is not None:
            late_s = self._clock() - process.leaving_since - LEAVE_WITHIN_S
            if late_s > 0:
                _signal_group(process, signal.SIGTERM if late_s < END_WITHIN_S else signal.SIGKILL)
        elif used_mib > limit_mib:
            _signal_group(process, signal.SIGKILL)
            await self._note(process, reason=f"used {used_mib} MiB of memory, and may use {limit_mib}")

    async def _tend_ended(self, process: Process) -> None:
        """Start a process that does not run, after a pause that grows; forget one that was to leave."""
        now = self._clock()
        if process.leaving_since is not None:
            await self._database.write(lambda connection: store.forget_process(connection, process.instance))
            await anyio.to_thread.run_sync(_forget_home, process)
            await self._registry.goodbye(process.plugin, process.instance)
        elif process.pid is not None:
            await self._note_end(process, now)
        elif now >= process.not_before and not self._answers(process):
            await self._start(process)

    def _answers(self, process: Process) -> bool:
        """Return whether one is heard of that we do not know the PID of: we died right after starting it."""
        heard = [one for one in self._registry.shown(process.plugin) if one.id == process.instance]
        return any(one.state != "offline" for one in heard) and process.instance not in self._children

    async def _note_end(self, process: Process, now: float) -> None:
        child = self._children.pop(process.instance, None)
        how = f"exit code {child.returncode}" if child is not None else "while no server looked"
        steady = process.not_before + STEADY_S < now
        restarts = process.restarts + 1
        pause_s = 0.0 if steady else delay_s(FIRST_PAUSE_S, LONGEST_PAUSE_S, restarts)
        log.warning("plugin process ended", extra={"plugin": process.plugin, "how": how, "pause_s": pause_s})
        await self._note(
            process,
            pid=None,
            start_ticks=None,
            restarts=restarts,
            not_before=now + pause_s,
            reason=process.reason or f"ended: {how}",
        )

    async def _start(self, process: Process) -> None:
        try:
            await self.require_allowed(process.directory)
            child = await anyio.to_thread.run_sync(self._spawn, process)
        except (OSError, YunheError) as error:
            pause_s = delay_s(FIRST_PAUSE_S, LONGEST_PAUSE_S, process.restarts)
            await self._note(
                process,
                reason=f"cannot be started: {error}",
                restarts=process.restarts + 1,
                not_before=self._clock() + pause_s,
            )
            return
        self._children[process.instance] = child
        await self._note(
            process, pid=child.pid, start_ticks=start_ticks(child.pid), not_before=self._clock(), reason=""
        )

    def _spawn(self, process: Process) -> subprocess.Popen[bytes]:
        folder = Path(process.directory)
        program, *arguments = process.manifest.command
        inside = folder / program
        self._around.logs.mkdir(parents=True, exist_ok=True, mode=0o700)
        words = [str(inside) if inside.is_file() else program, *arguments]
        with log_path(self._around.logs, process.instance).open("ab") as output:
            return subprocess.Popen(
                confined(words, folder, uid=process.uid, memory_mib=process.manifest.limits.memory_mib),
                cwd=folder,
                env=self._environment(process),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def _environment(self, process: Process) -> dict[str, str]:
        """Return what a plugin may know: nothing of the server's own settings but how to reach it."""
        path = f"{Path(sys.executable).parent}:{os.environ.get('PATH', os.defpath)}"
        home = _own_home(process)
        certificate = self._around.environment.get("SSL_CERT_FILE")
        readable = {} if certificate is None else {"SSL_CERT_FILE": str(_copied(Path(certificate), home))}
        return {
            **{name: os.environ[name] for name in PASSED_ON if name in os.environ},
            **self._around.environment,
            **readable,
            "PATH": path,
            "HOME": str(home),
            "TMPDIR": str(home),
            "YUNHE_PLUGIN_KEY": self._vault.open(process.sealed_key, *store.key_place(process.instance)),
            "YUNHE_PLUGIN_INSTANCE": process.instance,
        }

    def _runs(self, process: Process) -> bool:
        child = self._children.get(process.instance)
        if child is not None and child.pid == process.pid:
            return child.poll() is None
        return process.pid is not None and start_ticks(process.pid) == process.start_ticks

    async def _note(self, process: Process, **values: object) -> None:
        def write(connection: Connection) -> None:
            store.update_process(connection, process.instance, **values)

        await self._database.write(write)


def _home_of(process: Process) -> Path:
    return Path(tempfile.gettempdir()) / f"yunhe-plugin-{process.instance}"


def _own_home(process: Process) -> Path:
    """Return a folder that a plugin's user alone may enter; its name has too much chance in it to be taken before."""
    home = _home_of(process)
    uid = os.geteuid() if process.uid is None else process.uid
    with contextlib.suppress(FileExistsError):
        home.mkdir(mode=0o700)
        os.chown(home, uid, -1)
    state = home.lstat()
    if not stat.S_ISDIR(state.st_mode) or state.st_uid != uid:
        raise PermissionError(f"{home} is not the plugin's own")
    return home


def _forget_home(process: Process) -> None:
    shutil.rmtree(_home_of(process), ignore_errors=True)


def _copied(certificate: Path, home: Path) -> Path:
    """Return a copy that the plugin's user can read: the original may lie in the server's home."""
    copy = home / "platform.pem"
    copy.unlink(missing_ok=True)
    handle = os.open(copy, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o644)
    with os.fdopen(handle, "wb") as file:
        file.write(certificate.read_bytes())
    return copy


def log_path(folder: Path, instance: str) -> Path:
    """Return where a plugin process's output goes."""
    return folder / f"{instance}.log"


def tail_of(path: Path, count: int) -> bytes:
    """Return the last bytes of a file; none where there is no such file."""
    try:
        with path.open("rb") as file:
            file.seek(max(0, file.seek(0, os.SEEK_END) - count))
            return file.read(count)
    except OSError:
        return b""


def cut_log(path: Path) -> None:
    """Keep the end of a log that has grown too long.

    Its process holds it open to append, so it is shortened in place; a line written meanwhile may be lost.
    """
    with contextlib.suppress(OSError):
        if path.stat().st_size > MOST_LOG_BYTES:
            kept = tail_of(path, KEPT_LOG_BYTES)
            with path.open("r+b") as file:
                file.truncate(0)
                file.write(kept[kept.find(b"\n") + 1 :])


def start_ticks(pid: int) -> int | None:
    """Return when a process started, in ticks since boot; None when it does not run."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
    return None if fields[0] in "ZX" else int(fields[19])


def memory_by_group() -> dict[int, int]:
    """Return the resident memory of every process group, in MiB."""
    pages: dict[int, int] = {}
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            with contextlib.suppress(OSError, IndexError, ValueError):
                fields = (folder / "stat").read_text().rpartition(")")[2].split()
                group = int(fields[2])
                pages[group] = pages.get(group, 0) + int(fields[21])
    return {group: count * os.sysconf("SC_PAGE_SIZE") // (1 << 20) for group, count in pages.items()}


def _signal_group(process: Process, number: signal.Signals) -> None:
    if process.pid is not None:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, number)
