"""Directories for agents of the tests, and an end for every daemon and group that a test leaves behind."""

import os
import shutil
import signal
import tempfile
import time
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

from yunhe.agent.files.mounts import detach_below
from yunhe.agent.limits.limits import find_backend


@contextmanager
def agent_root() -> Generator[Path, None, None]:
    """Yield a root that users of projects can reach (pytest's own directories are closed to them)."""
    directory = Path(tempfile.mkdtemp(prefix="yunhe-"))
    directory.chmod(0o711)
    root = directory / "agent"
    try:
        yield root
    finally:
        end_agent(root)
        shutil.rmtree(directory)


def daemon_pid(root: Path) -> int | None:
    """Return the process ID of the daemon of *root*, if one lives."""
    try:
        pid = int((root / "agent.lock").read_text())
        command = Path(f"/proc/{pid}/cmdline").read_bytes()
    except (FileNotFoundError, ValueError, ProcessLookupError):
        return None
    return pid if str(root).encode() in command else None


def kill_daemon(root: Path) -> None:
    """Kill the daemon of *root* as a power cut would."""
    pid = daemon_pid(root)
    assert pid is not None, "there is no daemon to kill"
    os.kill(pid, signal.SIGKILL)
    wait_gone(pid)


def end_agent(root: Path) -> None:
    """End the daemon of *root*, its tasks, its groups and its mounts."""
    pid = daemon_pid(root)
    if pid is not None:
        os.kill(pid, signal.SIGTERM)
        wait_gone(pid)
    keeper = find_backend(str(root))
    for name in keeper.leftovers():
        keeper.group(name).kill()
        time.sleep(0.1)  # its wrapper records the end of it
        keeper.group(name).remove()
    keeper.remove()
    detach_below(str(root))


def wait_gone(pid: int, within_s: float = 10.0) -> None:
    """Return once *pid* is gone or a zombie."""
    until = time.monotonic() + within_s
    while time.monotonic() < until:
        try:
            state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
        except (FileNotFoundError, ProcessLookupError):
            return
        if state in "ZX":
            return
        time.sleep(0.01)
    raise AssertionError(f"process {pid} still lives")
