"""A plugin in another language keeps the promises: the example in Go, its own process, asked over gRPC."""

from collections.abc import Generator
from typing import ClassVar

import pytest

from support.go_plugin import SOURCES, built_go_plugin
from yunhe.conformance.caller import new_allocation_id, use_power
from yunhe.conformance.plugin_promises import PluginPromises, PluginUnderTest, plugin_process
from yunhe.infrastructure.contract.engine import Engine
from yunhe.infrastructure.contract.kind import Target
from yunhe.infrastructure.contract.model import Power
from yunhe.kernel.errors import UnsupportedError


@pytest.mark.drives("example plugin in Go")
@pytest.mark.timeout(600)
class TestGoPlugin(PluginPromises):
    manifest_path = SOURCES / "plugin.toml"
    target: ClassVar[Target]
    usage_within_s = 5.0

    @pytest.fixture(scope="class")
    @classmethod
    def plugin(cls, tmp_path_factory: pytest.TempPathFactory) -> Generator[PluginUnderTest]:
        cls.target = Target(address=str(tmp_path_factory.mktemp("pool")), options={"price_micros": "250000"})
        with plugin_process(built_go_plugin()) as running:
            yield running

    async def test_the_price_that_its_owner_asks_comes_with_its_size(self, engine: Engine) -> None:
        (spec,) = (await engine.catalogue()).specs
        assert spec.price_micros_per_hour == 250_000

    async def test_what_it_refuses_before_it_has_listened_is_told_in_its_own_words(
        self, engine: Engine
    ) -> None:
        for _ in range(100):  # it ends the call while we still write: a race, lost about once in five
            with pytest.raises(UnsupportedError, match="runs nothing beside"):
                await use_power(engine, Power.EXEC, new_allocation_id())
