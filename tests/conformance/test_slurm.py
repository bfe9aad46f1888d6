"""A Slurm site keeps the promises: a real controller, four nodes, and the helper beside them."""

from collections.abc import Generator

import pytest

from engines.slurm.cluster import SlurmCluster, slurm_cluster
from yunhe.conformance.basic_promises import Connect
from yunhe.conformance.engine_promises import EnginePromises
from yunhe.infrastructure.contract.engine import Engine
from yunhe.infrastructure.slurm.engine import SlurmEngine


@pytest.fixture(scope="module")
def cluster() -> Generator[SlurmCluster]:
    with slurm_cluster() as cluster:
        yield cluster


@pytest.mark.drives("slurm")
class TestSlurmEngine(EnginePromises):
    usage_within_s = 5.0
    tick_s = 0.7

    @pytest.fixture
    def connect(self, cluster: SlurmCluster) -> Connect:
        async def connect() -> Engine:
            engine = SlurmEngine(cluster.target())
            await engine.describe()
            return engine

        return connect
