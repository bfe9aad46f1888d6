"""Plugins as processes of their own, for tests."""

import os
import subprocess
import sys
import time
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import msgspec

from yunhe.infrastructure.contract.manifest import Manifest
from yunhe.infrastructure.plugin.registration import Announcement
from yunhe.infrastructure.remote.channels import Where
from yunhe.infrastructure.remote.kind import RemoteKind

SOURCES = Path(__file__).resolve().parent.parent / "src"
FAKE_MANIFEST = SOURCES / "yunhe" / "infrastructure" / "fake" / "plugin.toml"


class PluginProcess:
    """A plugin that serves, and how to reach it."""

    def __init__(self, process: subprocess.Popen[bytes], announcement: Announcement) -> None:
        self.process = process
        self.manifest: Manifest = announcement.manifest
        self.where = Where(announcement.address, announcement.certificate, announcement.token)

    def kind(self) -> RemoteKind:
        """Return the kind this plugin serves."""
        return RemoteKind(self.manifest, lambda: self.where)


def python_plugin(manifest: Path = FAKE_MANIFEST) -> list[str]:
    """Return the command that serves a manifest whose entry is importable."""
    return [sys.executable, "-m", "yunhe.infrastructure.plugin.serve", str(manifest)]


@contextmanager
def plugin_process(
    command: list[str],
    folder: Path,
    *,
    listen: str = "127.0.0.1:0",
    environment: dict[str, str] | None = None,
) -> Generator[PluginProcess]:
    """Run *command* until the block ends, and wait until it serves."""
    announced = folder / f"announcement-{time.monotonic_ns()}.json"
    environment = {**os.environ, "PYTHONPATH": str(SOURCES), **(environment or {})}
    arguments = ["--listen", listen, "--announce", str(announced)]
    process = subprocess.Popen([*command, *arguments], env=environment, cwd=folder)
    try:
        give_up_at = time.monotonic() + 30
        while not announced.exists():
            assert process.poll() is None, f"{command} ended with {process.returncode}"
            assert time.monotonic() < give_up_at, f"{command} does not serve"
            time.sleep(0.02)
        yield PluginProcess(process, msgspec.json.decode(announced.read_bytes(), type=Announcement))
    finally:
        process.terminate()
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait(10)
