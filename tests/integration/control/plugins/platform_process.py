"""A platform in a process of its own, which can be stopped and started again at the same address."""

import os
import subprocess
import sys
import tempfile
from pathlib import Path
from types import TracebackType
from typing import Self

from integration.control.plugins.processes import SOURCES
from integration.entrypoints.api.serving import free_port
from yunhe.entrypoints.client import Client
from yunhe.runtime.start import first_key_path

STOP_WITHIN_S = 30.0


class PlatformProcess:
    """``yunhe serve`` below a home."""

    def __init__(self, home: Path, *, database: str = "") -> None:
        self.home = home
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self._database = database
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    @property
    def key(self) -> str:
        return first_key_path(self.home).read_text().strip()

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def client(self) -> Client:
        return Client(self.url, self.key)

    def start(self) -> None:
        command = [sys.executable, "-m", "yunhe.entrypoints.cli", "serve", "--home", str(self.home)]
        command += ["--port", str(self.port), *(["--database", self._database] if self._database else [])]
        with (self.home.parent / "server.log").open("ab") as log:
            environment = {**os.environ, "PYTHONPATH": str(SOURCES)}
            self._process = subprocess.Popen(command, env=environment, stdout=log, stderr=log)
        with Client(self.url, patience_s=60) as client:
            client.ready()

    def allow_plugins(self) -> None:
        """Let plugins be started from where tests write them."""
        with self.client() as client:
            client.allow_plugins(tempfile.gettempdir())

    def stop(self, *, kill: bool = False) -> None:
        if self._process is not None:
            (self._process.kill if kill else self._process.terminate)()
            self._process.wait(STOP_WITHIN_S)
