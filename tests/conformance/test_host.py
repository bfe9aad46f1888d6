"""A host with its agent keeps the promises."""

from collections.abc import Generator

import pytest

from support.agent_roots import agent_root
from yunhe.conformance.basic_promises import Connect
from yunhe.conformance.engine_promises import EnginePromises
from yunhe.infrastructure.contract.engine import Engine
from yunhe.infrastructure.host.engine import connect_host
from yunhe.infrastructure.host.target import LocalHost


@pytest.fixture(scope="module")
def local_host() -> Generator[LocalHost, None, None]:
    with agent_root() as root:
        yield LocalHost(root=str(root))


@pytest.mark.drives("host agent")
class TestHostEngine(EnginePromises):
    usage_within_s = 5.0

    @pytest.fixture
    def connect(self, local_host: LocalHost) -> Connect:
        async def connect() -> Engine:
            return await connect_host(local_host)

        return connect
