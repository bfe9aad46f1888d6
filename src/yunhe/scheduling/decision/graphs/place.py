"""Placing a graph: several tries with a little noise, the best that breaks no constraint is taken."""

import math
from collections.abc import Callable
from functools import cache
from itertools import product
from typing import Any

import msgspec
import numpy as np

from yunhe.scheduling.decision.graphs import kernel
from yunhe.scheduling.decision.graphs.constraints import Violation, violations
from yunhe.scheduling.decision.graphs.joining import MergedGraph
from yunhe.scheduling.decision.graphs.model import (
    Embedded,
    FloatArray,
    Graph,
    GraphDecision,
    IntArray,
    Refused,
    SubstrateNetwork,
)


class Search(msgspec.Struct, frozen=True, kw_only=True):
    """How hard to look, and what to prefer."""

    tries: int = 30
    more_tries: int = 120
    """How many more to make when none of those found a place: a refusal should not be bad luck."""
    noise: float = 0.35
    """How far a score may be off in a noisy try; the first try has none."""
    steepness: float = 2.0
    """How much dearer a full link is than an empty one."""
    openness: float = 1.0
    """How much a node with free links around it is preferred for a component with ties still to come."""
    spare: float = 4.0
    """How much a node that stays roomy is preferred."""
    compiled: bool = True


DEFAULT = Search()


@cache
def _compiled() -> Any:
    """Compile the hot loop, on first use only: importing Numba takes longer than most decisions."""
    import numba  # noqa: PLC0415

    jit = numba.njit(cache=True, nogil=True)
    for name in ("cheapest_ways", "fill_prices", "next_component", "choose_node", "route_ties"):
        setattr(kernel, name, jit(getattr(kernel, name)))
    return jit(kernel.try_once)


class Wiring:
    """A network's links by node, made once and used for every graph placed on it."""

    def __init__(self, network: SubstrateNetwork) -> None:
        nodes = len(network.names)
        both_ways = np.concatenate([network.ends, network.ends[:, ::-1]])
        numbers = np.tile(np.arange(len(network.ends)), 2)
        order = np.argsort(both_ways[:, 0], kind="stable")
        self.first: IntArray = np.zeros(nodes + 1, dtype=np.int64)
        np.cumsum(np.bincount(both_ways[:, 0], minlength=nodes), out=self.first[1:])
        self.neighbour: IntArray = np.ascontiguousarray(both_ways[order, 1])
        self.number: IntArray = np.ascontiguousarray(numbers[order])

    @property
    def columns(self) -> tuple[IntArray, IntArray, IntArray]:
        """First slot of each node, the neighbour in each slot, and the link that leads there."""
        return self.first, self.neighbour, self.number


Also = Callable[[Embedded], tuple[Violation, ...]]
"""What else a placement must keep, beside the constraints of the graph itself."""


def place_graph(
    graph: Graph,
    network: SubstrateNetwork,
    *,
    seed: int = 0,
    search: Search = DEFAULT,
    wiring: Wiring | None = None,
    also: Also | None = None,
) -> GraphDecision:
    """Return where *graph* goes on *network* as it is free now, all of it, or what stands in the way.

    The same arguments give the same answer.
    """
    joined = MergedGraph(graph)
    hopeless = _hopeless(joined.graph, network)
    if hopeless is not None:
        return hopeless
    attempt = _Attempt(joined.graph, network, wiring or Wiring(network), search)
    random = np.random.default_rng(seed)
    best: Embedded | None = None
    broken: Violation | None = None
    for number in range(search.tries + search.more_tries):
        if number >= search.tries and best is not None:
            break
        tried = attempt.run(random if number else None)
        if tried is None or (best is not None and tried.cost >= best.cost):
            continue
        found = joined.parted(tried)
        problems = violations(graph, network, found) or (also(found) if also else ())
        if problems:
            broken = broken or problems[0]
        else:
            best = found
    if best is not None:
        return best
    if broken:
        detail = f"every placement that was found breaks it, the first because {broken.detail}"
        return Refused(constraint=broken.constraint, detail=detail)
    return Refused(
        constraint="link bandwidth",
        detail=f"no way wide enough was found in {search.tries + search.more_tries} tries",
    )


