"""A plan carried out by another deployer: manifests applied unchanged to the chosen cluster run it."""

from collections.abc import Generator
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml

from engines.kubernetes.asking import wait_for
from engines.kubernetes.cluster import Cluster
from integration.entrypoints.cli.conftest import Shell, free_port
from support.agent_roots import agent_root
from support.repository import REPOSITORY

pytestmark = [pytest.mark.engine, pytest.mark.drives("kubernetes")]

PLURAL = {
    "Namespace": "namespaces",
    "ServiceAccount": "serviceaccounts",
    "ConfigMap": "configmaps",
    "Pod": "pods",
}


@pytest.fixture(scope="module")
def shell(tmp_path_factory: pytest.TempPathFactory, kubernetes_cluster: Cluster) -> Generator[Shell]:
    with agent_root() as root:
        shell = Shell(tmp_path_factory.mktemp("admin") / "home", REPOSITORY)
        try:
            up = shell("up", "--port", str(free_port()), "--agent-root", str(root), timeout_s=110.0)
            assert up.returncode == 0, up.stderr
            added = shell(
                "pool",
                "add",
                "kubernetes",
                "--name",
                "cluster",
                "--option",
                f"kubeconfig={kubernetes_cluster.kubeconfig()}",
            )
            assert added.returncode == 0, added.stderr
            yield shell
        finally:
            shell("down")


def path_of(manifest: dict[str, Any]) -> str:
    metadata = manifest["metadata"]
    inside = f"/namespaces/{metadata['namespace']}" if "namespace" in metadata else ""
    return f"/api/v1{inside}/{PLURAL[manifest['kind']]}/{metadata['name']}"


def apply(client: httpx.Client, text: str) -> list[dict[str, Any]]:
    """Apply manifests as ``kubectl apply --server-side`` does, unchanged."""
    manifests: list[dict[str, Any]] = list(yaml.safe_load_all(text))
    for manifest in manifests:
        answer = client.patch(
            path_of(manifest),
            params={"fieldManager": "kubectl"},
            content=yaml.safe_dump(manifest),
            headers={"Content-Type": "application/apply-patch+yaml"},
        )
        assert answer.status_code in (200, 201), answer.text
    return manifests


@pytest.mark.feature(
    "S51",
    file="src/yunhe/scheduling/decision/holding.py",
    old="        yield f\"pool {name} takes no new work: {pool.why_not or 'it does not say why'}\"",
    new="        return",
)
def test_manifests_of_a_recorded_plan_applied_unchanged_run_it_on_the_planned_node(
    shell: Shell, kubernetes_cluster: Cluster, tmp_path: Path
) -> None:
    (tmp_path / "greet.yaml").write_text(
        "setup: echo ready > note\nrun: cat note; echo hello $WHO; exit 3\nenvs: {WHO: world}\n"
        "resources: {cpus: 0.1, memory: 64MB, pool: cluster}\n"
    )
    saved = shell("plan", "--save", tmp_path / "greet.plan", tmp_path / "greet.yaml")
    assert saved.returncode == 0, saved.stderr
    rendered = shell("plan", "--render", "kubernetes", "--plan", tmp_path / "greet.plan")
    assert rendered.returncode == 0, rendered.stderr
    plan = yaml.safe_load((tmp_path / "greet.plan").read_text())
    node = plan["tasks"][0]["place"]["node_id"].rpartition("/")[2]
    with kubernetes_cluster.client() as client:
        manifests = apply(client, rendered.stdout)
        assert [one["kind"] for one in manifests] == ["Namespace", "ServiceAccount", "ConfigMap", "Pod"]
        pod = wait_for(
            client,
            path_of(manifests[-1]),
            lambda seen: seen["status"].get("phase") in ("Succeeded", "Failed"),
        )
        assert pod["spec"]["nodeName"] == node
        (status,) = pod["status"]["containerStatuses"]
        assert status["state"]["terminated"]["exitCode"] == 3
        log = client.get(f"{path_of(manifests[-1])}/log").text
        assert [line for line in log.split("\n") if line and "\x1e" not in line] == ["ready", "hello world"]
        again = shell("plan", "--render", "kubernetes", "--plan", tmp_path / "greet.plan")
        assert again.stdout == rendered.stdout
        client.delete(path_of(manifests[-1]))
    assert "greet" not in shell("ps", "--all").stdout  # the platform knows nothing of it
    ran = shell("run", "--plan", tmp_path / "greet.plan", "-y", timeout_s=90)
    assert ran.returncode == 3, ran.stdout + ran.stderr  # the first deployer carries out the same plan
    drained = shell("pool", "drain", "cluster")
    assert drained.returncode == 0, drained.stderr
    stale = shell("plan", "--render", "kubernetes", "--plan", tmp_path / "greet.plan")
    assert stale.returncode == 1
    assert "pool cluster takes no new work" in " ".join(stale.stderr.split())
    assert shell("pool", "drain", "cluster", "--off").returncode == 0


def test_what_only_the_platform_brings_is_not_rendered(shell: Shell, tmp_path: Path) -> None:
    assert shell("secret", "set", "TOKEN", typed="hush\n").returncode == 0
    (tmp_path / "app.yaml").write_text("run: 'true'\nsecrets: [TOKEN]\nresources: {pool: cluster}\n")
    done = shell("plan", "--render", "kubernetes", tmp_path / "app.yaml")
    assert done.returncode == 1
    assert "app.secrets: is brought by the platform and cannot be rendered" in " ".join(done.stderr.split())
    assert "hush" not in done.stdout + done.stderr
