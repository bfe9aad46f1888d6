"""A plugin in another language keeps the promises: the example in Go, its own process, asked over gRPC."""

from collections.abc import Generator
from typing import ClassVar

import pytest

from go_plugin import SOURCES, built_go_plugin
from yunhe.conformance.plugin_promises import PluginProcess, PluginPromises, plugin_process
from yunhe.infrastructure.contract.kind import Target


@pytest.mark.drives("example plugin in Go")
@pytest.mark.timeout(600)
class TestGoPlugin(PluginPromises):
    manifest_path = SOURCES / "plugin.toml"
    target: ClassVar[Target]
    usage_within_s = 5.0

    @pytest.fixture(scope="class")
    @classmethod
    def plugin(cls, tmp_path_factory: pytest.TempPathFactory) -> Generator[PluginProcess]:
        cls.target = Target(address=str(tmp_path_factory.mktemp("pool")))
        with plugin_process(built_go_plugin()) as running:
            yield running
