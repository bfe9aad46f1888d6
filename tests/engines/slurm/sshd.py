"""An sshd on loopback, so that this machine can also be a login node far away."""

import shutil
import socket
import subprocess
import time
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import pytest

_SERVER = """
Port {port}
ListenAddress 127.0.0.1
HostKey {directory}/host
AuthorizedKeysFile {directory}/key.pub
PidFile none
UsePAM no
StrictModes no
PermitRootLogin prohibit-password
"""
_CLIENT = """
Host login wrong-key
  HostName 127.0.0.1
  Port {port}
  User root
  UserKnownHostsFile {directory}/known_hosts
  StrictHostKeyChecking yes
  IdentitiesOnly yes
Host login
  IdentityFile {directory}/key
Host wrong-key
  IdentityFile {directory}/other
Host nobody-there
  HostName 127.0.0.1
  Port {closed}
"""


@contextmanager
def login_node(directory: Path) -> Generator[Path]:
    """Start an sshd; yield a client's configuration that knows it as ``login``."""
    sshd = shutil.which("sshd", path="/usr/sbin:/usr/bin")
    if sshd is None:
        pytest.skip("needs openssh-server")
    for name in ("host", "key", "other"):
        command = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(directory / name)]
        subprocess.run(command, check=True)
    port, closed = _free_port(), _free_port()
    words = {"port": port, "closed": closed, "directory": directory}
    (directory / "sshd_config").write_text(_SERVER.format(**words))
    (directory / "ssh_config").write_text(_CLIENT.format(**words))
    host_key = (directory / "host.pub").read_text()
    (directory / "known_hosts").write_text(f"[127.0.0.1]:{port} {host_key}")
    Path("/run/sshd").mkdir(exist_ok=True)
    with (directory / "sshd.log").open("w") as log:
        command = [sshd, "-D", "-e", "-f", str(directory / "sshd_config")]
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stderr=log)
    try:
        until = time.monotonic() + 10
        while "listening" not in (directory / "sshd.log").read_text().lower():
            assert time.monotonic() < until, (directory / "sshd.log").read_text()
            time.sleep(0.05)
        yield directory / "ssh_config"
    finally:
        process.terminate()
        process.wait(10)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]
