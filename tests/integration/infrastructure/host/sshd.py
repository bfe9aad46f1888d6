"""A real ``sshd`` in a network of its own, which the test can cut; nothing of the system is changed."""

import contextlib
import os
import pwd
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import pytest

from support.agent_roots import end_agent
from yunhe.infrastructure.host.target import DeclaredNode, SshHost

MEMBER_UID = 64_321
ADDRESSES = 250

_INSIDE = """
mount --make-rprivate / && mount --bind "$1/passwd" /etc/passwd && mount --bind "$1/group" /etc/group &&
mkdir -p /run/sshd && echo ready && read -r _ && exec /usr/sbin/sshd -D -e -f "$1/sshd_config"
"""


class SshServer:
    """An sshd that root, also called ``ops``, and an ordinary account may enter."""

    def __init__(self, directory: Path, process: subprocess.Popen[str], link: str, address: str) -> None:
        self.directory = directory
        self._process = process
        self._link = link
        self._address = address

    def target(self, user: str, **changes: str) -> SshHost:
        """Return this host as seen from outside, by *user*."""
        options = {
            "UserKnownHostsFile": str(self.directory / "known_hosts"),
            "StrictHostKeyChecking": "yes",
            "IdentitiesOnly": "yes",
        }
        words = tuple(word for name, value in options.items() for word in ("-o", f"{name}={value}"))
        return SshHost(
            destination=changes.get("destination", f"{user}@{self._address}"),
            port=int(changes.get("port", "2222")),
            identity_file=changes.get("identity_file", str(self.directory / "key")),
            options=words,
            root=str(self.root_of(user)),
            python=changes.get("python", "/usr/bin/python3"),
            declared=DeclaredNode(node_id=f"{user}-node"),
        )

    def config(self, name: str) -> Path:
        """Return a configuration for the system's ``ssh`` that finds this host by *name*."""
        path = self.directory / f"{name}.ssh_config"
        path.write_text(
            f"Host {name}\n"
            f"  HostName {self._address}\n"
            f"  HostKeyAlias [{self._address}]:2222\n"
            "  Port 2222\n"
            f"  IdentityFile {self.directory}/key\n"
            f"  UserKnownHostsFile {self.directory}/known_hosts\n"
        )
        return path

    def root_of(self, user: str) -> Path:
        """Return where the agent of *user* lives."""
        return self.directory / user / "agent"

    def cut(self) -> None:
        """Drop every packet in both directions; nobody is told."""
        for command in self._both_ends("add"):
            subprocess.run(command, check=True)

    def mend(self) -> None:
        """Let packets pass again."""
        for command in self._both_ends("del"):
            subprocess.run(command, check=True)

    def _both_ends(self, verb: str) -> list[list[str]]:
        # A bucket of ten bytes: no packet fits, so each is dropped.
        rule = ["root", "tbf", "rate", "8bit", "burst", "10", "latency", "1ms"] if verb == "add" else ["root"]
        far = ["nsenter", "-t", str(self._process.pid), "-n"]
        return [
            ["tc", "qdisc", verb, "dev", self._link, *rule],
            [*far, "tc", "qdisc", verb, "dev", "inner", *rule],
        ]

    def end(self) -> None:
        """End sshd, its sessions and its agents."""
        children = Path(f"/proc/{self._process.pid}/task/{self._process.pid}/children").read_text().split()
        for pid in map(int, children):
            with contextlib.suppress(ProcessLookupError):  # a session may end by itself
                os.kill(pid, signal.SIGKILL)
        self._process.kill()
        self._process.wait(10)
        for user in ("root", "member"):
            if self.root_of(user).exists():
                end_agent(self.root_of(user))


@contextmanager
def ssh_server() -> Generator[SshServer, None, None]:
    """Start an sshd; skip where the test may not."""
    if os.geteuid() != 0:
        pytest.skip("needs root: sshd in a network namespace")
    if shutil.which("sshd", path="/usr/sbin:/usr/bin") is None:
        pytest.skip("needs openssh-server")
    directory = Path(tempfile.mkdtemp(prefix="yunhe-ssh-"))
    directory.chmod(0o755)
    with _own_number() as number:
        yield from _serving(directory, number)


