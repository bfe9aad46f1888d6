"""A Ray cluster keeps the promises."""

from collections.abc import Generator

import pytest

from engines.ray_cluster import RayCluster, RayIsMissingError, ray_cluster, ray_python
from yunhe.conformance.basic_promises import Connect
from yunhe.conformance.engine_promises import EnginePromises
from yunhe.infrastructure.contract.engine import Engine
from yunhe.infrastructure.ray.client import RayClient
from yunhe.infrastructure.ray.engine import RayEngine
from yunhe.infrastructure.ray.target import read_target


@pytest.fixture(scope="module")
def cluster() -> Generator[RayCluster, None, None]:
    try:
        ray_python()
    except RayIsMissingError as reason:
        pytest.skip(str(reason))
    with ray_cluster() as cluster:
        yield cluster


@pytest.mark.engine
@pytest.mark.drives("Ray")
class TestRayEngine(EnginePromises):
    patience_s = 60.0
    tick_s = 1.0
    usage_within_s = 30.0

    @pytest.fixture
    def connect(self, cluster: RayCluster) -> Connect:
        async def connect() -> Engine:
            return RayEngine(RayClient(read_target(cluster.target())))

        return connect