class _Attempt:
    """A graph and a network as the columns the kernel reads."""

    def __init__(self, graph: Graph, network: SubstrateNetwork, wiring: Wiring, search: Search) -> None:
        self._graph, self._network, self._search = graph, network, search
        self._wires = wiring.columns
        row = {component.name: i for i, component in enumerate(graph.components)}
        self._need = (
            np.array([c.cpu for c in graph.components], dtype=float),
            np.array([c.storage for c in graph.components], dtype=float),
        )
        self._allowed = np.array(
            [[not c.nodes or name in c.nodes for name in network.names] for c in graph.components]
        )
        self._links = (
            np.array([(row[k.source], row[k.target]) for k in graph.links], dtype=np.int64).reshape(-1, 2),
            np.array([k.bandwidth for k in graph.links], dtype=float),
        )
        self._try: Any = _compiled() if search.compiled else kernel.try_once

    def rows(self) -> list[list[int]]:
        """Return the nodes that each component may be on and fits on alone."""
        cpu, storage = self._need
        free = self._network
        return [
            np.flatnonzero(
                self._allowed[i] & (free.cpu_free >= cpu[i]) & (free.storage_free >= storage[i])
            ).tolist()
            for i in range(len(cpu))
        ]

    def run(self, random: np.random.Generator | None, at: tuple[int, ...] = ()) -> Embedded | None:
        """Try once, with noise when there is a source of it; components only go where *at* says, if it does."""
        allowed = self._allowed
        if at:
            allowed = np.zeros_like(self._allowed)
            allowed[np.arange(len(at)), list(at)] = True
        components, nodes, links = (
            len(self._graph.components),
            len(self._network.names),
            len(self._graph.links),
        )
        out = (
            np.empty(components, np.int64),
            np.zeros(links, np.int64),
            np.empty((links, nodes), np.int64),
        )
        network, search = self._network, self._search
        settings = (search.steepness, search.openness, search.spare, float(self._graph.distinct_nodes))
        cost = self._try(
            self._need,
            allowed,
            self._links,
            (network.cpu_free, network.storage_free, network.bandwidth_free),
            (network.cpu_total, network.bandwidth_total),
            self._wires,
            self._noise(random, components, nodes),
            settings,
            out,
        )
        if cost < 0:
            return None
        chosen, lengths, paths = out
        return Embedded(
            nodes=tuple(network.names[int(row)] for row in chosen),
            paths=tuple(tuple(int(n) for n in paths[k, : lengths[k]]) for k in range(links)),
            cost=float(cost),
        )

    def _noise(self, random: np.random.Generator | None, components: int, nodes: int) -> FloatArray:
        """Return a factor for each score, and in the last column something to vary the order by."""
        noise = np.ones((components, nodes + 1))
        noise[:, nodes] = 0.0
        if random is not None:
            noise[:, :nodes] += self._search.noise * random.random((components, nodes))
            weight = self._links[1].mean() if len(self._links[1]) else 1.0
            noise[:, nodes] = random.random(components) * weight * 2
        return noise


Worth = Callable[[Embedded], float]
"""What a placement is worth; more is better."""


def improve_worth(
    graph: Graph, network: SubstrateNetwork, found: Embedded, *, worth: Worth, also: Also
) -> Embedded:
    """Return a placement worth at least as much as *found*: the best of all where there are few, else of many.

    Components are put on nodes one way after another; what flows between them takes the ways of least bandwidth.
    """
    joined, search = MergedGraph(graph), Search(compiled=False)
    attempt = _Attempt(joined.graph, network, Wiring(network), search)
    climb = _Climb(joined, network, attempt, worth, also)
    return climb.every_way(found) if climb.ways <= MOST_WAYS else climb.single_moves(found)


MOST_WAYS = 400
"""So many ways to put components on nodes are looked at."""


class _Climb:
    """Placements of one graph by what they are worth."""

    def __init__(
        self, joined: MergedGraph, network: SubstrateNetwork, attempt: "_Attempt", worth: Worth, also: Also
    ) -> None:
        self._joined, self._network, self._attempt = joined, network, attempt
        self._worth, self._also = worth, also
        self._rows = attempt.rows()
        self.ways = math.prod(len(rows) for rows in self._rows)

    def every_way(self, best: Embedded) -> Embedded:
        """Return the best of all ways to put components on nodes."""
        for rows in product(*self._rows):
            best = self._better(best, rows)
        return best

    def single_moves(self, best: Embedded) -> Embedded:
        """Return what moves of one component after another reach, as far as ``MOST_WAYS`` go."""
        row = {name: i for i, name in enumerate(self._network.names)}
        tries = MOST_WAYS
        gained = True
        while gained and tries > 0:
            gained = False
            for number, rows in enumerate(self._rows):
                for other in rows[: max(0, tries)]:
                    at = [row[name] for name in self._joined.joined_nodes(best)]
                    at[number] = other
                    better = self._better(best, tuple(at))
                    gained |= better is not best
                    best = better
                tries -= len(rows)
        return best

    def _better(self, best: Embedded, rows: tuple[int, ...]) -> Embedded:
        tried = self._attempt.run(None, rows)
        if tried is None:
            return best
        found = self._joined.parted(tried)
        if violations(self._joined.whole, self._network, found) or self._also(found):
            return best
        return found if self._worth(found) > self._worth(best) + 1e-12 else best


def _hopeless(graph: Graph, network: SubstrateNetwork) -> Refused | None:
    """Name a component that no node could take even alone."""
    row = {name: i for i, name in enumerate(network.names)}
    for component in graph.components:
        rows = (
            [row[node] for node in component.nodes if node in row] if component.nodes else list(row.values())
        )
        if not rows:
            return Refused(
                constraint="location", detail=f"{component.name} may only be where there is no node"
            )
        roomy = (network.cpu_free[rows] >= component.cpu) & (network.storage_free[rows] >= component.storage)
        if not roomy.any():
            return Refused(
                constraint="node demand",
                detail=f"{component.name} needs more than any node it may use has free",
            )
    if graph.distinct_nodes and len(graph.components) > len(network.names):
        return Refused(
            constraint="distinct nodes",
            detail=f"{len(graph.components)} components, {len(network.names)} nodes",
        )
    return None
