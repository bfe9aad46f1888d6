"""A host in a network namespace of its own, with an outside: who may reach what can be tried without the machine's network.

``outside`` answers at addresses that a task may reach (``OUTSIDE``, ``OTHER``), at those that it must not (metadata and
link-local ones), and as the name server of the machine's ``resolv.conf``. Both sides say ``hello`` on ``PORT`` over TCP and
UDP; the outside serves files over HTTP besides.
"""

import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import pytest

HOST, HOST_INSIDE, OUTSIDE, OTHER = "203.0.113.1", "203.0.113.65", "203.0.113.2", "203.0.113.99"
NEVER = ("169.254.169.254", "169.254.7.7")
PORT, WEB_PORT = 7300, 7301
ABSTRACT = "yunhe-probe"
_ANSWERS = """
import http.server, os, socket, socketserver, sys, threading

class Tcp(socketserver.BaseRequestHandler):
    def handle(self):
        self.request.sendall(b"hello")

class Udp(socketserver.BaseRequestHandler):
    def handle(self):
        self.request[1].sendto(b"hello", self.client_address)

class Names(socketserver.BaseRequestHandler):
    def handle(self):
        asked, line = self.request
        end = asked.index(b"\\0", 12) + 5
        kind = asked[end - 4 : end - 2]
        answer = b"\\xc0\\x0c\\0\\1\\0\\1\\0\\0\\0\\1\\0\\4" + socket.inet_aton(sys.argv[3]) if kind == b"\\0\\1" else b""
        counts = b"\\0\\1" + (b"\\0\\1" if answer else b"\\0\\0") + b"\\0\\0\\0\\0"
        line.sendto(asked[:2] + b"\\x81\\x80" + counts + asked[12:end] + answer, self.client_address)

class Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *_):
        pass

class Six(socketserver.ThreadingTCPServer):
    address_family = socket.AF_INET6

socketserver.TCPServer.allow_reuse_address = True
port = int(sys.argv[1])
servers = [Six(("::", port), Tcp), socketserver.ThreadingUDPServer(("0.0.0.0", port), Udp)]
if sys.argv[2]:
    os.chdir(sys.argv[2])
    servers.append(http.server.ThreadingHTTPServer(("0.0.0.0", port + 1), Quiet))
    servers += [socketserver.ThreadingUDPServer((address, 53), Names) for address in sys.argv[4:]]
abstract = socket.socket(socket.AF_UNIX)
abstract.bind("\\0yunhe-probe")
abstract.listen()
for server in servers:
    threading.Thread(target=server.serve_forever).start()
print("ready", flush=True)
"""


class HostNetwork(NamedTuple):
    """What a test needs of the namespaces."""

    python: str
    """Runs Python in the host's namespace, for an agent to be started by."""
    enter: list[str]
    """Before a command: runs it in the host's namespace."""
    enter_outside: list[str]
    """The same for that of the outside."""
    files: Path
    """Served by the outside over HTTP."""

    def words(self, *command: str) -> str:
        """Run a command in the host's namespace; return what it said."""
        return subprocess.run([*self.enter, *command], capture_output=True, text=True, check=True).stdout


@contextmanager
def host_network() -> Generator[HostNetwork]:
    """Yield a host with an outside; skip where there can be none."""
    if os.geteuid() != 0 or not all(map(shutil.which, ("ip", "nft", "nsenter"))):
        pytest.skip("needs root, ip, nft and nsenter for networks of tasks (tools/system_packages.py test)")
    host, outside = f"yunhe-host-{os.getpid()}", f"yunhe-out-{os.getpid()}"
    folder = Path(tempfile.mkdtemp(prefix="yunhe-net-"))
    files = folder / "files"
    files.mkdir()
    enter = ["nsenter", f"--net=/run/netns/{host}", "--"]
    python = folder / "python"
    python.write_text(f'#!/bin/sh\nexec {" ".join(enter)} {sys.executable} "$@"\n')
    python.chmod(0o755)
    started: list[subprocess.Popen[bytes]] = []
    try:
        _make(host, outside)
        started.append(_answer(enter, "", ""))
        enter_outside = ["nsenter", f"--net=/run/netns/{outside}", "--"]
        started.append(_answer(enter_outside, str(files), OUTSIDE))
        yield HostNetwork(str(python), enter, enter_outside, files)
    finally:
        for process in started:
            process.kill()
            process.wait()
            if process.stdout is not None:
                process.stdout.close()
        for name in (host, outside):
            subprocess.run(["ip", "netns", "delete", name], check=False, capture_output=True)
        shutil.rmtree(folder)


def name_servers() -> list[str]:
    """Return the name servers of this machine, as far as they have IPv4 addresses."""
    lines = [line.split() for line in Path("/etc/resolv.conf").read_text().splitlines()]
    return [words[1] for words in lines if words[:1] == ["nameserver"] and ":" not in words[1]]


def _make(host: str, outside: str) -> None:
    lines = [
        f"netns add {host}",
        f"netns add {outside}",
        f"link add yhh netns {host} type veth peer name yho netns {outside}",
    ]
    subprocess.run(["ip", "-batch", "-"], input="\n".join(lines).encode(), check=True)
    for name, link, addresses in (
        (host, "yhh", [f"{HOST}/24", f"{HOST_INSIDE}/32"]),
        (outside, "yho", [f"{OUTSIDE}/24", *(f"{one}/32" for one in (OTHER, *NEVER, *name_servers()))]),
    ):
        inner = [f"address add {address} dev {link}" for address in addresses]
        inner += [f"link set {link} up", "link set lo up"]
        inner += [f"route add default via {OUTSIDE}"] if name == host else []
        subprocess.run(["ip", "-n", name, "-batch", "-"], input="\n".join(inner).encode(), check=True)
    enter = ["nsenter", f"--net=/run/netns/{host}", "--"]
    subprocess.run([*enter, "sh", "-c", "echo 1 > /proc/sys/net/ipv4/ip_forward"], check=True)


def _answer(enter: list[str], files: str, address: str) -> subprocess.Popen[bytes]:
    command = [*enter, sys.executable, "-c", _ANSWERS, str(PORT), files, address, *name_servers()]
    process = subprocess.Popen(command, stdout=subprocess.PIPE)
    assert process.stdout is not None
    until = time.monotonic() + 10
    assert process.stdout.readline() == b"ready\n", f"nobody answers after {until - time.monotonic():.0f} s"
    return process
