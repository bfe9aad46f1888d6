"""A real PostgreSQL for tests: started once per run on a socket of its own, a new database for each test."""

import os
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Generator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from yunhe.agent.runs.processes import read_stat

PORT = 25433


def program(name: str) -> str | None:
    """Return where a program of PostgreSQL is."""
    found = shutil.which(name)
    if found:
        return found
    candidates = sorted(Path("/usr/lib/postgresql").glob(f"*/bin/{name}"))
    return str(candidates[-1]) if candidates else None


def _as_postgres(command: list[str]) -> list[str]:
    """PostgreSQL refuses to run as root."""
    return (
        ["setpriv", "--reuid=postgres", "--regid=postgres", "--clear-groups", *command]
        if os.geteuid() == 0
        else command
    )


@contextmanager
def postgres_server(*, log_folder: Path | None = None) -> Generator[str]:
    """Run a server without durability (tests are not power cuts) and yield its socket's folder.

    With *log_folder* its write-ahead log is there, in small segments.
    """
    initdb, pg_ctl = program("initdb"), program("pg_ctl")
    if initdb is None or pg_ctl is None:
        pytest.skip("PostgreSQL is not installed (initdb, pg_ctl)")
    folder = Path(tempfile.mkdtemp(prefix="yunhe-pg-"))
    folder.chmod(0o755)
    if os.geteuid() == 0:
        shutil.chown(folder, "postgres", "postgres")
    data = folder / "data"
    apart = [] if log_folder is None else ["--waldir", str(log_folder), "--wal-segsize", "1"]
    options = f"-p {PORT} -k {folder} -c listen_addresses='' -c fsync=off -c max_connections=200"
    try:
        subprocess.run(
            _as_postgres([initdb, "-D", str(data), "-A", "trust", "-U", "yunhe", *apart]),
            check=True,
            capture_output=True,
            cwd=folder,
        )
        subprocess.run(
            _as_postgres([pg_ctl, "-w", "-D", str(data), "-l", str(folder / "log"), "-o", options, "start"]),
            check=True,
            capture_output=True,
            cwd=folder,
        )
        yield str(folder)
    finally:
        if data.exists():
            subprocess.run(
                _as_postgres([pg_ctl, "-D", str(data), "-m", "immediate", "stop"]),
                check=False,
                capture_output=True,
                cwd=folder,
            )
        shutil.rmtree(folder, ignore_errors=True)


def control(socket_folder: str, *command: str) -> None:
    """Have a server stop (as a power cut would end it), start or restart."""
    pg_ctl = program("pg_ctl")
    assert pg_ctl is not None
    folder = Path(socket_folder)
    fixed = [pg_ctl, "-w", "-D", str(folder / "data"), "-l", str(folder / "log")]
    subprocess.run(_as_postgres([*fixed, *command]), check=True, capture_output=True, cwd=folder)


def stop(socket_folder: str) -> None:
    """End a server as a power cut would."""
    control(socket_folder, "-m", "immediate", "stop")


def start_again(socket_folder: str) -> None:
    """Start a server that was stopped; return once it answers."""
    options = f"-p {PORT} -k {socket_folder} -c listen_addresses='' -c fsync=off -c max_connections=200"
    control(socket_folder, "-o", options, "start")


def freeze(socket_folder: str) -> list[int]:
    """Have every process of a server stand still; return them."""
    head = int((Path(socket_folder) / "data/postmaster.pid").read_text().split()[0])
    pids = [head]
    os.kill(head, signal.SIGSTOP)  # first: it starts no more of them
    for folder in Path("/proc").glob("[0-9]*"):
        stat = read_stat(int(folder.name))
        if stat is not None and stat.parent == head:
            pids.append(int(folder.name))
            os.kill(int(folder.name), signal.SIGSTOP)
    return pids


def thaw(pids: list[int]) -> None:
    """Let processes that stand still go on; the head first, as it was stopped first."""
    for pid in pids:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGCONT)


def is_running(socket_folder: str) -> bool:
    """Return whether a server takes connections."""
    pg_ctl = program("pg_ctl")
    assert pg_ctl is not None
    command = _as_postgres([pg_ctl, "-D", str(Path(socket_folder) / "data"), "status"])
    return subprocess.run(command, check=False, capture_output=True, cwd=socket_folder).returncode == 0


def kill_and_start_again(socket_folder: str) -> None:
    """End a server as a power cut would, and start it again."""
    control(socket_folder, "-m", "immediate", "restart")


def new_database(socket_folder: str, name: str, *, tablespace: Path | None = None) -> str:
    """Make an empty database and return its URL; with *tablespace*, its tables are in that folder."""
    import psycopg  # noqa: PLC0415 - an optional extra

    with psycopg.connect(
        host=socket_folder, port=PORT, user="yunhe", dbname="postgres", autocommit=True
    ) as connection:
        place = ""
        if tablespace is not None:
            connection.execute(f"CREATE TABLESPACE {name}_place LOCATION '{tablespace}'".encode())
            place = f" TABLESPACE {name}_place"
        connection.execute(f'CREATE DATABASE "{name}"{place}'.encode())
    return f"postgresql://yunhe@/{name}?host={socket_folder}&port={PORT}"
