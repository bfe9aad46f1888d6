"""An order as manifests: whole, bound to its node, and without anything by which the platform finds its own."""

import pytest

from yunhe.infrastructure.contract.model import LaunchOrder, Step
from yunhe.infrastructure.kubernetes.objects import names
from yunhe.infrastructure.kubernetes.objects.manifests import manifests_of
from yunhe.infrastructure.kubernetes.target import ClusterSettings
from yunhe.kernel.errors import UnsupportedError
from yunhe.kernel.ids import AllocationId, NodeId, ProjectId
from yunhe.kernel.resources import Resources


def order(**more: object) -> LaunchOrder:
    given: dict[str, object] = {
        "allocation_id": AllocationId("plan_00ff0"),
        "token": 1,
        "project_id": ProjectId("blue"),
        "node_id": NodeId("node-1"),
        "resources": Resources(500, 256, 0),
        "steps": (Step(name="run", script="echo hello"),),
    }
    return LaunchOrder(**{**given, **more})  # pyright: ignore[reportArgumentType]


def test_an_order_is_a_namespace_an_account_its_scripts_and_a_pod_on_its_node() -> None:
    namespace, account, scripts, pod = manifests_of(order(), ClusterSettings())
    assert [one["kind"] for one in (namespace, account, scripts, pod)] == [
        "Namespace",
        "ServiceAccount",
        "ConfigMap",
        "Pod",
    ]
    assert scripts["data"] == {"1": "echo hello"}
    assert pod["spec"]["volumes"][0]["configMap"]["name"] == scripts["metadata"]["name"]
    assert {one["metadata"].get("namespace") for one in (account, scripts, pod)} == {
        namespace["metadata"]["name"]
    }
    wanted = pod["spec"]["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    assert wanted["nodeSelectorTerms"][0]["matchFields"][0]["values"] == ["node-1"]


def test_the_platform_does_not_take_it_for_its_own() -> None:
    for body in manifests_of(order(), ClusterSettings())[2:]:
        assert set(body["metadata"]) == {"name", "namespace", "labels"}
        assert names.ALLOCATION not in body["metadata"]["labels"]


def test_a_namespace_that_the_operator_chose_is_not_made() -> None:
    kinds = [one["kind"] for one in manifests_of(order(), ClusterSettings(namespace="team"))]
    assert kinds == ["ServiceAccount", "ConfigMap", "Pod"]


def test_what_the_platform_keeps_or_fetches_is_refused() -> None:
    with pytest.raises(UnsupportedError, match="secrets and outputs cannot be written"):
        manifests_of(order(secrets={"TOKEN": "hush"}, outputs=("out",)), ClusterSettings())
