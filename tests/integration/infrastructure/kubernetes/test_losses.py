"""Nodes that crash and an API server that dies under an engine: each allocation runs once, or is told as unknown."""

from collections.abc import AsyncGenerator

import anyio
import anyio.to_thread
import pytest

from engines.kubernetes.cluster import Cluster
from engines.kubernetes.nodes import node, run_nodes
from yunhe.conformance.caller import EngineCaller
from yunhe.infrastructure.contract.kind import Target
from yunhe.infrastructure.contract.model import LaunchOrder, Observed, Phase
from yunhe.infrastructure.kubernetes.engine import KubernetesEngine, open_engine
from yunhe.infrastructure.kubernetes.target import read_target
from yunhe.kernel.errors import PoolUnreachableError
from yunhe.kernel.ids import NodeId, ProjectId
from yunhe.kernel.resources import Resources

pytestmark = [pytest.mark.anyio, pytest.mark.engine, pytest.mark.drives("kubernetes")]

SMALL = Resources(cpu_millis=50, memory_mib=32)


@pytest.fixture
async def engine(kubernetes_cluster: Cluster) -> AsyncGenerator[KubernetesEngine]:
    options = {"kubeconfig": str(kubernetes_cluster.kubeconfig())}
    async with open_engine(read_target(Target(options=options))) as engine:
        yield engine


async def test_what_ran_on_a_node_that_crashed_is_unknown_and_never_guessed(
    kubernetes_cluster: Cluster, engine: KubernetesEngine
) -> None:
    with run_nodes(kubernetes_cluster, node("node-3")) as nodes:
        caller = EngineCaller(engine, NodeId("node-3"), ProjectId("losses"), SMALL, 60.0)
        order = await caller.run("echo started\nsleep 600")
        await caller.until(order.allocation_id, lambda seen: seen.log_bytes > 0)
        nodes.kill()
        await anyio.to_thread.run_sync(nodes.start)
        seen = await caller.until(order.allocation_id, lambda seen: seen.phase is not Phase.RUNNING)
        assert (seen.phase, seen.exit_code, seen.ending) == (Phase.UNKNOWN, None, None)
        assert seen.detail
        await engine.release(order.allocation_id, 1)
        assert await caller.look(order.allocation_id) is None
    with kubernetes_cluster.client() as client:
        client.delete("/api/v1/nodes/node-3").raise_for_status()


async def test_an_api_server_that_dies_under_launches_makes_none_run_twice_and_loses_none(
    kubernetes_cluster: Cluster, engine: KubernetesEngine
) -> None:
    caller = EngineCaller(engine, NodeId(""), ProjectId("losses"), SMALL, 90.0)
    orders = [caller.order("echo ran") for _ in range(30)]
    failed = 0

    async def launch(order: LaunchOrder, after_s: float) -> None:
        nonlocal failed
        await anyio.sleep(after_s)
        with anyio.fail_after(90):
            while True:
                try:
                    await engine.launch(order)
                except PoolUnreachableError:
                    failed += 1
                    await anyio.sleep(0.5)
                else:
                    return

    async with anyio.create_task_group() as group:
        for number, order in enumerate(orders):
            group.start_soon(launch, order, number * 0.05)
        await anyio.sleep(0.5)
        await anyio.to_thread.run_sync(kubernetes_cluster.restart_api_server)
    assert failed, "the API server was never missed"
    for order in orders:
        seen = await patiently(caller, order)
        assert seen.exit_code == 0
        assert await caller.log(order.allocation_id) == b"ran\n"
        await engine.release(order.allocation_id, 1)


async def patiently(caller: EngineCaller, order: LaunchOrder) -> Observed:
    """Wait for an end, as the platform does: an engine that cannot see the cluster says so, and is asked again."""
    with anyio.fail_after(90):
        while True:
            try:
                return await caller.ended(order.allocation_id)
            except PoolUnreachableError:
                await anyio.sleep(0.5)
