"""Programs in a job are reached from the user's machine as if they ran there."""

import contextlib
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

import anyio
import msgspec
import pytest
import websockets
from websockets.sync.client import connect

from integration.control.plugins.processes import until
from integration.control.pools.test_third_parties import add_words
from integration.entrypoints.cli import reached
from integration.entrypoints.cli.conftest import YUNHE, Platform, Shell, free_port
from integration.entrypoints.cli.reached import DIGEST, ECHO, PAGES, SOCKETS
from integration.infrastructure.host.sshd import ssh_server
from yunhe.control.pools.model import ExecRequest
from yunhe.entrypoints.cli.session.context import Config, Context
from yunhe.entrypoints.client import AsyncClient
from yunhe.kernel.errors import YunheError

FIRST = 7100
BIG = os.urandom(1 << 20) * 100
TASK = """
name: {name}
resources: {{cpus: 1, memory: 256MB}}
ports: [{first}, {second}, "{third}-{fourth}"]
workdir: {workdir}
file_mounts: {{websockets: {websockets}}}
run: exec python3 reached.py {first}
"""


def write_task(folder: Path, name: str, first: int = FIRST) -> Path:
    workdir = folder / "work"
    workdir.mkdir(exist_ok=True)
    (workdir / "reached.py").write_text(Path(reached.__file__).read_text())
    (workdir / "page.html").write_text("<p>inside</p>")
    path = folder / f"{name}.yaml"
    numbers = dict(zip(("first", "second", "third", "fourth"), range(first, first + 4), strict=True))
    library = Path(websockets.__file__).parent
    path.write_text(TASK.format(name=name, workdir=workdir, websockets=library, **numbers))
    return path


def start(shell: Shell, task: Path) -> None:
    done = shell("run", "-y", "-d", task)
    assert done.returncode == 0, done.stderr
    until(lambda: "ready" in shell.inside("logs", task.stem).stdout, within_s=60)


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
    jobs = json.loads(served.inside("ps", "-o", "json").stdout)
    assert [one["ports"] for one in jobs if one["name"] == "served"] == [
        [FIRST + number for number in range(4)]
    ]
    ports = str(free_port()), str(free_port())
    words = ("--port", ports[0], "--port", ports[1], "--name", "quiet", "--", "sleep", "60")
    assert served.inside("run", "-y", "-d", *words).returncode == 0
    with tunnel(served, tmp_path, "quiet", "--") as opened:
        assert [opened.url(number) for number in range(2)] == [f"http://127.0.0.1:{port}" for port in ports]
        taken = served("forward", "quiet")
        assert taken.returncode == 1
        assert f"yunhe forward quiet :{ports[0]} takes one that is free" in taken.stderr
    assert served.inside("stop", "-y", "quiet").returncode == 0


def test_a_job_that_names_no_ports_and_a_port_that_is_none_are_refused_with_the_remedy(served: Shell) -> None:
    assert served.inside("run", "-y", "-d", "--name", "mute", "--", "sleep", "60").returncode == 0
    unnamed = served("forward", "mute")
    assert (unnamed.returncode, "yunhe forward mute 8888" in unnamed.stderr) == (1, True)
    for text in ("0", "70000", "8888:", "a:1", "1:2:3"):
        refused = served.inside("forward", "mute", text)
        assert (refused.returncode, "must be PORT or LOCAL:REMOTE" in refused.stderr) == (2, True), refused
    assert served.inside("stop", "-y", "mute").returncode == 0


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


def test_the_end_of_the_job_ends_the_tunnel_and_its_exit_code_is_the_jobs(
    platform: Platform, tmp_path: Path
) -> None:
    admin = platform.admin
    start(admin, write_task(tmp_path, "brief", first=FIRST + 50))
    with tunnel(admin, tmp_path, "brief", f":{FIRST + 50}") as opened, opened.connect(ECHO) as hanging:
        hanging.sendall(b"x")
        assert hanging.recv(1) == b"x"
        assert admin("stop", "-y", "brief").returncode == 0
        assert opened.process.wait(timeout=60) == 143
        with contextlib.suppress(ConnectionResetError):  # its program was killed, or could still say goodbye
            assert hanging.recv(1) == b""
    assert "brief has ended: stopped. Nothing is forwarded any more." in opened.said()
    again = admin("forward", "brief")
    assert again.returncode == 1
    assert "has ended: stopped" in again.stderr


@pytest.mark.drives("sshd")
def test_a_job_on_a_host_behind_ssh_is_reached_byte_by_byte(platform: Platform, tmp_path: Path) -> None:
    admin = platform.admin
    with ssh_server() as server:
        added = admin(*add_words(server, "root"), "--name", "far")
        assert added.returncode == 0, added.stdout + added.stderr
        task = write_task(tmp_path, "faraway")
        task.write_text(task.read_text().replace("cpus: 1", "pool: far, cpus: 1"))
        try:
            start(admin, task)
            with tunnel(admin, tmp_path, "faraway") as opened:
                with urllib.request.urlopen(f"{opened.url(PAGES)}/page.html", timeout=30) as answer:
                    assert answer.read() == b"<p>inside</p>"
                data = BIG[: 20 << 20]
                assert exchanged(opened.connect(ECHO), data) == data
        finally:
            admin("stop", "-y", "faraway")
            admin("pool", "rm", "-y", "far")


def test_a_job_of_another_project_is_refused_as_a_command_beside_it_is(
    platform: Platform, served: Shell, tmp_path: Path
) -> None:
    assert served("project", "create", "others").returncode == 0
    assert served("project", "add", "others", "mei", "--role", "member").returncode == 0
    key = served("token", "create", "laptop", "--user", "mei").stdout
    mei = Shell(tmp_path / "home", tmp_path)
    assert mei("login", platform.url, "--project", "others", typed=key).returncode == 0
    with served.client() as client:
        job = next(iter(client.jobs(name="served")))
    beside = mei("exec", job.id, "--", "true")
    into = mei("forward", job.id, str(FIRST))
    assert (beside.returncode, into.returncode) == (1, 1)
    assert beside.stderr == into.stderr
    config = msgspec.json.decode((mei.home / "config.json").read_bytes(), type=Config).context()
    refusals = [anyio.run(refusal, config, job.id, way) for way in ("exec", "forward")]
    assert refusals[0] == refusals[1]
    assert refusals[0][0] == "not-found"


async def refusal(context: Context, job_id: str, way: str) -> tuple[str, str]:
    """Return what the server itself says, whatever the command asks first."""
    async with AsyncClient(context.url, context.key) as client:
        with pytest.raises(YunheError) as refused:
            if way == "exec":
                async with client.exec(job_id, ExecRequest(argv=("true",))) as session:
                    await session.receive()
            async with client.forward(job_id, FIRST):
                pass
    return refused.value.code, refused.value.problem


def test_connections_are_in_the_audit_log_once_for_a_page(served: Shell, through: Tunnel) -> None:
    for _ in range(3):
        exchanged(through.connect(ECHO), b"x")
    with served.client() as client:
        job = next(iter(client.jobs(name="served")))
    lines = json.loads(served.inside("audit", "-o", "json").stdout)
    told = [line for line in lines if line["action"] == "job forward" and job.id in line.values()]
    told = [line for line in told if line["detail"] == f"port {FIRST}"]
    assert told
    assert len(told) <= 2  # before and after the restart of the server
