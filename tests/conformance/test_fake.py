"""The fake engine keeps the promises, with every power and with none."""

import pytest

from yunhe.conformance.basic_promises import BasicPromises, Connect
from yunhe.conformance.engine_promises import EnginePromises
from yunhe.infrastructure.contract.engine import Engine
from yunhe.infrastructure.fake.engine import FakeEngine, PlainFakeEngine
from yunhe.infrastructure.fake.pool import FakePool


def connector(engine_type: type[PlainFakeEngine]) -> Connect:
    pool = FakePool()

    async def connect() -> Engine:
        return engine_type(pool)

    return connect


@pytest.mark.drives("fake engine")
class TestFakeEngine(EnginePromises):
    tick_s = 0.05
    usage_within_s = 5.0
    counts_cpu = False

    @pytest.fixture
    def connect(self) -> Connect:
        return connector(FakeEngine)


@pytest.mark.drives("fake engine")
class TestPlainFakeEngine(BasicPromises):
    tick_s = 0.05
    usage_within_s = 5.0
    counts_cpu = False

    @pytest.fixture
    def connect(self) -> Connect:
        return connector(PlainFakeEngine)
