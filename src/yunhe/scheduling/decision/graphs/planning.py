"""Where an app of components would go in the world as a snapshot shows it.

Nodes and sites are the vertices of one network. Each node hangs on its pool's site by a local link without a limit, so
that what a pool's nodes say to each other costs the links between sites nothing; those are the snapshot's own, as far as
their bandwidth is known. What a single node can take is judged by the rules of every other decision.
"""

import math
from typing import NamedTuple

import msgspec
import numpy as np

from yunhe.kernel.resources import Resources
from yunhe.scheduling.decision.cycle import Cycle
from yunhe.scheduling.decision.decide import decide_in
from yunhe.scheduling.decision.demands import check_demand
from yunhe.scheduling.decision.graphs.constraints import Violation, path_latency_ms
from yunhe.scheduling.decision.graphs.model import (
    Component,
    Embedded,
    FloatArray,
    Graph,
    GraphLink,
    Refused,
    SubstrateNetwork,
)
from yunhe.scheduling.decision.graphs.place import Search, improve_worth, place_graph
from yunhe.scheduling.decision.graphs.value import value
from yunhe.scheduling.decision.model import (
    Demand,
    GraphDemand,
    GraphPlaced,
    GraphWaiting,
    PartPlace,
    TieRoute,
    Waiting,
)
from yunhe.scheduling.decision.nodes import kernels
from yunhe.scheduling.perception.snapshot import Snapshot, check_snapshot

LOCAL_MBPS = 1e12
"""Stands for no limit: more than any sum of ties, and still a number that can be divided by."""
MOST_NODES = 1000
"""So many nodes are looked at, the roomiest of each pool: alike as its nodes are in reach, others add little."""
COMPILE_FROM_NODES = 100


def plan_graph(demand: GraphDemand, snapshot: Snapshot) -> GraphPlaced | GraphWaiting:
    """Return where every component of *demand* would go, or what stands in the way."""
    cycle = Cycle(check_snapshot(snapshot))
    able = {part.name: _able(check_demand(part.demand), cycle, len(demand.parts)) for part in demand.parts}
    for part in demand.parts:
        if not able[part.name]:
            return _alone(part.name, part.demand, cycle)
    ground = _Ground(snapshot, sorted({row for rows in able.values() for row in rows}))
    graph = _graph(demand, able)
    search = Search(tries=12, more_tries=60, compiled=len(ground.rows) >= COMPILE_FROM_NODES)
    answer = place_graph(
        graph, ground.network, search=search, also=lambda found: ground.broken(demand, found)
    )
    if isinstance(answer, Refused):
        return GraphWaiting(
            constraint=answer.constraint, detail=answer.detail, snapshot_version=snapshot.version
        )
    objective = demand.objective
    if objective is None:
        return ground.placed(demand, answer)
    best = improve_worth(
        graph,
        ground.network,
        answer,
        worth=lambda found: value(graph, ground.network, found, objective).total,
        also=lambda found: ground.broken(demand, found),
    )
    return msgspec.structs.replace(
        ground.placed(demand, best), value=value(graph, ground.network, best, objective)
    )


def _amount(demand: Demand) -> Resources:
    return demand.alternatives[0].resources


