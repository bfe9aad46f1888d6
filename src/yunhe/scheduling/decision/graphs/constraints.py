"""Every constraint on a placement, explicit, each with its name; written apart from what searches for placements.

Definitions, where the source leaves its symbols open: an app's components take just what they need, so c = C_u and
z = S_u; μ_C and μ_Z are a node's free compute and storage, μ_D a link's free bandwidth; a component ends after its
run time on its node's speed, and begins when all its data has arrived; data takes the path's delay plus its size over
the bandwidth reserved for it; the reliability of a link of the graph is the product of the reliabilities of both nodes
and of every link and node between them.
"""

import math
from graphlib import CycleError, TopologicalSorter

import msgspec

from yunhe.scheduling.decision.graphs.model import Embedded, Graph, GraphLink, SubstrateNetwork

TOLERANCE = 1e-9
MIB_PER_S_PER_UNIT = 1.0
"""One unit of bandwidth moves one MiB a second."""


class Violation(msgspec.Struct, frozen=True):
    """A constraint that a placement breaks."""

    constraint: str
    detail: str


def violations(graph: Graph, network: SubstrateNetwork, embedding: Embedded) -> tuple[Violation, ...]:
    """Return every constraint that *embedding* breaks on *network* as it is free now; empty: it may stand."""
    return (
        *_demand(graph, network, embedding),
        *_capacity(graph, network, embedding),
        *_bandwidth(graph, network, embedding),
        *_location(graph, embedding),
        *_together(graph, embedding),
        *_delay(graph, network, embedding),
        *_finish(graph, network, embedding),
        *_reliability(graph, network, embedding),
    )


def _rows(network: SubstrateNetwork, embedding: Embedded) -> list[int]:
    row = {name: i for i, name in enumerate(network.names)}
    return [row[node] for node in embedding.nodes]


def _demand(graph: Graph, network: SubstrateNetwork, embedding: Embedded) -> list[Violation]:
    """Each component's node has what the component needs: x·C_u ≤ c ≤ x·μ_C, x·S_u ≤ z ≤ x·μ_Z."""
    return [
        Violation("node demand", f"{component.name} needs more than {network.names[row]} has free")
        for component, row in zip(graph.components, _rows(network, embedding), strict=True)
        if component.cpu > network.cpu_free[row] + TOLERANCE
        or component.storage > network.storage_free[row] + TOLERANCE
    ]


def _capacity(graph: Graph, network: SubstrateNetwork, embedding: Embedded) -> list[Violation]:
    """All components of a node together fit: Σ x·c ≤ μ_C, Σ x·z ≤ μ_Z."""
    rows = _rows(network, embedding)
    broken: list[Violation] = []
    for row in set(rows):
        here = [c for c, r in zip(graph.components, rows, strict=True) if r == row]
        if (
            sum(c.cpu for c in here) > network.cpu_free[row] + TOLERANCE
            or sum(c.storage for c in here) > network.storage_free[row] + TOLERANCE
        ):
            broken.append(
                Violation("node capacity", f"{len(here)} components are too much for {network.names[row]}")
            )
        if graph.distinct_nodes and len(here) > 1:
            broken.append(Violation("distinct nodes", f"{len(here)} components share {network.names[row]}"))
    return broken


def _bandwidth(graph: Graph, network: SubstrateNetwork, embedding: Embedded) -> list[Violation]:
    """Every path joins its two nodes, and no link carries more than it has: Σ b ≤ μ_D."""
    row = dict(zip((c.name for c in graph.components), _rows(network, embedding), strict=True))
    broken: list[Violation] = []
    carried: dict[int, float] = {}
    for link, path in zip(graph.links, embedding.paths, strict=True):
        if _walk(network, row[link.source], path) != row[link.target]:
            broken.append(Violation("path", f"{link.source}-{link.target} is not joined by its path"))
        for number in path:
            carried[number] = carried.get(number, 0.0) + link.bandwidth
    broken += [
        Violation(
            "link bandwidth", f"link {number} carries {amount:g}, has {network.bandwidth_free[number]:g}"
        )
        for number, amount in carried.items()
        if amount > network.bandwidth_free[number] + TOLERANCE
    ]
    return broken


