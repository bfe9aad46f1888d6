"""A real Ray cluster on loopback: a head and a worker, installed once beside our own environment."""

import fcntl
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path

import httpx

from yunhe.infrastructure.contract.kind import Target

VERSION = os.environ.get("YUNHE_TEST_RAY_VERSION", "2.60.0")
STARTED_WITHIN_S = 120.0
ATTEMPTS = 3
ENDED_WITHIN_S = 15.0
_MARK = "TEST_RAY_NODE"


class RayIsMissingError(Exception):
    """Ray cannot be installed here; the words say why."""


def ray_python() -> Path:
    """Return the Python that has Ray, after installing it if this is the first time."""
    cache = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "yunhe"
    cache.mkdir(parents=True, exist_ok=True)
    venv = cache / f"ray-{VERSION}"
    with (cache / "ray.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (venv / ".ready").exists():
            _install(venv)
    return venv / "bin" / "python"


def _install(venv: Path) -> None:
    shutil.rmtree(venv, ignore_errors=True)
    wanted = f"ray[default]=={VERSION}"
    python = str(venv / "bin" / "python")
    if uv := shutil.which("uv"):
        commands = [[uv, "venv", "-q", str(venv)], [uv, "pip", "install", "-q", "--python", python, wanted]]
    else:
        commands = [[sys.executable, "-m", "venv", str(venv)], [python, "-m", "pip", "install", "-q", wanted]]
    for command in commands:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise RayIsMissingError(f"Ray {VERSION} cannot be installed: {done.stderr.strip()[-400:]}")
    (venv / ".ready").touch()


class RayNode:
    """One ``ray start``; everything it starts bears our mark in its environment."""

    def __init__(self, directory: Path, name: str, arguments: list[str], environment: dict[str, str]) -> None:
        self._mark = f"{_MARK}={directory}/{name}"
        self._log = directory / f"{name}.log"
        python = ray_python()
        command = [str(python), "-m", "ray.scripts.scripts", "start", "--block", "--disable-usage-stats"]
        inherited = {key: os.environ[key] for key in ("HOME", "LANG", "TMPDIR") if key in os.environ}
        with self._log.open("w") as log:
            self._process = subprocess.Popen(
                [*command, *arguments],
                cwd=directory,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
                env={
                    **inherited,
                    "PATH": f"{python.parent}:/usr/local/bin:/usr/bin:/bin",
                    "RAY_USAGE_STATS_ENABLED": "0",
                    "RAY_DISABLE_IMPORT_WARNING": "1",
                    "SPT_NOENV": "1",  # keep the environment readable: it is how what is ours is found again
                    _MARK: f"{directory}/{name}",
                    **environment,
                },
            )

    def said(self) -> str:
        """Return the end of what it has printed."""
        return self._log.read_text()[-2000:]

    @property
    def running(self) -> bool:
        """Return whether ``ray start`` is still there."""
        return self._process.poll() is None

    def processes(self) -> list[int]:
        """Return everything it has started that still lives."""
        return [pid for pid in _all_processes() if self._mark.encode() in _environment(pid)]

    def kill_raylet(self) -> None:
        """Take the node out of the cluster as a crash would; what it ran is left to itself."""
        for pid in self.processes():
            if b"raylet/raylet" in _command(pid):
                os.kill(pid, signal.SIGKILL)

    def end(self) -> None:
        """End it, politely and then by force, and everything it has started."""
        if self.running:
            self._process.terminate()
            try:
                self._process.wait(ENDED_WITHIN_S)
            except subprocess.TimeoutExpired:
                self._process.kill()
        until = time.monotonic() + ENDED_WITHIN_S
        while (left := self.processes()) and time.monotonic() < until:
            for pid in left:
                _kill(pid)
            time.sleep(0.1)
        self._process.wait()


class RayCluster:
    """A head with a dashboard on loopback, and workers that come and go."""

    def __init__(self, directory: Path, *, token: str = "") -> None:
        self._directory = directory
        self._gcs_port = self._dashboard_port = 0
        self._environment = {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": token} if token else {}
        self._headers = {"Authorization": f"Bearer {token}"} if token else {}
        self._started = 0
        self.head: RayNode | None = None
        self.workers: list[RayNode] = []

    @property
    def url(self) -> str:
        """Return where its dashboard is."""
        return f"http://127.0.0.1:{self._dashboard_port}"

    def target(self, **options: str) -> Target:
        """Return what ``yunhe pool add ray`` would be given."""
        return Target(address=self.url, options=options)

    def start_head(self, *, cpus: int = 2) -> None:
        """Start the head and wait until its dashboard takes jobs; one that was there before keeps its address."""
        if not self._dashboard_port:
            self._gcs_port, self._dashboard_port = _free_port(), _free_port()
        self.head = self._start(lambda: self._head(cpus), 1)

    def _head(self, cpus: int) -> RayNode:
        temp = self._directory / f"h{self._started}"
        arguments = ["--head", "--include-dashboard=true", f"--port={self._gcs_port}", f"--temp-dir={temp}"]
        arguments += ["--dashboard-host=127.0.0.1", f"--dashboard-port={self._dashboard_port}"]
        arguments += [f"--ray-client-server-port={_free_port()}", *self._node_arguments(cpus)]
        return RayNode(self._directory, f"head-{self._started}", arguments, self._environment)

    def start_worker(self, *, cpus: int = 1, resources: str = '{"fpga": 2}') -> RayNode:
        """Start a worker with a custom resource and wait until it is in the cluster."""
        arguments = [f"--address=127.0.0.1:{self._gcs_port}", f"--resources={resources}"]
        before = self._alive()

        def start() -> RayNode:
            given = [*arguments, *self._node_arguments(cpus)]
            return RayNode(self._directory, f"worker-{self._started}", given, self._environment)

        worker = self._start(start, before + 1)
        self.workers.append(worker)
        return worker

    def end(self) -> None:
        """End every node."""
        for node in [*self.workers, *([self.head] if self.head else [])]:
            node.end()

    def _node_arguments(self, cpus: int) -> list[str]:
        agent = [
            f"--dashboard-agent-listen-port={_free_port()}",
            f"--dashboard-agent-grpc-port={_free_port()}",
        ]
        agent += [f"--metrics-export-port={_free_port()}", "--node-ip-address=127.0.0.1"]
        return [*agent, f"--num-cpus={cpus}", f"--memory={2 * 1024**3}", "--object-store-memory=80000000"]

    def _start(self, start: Callable[[], RayNode], count: int) -> RayNode:
        """Start a node and wait until the cluster has *count*; others may take its ports meanwhile, so try again."""
        said = ""
        for _ in range(ATTEMPTS):
            self._started += 1
            node = start()
            until = time.monotonic() + STARTED_WITHIN_S
            while node.running and time.monotonic() < until:
                if self._alive() >= count:
                    return node
                time.sleep(0.3)
            said = node.said()
            node.end()
        raise AssertionError(f"a Ray node did not start: {said}")

    def _alive(self) -> int:
        """Return how many nodes the dashboard has measured: those can run jobs."""
        try:
            answer = httpx.get(f"{self.url}/nodes?view=summary", headers=self._headers, timeout=5)
            summary = answer.json()["data"]["summary"]
        except (httpx.TransportError, ValueError, KeyError):
            return 0
        return sum("cpu" in node and node["raylet"].get("state") == "ALIVE" for node in summary)


@contextmanager
def ray_cluster(*, workers: int = 1, token: str = "") -> Generator[RayCluster]:
    """Hold a running cluster; its directory has a short name, for Ray keeps sockets in it."""
    directory = Path(tempfile.mkdtemp(prefix="yr", dir="/tmp"))
    cluster = RayCluster(directory, token=token)
    try:
        cluster.start_head()
        for _ in range(workers):
            cluster.start_worker()
        yield cluster
    finally:
        cluster.end()
        shutil.rmtree(directory, ignore_errors=True)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def _all_processes() -> Generator[int]:
    for path in Path("/proc").iterdir():
        if path.name.isdigit():
            yield int(path.name)


def _environment(pid: int) -> list[bytes]:
    try:
        return Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    except OSError:
        return []


def _command(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""


def _kill(pid: int) -> None:
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        return
