"""The nouns: a graph of components, the network that may carry it, and the answer with its reasons.

Symbols in brackets are those of the published formula this follows; ``constraints`` and ``value`` say what each means.
"""

from dataclasses import dataclass

import msgspec
import numpy as np
from numpy.typing import NDArray

from yunhe.kernel.errors import FieldProblem, InvalidInputError

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]


class Component(msgspec.Struct, frozen=True, kw_only=True):
    """One part of an app [u]."""

    name: str
    cpu: float = 0.0
    """Least compute it needs [C_u]."""
    storage: float = 0.0
    """Least storage it needs [S_u]."""
    run_s: float = 0.0
    """How long it computes on a node of speed 1."""
    nodes: tuple[str, ...] = ()
    """Where it may be, because of its data or its users [L(u, D)]; empty: anywhere."""


class GraphLink(msgspec.Struct, frozen=True, kw_only=True):
    """What flows between two components [d, u]."""

    source: str
    target: str
    bandwidth: float = 0.0
    latency_ms: float = float("inf")
    """Most delay the path may have [τ̂]."""
    reliability: float = 0.0
    """Least probability that both ends and everything between them work [ψ̂]."""
    data_mib: float = 0.0
    """What must arrive before the target can begin."""
    same_node: bool = False
    """Whether both ends must share a node, so that nothing crosses the network."""


class Graph(msgspec.Struct, frozen=True, kw_only=True):
    """An app: components, and what flows between them."""

    name: str
    components: tuple[Component, ...]
    links: tuple[GraphLink, ...] = ()
    distinct_nodes: bool = True
    """Whether no two components may share a node."""
    finish_s: float = float("inf")
    """Most time from the first beginning to the last end [T̂_U]."""

    def __post_init__(self) -> None:
        """Refuse a graph whose links lead nowhere or whose numbers make no sense."""
        names = [component.name for component in self.components]
        problems = [
            FieldProblem("components", "has a name twice", n) for n in set(names) if names.count(n) > 1
        ]
        for number, link in enumerate(self.links):
            problems += [
                FieldProblem(f"links[{number}]", "names no component", end)
                for end in (link.source, link.target)
                if end not in names
            ]
            if link.source == link.target:
                problems.append(
                    FieldProblem(f"links[{number}]", "leads back to where it begins", link.source)
                )
            problems += [FieldProblem(f"links[{number}]", problem) for problem in self._contradictions(link)]
        amounts = [(f"components.{c.name}", (c.cpu, c.storage, c.run_s)) for c in self.components]
        amounts += [
            (f"links.{link.source}-{link.target}", (link.bandwidth, link.data_mib)) for link in self.links
        ]
        problems += [FieldProblem(where, "is negative", str(min(a))) for where, a in amounts if min(a) < 0]
        if not names:
            problems.append(FieldProblem("components", "is empty"))
        if problems:
            raise InvalidInputError(f"Graph {self.name} cannot be placed as it is.", fields=tuple(problems))

    def _contradictions(self, link: GraphLink) -> list[str]:
        """Return what a link asks for that cannot be had together."""
        found: list[str] = []
        if link.data_mib > 0 and link.bandwidth == 0 and not link.same_node:
            found.append("moves data and asks for no bandwidth to move it over")
        if link.same_node and self.distinct_nodes:
            found.append("asks for one node where no two components may share one")
        return found


@dataclass(frozen=True, eq=False)
class SubstrateNetwork:
    """Nodes and undirected links between them, as columns; what is free now and what there is in all."""

    names: tuple[str, ...]
    cpu_total: FloatArray
    cpu_free: FloatArray
    storage_total: FloatArray
    storage_free: FloatArray
    speed: FloatArray
    node_reliability: FloatArray
    ends: IntArray
    """Two columns: the rows of the nodes at either end of each link."""
    bandwidth_total: FloatArray
    bandwidth_free: FloatArray
    latency_ms: FloatArray
    link_reliability: FloatArray
    watts: tuple[FloatArray, FloatArray] | None = None
    """What each node draws when it is on and idle, and when it is busy; None: not known of all of them."""

    def after(self, embedding: "Embedded", graph: Graph, *, sign: float = -1.0) -> "SubstrateNetwork":
        """Return the network once *embedding* has taken its share, or with ``sign=1`` given it back."""
        cpu, storage, bandwidth = (
            column.copy() for column in (self.cpu_free, self.storage_free, self.bandwidth_free)
        )
        row = {name: i for i, name in enumerate(self.names)}
        for component, node in zip(graph.components, embedding.nodes, strict=True):
            cpu[row[node]] += sign * component.cpu
            storage[row[node]] += sign * component.storage
        for link, path in zip(graph.links, embedding.paths, strict=True):
            for number in path:
                bandwidth[number] += sign * link.bandwidth
        return SubstrateNetwork(
            names=self.names,
            cpu_total=self.cpu_total,
            cpu_free=cpu,
            storage_total=self.storage_total,
            storage_free=storage,
            speed=self.speed,
            node_reliability=self.node_reliability,
            ends=self.ends,
            bandwidth_total=self.bandwidth_total,
            bandwidth_free=bandwidth,
            latency_ms=self.latency_ms,
            link_reliability=self.link_reliability,
            watts=self.watts,
        )


def network(
    nodes: dict[str, tuple[float, float]],
    links: list[tuple[str, str, float]],
    *,
    latency_ms: FloatArray | None = None,
    reliability: tuple[FloatArray, FloatArray] | None = None,
    speed: FloatArray | None = None,
) -> SubstrateNetwork:
    """Return an empty network from nodes (cpu, storage) and links (end, end, bandwidth).

    What is left out costs nothing: no delay, no failure, speed 1.
    """
    names = tuple(nodes)
    row = {name: i for i, name in enumerate(names)}
    cpu = np.array([cpu for cpu, _ in nodes.values()], dtype=float)
    storage = np.array([storage for _, storage in nodes.values()], dtype=float)
    bandwidth = np.array([b for _, _, b in links], dtype=float)
    node_reliability, link_reliability = reliability or (np.ones(len(nodes)), np.ones(len(links)))
    return SubstrateNetwork(
        names=names,
        cpu_total=cpu,
        cpu_free=cpu.copy(),
        storage_total=storage,
        storage_free=storage.copy(),
        speed=np.ones(len(nodes)) if speed is None else speed,
        node_reliability=node_reliability,
        ends=np.array([(row[a], row[b]) for a, b, _ in links], dtype=np.int64).reshape(-1, 2),
        bandwidth_total=bandwidth,
        bandwidth_free=bandwidth.copy(),
        latency_ms=np.zeros(len(links)) if latency_ms is None else latency_ms,
        link_reliability=link_reliability,
    )


class Embedded(msgspec.Struct, frozen=True, kw_only=True):
    """Where each component goes, and the links of the network that carry each link of the graph, in order."""

    nodes: tuple[str, ...]
    paths: tuple[tuple[int, ...], ...]
    cost: float
    """Bandwidth times links used, dear links counted more: what the placement takes from others."""


class Refused(msgspec.Struct, frozen=True, kw_only=True):
    """No placement was found; the constraint that stands in the way, and what it saw."""

    constraint: str
    detail: str


GraphDecision = Embedded | Refused
