"""A platform brought up as a user would, with an agent of its own."""

import io
import os
import socket
import subprocess
import sys
from collections.abc import Generator
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass, field
from pathlib import Path

import msgspec
import pytest

from support.agent_roots import agent_root
from support.repository import REPOSITORY
from support.terminal import Terminal
from yunhe.entrypoints.cli.main import COMMANDS
from yunhe.entrypoints.cli.session.context import Config
from yunhe.entrypoints.cli.terminal.shell import run
from yunhe.entrypoints.client import Client

YUNHE = [sys.executable, "-m", "yunhe.entrypoints.cli"]


@dataclass
class Shell:
    """A user at a terminal that is none: commands run as programs, with a home of their own."""

    home: Path
    cwd: Path
    extra: dict[str, str] = field(default_factory=dict[str, str])

    @property
    def environment(self) -> dict[str, str]:
        inherited = {name: value for name, value in os.environ.items() if not name.startswith("YUNHE_")}
        return {**inherited, "YUNHE_HOME": str(self.home), "PYTHONPATH": ":".join(sys.path), **self.extra}

    def __call__(
        self, *words: str | Path, typed: str = "", timeout_s: float = 60.0
    ) -> subprocess.CompletedProcess[str]:
        """Run ``yunhe WORDS`` and return what came of it."""
        return subprocess.run(
            [*YUNHE, *map(str, words)],
            input=typed,
            cwd=self.cwd,
            env=self.environment,
            capture_output=True,
            text=True,
            timeout=timeout_s,
            check=False,
        )

    def terminal(self, *words: str | Path, size: tuple[int, int] | None = None, **variables: str) -> Terminal:
        """Run ``yunhe WORDS`` at a terminal of *size*, rows and columns."""
        environment = {**self.environment, **variables}
        return Terminal([*YUNHE, *words], cwd=self.cwd, env=environment, size=size)

    def inside(self, *words: str | Path, typed: str = "") -> subprocess.CompletedProcess[str]:
        """Do the same without a new process: what starts and loads is the same for every command."""
        arguments = [str(word) for word in words]
        output, errors = (io.TextIOWrapper(io.BytesIO(), encoding="utf-8") for _ in range(2))
        before = dict(os.environ), sys.stdin, Path.cwd()
        os.environ.clear()
        os.environ.update(self.environment)
        os.chdir(self.cwd)
        sys.stdin = io.StringIO(typed)
        try:
            with redirect_stdout(output), redirect_stderr(errors):
                code = run(COMMANDS, arguments)
        finally:
            os.environ.clear()
            os.environ.update(before[0])
            sys.stdin = before[1]
            os.chdir(before[2])
        return subprocess.CompletedProcess(arguments, code, _text(output), _text(errors))

    def client(self) -> Client:
        """Return a client with this user's key."""
        config = msgspec.json.decode((self.home / "config.json").read_bytes(), type=Config)
        return Client(config.context().url, config.context().key)


def _text(stream: io.TextIOWrapper) -> str:
    stream.flush()
    stream.seek(0)
    return stream.read()


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


@dataclass
class Platform:
    """What ``yunhe up`` said, and the admin's shell."""

    admin: Shell
    url: str
    words: tuple[str, ...]
    first: subprocess.CompletedProcess[str]


@pytest.fixture(scope="session")
def platform(tmp_path_factory: pytest.TempPathFactory) -> Generator[Platform]:
    home = tmp_path_factory.mktemp("admin")
    with agent_root() as root:
        admin = Shell(home / "home", REPOSITORY)
        port = str(free_port())
        words = ("up", "--port", port, "--agent-root", str(root))
        try:
            first = admin(*words, timeout_s=110.0)
            assert first.returncode == 0, first.stderr
            yield Platform(admin, f"http://127.0.0.1:{port}", words, first)
        finally:
            admin("down")


@pytest.fixture
def admin(platform: Platform) -> Shell:
    return platform.admin