def _walk(network: SubstrateNetwork, at: int, path: tuple[int, ...]) -> int | None:
    """Return where a path leads from a node; None when it breaks off or visits a node twice."""
    visited = {at}
    for number in path:
        a, b = (int(end) for end in network.ends[number])
        if at not in (a, b):
            return None
        at = b if at == a else a
        if at in visited:
            return None
        visited.add(at)
    return at


def _location(graph: Graph, embedding: Embedded) -> list[Violation]:
    """Each component is where its data and its users let it be: L(u, D) = 1."""
    return [
        Violation("location", f"{component.name} may not be on {node}")
        for component, node in zip(graph.components, embedding.nodes, strict=True)
        if component.nodes and node not in component.nodes
    ]


def _together(graph: Graph, embedding: Embedded) -> list[Violation]:
    """Components whose link keeps them together share a node."""
    at = dict(zip((component.name for component in graph.components), embedding.nodes, strict=True))
    return [
        Violation("same node", f"{k.source} is on {at[k.source]}, {k.target} on {at[k.target]}")
        for k in graph.links
        if k.same_node and at[k.source] != at[k.target]
    ]


def path_latency_ms(network: SubstrateNetwork, path: tuple[int, ...]) -> float:
    """Return the delay along a path."""
    return float(sum(network.latency_ms[number] for number in path))


def _delay(graph: Graph, network: SubstrateNetwork, embedding: Embedded) -> list[Violation]:
    """No link of the graph is slower than it may be: τ ≤ τ̂."""
    return [
        Violation(
            "transfer delay", f"{link.source}-{link.target} takes {path_latency_ms(network, path):g} ms"
        )
        for link, path in zip(graph.links, embedding.paths, strict=True)
        if path_latency_ms(network, path) > link.latency_ms + TOLERANCE
    ]


def transfer_s(network: SubstrateNetwork, link: GraphLink, path: tuple[int, ...]) -> float:
    """Return how long a link's data is under way."""
    if not (link.data_mib and path):
        return path_latency_ms(network, path) / 1000
    rate = link.bandwidth * MIB_PER_S_PER_UNIT
    return path_latency_ms(network, path) / 1000 + (link.data_mib / rate if rate else math.inf)


def finish_s(graph: Graph, network: SubstrateNetwork, embedding: Embedded) -> float:
    """Return T(U): when the last component ends, if each begins once all its data is there."""
    rows = dict(zip((c.name for c in graph.components), _rows(network, embedding), strict=True))
    run_s = {c.name: c.run_s / float(network.speed[rows[c.name]]) for c in graph.components}
    into: dict[str, list[tuple[str, float]]] = {c.name: [] for c in graph.components}
    for link, path in zip(graph.links, embedding.paths, strict=True):
        into[link.target].append((link.source, transfer_s(network, link, path)))
    try:
        order = tuple(TopologicalSorter({name: {s for s, _ in into[name]} for name in into}).static_order())
    except CycleError:
        return max(run_s.values())  # components that feed each other in a ring run side by side
    end: dict[str, float] = {}
    for name in order:
        begin = max((end[source] + under_way for source, under_way in into[name]), default=0.0)
        end[name] = begin + run_s[name]
    return max(end.values())


def _finish(graph: Graph, network: SubstrateNetwork, embedding: Embedded) -> list[Violation]:
    """The app ends in time: T(U) ≤ T̂_U."""
    if graph.finish_s == float("inf"):
        return []
    takes = finish_s(graph, network, embedding)
    return [Violation("finish time", f"ends after {takes:g} s")] if takes > graph.finish_s + TOLERANCE else []


def path_reliability(network: SubstrateNetwork, begin: int, path: tuple[int, ...]) -> float:
    """Return ψ: the probability that both ends and everything between them work."""
    works, at = float(network.node_reliability[begin]), begin
    for number in path:
        a, b = (int(end) for end in network.ends[number])
        at = b if at == a else a
        works *= float(network.link_reliability[number] * network.node_reliability[at])
    return works


def _reliability(graph: Graph, network: SubstrateNetwork, embedding: Embedded) -> list[Violation]:
    """No link of the graph is less reliable than it must be: ψ ≥ ψ̂."""
    rows = dict(zip((c.name for c in graph.components), _rows(network, embedding), strict=True))
    return [
        Violation("reliability", f"{link.source}-{link.target} works with {works:.6f}")
        for link, path in zip(graph.links, embedding.paths, strict=True)
        if (works := path_reliability(network, rows[link.source], path)) < link.reliability - TOLERANCE
    ]
