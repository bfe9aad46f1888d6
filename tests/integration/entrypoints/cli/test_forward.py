"""Programs in a job are reached from the user's machine as if they ran there."""

import hashlib
import json
import os
import signal
import socket
import subprocess
import threading
import time
import urllib.request
from collections.abc import Generator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import pytest
import websockets
from websockets.sync.client import connect

from integration.control.plugins.processes import until
from integration.entrypoints.cli import reached
from integration.entrypoints.cli.conftest import YUNHE, Platform, Shell
from integration.entrypoints.cli.reached import DIGEST, ECHO, PAGES, SOCKETS
from yunhe.scheduling.orchestration.jobs.states import JobState

FIRST = 7100
BIG = os.urandom(1 << 20) * 100
TASK = """
name: {name}
resources: {{cpus: 1, memory: 256MB}}
{more}
ports: [{first}, {second}, "{third}-{fourth}"]
workdir: {workdir}
file_mounts: {{websockets: {websockets}}}
run: exec python3 reached.py {first}
"""


def write_task(folder: Path, name: str, more: str = "") -> Path:
    workdir = folder / "work"
    workdir.mkdir(exist_ok=True)
    (workdir / "reached.py").write_text(Path(reached.__file__).read_text())
    (workdir / "page.html").write_text("<p>inside</p>")
    path = folder / f"{name}.yaml"
    numbers = dict(zip(("first", "second", "third", "fourth"), range(FIRST, FIRST + 4), strict=True))
    library = Path(websockets.__file__).parent
    path.write_text(TASK.format(name=name, more=more, workdir=workdir, websockets=library, **numbers))
    return path


def start(shell: Shell, task: Path) -> None:
    done = shell("run", "-y", "-d", task)
    assert done.returncode == 0, done.stderr
    until(lambda: "ready" in shell.inside("logs", task.stem).stdout, within_s=60)


def state_of(shell: Shell, name: str) -> JobState:
    with shell.client() as client:
        return next(iter(client.jobs(name=name))).state


class Tunnel:
    """A ``yunhe forward`` that runs."""

    def __init__(self, process: subprocess.Popen[str], locals_: Sequence[int], errors: Path) -> None:
        self.process = process
        self._locals = locals_
        self._errors = errors

    def said(self) -> str:
        return self._errors.read_text()

    def connect(self, number: int) -> socket.socket:
        return socket.create_connection(("127.0.0.1", self._locals[number]), timeout=60)

    def url(self, number: int, scheme: str = "http") -> str:
        return f"{scheme}://127.0.0.1:{self._locals[number]}"


@contextmanager
def tunnel(shell: Shell, folder: Path, job: str, *ports: str) -> Generator[Tunnel]:
    errors = folder / f"{time.monotonic_ns()}.err"
    wanted = ports or tuple(f":{FIRST + number}" for number in range(4))
    with errors.open("w") as written:
        process = subprocess.Popen(
            [*YUNHE, "forward", "--output", "json", job, *wanted],
            cwd=shell.cwd,
            env=shell.environment,
            stdout=subprocess.PIPE,
            stderr=written,
            text=True,
        )
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        assert line, errors.read_text()
        yield Tunnel(process, [one["local"] for one in json.loads(line)["ports"]], errors)
    finally:
        if process.poll() is None:
            process.send_signal(signal.SIGINT)
        process.communicate(timeout=30)


@pytest.fixture(scope="module")
def served(platform: Platform, tmp_path_factory: pytest.TempPathFactory) -> Generator[Shell]:
    start(platform.admin, write_task(tmp_path_factory.mktemp("served"), "served"))
    yield platform.admin
    platform.admin.inside("stop", "-y", "served")


@pytest.fixture
def through(served: Shell, tmp_path: Path) -> Generator[Tunnel]:
    with tunnel(served, tmp_path, "served") as opened:
        yield opened


def exchanged(connection: socket.socket, data: bytes) -> bytes:
    """Send all of *data* while reading what comes back, until the other side has said all."""

    def send() -> None:
        connection.sendall(data)
        connection.shutdown(socket.SHUT_WR)

    with connection:
        sender = threading.Thread(target=send)
        sender.start()
        pieces: list[bytes] = []
        while piece := connection.recv(1 << 20):
            pieces.append(piece)
        sender.join()
    return b"".join(pieces)


def test_a_page_and_a_websocket_of_a_job_are_reached(through: Tunnel) -> None:
    with urllib.request.urlopen(f"{through.url(PAGES)}/page.html", timeout=30) as answer:
        assert answer.read() == b"<p>inside</p>"
    with connect(through.url(SOCKETS, "ws"), open_timeout=30) as talk:
        for message in ("typed", b"\0\1\2" * 100_000):
            talk.send(message)
            assert talk.recv(timeout=30) == message


def test_a_hundred_megabytes_come_back_byte_by_byte(through: Tunnel) -> None:
    began = time.monotonic()
    assert exchanged(through.connect(ECHO), BIG) == BIG
    print(f"100 MiB there and back: {time.monotonic() - began:.1f} s")


