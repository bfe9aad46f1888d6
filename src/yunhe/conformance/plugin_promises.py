"""The promises of an engine, held by a plugin that is its own process, whatever it is written in.

A test class says where the manifest is and which pool to use; the plugin is started, asked over gRPC and ended::

    class TestMyPlugin(PluginPromises):
        manifest_path = Path(__file__).with_name("plugin.toml")
        target = Target(address="/tmp/my-pool")
"""

import os
import subprocess
import sys
import time
from collections.abc import AsyncGenerator, Generator, Sequence
from contextlib import AsyncExitStack, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import ClassVar

import msgspec
import pytest

import yunhe
from yunhe.conformance.basic_promises import Connect
from yunhe.conformance.engine_promises import EnginePromises
from yunhe.infrastructure.contract.engine import Engine
from yunhe.infrastructure.contract.kind import Target
from yunhe.infrastructure.contract.manifest import Manifest, read_manifest
from yunhe.infrastructure.plugin.registration import Announcement
from yunhe.infrastructure.remote.channels import PluginAddress
from yunhe.infrastructure.remote.kind import RemoteKind

SERVES_WITHIN_S = 30.0
ENDS_WITHIN_S = 15.0


class PluginUnderTest:
    """A plugin that serves, and how to reach it."""

    def __init__(self, process: subprocess.Popen[bytes], manifest: Manifest, where: PluginAddress) -> None:
        self.process = process
        self.manifest = manifest
        self.where = where

    def kind(self) -> RemoteKind:
        """Return the kind this plugin serves."""
        return RemoteKind(self.manifest, lambda: self.where)


@contextmanager
def plugin_process(
    manifest_path: Path, *arguments: str, environment: dict[str, str] | None = None
) -> Generator[PluginUnderTest]:
    """Run a plugin until the block ends; it is there once it serves."""
    manifest = read_manifest(manifest_path)
    with TemporaryDirectory(prefix="yunhe-plugin-") as folder:
        announced = Path(folder) / "announcement.json"
        process = subprocess.Popen(
            [*_command(manifest, manifest_path), "--announce", str(announced), *arguments],
            env={**_environment(), **(environment or {})},
            cwd=manifest_path.parent,
        )
        try:
            told = _wait_for(announced, process)
            where = PluginAddress(told.address, told.certificate, told.token)
            yield PluginUnderTest(process, told.manifest, where)
        finally:
            _end(process)


class PluginPromises(EnginePromises):
    """Everything an engine promises, through the plugin at ``manifest_path``."""

    manifest_path: ClassVar[Path]
    target: ClassVar[Target] = Target()
    arguments: ClassVar[tuple[str, ...]] = ()
    """What the plugin's command is given beside ``--announce``."""

    @pytest.fixture(scope="class")
    @classmethod
    def plugin(cls) -> Generator[PluginUnderTest]:
        with plugin_process(cls.manifest_path, *cls.arguments) as running:
            yield running

    @pytest.fixture
    async def connect(self, plugin: PluginUnderTest) -> AsyncGenerator[Connect]:
        kind = plugin.kind()
        async with AsyncExitStack() as connections:

            async def connect() -> Engine:
                return await connections.enter_async_context(kind.connect(self.target))

            yield connect

    async def test_it_tells_the_manifest_that_it_has(self, plugin: PluginUnderTest) -> None:
        assert plugin.manifest == read_manifest(self.manifest_path)

    async def test_every_step_of_connecting_goes_well(self, plugin: PluginUnderTest) -> None:
        checks = [check async for check in plugin.kind().onboard(self.target)]
        assert checks
        assert [check for check in checks if not check.ok] == []

    async def test_its_description_goes_no_further_than_its_manifest(
        self, plugin: PluginUnderTest, engine: Engine
    ) -> None:
        assert (await engine.describe()).powers <= set(plugin.manifest.powers)


def _command(manifest: Manifest, path: Path) -> Sequence[str]:
    if manifest.command:
        return manifest.command
    return (sys.executable, "-m", "yunhe.infrastructure.plugin.serve", str(path))


def _environment() -> dict[str, str]:
    """Return one in which python3 is this interpreter, and ``yunhe`` the one that is tested."""
    search = f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}"
    sources = str(Path(yunhe.__file__).parent.parent)
    return {**os.environ, "PATH": search, "PYTHONPATH": sources}


def _wait_for(announced: Path, process: subprocess.Popen[bytes]) -> Announcement:
    give_up_at = time.monotonic() + SERVES_WITHIN_S
    while not announced.exists():
        assert process.poll() is None, f"the plugin ended with {process.returncode} before it served"
        assert time.monotonic() < give_up_at, f"the plugin did not serve within {SERVES_WITHIN_S} s"
        time.sleep(0.02)
    return msgspec.json.decode(announced.read_bytes(), type=Announcement)


def _end(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    try:
        process.wait(ENDS_WITHIN_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait(ENDS_WITHIN_S)
