"""Nodes, sizes, usage and what a server serves, from what clusters say."""

import json
from collections.abc import AsyncGenerator
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from unit.infrastructure.kubernetes.fake_api import FakeApi, fake_api
from yunhe.infrastructure.contract.kind import Target
from yunhe.infrastructure.contract.model import Meters, NodeSystem
from yunhe.infrastructure.kubernetes.api.client import Api
from yunhe.infrastructure.kubernetes.api.discovery import served
from yunhe.infrastructure.kubernetes.api.kubeconfig import Access
from yunhe.infrastructure.kubernetes.api.shapes import Container, KubeNode, NodeInfo
from yunhe.infrastructure.kubernetes.facts import ServerVersion
from yunhe.infrastructure.kubernetes.objects.nodes import (
    catalogue_of,
    node_of,
    tolerations_for,
    unmapped_devices,
)
from yunhe.infrastructure.kubernetes.onboard import onboard
from yunhe.infrastructure.kubernetes.target import ClusterSettings, read_target
from yunhe.infrastructure.kubernetes.usage.meters import Minutes, PodMeter, PodSample
from yunhe.infrastructure.kubernetes.usage.stats import NodeUse, Stats, UsageSource
from yunhe.kernel.ids import AllocationId
from yunhe.kernel.resources import Accelerators, Resources

GPUS = read_target(
    Target(options={"accelerators": "H200=nvidia.com/gpu@product=H200,A100=nvidia.com/gpu@product=A100"})
)
READY = {"type": "Ready", "status": "True"}


def node(name: str = "n", **fields: Any) -> KubeNode:
    labels = fields.pop("labels", {})
    allocatable = {"cpu": "4", "memory": "8Gi", **fields.pop("allocatable", {})}
    conditions = fields.pop("conditions", [READY])
    body = {
        "metadata": {"name": name, "labels": labels},
        "spec": fields,
        "status": {"allocatable": allocatable, "conditions": conditions},
    }
    return msgspec.convert(body, KubeNode)


def neighbour(**requests: str) -> Container:
    return msgspec.convert({"name": "c", "resources": {"requests": requests}}, Container)


def test_labels_taints_and_what_the_kubelet_says_of_the_machine_come_through() -> None:
    taints = [
        {"key": "team", "value": "red", "effect": "NoSchedule"},
        {"key": "old", "effect": "NoExecute"},
        {"key": "soft", "effect": "PreferNoSchedule"},
    ]
    found = node(taints=taints, labels={"disk": "ssd", "kubernetes.io/hostname": "n"})
    info = NodeInfo(architecture="arm64", kernel_version="6.1.0", operating_system="linux")
    found = msgspec.structs.replace(found, status=msgspec.structs.replace(found.status, node_info=info))
    seen = node_of(found, [], None, ClusterSettings())
    assert seen.ready
    assert (seen.isa, seen.labels, seen.taints) == ("arm64", {"disk": "ssd"}, ("team=red", "old"))
    assert seen.system == NodeSystem(os="linux", kernel="6.1.0")
    assert [(one["key"], one["value"], one["effect"]) for one in tolerations_for(found)] == [
        ("team", "red", "NoSchedule"),
        ("old", "", "NoExecute"),
    ]


def test_a_node_has_what_is_allocatable_less_what_others_asked_for() -> None:
    seen = node_of(
        node(),
        [neighbour(cpu="500m", memory="1Gi"), neighbour(cpu="1")],
        NodeUse(700, 100),
        ClusterSettings(),
    )
    assert (seen.total.cpu_millis, seen.total.memory_mib) == (2500, 7 * 1024)
    assert seen.used == Resources(cpu_millis=700, memory_mib=100)


def test_a_device_that_no_option_names_is_told_with_the_option_to_give() -> None:
    eight = {"nvidia.com/gpu": "8", "hugepages-2Mi": "1Gi", "example.com/gone": "0"}
    nodes = [
        node("a", allocatable=eight, labels={"product": "H200"}),
        node("b", allocatable=eight, labels={"product": "unheard of"}),
        node("c", allocatable={"vendor.io/npu": "2"}),
    ]
    said = unmapped_devices(nodes, GPUS)
    assert "8 × nvidia.com/gpu" in said, "those of b alone: a rule names the kind of a"
    assert "2 × vendor.io/npu" in said
    assert "accelerators=KIND=nvidia.com/gpu,KIND=vendor.io/npu" in said
    assert "hugepages" not in said
    assert "gone" not in said
    assert "16 × nvidia.com/gpu" in unmapped_devices(nodes, ClusterSettings())
    assert unmapped_devices(nodes[:1], GPUS) == ""


def test_without_a_measure_what_others_asked_for_stands_in() -> None:
    assert node_of(node(), [neighbour(cpu="1")], None, ClusterSettings()).used.cpu_millis == 1000


