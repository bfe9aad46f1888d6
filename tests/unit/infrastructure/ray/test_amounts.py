"""Resources in Ray's words and in ours."""

import hypothesis.strategies as st
import msgspec
import pytest
from hypothesis import given, settings

from engines.ray_dashboard import RECORDED
from yunhe.infrastructure.contract.model import Throughput
from yunhe.infrastructure.ray import amounts
from yunhe.infrastructure.ray.wire import (
    Gpu,
    NodesAnswer,
    Raylet,
    RayNode,
    RayNodeStats,
    StateSnapshot,
    SummaryAnswer,
)
from yunhe.kernel.errors import InvalidInputError, UnsupportedError
from yunhe.kernel.resources import Accelerators, Resources

GIB = 1024**3


def node(name: str, offered: dict[str, float], state: str = "ALIVE") -> RayNode:
    return RayNode(node_id=name, node_ip="192.0.2.2", state=state, resources_total=offered)


PLAIN = node("n1", {"CPU": 4, "memory": 8 * GIB, "object_store_memory": 1e9, "node:192.0.2.2": 1})
TYPED = node("n2", {"CPU": 8, "memory": 16 * GIB, "GPU": 2, "accelerator_type:A100": 1})
CUSTOM = node("n3", {"CPU": 1, "memory": 1 * GIB, "fpga": 2})
UNTYPED = node("n4", {"CPU": 1, "memory": 1 * GIB, "GPU": 1})


def test_the_nodes_of_a_real_cluster_are_read() -> None:
    nodes = msgspec.convert(RECORDED["nodes"], NodesAnswer).nodes
    stats = msgspec.convert(RECORDED["summary"], SummaryAnswer).data.summary
    seen = amounts.inventory(nodes, stats, 5.0).nodes
    assert sorted((one.total.cpu_millis, one.total.memory_mib) for one in seen) == [
        (1000, 1024),
        (2000, 1024),
    ]
    assert {a.kind: a.milli for one in seen for a in one.total.accelerators} == {"fpga": 2000}
    for one in seen:
        assert one.ready
        assert one.total.covers(one.used)
        assert one.used.memory_mib > 0
        assert one.system is not None
        assert one.system.booted_at == 1794767694.0
        assert one.throughput == Throughput(received_bytes_per_s=0.0, sent_bytes_per_s=0.0)
    assert sorted((one.labels for one in seen), key=len) == [{}, {"resource/fpga": "2"}]
    assert sum(spec.count or 0 for spec in amounts.catalogue(nodes, stats).specs) == 2


def test_a_graphics_processor_is_of_its_type_and_anything_else_of_its_name() -> None:
    stats = RayNodeStats(gpus=[Gpu(40_000, 10_000, 50.0), Gpu(40_000, 0, 0.0)])
    assert amounts.total_of(TYPED, stats).accelerators == (Accelerators("A100", 2000, 80_000),)
    assert amounts.total_of(UNTYPED).accelerators == (Accelerators("GPU", 1000),)
    assert amounts.total_of(CUSTOM).accelerators == (Accelerators("fpga", 2000),)
    assert amounts.total_of(PLAIN).accelerators == ()


def test_what_is_asked_for_is_said_in_ray_s_words() -> None:
    every = [PLAIN, TYPED, CUSTOM, UNTYPED]
    a100 = amounts.ask(Resources(1500, 100, accelerators=(Accelerators("A100", 500),)), every)
    assert (a100.num_cpus, a100.memory, a100.num_gpus) == (1.5, 100 * 1024**2, 0.5)
    assert a100.resources == {"accelerator_type:A100": 0.001}
    any_gpu = amounts.ask(Resources(accelerators=(Accelerators("GPU", 1000),)), every)
    assert (any_gpu.num_gpus, any_gpu.resources) == (1.0, {})
    fpga = amounts.ask(Resources(accelerators=(Accelerators("fpga", 1000),)), every)
    assert (fpga.num_gpus, fpga.resources) == (0.0, {"fpga": 1.0})


@settings(max_examples=60)
@given(st.integers(0, 8000), st.integers(0, 16 * 1024))
def test_whatever_fits_a_node_is_asked_for_to_the_last_unit(cpu_millis: int, memory_mib: int) -> None:
    asked = amounts.ask(Resources(cpu_millis, memory_mib), [PLAIN, TYPED])
    assert round(asked.num_cpus * 1000) == cpu_millis
    assert asked.memory == memory_mib * 1024**2


@pytest.mark.parametrize(
    ("wanted", "field"),
    [
        (Resources(cpu_millis=9000), "resources.cpu_millis"),
        (Resources(memory_mib=17 * 1024), "resources.memory_mib"),
        (Resources(accelerators=(Accelerators("H100", 1000),)), "resources.accelerators"),
        (Resources(accelerators=(Accelerators("A100", 3000),)), "resources.accelerators"),
        (Resources(accelerators=(Accelerators("A100", 1500),)), "resources.accelerators"),
    ],
)
def test_what_no_node_has_is_refused_by_the_name_of_the_field(wanted: Resources, field: str) -> None:
    with pytest.raises(InvalidInputError) as refusal:
        amounts.ask(wanted, [PLAIN, TYPED])
    assert [problem.field for problem in refusal.value.fields] == [field]


def test_dead_nodes_are_left_out_draining_ones_are_not_ready_and_strange_ones_an_error() -> None:
    draining = RayNodeStats(raylet=Raylet(node_id="n1", state_snapshot=StateSnapshot("DRAINING")))
    seen = amounts.inventory([PLAIN, node("n9", {"CPU": 1}, "DEAD"), CUSTOM], [draining], 0.0).nodes
    assert [(one.id, one.ready) for one in seen] == [("n1", False), ("n3", False)]
    assert all(one.reason for one in seen)
    with pytest.raises(UnsupportedError, match="ASLEEP"):
        amounts.inventory([node("n9", {"CPU": 1}, "ASLEEP")], [], 0.0)
    assert [spec.name for spec in amounts.catalogue([PLAIN, PLAIN, CUSTOM], []).specs] == [
        "1-cpu-1024-mib-2-fpga",
        "4-cpu-8192-mib",
    ]
