"""A real Kubernetes control plane keeps the promises: with test kubelets that run pods as local processes, and with a real one."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import pytest
from anyio.abc import TaskStatus

from engines.kubernetes.cluster import Cluster
from engines.kubernetes.real_node import IMAGE
from yunhe.conformance.basic_promises import Connect
from yunhe.conformance.engine_promises import EnginePromises
from yunhe.infrastructure.contract.engine import Engine
from yunhe.infrastructure.contract.kind import Target
from yunhe.infrastructure.kubernetes.kind import KubernetesKind


@pytest.mark.engine
@pytest.mark.drives("kubernetes")
class TestKubernetesEngine(EnginePromises):
    tick_s = 2.0  # the API tells times in whole seconds
    patience_s = 45.0
    usage_within_s = 15.0
    half_closes = False  # the protocol of kubelets has no word for it

    @pytest.fixture
    async def connect(self, kubeconfig: Path) -> AsyncGenerator[Connect]:
        async with connecting(kubeconfig, sample_every="0.5") as connect:
            yield connect


@pytest.mark.engine
@pytest.mark.drives("kubernetes with a real kubelet")
class TestKubernetesWithRealNodes(EnginePromises):
    tick_s = 2.0
    patience_s = 60.0
    usage_within_s = 60.0
    image = IMAGE

    @pytest.fixture
    async def connect(self, real_nodes: Cluster) -> AsyncGenerator[Connect]:
        async with connecting(real_nodes.kubeconfig(), image=IMAGE) as connect:
            yield connect


@asynccontextmanager
async def connecting(kubeconfig: Path, **options: str) -> AsyncGenerator[Connect]:
    """Have connections to a cluster; each is held until all are done with."""
    target = Target(options={"kubeconfig": str(kubeconfig), **options})

    async def hold(*, task_status: TaskStatus[Engine] = anyio.TASK_STATUS_IGNORED) -> None:
        async with KubernetesKind().connect(target) as engine:
            task_status.started(engine)
            await anyio.sleep_forever()

    async with anyio.create_task_group() as group:

        async def connect() -> Engine:
            return await group.start(hold)

        yield connect
        group.cancel_scope.cancel()