def test_an_accelerator_is_called_by_its_kind_and_has_its_memory() -> None:
    labels = {"product": "H200", "nvidia.com/gpu.memory": "143000"}
    seen = node_of(node(labels=labels, allocatable={"nvidia.com/gpu": "8"}), [], None, GPUS)
    assert seen.total.accelerators == (Accelerators("H200", 8000, 8 * 143000),)


@pytest.mark.parametrize(
    ("fields", "why"),
    [
        ({"conditions": []}, "has not said"),
        ({"conditions": [{"type": "Ready", "status": "False", "message": "disk is full"}]}, "disk is full"),
        (
            {"conditions": [{"type": "Ready", "status": "Unknown", "reason": "NodeStatusUnknown"}]},
            "NodeStatusUnknown",
        ),
        ({"unschedulable": True}, "cordoned"),
        (
            {"taints": [{"key": "node.kubernetes.io/disk-pressure", "effect": "NoSchedule"}]},
            "node.kubernetes.io/disk-pressure=:NoSchedule",
        ),
    ],
)
def test_why_a_node_takes_nothing_is_told(fields: dict[str, Any], why: str) -> None:
    seen = node_of(node(**fields), [], None, ClusterSettings())
    assert not seen.ready
    assert why in seen.reason


def test_sizes_are_counted_by_zone_and_type_and_never_promise_more_than_the_smallest() -> None:
    labels = {
        "topology.kubernetes.io/zone": "z1",
        "topology.kubernetes.io/region": "r",
        "node.kubernetes.io/instance-type": "big",
    }
    found = catalogue_of(
        [node("a", labels=labels), node("b", labels=labels, allocatable={"cpu": "3"}), node("c")],
        ClusterSettings(),
    )
    sizes = {(spec.region, spec.name): spec for spec in found.specs}
    assert sizes["z1", "big"].count == 2
    assert sizes["z1", "big"].resources.cpu_millis == 3000
    assert len(sizes) == 2
    assert [(region.name, region.place and region.place.region) for region in found.regions] == [("z1", "r")]


@pytest.mark.parametrize(("minor", "number"), [("34", (1, 34)), ("29+", (1, 29)), ("", (1, 0))])
def test_a_version_is_read_with_whatever_its_provider_adds(minor: str, number: tuple[int, int]) -> None:
    assert ServerVersion(git_version="v", major="1", minor=minor).number == number


# Over the wire


@pytest.fixture
async def server() -> AsyncGenerator[FakeApi]:
    async with fake_api() as api:
        yield api


@pytest.mark.anyio
async def test_what_is_served_is_learned_in_two_questions_or_group_by_group(server: FakeApi) -> None:
    pods = {"resource": "pods", "subresources": [{"subresource": "resize"}]}
    core = {"metadata": {"name": ""}, "versions": [{"version": "v1", "resources": [pods]}]}
    apps = {
        "metadata": {"name": "apps"},
        "versions": [{"version": "v1", "resources": [{"resource": "deployments"}]}],
    }
    kind = "APIGroupDiscoveryList"
    server.answers = [
        ("GET /api", 200, {}, {"kind": kind, "items": [core]}),
        ("GET /apis", 200, {}, {"kind": kind, "items": [apps]}),
    ]
    async with Api(Access(name="a", server=server.url)) as api:
        assert await served(api) == {"/v1/pods", "/v1/pods/resize", "apps/v1/deployments"}
        assert len(server.requests) == 2
        server.answers = [
            ("GET /api/v1", 200, {}, {"resources": [{"name": "pods"}, {"name": "pods/resize"}]}),
            ("GET /apis/apps/v1", 200, {}, {"resources": [{"name": "deployments"}]}),
            (
                "GET /apis",
                200,
                {},
                {
                    "kind": "APIGroupList",
                    "groups": [{"versions": [{"groupVersion": "apps/v1"}, {"groupVersion": "down/v1"}]}],
                },
            ),
            ("GET /api", 200, {}, {"kind": "APIVersions", "versions": ["v1"]}),
        ]
        assert await served(api) == {"/v1/pods", "/v1/pods/resize", "apps/v1/deployments"}


@pytest.mark.anyio
async def test_usage_is_read_from_kubelets_and_a_node_that_is_silent_is_left_out(server: FakeApi) -> None:
    container = {
        "name": "task",
        "cpu": {"time": "2027-01-15T08:00:00Z", "usageCoreNanoSeconds": 5_000_000_000},
        "memory": {"workingSetBytes": 9, "rssBytes": 2**20},
    }
    summary = {
        "node": {"cpu": {"usageNanoCores": 1_500_000_000}, "memory": {"workingSetBytes": 2**30}},
        "pods": [{"podRef": {"name": "p", "namespace": "x"}, "containers": [container]}],
    }
    server.answers = [("nodes/up/proxy", 200, {}, summary)]
    async with Api(Access(name="a", server=server.url)) as api:
        reading = await Stats(api, UsageSource.KUBELET).read({"up", "down"})
    assert reading.nodes == {"up": NodeUse(1500, 1024)}
    assert reading.pods == {("x", "p"): PodSample(1800000000.0, 5_000_000, 1.0)}


