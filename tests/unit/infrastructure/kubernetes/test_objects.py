"""What an order becomes: everything of it is there, nothing of it is a shell string, and secrets are nowhere else."""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from yunhe.agent.runs.directory import Run
from yunhe.agent.runs.environment import environment_of
from yunhe.infrastructure.contract.kind import Target
from yunhe.infrastructure.contract.manifest import read_manifest
from yunhe.infrastructure.contract.model import LaunchOrder, Power, Step, Upload
from yunhe.infrastructure.kubernetes import kind
from yunhe.infrastructure.kubernetes.facts import ALWAYS_MISSING
from yunhe.infrastructure.kubernetes.objects import names
from yunhe.infrastructure.kubernetes.objects.pods import (
    KEPT_AFTER_GRACE_S,
    KEPT_AFTER_TIMEOUT_S,
    Brought,
    check_order,
    pod_body,
    preparing_body,
    record_body,
    secret_body,
)
from yunhe.infrastructure.kubernetes.objects.records import claimed
from yunhe.infrastructure.kubernetes.objects.wrapper import WRAPPER
from yunhe.infrastructure.kubernetes.target import DEFAULT_IMAGE, ClusterSettings, read_target
from yunhe.kernel.errors import InvalidInputError, TooLargeError, UnsupportedError
from yunhe.kernel.ids import AllocationId, NodeId, ProjectId
from yunhe.kernel.resources import Accelerators, Resources

KEY = ("yunhe-p", "alloc-1")
GPUS = read_target(Target(options={"accelerators": "H200=nvidia.com/gpu@nvidia.com/gpu.product=H200"}))


def order(**fields: Any) -> LaunchOrder:
    chosen: dict[str, Any] = {
        "allocation_id": AllocationId("alloc_1"),
        "token": 1,
        "project_id": ProjectId("p"),
        "node_id": NodeId(""),
        "resources": Resources(cpu_millis=1500, memory_mib=64),
        "steps": (Step(name="a; rm -rf /", script="echo $(id)\n"),),
        **fields,
    }
    return LaunchOrder(**chosen)


def container(body: dict[str, Any]) -> dict[str, Any]:
    return body["spec"]["containers"][0]


def test_the_manifest_is_complete_and_agrees_with_the_engine() -> None:
    manifest = read_manifest(Path(kind.__file__).with_name("plugin.toml"))
    assert manifest.name == "kubernetes"
    assert manifest.missing == ALWAYS_MISSING
    assert set(manifest.powers) == set(Power) - set(ALWAYS_MISSING)
    understood = {"kubeconfig", "namespace", "namespace_prefix", "image", "accelerators", "sample_every"}
    assert set(manifest.options) == understood


def test_scripts_and_names_never_become_a_shell_string() -> None:
    argv = container(pod_body(order(), KEY, "u", ClusterSettings()))["command"]
    assert argv[:3] == ["/bin/sh", "-c", WRAPPER]
    assert "a; rm -rf /" in argv[4:]
    assert "echo $(id)\n" not in json.dumps(argv)
    assert record_body(order(), "ns")["data"] == {"1": "echo $(id)\n"}


def test_a_secret_is_in_the_secret_and_nowhere_else() -> None:
    wanted = order(secrets={"TOKEN": "hush-1"}, envs={"PLAIN": "seen"})
    pod, record, secret = (
        pod_body(wanted, KEY, "u", ClusterSettings()),
        record_body(wanted, "ns"),
        secret_body(wanted, KEY, "u"),
    )
    assert secret["stringData"] == {"TOKEN": "hush-1"}
    assert "hush-1" not in json.dumps([pod, record])
    assert {"name": "PLAIN", "value": "seen"} in container(pod)["env"]