@contextmanager
def _own_number() -> Generator[int, None, None]:
    """Hold a number that no other test process of this machine holds: the address is made of it."""
    for turn in range(ADDRESSES):
        number = (os.getpid() + turn) % ADDRESSES
        with socket.socket(socket.AF_UNIX) as held:
            try:
                held.bind(f"\0yunhe-ssh-{number}")
            except OSError:
                continue
            yield number
            return
    raise AssertionError("no address is left for an sshd")


def _serving(directory: Path, number: int) -> Generator[SshServer, None, None]:
    link, address = f"yh{os.getpid() % 100000}n{number}", f"10.213.{number}.2"
    _write_files(directory, address)
    with (directory / "sshd.log").open("w") as log:
        process = subprocess.Popen(
            ["unshare", "-n", "-m", "sh", "-c", _INSIDE, "sh", str(directory)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
        )
    server = SshServer(directory, process, link, address)
    try:
        _join_networks(process, link, number)
        _wait_until_listening(directory)
        yield server
    finally:
        server.end()
        # It goes with its network, unless a task that was left running still lives there.
        subprocess.run(["ip", "link", "del", link], check=False, stderr=subprocess.DEVNULL)
        for pipe in (process.stdin, process.stdout):
            if pipe is not None:
                pipe.close()
        shutil.rmtree(directory)


def _join_networks(process: subprocess.Popen[str], link: str, number: int) -> None:
    assert process.stdout is not None
    assert process.stdin is not None
    assert process.stdout.readline() == "ready\n"
    far = ["nsenter", "-t", str(process.pid), "-n", "ip"]
    for command in (
        ["ip", "link", "add", link, "type", "veth", "peer", "name", "inner", "netns", str(process.pid)],
        ["ip", "addr", "add", f"10.213.{number}.1/30", "dev", link],
        ["ip", "link", "set", link, "up"],
        [*far, "addr", "add", f"10.213.{number}.2/30", "dev", "inner"],
        [*far, "link", "set", "inner", "up"],
        [*far, "link", "set", "lo", "up"],
    ):
        subprocess.run(command, check=True)
    process.stdin.write("go\n")
    process.stdin.flush()


def _wait_until_listening(directory: Path) -> None:
    until = time.monotonic() + 10
    while "Server listening" not in (directory / "sshd.log").read_text():
        assert time.monotonic() < until, (directory / "sshd.log").read_text()
        time.sleep(0.02)


def _write_files(directory: Path, address: str) -> None:
    for name in ("key", "host_key"):
        command = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(directory / name)]
        subprocess.run(command, check=True)
    public = (directory / "host_key.pub").read_text()
    (directory / "known_hosts").write_text(f"[{address}]:2222 {public}")
    (directory / "authorized_keys").write_text((directory / "key.pub").read_text())
    (directory / "authorized_keys").chmod(0o644)
    for user, uid in (("root", 0), ("member", MEMBER_UID)):
        home = directory / user
        home.mkdir(mode=0o755)
        os.chown(home, uid, uid)
    member = f"member:x:{MEMBER_UID}:{MEMBER_UID}::{directory}/member:/bin/sh\n"
    ops = f"ops:x:0:0::{directory}/root:/bin/sh\n"
    passwd = Path("/etc/passwd").read_text()
    (directory / "passwd").write_text(passwd + member + ops)
    (directory / "group").write_text(Path("/etc/group").read_text() + f"member:x:{MEMBER_UID}:\n")
    assert MEMBER_UID not in {entry.pw_uid for entry in pwd.getpwall()}
    (directory / "sshd_config").write_text(
        f"""
        Port 2222
        ListenAddress {address}
        HostKey {directory}/host_key
        AuthorizedKeysFile {directory}/authorized_keys
        PidFile none
        UsePAM no
        StrictModes no
        PermitRootLogin prohibit-password
        PasswordAuthentication no
        """
    )
