"""New limits that a node does not give: said with its reason, and the pod keeps those it had."""

from collections.abc import AsyncGenerator

import anyio
import httpx
import pytest

from engines.kubernetes.cluster import Cluster
from engines.kubernetes.kubelet.resize import ORDERED
from yunhe.conformance.caller import EngineCaller
from yunhe.infrastructure.contract.kind import Target
from yunhe.infrastructure.contract.model import LaunchOrder
from yunhe.infrastructure.kubernetes.engine import KubernetesEngine, open_engine
from yunhe.infrastructure.kubernetes.target import read_target
from yunhe.kernel.errors import ConflictError
from yunhe.kernel.ids import NodeId, ProjectId
from yunhe.kernel.resources import Resources

pytestmark = [pytest.mark.anyio, pytest.mark.engine, pytest.mark.drives("kubernetes")]
NODE = NodeId("node-1")
SMALL, LARGER = Resources(cpu_millis=100, memory_mib=64), Resources(cpu_millis=150, memory_mib=64)


@pytest.fixture
async def caller(kubernetes_cluster: Cluster) -> AsyncGenerator[EngineCaller]:
    options = {"kubeconfig": str(kubernetes_cluster.kubeconfig()), "sample_every": "0.5"}
    async with open_engine(read_target(Target(options=options))) as engine:
        yield EngineCaller(engine, NODE, ProjectId("resizing"), SMALL, 45.0)


def tell_node(client: httpx.Client, reason: str | None) -> None:
    """Let the node refuse every resize with *reason*; None: no more."""
    headers = {"content-type": "application/merge-patch+json"}
    body = {"metadata": {"annotations": {ORDERED: reason}}}
    client.patch(f"/api/v1/nodes/{NODE}", json=body, headers=headers).raise_for_status()


def asked_for(client: httpx.Client, order: LaunchOrder) -> str:
    selector = {"labelSelector": f"yunhe.io/allocation={order.allocation_id}"}
    (pod,) = client.get("/api/v1/pods", params=selector).json()["items"]
    return pod["spec"]["containers"][0]["resources"]["limits"]["cpu"]


@pytest.mark.parametrize("reason", ["Deferred", "Infeasible"])
async def test_a_refusal_has_the_nodes_reason_and_the_next_try_is_not_held_back_by_it(
    kubernetes_cluster: Cluster, caller: EngineCaller, reason: str
) -> None:
    engine = caller.engine
    assert isinstance(engine, KubernetesEngine)
    order = await caller.run("sleep 60")
    await caller.running(order.allocation_id)
    with kubernetes_cluster.client() as client:
        tell_node(client, reason)
        try:
            await anyio.sleep(1.0)  # the kubelet hears of it by its own watch
            with pytest.raises(ConflictError, match=reason):
                await engine.resize(order.allocation_id, order.token, LARGER)
            assert asked_for(client, order) == "100m"
        finally:
            tell_node(client, None)
        await anyio.sleep(1.0)
        await engine.resize(order.allocation_id, order.token, LARGER)
        assert asked_for(client, order) == "150m"
    await engine.stop(order.allocation_id, order.token, grace_s=0)
    await caller.ended(order.allocation_id)
    await engine.release(order.allocation_id, order.token)
