"""A whole server for tests: the real sub-modules, a fake engine, uvicorn on a loopback port, in a thread."""

import socket
import threading
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import anyio

from support import apart
from yunhe.control.pools.model import PoolSpec
from yunhe.entrypoints.api.app import create_app
from yunhe.entrypoints.api.serve import ApiServer, listen
from yunhe.entrypoints.client import Client
from yunhe.infrastructure.fake.kind import FakeKind
from yunhe.runtime.platform import Platform
from yunhe.runtime.settings import Settings
from yunhe.runtime.start import first_key_path, running

START_WITHIN_S = 30.0


@dataclass
class Served:
    """A server that runs, and its first key."""

    settings: Settings
    url: str
    key: str
    engines: FakeKind
    platform: Platform
    server: ApiServer

    def client(self, key: str | None = None) -> Client:
        return Client(self.url, self.key if key is None else key)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


@contextmanager
def serving(home: Path, **settings: object) -> Generator[Served]:
    """Serve the platform below *home* until the block ends."""
    told = apart.settings(home, port=free_port(), **settings)
    engines = FakeKind()
    ready = threading.Event()
    found: list[tuple[Platform, ApiServer]] = []
    failed: list[BaseException] = []

    async def main() -> None:
        with listen(told) as listening:
            async with running(told, kinds={"fake": engines}) as platform:
                server = ApiServer(create_app(platform), told)
                found.append((platform, server))
                ready.set()
                await server.serve(sockets=[listening])

    def run() -> None:
        try:
            anyio.run(main)
        except BaseException as error:  # noqa: BLE001 - raised again in the test's thread
            failed.append(error)
        finally:
            ready.set()

    thread = threading.Thread(target=run, name="server")
    thread.start()
    try:
        assert ready.wait(START_WITHIN_S)
        if failed:
            raise failed[0]
        platform, server = found[0]
        key = first_key_path(home).read_text().strip()
        url = f"http://127.0.0.1:{told.port}"
        yield Served(told, url, key, engines, platform, server)
    finally:
        for _, server in found:
            server.should_exit = True
        thread.join(START_WITHIN_S)
        assert not thread.is_alive()
    if failed:
        raise failed[0]


def add_fake_pool(client: Client, name: str = "lab", **options: str) -> None:
    """Register a fake pool; the last thing told is the pool."""
    told = list(client.add_pool(PoolSpec(name=name, kind="fake", target=name, options=options)))
    assert told
