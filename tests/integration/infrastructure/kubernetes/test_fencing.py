"""What a launch does that wakes up too late: the cluster itself keeps it from starting anything."""

from collections.abc import AsyncGenerator

import anyio
import msgspec
import pytest

from engines.kubernetes.cluster import Cluster
from yunhe.conformance.caller import EngineCaller
from yunhe.infrastructure.contract.kind import Target
from yunhe.infrastructure.contract.model import Ending, LaunchOrder, Phase
from yunhe.infrastructure.kubernetes.api.client import Api
from yunhe.infrastructure.kubernetes.api.shapes import Pod
from yunhe.infrastructure.kubernetes.engine import KubernetesEngine, open_engine
from yunhe.infrastructure.kubernetes.objects.phases import has_run, is_over
from yunhe.infrastructure.kubernetes.objects.pods import collection, path_of, pod_body
from yunhe.infrastructure.kubernetes.target import read_target
from yunhe.kernel.errors import ForbiddenError
from yunhe.kernel.ids import NodeId, ProjectId
from yunhe.kernel.resources import Accelerators, Resources

pytestmark = [pytest.mark.anyio, pytest.mark.engine, pytest.mark.drives("kubernetes")]


@pytest.fixture
async def engine(kubernetes_cluster: Cluster) -> AsyncGenerator[KubernetesEngine]:
    options = {"kubeconfig": str(kubernetes_cluster.kubeconfig()), "sample_every": "0.5"}
    async with open_engine(read_target(Target(options=options))) as engine:
        yield engine


@pytest.fixture
def caller(engine: KubernetesEngine) -> EngineCaller:
    return EngineCaller(
        engine, NodeId(""), ProjectId("fencing"), Resources(cpu_millis=100, memory_mib=64), 45.0
    )


async def thawed_launch_starts_nothing(
    engine: KubernetesEngine, order: LaunchOrder, key: tuple[str, str], uid: str
) -> None:
    """Do the second half of a launch, knowing nothing of what has happened since; no container may start."""
    async with Api(engine.api.access) as api:
        await api.create(collection("pods", key[0]), pod_body(order, key, uid, engine.settings))
        until, taken = anyio.current_time() + 5.0, False
        while anyio.current_time() < until:
            pod = msgspec.json.decode(await api.get(path_of("pods", key)), type=Pod)
            taken = taken or bool(pod.spec.node_name)
            assert not has_run(pod), "a container was started"
            await anyio.sleep(0.1)
        assert taken, "no node has taken it, so nothing is shown"


async def is_cleared_away(kubernetes_cluster: Cluster, key: tuple[str, str]) -> None:
    """Let a new process look after it: it finds what is wrong by itself."""
    options = {"kubeconfig": str(kubernetes_cluster.kubeconfig())}
    async with open_engine(read_target(Target(options=options))) as engine:
        with anyio.fail_after(45):
            while (pod := engine.pods.get(key)) is not None and not is_over(pod):
                await anyio.sleep(0.1)


async def test_a_launch_frozen_before_its_pod_starts_nothing_once_it_was_stopped(
    kubernetes_cluster: Cluster, engine: KubernetesEngine, caller: EngineCaller
) -> None:
    order = caller.order("echo ran")
    record, _ = await engine.records.claim(order)
    key = record.metadata.key
    await engine.stop(order.allocation_id, 2)
    await engine.close()  # nobody looks after it: only the missing scripts keep it from running
    await thawed_launch_starts_nothing(engine, order, key, record.metadata.uid)
    await is_cleared_away(kubernetes_cluster, key)


async def test_a_launch_frozen_before_its_pod_starts_nothing_once_another_ran_it_and_it_was_released(
    kubernetes_cluster: Cluster, engine: KubernetesEngine, caller: EngineCaller
) -> None:
    order = caller.order("echo ran")
    record, _ = await engine.records.claim(order)
    key = record.metadata.key
    await engine.launch(msgspec.structs.replace(order, token=2))
    assert (await caller.ended(order.allocation_id)).ending is Ending.DONE
    assert await caller.log(order.allocation_id) == b"ran\n"
    await engine.release(order.allocation_id, 2)
    await engine.close()
    await thawed_launch_starts_nothing(engine, order, key, record.metadata.uid)
    await is_cleared_away(kubernetes_cluster, key)


async def test_a_claim_whose_maker_died_is_finished_by_whoever_repeats_it(
    engine: KubernetesEngine, caller: EngineCaller
) -> None:
    order = caller.order("echo ran")
    await engine.records.claim(order)
    await engine.launch(msgspec.structs.replace(order, token=2))
    assert (await caller.ended(order.allocation_id)).exit_code == 0
    assert await caller.log(order.allocation_id) == b"ran\n"


async def test_a_pod_that_somebody_else_deletes_is_still_told_of(
    engine: KubernetesEngine, caller: EngineCaller
) -> None:
    order = await caller.run("echo started\nsleep 60")
    await caller.until(order.allocation_id, lambda seen: seen.log_bytes > 0)
    key = engine.records.key_of(order)
    await engine.api.delete(path_of("pods", key), grace_s=1)
    seen = await caller.ended(order.allocation_id)
    assert (seen.phase, seen.ending) == (Phase.EXITED, Ending.STOPPED)
    assert "deleted" in seen.detail
    await engine.launch(msgspec.structs.replace(order, token=2))
    again = await caller.ended(order.allocation_id)
    assert again.started_at == seen.started_at
    await engine.release(order.allocation_id, 3)


