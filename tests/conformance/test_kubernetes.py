"""A real Kubernetes control plane, with test kubelets that run pods as local processes, keeps the promises."""

from collections.abc import AsyncGenerator
from pathlib import Path

import anyio
import pytest
from anyio.abc import TaskStatus

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
        target = Target(options={"kubeconfig": str(kubeconfig), "sample_every": "0.5"})

        async def hold(*, task_status: TaskStatus[Engine] = anyio.TASK_STATUS_IGNORED) -> None:
            async with KubernetesKind().connect(target) as engine:
                task_status.started(engine)
                await anyio.sleep_forever()

        async with anyio.create_task_group() as group:

            async def connect() -> Engine:
                return await group.start(hold)

            yield connect
            group.cancel_scope.cancel()