def test_the_environment_is_that_of_every_engine_and_no_name_is_said_twice() -> None:
    envs = {"LANG": "zh_CN.UTF-8", "YUNHE_NODE_ID": "mine", "PRICE": "$(HOME)"}
    wanted = order(envs=envs, secrets={"USER": "hush"})
    told = {
        entry.pop("name"): entry for entry in container(pod_body(wanted, KEY, "u", ClusterSettings()))["env"]
    }
    assert len(told) == len(container(pod_body(wanted, KEY, "u", ClusterSettings()))["env"])
    assert told["LANG"] == {"value": "zh_CN.UTF-8"}
    assert told["PRICE"] == {"value": "$$(HOME)"}
    assert "secretKeyRef" in told["USER"]["valueFrom"]
    assert told["YUNHE_NODE_ID"] == {"valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}}
    assert told["YUNHE_CPU_MILLIS"] == {"value": "1500"}
    agents = environment_of(Run("/runs", "a"), {"project_id": "p", "node_id": "n"}, {})
    assert {name for name in agents if name.startswith("YUNHE_")} <= told.keys()
    with_image = container(pod_body(order(image="x"), KEY, "u", ClusterSettings()))["env"]
    assert "LANG" not in {entry["name"] for entry in with_image}


def test_only_an_order_with_outputs_has_a_keeper_and_that_knows_nothing_but_the_directory() -> None:
    wanted = order(
        outputs=("*.txt",), envs={"PLAIN": "seen"}, secrets={"TOKEN": "hush"}, image="x", timeout_s=9.5
    )
    spec = pod_body(wanted, KEY, "u", ClusterSettings())["spec"]
    task, keeper = spec["containers"]
    assert (task["name"], keeper["name"], keeper["image"]) == (names.CONTAINER, names.KEEPER, "x")
    assert "env" not in keeper
    assert [mount["name"] for mount in keeper["volumeMounts"]] == ["work"]
    assert keeper["volumeMounts"][0]["readOnly"]
    assert keeper["resources"]["requests"] == keeper["resources"]["limits"]
    assert spec["activeDeadlineSeconds"] == 10 + KEPT_AFTER_TIMEOUT_S
    assert task["command"][7] == "10"
    assert task["command"][9] == "10"
    assert spec["terminationGracePeriodSeconds"] == 10 + KEPT_AFTER_GRACE_S
    (alone,) = pod_body(order(timeout_s=9.5), KEY, "u", ClusterSettings())["spec"]["containers"]
    assert alone["command"][7] == "0"


def test_files_are_mounted_where_the_wrapper_unpacks_them_and_paths_are_arguments() -> None:
    files = Brought(("data; rm -rf /", "$(id)"), {"projected": {"sources": []}})
    body = pod_body(order(), KEY, "u", ClusterSettings(), files)
    argv = container(body)["command"]
    assert argv[8:13] == [names.FILES_FOLDER, "10", "2", "data; rm -rf /", "$$(id)"]
    assert {"name": "files", "projected": {"sources": []}} in body["spec"]["volumes"]
    assert "files" not in json.dumps(pod_body(order(), KEY, "u", ClusterSettings())["spec"]["volumes"])


def test_what_is_prepared_has_no_scripts_and_the_claim_brings_them() -> None:
    upload = Upload(
        allocation_id=AllocationId("alloc_1"),
        token=1,
        project_id=ProjectId("p"),
        path="",
        digest="",
        size_bytes=1,
    )
    prepared = preparing_body(upload, "ns")
    assert "data" not in prepared
    change = claimed(order())
    assert change["data"] == {"1": "echo $(id)\n"}
    assert change["metadata"]["labels"][names.STATE] == "claimed"
    assert change["metadata"]["labels"].items() >= prepared["metadata"]["labels"].items() - {
        (names.STATE, "preparing")
    }


def test_requests_are_limits_and_the_rest_is_mapped() -> None:
    wanted = order(
        resources=Resources(
            cpu_millis=1500, memory_mib=64, disk_mib=10, accelerators=(Accelerators("H200", 2000),)
        ),
        timeout_s=2.1,
        node_id=NodeId("node-1"),
        image="example/image:1",
    )
    spec = pod_body(wanted, KEY, "u", GPUS)["spec"]
    asked = {"cpu": "1500m", "memory": "64Mi", "ephemeral-storage": "10485760", "nvidia.com/gpu": "2"}
    assert spec["containers"][0]["resources"] == {"requests": asked, "limits": asked}
    assert spec["activeDeadlineSeconds"] == 3
    assert spec["nodeSelector"] == {"nvidia.com/gpu.product": "H200"}
    assert "node-1" in json.dumps(spec["affinity"])
    assert spec["containers"][0]["image"] == "example/image:1"
    assert container(pod_body(order(), KEY, "u", ClusterSettings()))["image"] == DEFAULT_IMAGE


@pytest.mark.parametrize(
    ("fields", "error", "field"),
    [
        ({"envs": {"NOT A NAME": "x"}}, InvalidInputError, "envs.NOT A NAME"),
        ({"secrets": {"1x": "x"}}, InvalidInputError, "secrets.1x"),
        ({"steps": ()}, InvalidInputError, "steps"),
        ({"outputs": ("../*",)}, InvalidInputError, "outputs"),
        (
            {"resources": Resources(accelerators=(Accelerators("H200", 500),))},
            InvalidInputError,
            "resources.accelerators",
        ),
        (
            {"resources": Resources(accelerators=(Accelerators("A100", 1000),))},
            UnsupportedError,
            "resources.accelerators",
        ),
        ({"steps": (Step(name="a", script="x" * 1_000_000),)}, TooLargeError, None),
    ],
)
def test_what_the_cluster_cannot_honour_is_refused_by_field(
    fields: dict[str, Any], error: type[InvalidInputError], field: str | None
) -> None:
    with pytest.raises(error) as caught:
        check_order(order(**fields), GPUS)
    assert field is None or field in {problem.field for problem in caught.value.fields}


@pytest.mark.parametrize(
    "options",
    [
        {"namespace": "Not A Namespace"},
        {"accelerators": "H200"},
        {"accelerators": "H200=nvidia.com/gpu@label"},
        {"sample_every": "often"},
        {"sample_every": "0"},
    ],
)
def test_a_wrong_option_is_refused_by_name(options: dict[str, str]) -> None:
    with pytest.raises(InvalidInputError) as caught:
        read_target(Target(options=options))
    assert next(iter(options)) in caught.value.fields[0].field


IDS = st.text(alphabet="ab_-.A1 /", min_size=1, max_size=70)


@given(one=IDS, other=IDS)
def test_two_allocations_never_share_a_name_and_two_projects_no_namespace(one: str, other: str) -> None:
    made = [names.object_name(AllocationId(text)) for text in (one, other)]
    spaces = [names.namespace_of("yunhe", ProjectId(text)) for text in (one, other)]
    assert (made[0] == made[1]) == (one == other)
    assert (spaces[0] == spaces[1]) == (one == other)
    for name in (*made, *spaces):
        assert len(name) <= 63
        assert name == name.strip("-")
        assert set(name) <= set("abcdefghijklmnopqrstuvwxyz0123456789-")
