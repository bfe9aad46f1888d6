"""The plugin keeps every promise of the contract: it is started as its own process and asked over gRPC."""

from pathlib import Path
from tempfile import gettempdir

import pytest

from yunhe.conformance.plugin_promises import PluginPromises
from yunhe.infrastructure.contract.kind import Target


@pytest.fixture(scope="session")
def anyio_backend() -> str:
    """Run the kit's tests on asyncio."""
    return "asyncio"


class TestPlugin(PluginPromises):
    """Everything a plugin promises; build it first: go build -o go-plugin ."""

    manifest_path = Path(__file__).with_name("plugin.toml")
    target = Target(address=str(Path(gettempdir()) / "go-plugin-conformance"))
