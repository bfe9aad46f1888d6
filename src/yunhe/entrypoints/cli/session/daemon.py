"""The server of this machine as a background process: started once, found again, stopped by its own ID."""

import os
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path

import msgspec

from yunhe.entrypoints.client.blocking_transport import probe
from yunhe.entrypoints.client.transport import TransportError
from yunhe.kernel.errors import ConflictError, YunheError
from yunhe.runtime.settings import log_path
from yunhe.storage.private_files import private_home, write_private

START_PATIENCE_S = 60.0
STOP_PATIENCE_S = 20.0
_TAIL_LINES = 8


class RunningServer(msgspec.Struct, frozen=True):
    """A server that was started: enough to know it again, and not to mistake another process for it."""

    pid: int
    born: str
    url: str


class LastStart(msgspec.Struct, frozen=True):
    """How the server of a home was started last, for when it is started again."""

    port: int
    database: str = ""


def last_start(home: Path) -> LastStart | None:
    """Return how the server of *home* was started last, or None."""
    try:
        return msgspec.json.decode(_last_start_file(home).read_bytes(), type=LastStart)
    except (FileNotFoundError, msgspec.MsgspecError):
        return None


def running(home: Path) -> RunningServer | None:
    """Return the server that runs from *home*, or None."""
    try:
        known = msgspec.json.decode(_pid_file(home).read_bytes(), type=RunningServer)
    except (FileNotFoundError, msgspec.MsgspecError):
        return None
    return known if known.born == _birth(known.pid) else None


def start(home: Path, port: int, more: list[str], *, database: str = "") -> RunningServer:
    """Start a server that outlives this terminal, and return once it is ready.

    The database's URL may hold a password: it goes by the environment, for everybody may read the arguments of a process.
    """
    private_home(home)
    host = "127.0.0.1"
    url = f"http://{host}:{port}"
    if answers(url):
        raise ConflictError(
            f"Another server answers at {url}.",
            remedy=f"Use it with `yunhe login {url}`, or bring one up beside it with `yunhe up --port {port + 1}`.",
        )
    command = [sys.executable, "-m", "yunhe.entrypoints.cli", "serve", "--home", str(home), "--no-log-stderr"]
    environment = {**os.environ, "YUNHE_DATABASE": database}
    with open(_output_file(home), "wb", opener=_privately) as output:
        process = subprocess.Popen(
            [*command, "--host", host, "--port", str(port), *more],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,
            cwd=home,
            env=environment,
        )
    server = RunningServer(process.pid, _birth(process.pid) or "", url)
    write_private(_pid_file(home), msgspec.json.encode(server))
    await_ready(server, home)
    write_private(_last_start_file(home), msgspec.json.encode(LastStart(port, database)))
    return server


def await_ready(server: RunningServer, home: Path) -> None:
    """Return once *server* is ready; raise with the end of what it wrote if it dies or takes too long."""
    log = log_path(home)
    give_up = time.monotonic() + START_PATIENCE_S
    while time.monotonic() < give_up:
        if _birth(server.pid) != server.born:
            raise YunheError(
                f"The server ended at once:\n{_tail(_output_file(home))}",
                remedy=f"Fix what it says, then `yunhe up` again. Its log is {log}.",
            )
        if answers(server.url):
            return
        time.sleep(0.05)
    raise YunheError(
        f"The server was not ready within {START_PATIENCE_S:.0f} s:\n{_tail(log)}",
        remedy=f"Look at {log}; `yunhe down` stops it.",
    )


def command(verb: str, home: Path | None) -> str:
    """Return what to type to bring the platform of *home* up or down; None: the usual home."""
    return f"yunhe {verb}" + (f" --home {shlex.quote(str(home))}" if home is not None else "")


def answers(url: str) -> bool:
    """Return whether a platform is ready at *url*."""
    try:
        return probe(url, direct=True).status == 200
    except TransportError:
        return False


def stop(home: Path) -> RunningServer | None:
    """Stop the server of *home* and wait until it is gone; None when none ran."""
    server = running(home)
    if server is None:
        _pid_file(home).unlink(missing_ok=True)
        return None
    os.kill(server.pid, signal.SIGTERM)
    give_up = time.monotonic() + STOP_PATIENCE_S
    while running(home) is not None:
        if time.monotonic() > give_up:
            raise YunheError(
                f"The server (process {server.pid}) has not stopped within {STOP_PATIENCE_S:.0f} s.",
                remedy=f"Look at {log_path(home)}; `kill -9 {server.pid}` ends it, jobs and data stay.",
            )
        time.sleep(0.05)
    _pid_file(home).unlink(missing_ok=True)
    return server


def _output_file(home: Path) -> Path:
    """Return where the server of *home* writes what does not go through its log: why it cannot start, or crashed."""
    return home / "server.out"


def _privately(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)


def _last_start_file(home: Path) -> Path:
    return home / "last-start.json"


def _pid_file(home: Path) -> Path:
    return home / "server.pid"


def _tail(log: Path) -> str:
    text = log.read_text(errors="replace") if log.exists() else ""
    return "\n".join(f"    {line}" for line in text.splitlines()[-_TAIL_LINES:])


def _birth(pid: int) -> str | None:
    """Return when process *pid* began, as its system tells it; None when it is not there (or only its remains)."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return _birth_elsewhere(pid)
    return None if fields[0] in {"Z", "X"} else fields[19]


def _birth_elsewhere(pid: int) -> str | None:
    if Path("/proc/self").exists():
        return None
    told = subprocess.run(
        ["ps", "-o", "lstart=", "-p", str(pid)], capture_output=True, text=True, check=False
    )
    return told.stdout.strip() or None
