"""Files of a task over 100 Mbit/s, beside ``rsync -a`` in the same run: bytes and seconds of each submission.

Run as root with ``python -m bench.files [one|many|small]``; it needs iproute2, rsync and openssh-server. In a network
namespace of its own, whose loopback carries 100 Mbit/s, ``yunhe run --detach`` sends a workdir: new,
unchanged, and with one byte changed. rsync sends the same to a daemon, and over SSH as people do.
"""

import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Generator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from random import Random
from typing import NamedTuple

from bench.server_process import free_port, server

MB = 1_000_000
SHAPES = {"one": (1, 300 * MB), "many": (60, 5 * MB), "small": (20_000, 4_000)}
"""How many files, and of how many bytes each."""
LINK = "rate 100mbit burst 64k latency 200ms"
SETTLED_S = 2.5
ROUNDS = 5
MOST_SENT = 0.01
MOST_RATIO = 1.2
INSIDE = "--inside"


class Took(NamedTuple):
    """What one transfer took."""

    seconds: float
    wire_bytes: int

    def __str__(self) -> str:
        return f"{self.seconds:7.2f} s {self.wire_bytes / MB:9.3f} MB"


def main() -> None:
    """Print a table for each shape of a workdir; exit with 1 where a limit is not kept."""
    if INSIDE not in sys.argv:
        names = [name for name in sys.argv[1:] if name in SHAPES]
        inside = ["unshare", "--net", sys.executable, "-m", "bench.files", INSIDE, *names]
        sys.exit(subprocess.run(inside, check=False).returncode)
    for command in ("ip link set lo mtu 1500", "ip link set lo up", f"tc qdisc add dev lo root tbf {LINK}"):
        subprocess.run(command.split(), check=True)
    kept = [_compare(name) for name in SHAPES if name in sys.argv or not set(SHAPES) & set(sys.argv)]
    sys.exit(0 if all(kept) else 1)


def _compare(shape: str) -> bool:
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="yunhe-bench-")))
        work = _workdir(folder / "work", *SHAPES[shape])
        served = stack.enter_context(server(folder / "home", free_port(), engines="fake"))
        task = folder / "task.yaml"
        task.write_text(f"name: files\nworkdir: {work}\nrun: 'true'\n")
        inherited = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
        environment = inherited | {  # as users have it: modules are compiled once
            "YUNHE_HOME": str(folder / "user"),
            "YUNHE_URL": served.url,
            "YUNHE_KEY": served.key,
        }
        yunhe = [str(Path(sys.executable).with_name("yunhe")), "run", "--detach", "--yes", "--output", "json"]
        daemon = stack.enter_context(_rsync_daemon(folder))
        ssh = stack.enter_context(_ssh_server(folder))
        ways: dict[str, Callable[[], Took]] = {
            "yunhe run": lambda: _timed([*yunhe, str(task)], environment),
            "rsync daemon": lambda: _timed(["rsync", "-a", f"{work}/", daemon], environment),
            "rsync ssh": lambda: _timed(
                ["rsync", "-a", "-e", ssh, f"{work}/", f"127.0.0.1:{folder / 'over-ssh'}/"], environment
            ),
        }
        new = {name: way() for name, way in ways.items()}
        time.sleep(SETTLED_S)
        ways["yunhe run"]()  # from now on every digest is known
        same = {name: _best(way, lambda: None) for name, way in ways.items()}
        changed = {name: _best(way, lambda: _change(work)) for name, way in ways.items()}
        count, size = SHAPES[shape]
        print(f"\n{shape}: {count} files of {size / MB:g} MB, best of {ROUNDS} but for the first")
        print(f"{'':14}{'first':>21}{'unchanged':>21}{'one byte changed':>21}")
        for name in ways:
            print(f"{name:14}{new[name]!s:>21}{same[name]!s:>21}{changed[name]!s:>21}")
        database = sum(
            path.stat().st_size for path in (folder / "home").glob("yunhe.db*") if path.suffix != ".reserve"
        )
        files = sum(path.stat().st_size for path in (folder / "home" / "files").rglob("*") if path.is_file())
        print(f"database {database / MB:.1f} MB with its journal, files {files / MB:.0f} MB")
        sent = changed["yunhe run"].wire_bytes / (count * size)
        ratio = changed["yunhe run"].seconds / changed["rsync ssh"].seconds
        ok = sent <= MOST_SENT and ratio <= MOST_RATIO
        print(
            f"changed: {sent:.2%} of the bytes (limit {MOST_SENT:.0%}), {ratio:.2f} × rsync over SSH"
            f" (limit {MOST_RATIO:g})   {'ok' if ok else 'OVER'}"
        )
        return ok


