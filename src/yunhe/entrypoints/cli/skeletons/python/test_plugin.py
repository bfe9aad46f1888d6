"""The plugin keeps every promise of the contract: it is started as its own process and asked over gRPC."""

from pathlib import Path

import pytest

from yunhe.conformance.plugin_promises import PluginPromises
from yunhe.infrastructure.contract.kind import Target


@pytest.fixture(scope="session")
def anyio_backend() -> str:
    """Run the kit's tests on asyncio."""
    return "asyncio"


class TestPlugin(PluginPromises):
    """Everything a plugin promises; the attributes are what your engine needs to be tested."""

    manifest_path = Path(__file__).with_name("plugin.toml")
    target = Target(address="conformance")
    tick_s = 0.15
    counts_cpu = False  # the fake pool runs no program; remove this line once your engine does
