"""An engine behind a plugin that is its own process keeps the promises, over TLS and over a socket."""

from collections.abc import Generator

import pytest

from support.repository import REPOSITORY
from yunhe.conformance.plugin_promises import PluginPromises, PluginUnderTest, plugin_process
from yunhe.infrastructure.contract.kind import Target

FAKE = REPOSITORY / "src/yunhe/infrastructure/fake/plugin.toml"


@pytest.mark.drives("fake engine over gRPC")
class TestRemoteEngine(PluginPromises):
    tick_s = 0.15
    usage_within_s = 5.0
    counts_cpu = False
    manifest_path = FAKE
    target = Target(address="conformance")


class TestRemoteEngineOverASocket(TestRemoteEngine):
    @pytest.fixture(scope="class")
    @classmethod
    def plugin(cls, tmp_path_factory: pytest.TempPathFactory) -> Generator[PluginUnderTest]:
        socket = tmp_path_factory.mktemp("plugin") / "plugin.sock"
        with plugin_process(cls.manifest_path, "--listen", f"unix:{socket}") as running:
            yield running
