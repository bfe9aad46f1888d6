"""An engine behind a plugin that is its own process keeps the promises, over TLS and over a socket."""

from collections.abc import AsyncGenerator, Generator
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from plugin_processes import PluginProcess, plugin_process, python_plugin
from yunhe.conformance.basic_promises import Connect
from yunhe.conformance.engine_promises import EnginePromises
from yunhe.infrastructure.contract.engine import Engine
from yunhe.infrastructure.contract.kind import Target


@pytest.fixture(scope="module", params=["tls", "socket"])
def plugin(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Generator[PluginProcess]:
    folder: Path = tmp_path_factory.mktemp("plugin")
    listen = f"unix:{folder}/plugin.sock" if request.param == "socket" else "127.0.0.1:0"
    with plugin_process(python_plugin(), folder, listen=listen) as running:
        yield running


@pytest.mark.drives("fake engine over gRPC")
class TestRemoteEngine(EnginePromises):
    tick_s = 0.15
    usage_within_s = 5.0

    @pytest.fixture
    async def connect(self, plugin: PluginProcess) -> AsyncGenerator[Connect]:
        kind = plugin.kind()
        async with AsyncExitStack() as connections:

            async def connect() -> Engine:
                return await connections.enter_async_context(kind.connect(Target(address="conformance")))

            yield connect