async def test_a_secret_is_gone_from_the_cluster_after_the_release(
    engine: KubernetesEngine, caller: EngineCaller
) -> None:
    order = await caller.run('test "$TOKEN" = hush', secrets={"TOKEN": "hush"})
    assert (await caller.ended(order.allocation_id)).exit_code == 0
    key = engine.records.key_of(order)
    secrets = collection("secrets", key[0])
    assert key[1].encode() in await engine.api.get(secrets)
    await engine.release(order.allocation_id, 1)
    assert key[1].encode() not in await engine.api.get(secrets)


async def test_one_that_does_not_fit_says_why_and_can_be_stopped(
    engine: KubernetesEngine, caller: EngineCaller
) -> None:
    order = await caller.run("echo never", resources=Resources(cpu_millis=10**6, memory_mib=64))
    seen = await caller.until(order.allocation_id, lambda seen: bool(seen.detail))
    assert seen.phase is Phase.STARTING
    assert "nsufficient cpu" in seen.detail
    await engine.stop(order.allocation_id, 1)
    assert (await caller.ended(order.allocation_id)).ending is Ending.STOPPED
    await engine.release(order.allocation_id, 1)


async def test_a_quota_that_refuses_leaves_nothing_behind_and_shows_in_the_account(
    kubernetes_cluster: Cluster, engine: KubernetesEngine, caller: EngineCaller
) -> None:
    first = await caller.run("true")
    await caller.ended(first.allocation_id)
    namespace = engine.records.key_of(first)[0]
    quota = {"metadata": {"name": "small"}, "spec": {"hard": {"requests.cpu": "1"}}}
    path = f"/api/v1/namespaces/{namespace}/resourcequotas"
    with kubernetes_cluster.client() as client:
        client.post(path, json=quota).raise_for_status()
        try:
            with anyio.fail_after(30):
                while not (quotas := (await engine.account()).quotas):
                    await anyio.sleep(0.2)
            assert [(one.name, one.limit) for one in quotas] == [(f"{namespace}/requests.cpu", 1.0)]
            order = caller.order(
                "true", resources=Resources(cpu_millis=2000, memory_mib=64), secrets={"A": "b"}
            )
            with pytest.raises(ForbiddenError, match="exceeded quota"):
                await engine.launch(order)
            assert await caller.look(order.allocation_id) is None
            name = engine.records.key_of(order)[1]
            assert name.encode() not in await engine.api.get(collection("secrets", namespace))
            await engine.launch(first)  # it is there already, whatever the quota says now
        finally:
            client.delete(f"{path}/small").raise_for_status()


async def test_what_an_operator_has_set_on_a_namespace_stays(
    kubernetes_cluster: Cluster, engine: KubernetesEngine
) -> None:
    enforce = "pod-security.kubernetes.io/enforce"
    with kubernetes_cluster.client() as client:
        metadata = {"name": "yunhe-owned", "labels": {enforce: "privileged"}}
        client.post("/api/v1/namespaces", json={"metadata": metadata}).raise_for_status()
        caller = EngineCaller(
            engine, NodeId(""), ProjectId("owned"), Resources(cpu_millis=100, memory_mib=64), 45.0
        )
        order = await caller.run("true")
        assert (await caller.ended(order.allocation_id)).exit_code == 0
        labels = client.get("/api/v1/namespaces/yunhe-owned").json()["metadata"]["labels"]
        assert labels[enforce] == "privileged"


async def test_out_of_memory_is_told_as_such(engine: KubernetesEngine, caller: EngineCaller) -> None:
    order = await caller.run(
        "head -c 200m /dev/zero | tail", resources=Resources(cpu_millis=500, memory_mib=32)
    )
    assert (await caller.ended(order.allocation_id)).ending is Ending.OUT_OF_MEMORY


async def test_an_accelerator_is_given_as_an_extended_resource(kubernetes_cluster: Cluster) -> None:
    options = {"kubeconfig": str(kubernetes_cluster.kubeconfig()), "accelerators": "dev=example.com/device"}
    async with open_engine(read_target(Target(options=options))) as engine:
        nodes = {node.id: node for node in (await engine.inventory()).nodes}
        assert nodes[NodeId("node-2")].total.accelerator_milli("dev") == 2000
        wanted = Resources(cpu_millis=100, memory_mib=64, accelerators=(Accelerators("dev", 1000),))
        caller = EngineCaller(engine, NodeId(""), ProjectId("fencing"), wanted, 45.0)
        order = await caller.run("true")
        seen = await caller.ended(order.allocation_id)
        assert seen.node_id == "node-2"
        assert seen.resources == wanted
        assert (await engine.observe()).notices == ()


async def test_a_device_without_a_name_of_ours_is_told_of(engine: KubernetesEngine) -> None:
    (notice,) = (await engine.observe()).notices
    assert "2 × example.com/device" in notice
