"""A server in a process of its own, with one endpoint that does nothing.

As a program, ``python -m bench.server_process HOME PORT ENGINES`` is that server.
"""

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import anyio
from litestar import post

from yunhe.entrypoints.api.app import create_app
from yunhe.entrypoints.api.serve import ApiServer, listen, stop_on_signal
from yunhe.entrypoints.client import Client
from yunhe.infrastructure.fake.kind import FakeKind
from yunhe.runtime.settings import Settings
from yunhe.runtime.start import first_key_path, running


@post("/noop", status_code=200)
async def noop() -> dict[str, bool]:
    """Do nothing: what the framework alone costs."""
    return {"ok": True}


async def _serve(settings: Settings, engines: str) -> None:
    listening = listen(settings)
    kinds = None if engines == "hosts" else {"fake": FakeKind()}
    async with running(settings, kinds=kinds) as platform:
        app = create_app(platform)
        app.register(noop)
        server = ApiServer(app, settings)
        async with anyio.create_task_group() as group:
            group.start_soon(stop_on_signal, server)
            await server.serve(sockets=[listening])
            group.cancel_scope.cancel()


class ServerProcess:
    """A server that runs."""

    def __init__(self, home: Path, port: int, engines: str) -> None:
        self.home = home
        self.port = port
        self.url = f"http://127.0.0.1:{port}"
        self._process = subprocess.Popen(
            [sys.executable, "-m", "bench.server_process", str(home), str(port), engines]
        )

    def wait_ready(self) -> None:
        """Return once it answers."""
        with Client(self.url, patience_s=120) as client:
            client.ready()

    @property
    def key(self) -> str:
        """Return its first key."""
        return first_key_path(self.home).read_text().strip()

    def memory_mib(self) -> tuple[float, float]:
        """Return its resident and proportional set size."""
        folder = Path(f"/proc/{self._process.pid}")
        fields = dict(
            line.split(":", 1)
            for line in (folder / "smaps_rollup").read_text().splitlines()[1:]
            if ":" in line
        )
        return int(fields["Rss"].split()[0]) / 1024, int(fields["Pss"].split()[0]) / 1024

    def cpu_s(self) -> float:
        """Return the processor time it has used."""
        fields = Path(f"/proc/{self._process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def stop(self) -> float:
        """Tell it to stop and return how long that took."""
        began = time.perf_counter()
        self._process.send_signal(signal.SIGTERM)
        self._process.wait(30)
        return time.perf_counter() - began

    def kill(self) -> None:
        """End it if it still runs."""
        if self._process.poll() is None:
            self._process.kill()
            self._process.wait()


def free_port() -> int:
    """Return a port that nobody listens on now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


@contextmanager
def server(home: Path, port: int, engines: str = "fake") -> Generator[ServerProcess]:
    """Run a server on fake engines, or on ``hosts``, until the block ends."""
    process = ServerProcess(home, port, engines)
    try:
        process.wait_ready()
        yield process
        process.stop()
    finally:
        process.kill()


if __name__ == "__main__":
    anyio.run(_serve, Settings(home=Path(sys.argv[1]), port=int(sys.argv[2])), sys.argv[3])