def test_a_side_that_has_said_all_still_hears_the_other(through: Tunnel) -> None:
    data = BIG[: 3 << 20]
    assert exchanged(through.connect(DIGEST), data) == hashlib.sha256(data).hexdigest().encode()


def test_fifty_connections_at_once_keep_their_bytes_apart(through: Tunnel) -> None:
    connections = [through.connect(ECHO) for _ in range(50)]
    words = [f"{number} ".encode() * 20_000 for number in range(50)]
    with ThreadPoolExecutor(50) as pool:
        assert list(pool.map(exchanged, connections, words)) == words


def test_a_port_on_which_nobody_listens_fails_alone_and_with_a_hint(served: Shell, tmp_path: Path) -> None:
    with tunnel(served, tmp_path, "served", ":7999", f":{FIRST}") as opened:
        with pytest.raises(ConnectionResetError), opened.connect(0) as nobody:
            nobody.recv(1)
        assert exchanged(opened.connect(1), b"still here") == b"still here"
        assert "Nothing listens on port 7999 in the job. Its program may not be ready" in opened.said()


def test_the_ports_of_the_task_are_told_and_forwarded_when_none_are_said(
    served: Shell, tmp_path: Path
) -> None:
    (job,) = [one for one in json.loads(served.inside("ps", "-o", "json").stdout) if one["name"] == "served"]
    assert job["ports"] == [FIRST, FIRST + 1, FIRST + 2, FIRST + 3]
    with tunnel(served, tmp_path, "served", "--") as opened:
        assert opened.url(ECHO).endswith(f":{FIRST}")
        assert exchanged(opened.connect(ECHO), b"by its own number") == b"by its own number"
        taken = served("forward", "served", str(FIRST))
        assert taken.returncode == 1
        assert f"yunhe forward served :{FIRST}" in taken.stderr


def test_a_server_that_restarts_costs_the_connections_of_that_moment_only(
    platform: Platform, served: Shell, tmp_path: Path
) -> None:
    with tunnel(served, tmp_path, "served") as opened, opened.connect(ECHO) as cut:
        cut.sendall(b"before")
        assert cut.recv(100) == b"before"
        assert served("down").returncode == 0
        with pytest.raises(ConnectionResetError):
            cut.recv(1)
        early = opened.connect(ECHO)  # while nobody answers
        assert served(*platform.words, timeout_s=110).returncode == 0
        assert exchanged(early, b"asked in between") == b"asked in between"
        assert exchanged(opened.connect(ECHO), b"after") == b"after"
        assert opened.process.poll() is None
        assert "This connection is lost, perhaps with bytes on their way" in opened.said()
        assert "It is tried again." in opened.said()


@pytest.mark.parametrize("more", ["network: none", "runtime: sandboxed"], ids=["no-network", "sandboxed"])
def test_a_job_that_is_kept_apart_is_reached_and_its_end_ends_the_tunnel(
    platform: Platform, tmp_path: Path, more: str
) -> None:
    admin = platform.admin
    name = more.rsplit(maxsplit=1)[-1]
    planned = admin("plan", write_task(tmp_path, name, more))
    if planned.returncode:
        pytest.skip(planned.stdout + planned.stderr)
    start(admin, tmp_path / f"{name}.yaml")
    with tunnel(admin, tmp_path, name) as opened:
        assert exchanged(opened.connect(ECHO), b"inside") == b"inside"
        with opened.connect(ECHO) as hanging:
            assert admin("stop", "-y", name).returncode == 0
            assert opened.process.wait(timeout=60) != 0
            with pytest.raises(ConnectionResetError):
                assert hanging.recv(1)
                raise ConnectionResetError
    assert f"{name} has ended: stopped. Nothing is forwarded any more." in opened.said()
    again = admin("forward", name, "1")
    assert again.returncode == 1
    assert "has ended: stopped" in again.stderr


def test_a_job_of_another_project_is_refused_as_a_command_beside_it_is(served: Shell, tmp_path: Path) -> None:
    assert served("project", "create", "others").returncode == 0
    made = served("token", "create", "stranger", "--project", "others", "--role", "member", "-o", "json")
    assert made.returncode == 0, made.stderr
    with served.client() as client:
        job = next(iter(client.jobs(name="served")))
        url = client.url if hasattr(client, "url") else ""
    stranger = Shell(tmp_path / "home", tmp_path)
    key = json.loads(made.stdout)["key"]
    assert stranger("login", url, "--key", key).returncode == 0
    beside = stranger("exec", job.id, "--", "true")
    into = stranger("forward", job.id, "7100")
    assert (beside.returncode, into.returncode) == (1, 1)
    assert beside.stderr == into.stderr


def test_connections_are_in_the_audit_log_once_for_a_page(served: Shell, through: Tunnel) -> None:
    for _ in range(3):
        exchanged(through.connect(ECHO), b"x")
    lines = json.loads(served.inside("audit", "-o", "json").stdout)
    told = [line for line in lines if line["action"] == "job forward" and line["detail"] == f"port {FIRST}"]
    assert told
    assert len(told) <= 2  # before and after the restart of the server
