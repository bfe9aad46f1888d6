"""What stands in the way of a cluster has its own message and remedy; what is in order is seen step by step."""

from pathlib import Path

import anyio
import pytest
import yaml

from engines.kubernetes.cluster import READER, Cluster, free_ports
from yunhe.conformance.caller import EngineCaller
from yunhe.infrastructure.contract.kind import Check, Target
from yunhe.infrastructure.contract.model import Isolation
from yunhe.infrastructure.kubernetes.kind import KubernetesKind
from yunhe.kernel.ids import NodeId, ProjectId
from yunhe.kernel.resources import Resources

pytestmark = [pytest.mark.anyio, pytest.mark.engine, pytest.mark.drives("kubernetes API server")]


async def checks(kubeconfig: Path, **options: str) -> list[Check]:
    target = Target(options={"kubeconfig": str(kubeconfig), **options})
    return [check async for check in KubernetesKind().onboard(target)]


def changed(kubeconfig: Path, folder: Path, **changes: str) -> Path:
    config = yaml.safe_load(kubeconfig.read_text())
    for name, value in changes.items():
        section = config["clusters"][0]["cluster"] if name == "server" else config["users"][0]["user"]
        section[name] = value
    file = folder / "kubeconfig"
    file.write_text(yaml.safe_dump(config))
    return file


async def test_a_cluster_that_is_in_order_passes_every_check(kubernetes_cluster: Cluster) -> None:
    done = await checks(kubernetes_cluster.kubeconfig())
    assert all(check.ok for check in done), done
    steps = [
        "kubeconfig read",
        "reachable",
        "credentials accepted",
        "version",
        "permissions",
        "pod admitted",
        "devices",
        "usage",
    ]
    assert [check.step for check in done] == steps
    devices = next(check for check in done if check.step == "devices").detail
    assert "2 × example.com/device" in devices
    assert "--option accelerators=KIND=example.com/device" in devices
    by_certificate = await checks(kubernetes_cluster.kubeconfig(by_certificate=True))
    assert [check.step for check in by_certificate] == steps


async def test_wrong_credentials_are_told_apart(kubernetes_cluster: Cluster, tmp_path: Path) -> None:
    done = await checks(changed(kubernetes_cluster.kubeconfig(), tmp_path, token="wrong"))
    assert (done[-1].step, done[-1].ok) == ("credentials accepted", False)
    assert "401" in done[-1].detail
    assert "kubeconfig" in done[-1].remedy


async def test_a_cluster_that_is_not_there_is_told_apart(kubernetes_cluster: Cluster, tmp_path: Path) -> None:
    (port,) = free_ports(1)
    nowhere = f"https://127.0.0.1:{port}"
    done = await checks(changed(kubernetes_cluster.kubeconfig(), tmp_path, server=nowhere))
    assert (done[-1].step, done[-1].ok) == ("reachable", False)
    assert nowhere in done[-1].remedy


async def test_each_missing_permission_is_named_with_the_role_to_apply(kubernetes_cluster: Cluster) -> None:
    done = await checks(kubernetes_cluster.kubeconfig(READER))
    assert (done[-1].step, done[-1].ok) == ("permissions", False)
    assert f"{READER} may not" in done[-1].detail
    assert "create/patch/delete pods" in done[-1].detail
    assert "nodes" not in done[-1].detail, "what we may is not named"
    roles = list(yaml.safe_load_all(done[-1].remedy.partition("\n")[2]))
    assert [role["kind"] for role in roles] == ["ClusterRole", "ClusterRoleBinding"]


@pytest.mark.parametrize("namespace", ["", "solo"], ids=["a namespace for each project", "one namespace"])
async def test_the_role_that_is_printed_suffices(kubernetes_cluster: Cluster, namespace: str) -> None:
    options = {"namespace": namespace} if namespace else {}
    kubeconfig = kubernetes_cluster.kubeconfig(READER)
    base = "/apis/rbac.authorization.k8s.io/v1"
    made: list[str] = []
    with kubernetes_cluster.client() as client:
        if namespace:
            client.post("/api/v1/namespaces", json={"metadata": {"name": namespace}}).raise_for_status()
        remedy = (await checks(kubeconfig, **options))[-1].remedy
        try:
            for body in yaml.safe_load_all(remedy.partition("\n")[2]):
                where = (
                    f"namespaces/{body['metadata']['namespace']}/" if "namespace" in body["metadata"] else ""
                )
                path = f"{base}/{where}{body['kind'].lower()}s"
                client.post(path, json=body).raise_for_status()
                made.append(f"{path}/yunhe")
            await one_job_runs(kubeconfig, options)
        finally:
            for path in made:
                client.delete(path)


async def one_job_runs(kubeconfig: Path, options: dict[str, str]) -> None:
    with anyio.fail_after(30):
        while (done := await checks(kubeconfig, **options)) and not done[-1].ok:
            await anyio.sleep(0.2)  # the API server learns of new roles a moment later
    assert done[-1].step == "usage"
    target = Target(options={"kubeconfig": str(kubeconfig), **options})
    async with KubernetesKind().connect(target) as engine:
        assert (await engine.inventory()).nodes
        isolation = (await engine.describe()).isolation
        assert isolation is (Isolation.ONE_PROJECT if options else Isolation.PER_PROJECT)
        resources = Resources(cpu_millis=100, memory_mib=64)
        caller = EngineCaller(engine, NodeId(""), ProjectId("poor"), resources, 45.0)
        order = await caller.run('echo "$WORD"', secrets={"WORD": "ran"})
        await caller.ended(order.allocation_id)
        assert await caller.log(order.allocation_id) == b"ran\n"
        await engine.release(order.allocation_id, 1)
        await engine.stop(order.allocation_id, 2)


async def test_a_namespace_that_is_not_there_is_told_from_a_pod_that_is_refused(
    kubernetes_cluster: Cluster,
) -> None:
    done = await checks(kubernetes_cluster.kubeconfig(), namespace="nowhere")
    assert (done[-1].step, done[-1].ok) == ("pod admitted", False)
    assert "no namespace nowhere" in done[-1].detail
    assert "kubectl create namespace nowhere" in done[-1].remedy


async def test_a_pod_that_the_cluster_would_refuse_is_found_out_without_making_one(
    kubernetes_cluster: Cluster,
) -> None:
    with kubernetes_cluster.client() as client:
        name = "strict"
        labels = {"pod-security.kubernetes.io/enforce": "restricted"}
        client.post(
            "/api/v1/namespaces", json={"metadata": {"name": name, "labels": labels}}
        ).raise_for_status()
        done = await checks(kubernetes_cluster.kubeconfig(), namespace=name)
        assert (done[-1].step, done[-1].ok) == ("pod admitted", False)
        assert "PodSecurity" in done[-1].detail
        assert client.get(f"/api/v1/namespaces/{name}/pods").json()["items"] == []
