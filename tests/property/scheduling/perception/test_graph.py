"""The graph of resources agrees with the inventory it is made from, whatever that is."""

from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from yunhe.control.pools.model import Pool, PoolNode, PoolSpec, PoolState
from yunhe.kernel.ids import NodeId, PoolId
from yunhe.kernel.resources import Accelerators, Resources
from yunhe.scheduling.perception.graph import build_graph
from yunhe.scheduling.perception.model import VertexKind

amounts = st.integers(min_value=0, max_value=10**9)
accelerators = st.lists(
    st.builds(Accelerators, st.sampled_from(["A100", "H100", "910B"]), amounts),
    max_size=3,
    unique_by=lambda one: one.kind,
).map(tuple)
resources = st.builds(Resources, amounts, amounts, amounts, accelerators)


@st.composite
def pools(draw: st.DrawFn) -> tuple[Pool, ...]:
    found: list[Pool] = []
    for number in range(draw(st.integers(0, 4))):
        pool_id = PoolId(f"pool_{number}")
        nodes = tuple(
            PoolNode(
                id=NodeId(f"{pool_id}/n{index}"),
                pool_id=pool_id,
                total=draw(resources),
                used=draw(resources),
                ready=draw(st.booleans()),
                cordoned=draw(st.booleans()),
                seen_at=1.0,
            )
            for index in range(draw(st.integers(0, 4)))
        )
        spec = PoolSpec(name=f"p{number}", kind=draw(st.sampled_from(["local", "slurm", "x"])))
        state = draw(st.sampled_from(PoolState))
        found.append(Pool(id=pool_id, spec=spec, state=state, added_at=0.0, nodes=nodes))
    return tuple(found)


@pytest.mark.feature(
    "C35",
    file="src/yunhe/scheduling/perception/graph.py",
    old="Edge(pool.id, node.id)",
    new="Edge(pools[0].id, node.id)",
)
@settings(max_examples=100)
@given(pools())
def test_clusters_nodes_and_resources_are_those_of_the_inventory_and_their_sums_agree(
    inventory: tuple[Pool, ...],
) -> None:
    graph = build_graph(inventory, taken_at=2.0)
    vertices = {vertex.id: vertex for vertex in graph.vertices}
    assert len(vertices) == len(graph.vertices)
    assert all(edge.source in vertices and edge.target in vertices for edge in graph.edges)
    # A forest: every node has one cluster, every resource one node, and clusters are nobody's.
    parents = Counter(edge.target for edge in graph.edges)
    roots = {pool.id for pool in inventory}
    assert parents == {name: 1 for name in vertices if name not in roots}
    levels = [VertexKind.CLUSTER, VertexKind.NODE, VertexKind.RESOURCE]
    for edge in graph.edges:
        upper, lower = vertices[edge.source].kind, vertices[edge.target].kind
        assert levels.index(lower) == levels.index(upper) + 1
    below: dict[str, list[str]] = {}
    for edge in graph.edges:
        below.setdefault(edge.source, []).append(edge.target)
    for pool in inventory:
        assert below.get(pool.id, []) == [node.id for node in pool.nodes]
        held = [vertices[r] for node in below.get(pool.id, []) for r in below[node]]
        for name, unit, total in (
            ("cpu", "millicores", sum(node.total.cpu_millis for node in pool.nodes)),
            ("memory", "MiB", sum(node.total.memory_mib for node in pool.nodes)),
            ("disk", "MiB", sum(node.total.disk_mib for node in pool.nodes)),
            ("A100", "thousandths", sum(node.total.accelerator_milli("A100") for node in pool.nodes)),
        ):
            assert sum(vertex.total or 0 for vertex in held if vertex.name == name) == total
            assert {vertex.unit for vertex in held if vertex.name == name} <= {unit}
        used = sum(vertex.used or 0 for vertex in held if vertex.name == "cpu")
        assert used == sum(node.used.cpu_millis for node in pool.nodes)