@pytest.mark.anyio
async def test_rates_of_the_metrics_api_become_a_counter(server: FakeApi) -> None:
    def pods(second: int) -> dict[str, Any]:
        usage = {"cpu": "500m", "memory": "64Mi"}
        item = {
            "metadata": {"name": "p", "namespace": "x"},
            "timestamp": f"2027-01-15T08:00:{second:02}Z",
            "containers": [{"name": "task", "usage": usage}],
        }
        return {"items": [item]}

    nodes = {"items": [{"metadata": {"name": "n"}, "usage": {"cpu": "1", "memory": "1Gi"}}]}
    server.answers = [
        ("v1beta1/nodes", 200, {}, nodes),
        ("v1beta1/pods", 200, {}, pods(0)),
        ("v1beta1/nodes", 200, {}, nodes),
        ("v1beta1/pods", 200, {}, pods(10)),
    ]
    async with Api(Access(name="a", server=server.url)) as api:
        stats = Stats(api, UsageSource.METRICS)
        await stats.read({"n"})
        reading = await stats.read({"n"})
    assert reading.pods["x", "p"].cpu_us == 5_000_000
    assert reading.nodes["n"] == NodeUse(1000, 1024)


@pytest.mark.anyio
async def test_a_cluster_that_is_too_old_is_told_apart(server: FakeApi, tmp_path: Any) -> None:
    config = {
        "current-context": "c",
        "contexts": [{"name": "c", "context": {"cluster": "c"}}],
        "clusters": [{"name": "c", "cluster": {"server": server.url}}],
    }
    file = tmp_path / "config"
    file.write_text(json.dumps(config))
    server.answers = [
        ("/version", 200, {}, {"gitVersion": "v1.24.3", "major": "1", "minor": "24"}),
        ("selfsubjectreviews", 201, {}, {"status": {"userInfo": {"username": "me"}}}),
    ]
    checks = [check async for check in onboard(ClusterSettings(kubeconfig=str(file)))]
    assert (checks[-1].step, checks[-1].ok, checks[-1].detail) == (
        "version",
        False,
        "Kubernetes v1.24.3 is too old: 1.29 or newer is needed.",
    )
    assert "1.29" in checks[-1].remedy


# Meters

SAMPLES = st.lists(
    st.tuples(st.floats(0.5, 90), st.integers(0, 10**7), st.floats(0, 512)), min_size=1, max_size=30
)


@given(steps=SAMPLES)
def test_meters_only_grow_and_every_sample_lands_in_one_minute(steps: list[tuple[float, int, float]]) -> None:
    meter, minutes = PodMeter(AllocationId("a"), Meters()), Minutes(100)
    at, cpu_us, before, taken = 1000.0, 0, Meters(), 0
    for between_s, more_us, memory_mib in steps:
        at, cpu_us = at + between_s, cpu_us + more_us
        minutes.add(AllocationId("a"), meter.add(PodSample(at, cpu_us, memory_mib)))
        now = meter.meters(int((at - 1000) * 1000))
        for name in ("wall_ms", "cpu_us", "memory_mib_ms", "memory_peak_mib", "gap_ms"):
            assert getattr(now, name) >= getattr(before, name)
        before = now
    minutes.add(AllocationId("a"), meter.rest(1000.0, at))
    folded = minutes.beyond(-1)
    taken = sum(minute.samples for minute in folded)
    assert taken == len(steps), "the first only tells where the counters stood, and the end is one more"
    assert [minute.seq for minute in folded] == list(range(100, 100 + len(folded)))
    assert all(0 <= minute.cpu_mean_millis <= minute.cpu_max_millis * (1 + 1e-9) for minute in folded)
    assert minutes.beyond(100) == folded[1:]


def test_meters_go_on_from_what_an_earlier_process_wrote_down() -> None:
    meter = PodMeter(AllocationId("a"), Meters(wall_ms=60_000, cpu_us=9, memory_mib_ms=50, memory_peak_mib=7))
    meter.add(PodSample(10.0, 20, 1.0))
    now = meter.meters(61_000)
    assert (now.cpu_us, now.memory_mib_ms, now.memory_peak_mib, now.wall_ms) == (20, 50, 7, 61_000)


def test_the_peak_of_memory_is_kept_though_nobody_asked_while_it_lasted() -> None:
    meter = PodMeter(AllocationId("a"), Meters())
    for at, memory_mib in ((10.0, 5.0), (11.0, 80.0), (12.0, 0.0)):
        meter.add(PodSample(at, 1, memory_mib))
    assert meter.meters(2_000).memory_peak_mib == 80