def _workdir(folder: Path, count: int, size: int) -> Path:
    rng = Random(1)
    for number in range(count):
        path = folder / f"d{number % 40:02d}" / f"f{number:05d}"
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("wb") as file:
            for start in range(0, size, MB):
                file.write(rng.randbytes(min(MB, size - start)))
    return folder


def _change(work: Path) -> None:
    """Change one byte in the middle of a file, and let its time settle."""
    path = min(path for path in work.rglob("*") if path.is_file())
    with path.open("r+b") as file:
        file.seek(path.stat().st_size // 2)
        file.write(os.urandom(1))
    time.sleep(SETTLED_S)


def _best(way: Callable[[], Took], before: Callable[[], None]) -> Took:
    found: list[Took] = []
    for _ in range(ROUNDS):
        before()
        found.append(way())
    return Took(min(took.seconds for took in found), max(took.wire_bytes for took in found))


def _timed(command: list[str], environment: dict[str, str]) -> Took:
    before, began = _wire_bytes(), time.perf_counter()
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    took = Took(time.perf_counter() - began, _wire_bytes() - before)
    if done.returncode:
        raise AssertionError(done.stderr)
    return took


def _wire_bytes() -> int:
    """Return what has passed the link, both ways."""
    lines = Path("/proc/self/net/dev").read_text().splitlines()
    return next(int(line.split()[9]) for line in lines if line.strip().startswith("lo:"))


@contextmanager
def _ssh_server(folder: Path) -> Generator[str]:
    """Run an sshd that root may enter; yield the command for rsync."""
    port, at = free_port(), folder / "ssh"
    at.mkdir(mode=0o700)
    for name in ("host", "key"):
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(at / name)], check=True)
    Path("/run/sshd").mkdir(exist_ok=True)
    settings = f"Port {port}\nListenAddress 127.0.0.1\nHostKey {at}/host\nPidFile none\nStrictModes no\n"
    (at / "config").write_text(f"{settings}PermitRootLogin yes\nAuthorizedKeysFile {at}/key.pub\n")
    process = subprocess.Popen(["/usr/sbin/sshd", "-D", "-f", str(at / "config")])
    try:
        time.sleep(0.5)
        yield f"ssh -q -p {port} -i {at}/key -o StrictHostKeyChecking=no -o UserKnownHostsFile=/dev/null"
    finally:
        process.terminate()
        process.wait()


@contextmanager
def _rsync_daemon(folder: Path) -> Generator[str]:
    port = free_port()
    (folder / "rsyncd").mkdir()
    settings = (
        f"use chroot = no\nuid = root\ngid = root\n[work]\npath = {folder / 'rsyncd'}\nread only = no\n"
    )
    (folder / "rsyncd.conf").write_text(settings)
    process = subprocess.Popen(
        ["rsync", "--daemon", "--no-detach", f"--port={port}", f"--config={folder / 'rsyncd.conf'}"]
    )
    try:
        time.sleep(0.5)
        yield f"rsync://127.0.0.1:{port}/work/"
    finally:
        process.terminate()
        process.wait()


if __name__ == "__main__":
    if not shutil.which("rsync"):
        sys.exit("rsync is not installed")
    main()