def _able(demand: Demand, cycle: Cycle, parts: int) -> list[int]:
    """Return the nodes that could take a component alone: in each pool as many as there are parts, the roomiest."""
    option, start = cycle.appraiser.option(demand, 0), cycle.snapshot.pool_start
    open_pools = np.flatnonzero(option.order < np.inf).tolist()
    most = max(1, min(parts, MOST_NODES // max(1, len(open_pools))))
    chosen = np.zeros((max(1, int(np.diff(cycle.snapshot.device_start).max(initial=0))), 3), dtype=np.int64)
    able: set[int] = set()
    for pool in open_pools:
        rows = np.arange(start[pool], start[pool + 1])
        for column in (0, 1):  # by cores, then by memory: who has most of one may have little of the other
            found = 0
            for row in rows[np.argsort(-cycle.room.free[rows, column], kind="stable")].tolist():
                if kernels.fits(cycle.room, row, option.ask, chosen):
                    able.add(row)
                    found += 1
                if found == most:
                    break
    return sorted(able)


def _alone(name: str, demand: Demand, cycle: Cycle) -> GraphWaiting:
    """Say why no node can take one component, whatever becomes of the others."""
    decision = decide_in(demand, cycle)
    waiting = decision if isinstance(decision, Waiting) else None
    return GraphWaiting(
        constraint="node demand",
        detail=f"no node can take {name}, even alone",
        part=name,
        rejected=() if waiting is None else waiting.nearest_first,
        smallest_change="" if waiting is None else waiting.smallest_change,
        snapshot_version=cycle.snapshot.version,
    )


def _graph(demand: GraphDemand, able: dict[str, list[int]]) -> Graph:
    """Return the graph as the search knows it: cores as compute, memory as storage, Mbit/s as bandwidth."""
    return Graph(
        name="app",
        components=tuple(
            Component(
                name=part.name,
                cpu=float(_amount(part.demand).cpu_millis),
                storage=float(_amount(part.demand).memory_mib),
                nodes=tuple(str(row) for row in able[part.name]),
            )
            for part in demand.parts
        ),
        links=tuple(
            GraphLink(
                source=tie.source,
                target=tie.target,
                bandwidth=tie.mbps,
                latency_ms=math.inf if tie.max_latency_ms is None else tie.max_latency_ms,
                same_node=tie.same_node,
            )
            for tie in demand.ties
        ),
        distinct_nodes=False,
    )


class _Wire(NamedTuple):
    """A link between two sites that can promise bandwidth."""

    link: int
    ends: tuple[int, int]
    both_ways: bool


class _Ground:
    """A snapshot as the network that graphs are placed on: a vertex for each of *rows*, then one for each site."""

    def __init__(self, snapshot: Snapshot, rows: list[int]) -> None:
        self._snapshot, self.rows = snapshot, rows
        self._wires = _wires(snapshot)
        self._site = {row: int(snapshot.network.pool_site[snapshot.node_pool[row]]) for row in rows}
        self.network = self._network()

    def _network(self) -> SubstrateNetwork:
        """Return the network; a delay that is unknown is as long as can be, so that no limit on it is promised."""
        snapshot, rows, sites = self._snapshot, self.rows, len(self._snapshot.network.sites)
        links = [wire.link for wire in self._wires]
        local = np.full(len(rows), LOCAL_MBPS)
        none, wide = np.zeros(sites), snapshot.network.bandwidth_mbps[links]
        free = snapshot.network.free_mbps[links]
        latency = snapshot.network.latency_ms[links]
        ends = [(number, len(rows) + self._site[row]) for number, row in enumerate(rows)]
        ends += [(len(rows) + wire.ends[0], len(rows) + wire.ends[1]) for wire in self._wires]
        return SubstrateNetwork(
            names=(*(str(row) for row in rows), *(f"site {site}" for site in range(sites))),
            cpu_total=np.concatenate([snapshot.cpu_total_millis[rows].astype(float), none]),
            cpu_free=np.concatenate([snapshot.cpu_free_millis[rows].astype(float), none]),
            storage_total=np.concatenate([snapshot.memory_total_mib[rows].astype(float), none]),
            storage_free=np.concatenate([snapshot.memory_free_mib[rows].astype(float), none]),
            speed=np.ones(len(rows) + sites),
            node_reliability=np.ones(len(rows) + sites),
            ends=np.array(ends, dtype=np.int64).reshape(-1, 2),
            bandwidth_total=np.concatenate([local, np.where(np.isnan(wide), free, wide)]),
            bandwidth_free=np.concatenate([local, free]),
            latency_ms=np.concatenate([np.zeros(len(rows)), np.where(np.isnan(latency), np.inf, latency)]),
            link_reliability=np.ones(len(ends)),
            watts=self._watts(),
        )

    def _watts(self) -> tuple[FloatArray, FloatArray] | None:
        """Return what each vertex draws idle and busy, with its site's share; None: not known of every node."""
        snapshot, none = self._snapshot, np.zeros(len(self._snapshot.network.sites))
        known = [snapshot.pools[snapshot.node_pool[row]].energy for row in self.rows]
        drawn = [
            (energy.watts_idle * energy.pue, energy.watts_per_core * energy.pue)
            for energy in known
            if energy is not None and energy.watts_idle is not None and energy.watts_per_core is not None
        ]
        if len(drawn) < len(known):
            return None
        idle, per_core = np.array(drawn).reshape(-1, 2).T
        full = idle + per_core * snapshot.cpu_total_millis[self.rows] / 1000
        return np.concatenate([idle, none]), np.concatenate([full, none])

    def broken(self, demand: GraphDemand, found: Embedded) -> tuple[Violation, ...]:
        """Return what a placement breaks that the search does not know of: devices, disk, and who lets whom pass."""
        return (*self._overfull(demand, found), *self._impassable(demand, found))

    def _overfull(self, demand: GraphDemand, found: Embedded) -> list[Violation]:
        taken = [
            (int(node), _amount(part.demand), ())
            for part, node in zip(demand.parts, found.nodes, strict=True)
        ]
        then, used = self._snapshot.after_all(taken), sorted({row for row, _, _ in taken})
        if (then.disk_free_mib[used] < 0).any():
            return [Violation("node capacity", "the disk of a node is too small for all that would be on it")]
        before = self._snapshot
        short = (then.device_free_milli < np.minimum(before.device_free_milli, 0)).any()
        if short or (then.device_memory_free_mib < np.minimum(before.device_memory_free_mib, 0)).any():
            return [Violation("node capacity", "a node has too few accelerators for all that would be on it")]
        return []

    def _impassable(self, demand: GraphDemand, found: Embedded) -> list[Violation]:
        """Say where a path runs against a link's direction or through a site that passes nothing on."""
        network, broken = self._snapshot.network, list[Violation]()
        at = dict(zip((part.name for part in demand.parts), found.nodes, strict=True))
        for tie, path in zip(demand.ties, found.paths, strict=True):
            sites, against = self._sites(int(at[tie.source]), path)
            if against:
                broken.append(
                    Violation("path", f"{tie.source}-{tie.target} would run against a one-way link")
                )
            broken += [
                Violation(
                    "path",
                    f"{tie.source}-{tie.target} would pass {network.sites[site]}, which relays nothing",
                )
                for site in sites[1:-1]
                if not network.relays[site]
            ]
        return broken

    def _sites(self, row: int, path: tuple[int, ...]) -> tuple[list[int], bool]:
        """Return the sites that a path from a node visits, and whether it runs against a link's direction."""
        if not path:
            return [], False
        sites, against = [self._site[row]], False
        for number in path:
            if number < len(self.rows):
                continue
            wire = self._wires[number - len(self.rows)]
            forward = wire.ends[0] == sites[-1]
            against |= not forward and not wire.both_ways
            sites.append(wire.ends[1] if forward else wire.ends[0])
        return sites, against

    def placed(self, demand: GraphDemand, found: Embedded) -> GraphPlaced:
        """Return a placement as people read it."""
        snapshot = self._snapshot
        at = dict(zip((part.name for part in demand.parts), (int(node) for node in found.nodes), strict=True))
        parts = [
            PartPlace(
                name=part.name,
                pool_id=snapshot.pools[snapshot.node_pool[at[part.name]]].id,
                pool_name=snapshot.pools[snapshot.node_pool[at[part.name]]].name,
                node_id=snapshot.node_ids[at[part.name]],
                resources=_amount(part.demand),
            )
            for part in demand.parts
        ]
        ties: list[TieRoute] = []
        for tie, path in zip(demand.ties, found.paths, strict=True):
            latency = path_latency_ms(self.network, path)
            sites, _ = self._sites(at[tie.source], path)
            ties.append(
                TieRoute(
                    source=tie.source,
                    target=tie.target,
                    mbps=tie.mbps,
                    sites=tuple(snapshot.network.sites[site] for site in sites),
                    latency_ms=latency if math.isfinite(latency) else None,
                )
            )
        return GraphPlaced(parts=tuple(parts), ties=tuple(ties), snapshot_version=snapshot.version)


def _wires(snapshot: Snapshot) -> list[_Wire]:
    """Return the links between sites whose bandwidth is known: what is unknown cannot be promised."""
    network = snapshot.network
    arcs: dict[int, list[tuple[int, int]]] = {}
    for site in range(len(network.sites)):
        for arc in range(int(network.arc_start[site]), int(network.arc_start[site + 1])):
            arcs.setdefault(int(network.arc_link[arc]), []).append((site, int(network.arc_target[arc])))
    return [
        _Wire(link, ways[0], len(ways) > 1)
        for link, ways in sorted(arcs.items())
        if not math.isnan(network.free_mbps[link]) and ways[0][0] != ways[0][1]
    ]
