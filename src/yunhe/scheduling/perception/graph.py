"""The graph of resources: cluster → node → resource, out of the same inventory that everybody reads."""

from collections.abc import Iterator, Sequence

from yunhe.control.pools.model import Pool, PoolNode, PoolState
from yunhe.scheduling.perception.model import Edge, ResourceGraph, Vertex, VertexKind


def build_graph(pools: Sequence[Pool], *, taken_at: float) -> ResourceGraph:
    """Return *pools* as a forest; what a cluster has is what its nodes have, no more and no less."""
    vertices: list[Vertex] = []
    edges: list[Edge] = []
    for pool in pools:
        vertices.append(_cluster(pool))
        for node in pool.nodes:
            vertices.append(_node(pool, node))
            edges.append(Edge(pool.id, node.id))
            for resource in _resources(node):
                vertices.append(resource)
                edges.append(Edge(node.id, resource.id))
    return ResourceGraph(taken_at=taken_at, vertices=tuple(vertices), edges=tuple(edges))


def _cluster(pool: Pool) -> Vertex:
    place = pool.spec.place
    known = {
        "engine": pool.engine,
        "kind": pool.spec.kind,
        "version": pool.engine_version,
        "region": place.region if place is not None else "",
        "level": place.level if place is not None and place.level is not None else "",
        "isolation": pool.isolation,
        "powers": " ".join(pool.powers),
    }
    return Vertex(
        id=pool.id,
        kind=VertexKind.CLUSTER,
        name=pool.spec.name,
        state=pool.standing,
        reason=pool.reason,
        attributes={name: value for name, value in known.items() if value},
        seen_at=pool.seen_at,
    )


def _node(pool: Pool, node: PoolNode) -> Vertex:
    return Vertex(
        id=node.id,
        kind=VertexKind.NODE,
        name=node.id.partition("/")[2],
        state=node_state(pool, node),
        reason=node.reason,
        seen_at=node.seen_at,
    )


def node_state(pool: Pool, node: PoolNode) -> str:
    """Return whether a node takes new work, and what keeps it from doing so if not."""
    if pool.drained or pool.state is not PoolState.READY:
        return pool.standing
    if node.cordoned:
        return "cordoned"
    return "ready" if node.ready else "not ready"


def _resources(node: PoolNode) -> Iterator[Vertex]:
    rows = [
        ("cpu", "millicores", node.total.cpu_millis, node.used.cpu_millis),
        ("memory", "MiB", node.total.memory_mib, node.used.memory_mib),
        ("disk", "MiB", node.total.disk_mib, node.used.disk_mib),
        *(
            (kind, "thousandths", node.total.accelerator_milli(kind), node.used.accelerator_milli(kind))
            for kind in sorted({a.kind for a in node.total.accelerators})
        ),
    ]
    for name, unit, total, used in rows:
        yield Vertex(
            id=f"{node.id}#{name}",
            kind=VertexKind.RESOURCE,
            name=name,
            unit=unit,
            total=total,
            used=used,
            seen_at=node.seen_at,
        )
