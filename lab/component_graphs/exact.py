"""The exact answer for small graphs, by integer programming with HiGHS: for judging the search, and when time allows.

Needs the extra ``exact``. Every constraint of ``constraints`` is linear here: paths are unsplit flows, reliabilities are
sums of logarithms, and the finish time is a chain of ends.
"""

import math
from itertools import product
from typing import Any

import highspy

from yunhe.kernel.errors import InvalidInputError
from yunhe.scheduling.decision.graphs.constraints import MIB_PER_S_PER_UNIT, violations
from yunhe.scheduling.decision.graphs.model import Embedded, Graph, GraphDecision, Refused, SubstrateNetwork
from yunhe.scheduling.decision.graphs.value import IDLE_SHARE
from yunhe.scheduling.decision.model import GraphObjective

LARGEST = 4000
"""Most binary variables: components times nodes, and links times twice the network's links."""


def place_exactly(
    graph: Graph, network: SubstrateNetwork, *, weights: GraphObjective | None = None, limit_s: float = 60.0
) -> GraphDecision:
    """Return the placement that takes least bandwidth, or with *weights* the one of greatest value."""
    model = _GraphModel(graph, network)
    model.maximise_value(weights) if weights else model.minimise_bandwidth()
    return model.solve(limit_s)


class _GraphModel:
    def __init__(self, graph: Graph, network: SubstrateNetwork) -> None:
        self.graph, self.network = graph, network
        self.nodes = range(len(network.names))
        self.parts = range(len(graph.components))
        self.ways = [(int(a), int(b), e) for e, (a, b) in enumerate(network.ends)]
        self.ways += [(b, a, e) for a, b, e in self.ways]
        size = len(self.parts) * len(self.nodes) + len(graph.links) * len(self.ways)
        if size > LARGEST:
            raise InvalidInputError(
                f"This graph on this network has {size} choices, more than {LARGEST}.",
                remedy="Use the search (place_graph) for graphs of this size.",
            )
        self.h = highspy.Highs()
        self.h.silent()
        self.at = {(u, v): self.h.addBinary() for u, v in product(self.parts, self.nodes)}
        self.flow = {
            (k, w): self.h.addBinary() for k, w in product(range(len(graph.links)), range(len(self.ways)))
        }
        self.row = {component.name: u for u, component in enumerate(graph.components)}
        self._place_each_once()
        self._keep_within_nodes()
        self._route_each_link()
        self._keep_within_links()
        self._end_in_time()

    def _sum(self, terms: Any) -> Any:
        return self.h.qsum(terms)

    def _place_each_once(self) -> None:
        for u in self.parts:
            self.h.addConstr(self._sum(self.at[u, v] for v in self.nodes) == 1)
            component = self.graph.components[u]
            for v in self.nodes:
                if component.nodes and self.network.names[v] not in component.nodes:
                    self.h.addConstr(self.at[u, v] == 0)

    def _keep_within_nodes(self) -> None:
        parts = self.graph.components
        for v in self.nodes:
            here = [self.at[u, v] for u in self.parts]
            self.h.addConstr(
                self._sum(parts[u].cpu * x for u, x in enumerate(here)) <= float(self.network.cpu_free[v])
            )
            self.h.addConstr(
                self._sum(parts[u].storage * x for u, x in enumerate(here))
                <= float(self.network.storage_free[v])
            )
            if self.graph.distinct_nodes:
                self.h.addConstr(self._sum(here) <= 1)

    def _route_each_link(self) -> None:
        for k, link in enumerate(self.graph.links):
            source, target = self.row[link.source], self.row[link.target]
            for v in self.nodes:
                if link.same_node:
                    self.h.addConstr(self.at[source, v] == self.at[target, v])
                out = self._sum(self.flow[k, w] for w, (a, _, _) in enumerate(self.ways) if a == v)
                into = self._sum(self.flow[k, w] for w, (_, b, _) in enumerate(self.ways) if b == v)
                self.h.addConstr(out - into == self.at[source, v] - self.at[target, v])
            if link.latency_ms < math.inf and self.ways:
                delay = self._sum(
                    float(self.network.latency_ms[e]) * self.flow[k, w]
                    for w, (_, _, e) in enumerate(self.ways)
                )
                self.h.addConstr(delay <= link.latency_ms)
            if link.reliability > 0:
                self.h.addConstr(self._loss(k, source) <= -math.log(link.reliability))

    def _loss(self, k: int, source: int) -> Any:
        """Minus the logarithm of a link's reliability."""
        nodes, links = self.network.node_reliability, self.network.link_reliability
        begin = self._sum(_loss_of(nodes[v]) * self.at[source, v] for v in self.nodes)
        along = self._sum(
            (_loss_of(links[e]) + _loss_of(nodes[b])) * self.flow[k, w]
            for w, (_, b, e) in enumerate(self.ways)
        )
        return begin + along

    def _keep_within_links(self) -> None:
        for e in range(len(self.network.ends) if self.graph.links else 0):
            self.h.addConstr(self._carried(e) <= float(self.network.bandwidth_free[e]))

    def _carried(self, e: int) -> Any:
        """What the graph's links, of which there is at least one, send over a link of the network."""
        return self._sum(
            link.bandwidth * self.flow[k, w]
            for k, link in enumerate(self.graph.links)
            for w, (_, _, number) in enumerate(self.ways)
            if number == e
        )

    def _end_in_time(self) -> None:
        if self.graph.finish_s == math.inf:
            return
        ends = [self.h.addVariable(lb=0.0, ub=self.graph.finish_s) for _ in self.parts]
        for u, component in enumerate(self.graph.components):
            self.h.addConstr(ends[u] >= self._run_s(u, component.run_s))
        for k, link in enumerate(self.graph.links):
            source, target = self.row[link.source], self.row[link.target]
            under_way = self._sum(
                float(self.network.latency_ms[e]) / 1000 * self.flow[k, w]
                for w, (_, _, e) in enumerate(self.ways)
            )
            if link.data_mib and not link.same_node:
                apart = self.h.addBinary()
                for w in range(len(self.ways)):
                    self.h.addConstr(apart >= self.flow[k, w])
                under_way += link.data_mib / (link.bandwidth * MIB_PER_S_PER_UNIT) * apart
            run_s = self._run_s(target, self.graph.components[target].run_s)
            self.h.addConstr(ends[target] >= ends[source] + under_way + run_s)

    def _run_s(self, u: int, run_s: float) -> Any:
        return self._sum(run_s / float(self.network.speed[v]) * self.at[u, v] for v in self.nodes)

    def minimise_bandwidth(self) -> None:
        """Take as little bandwidth from others as can be."""
        self.objective = self._sum(
            (link.bandwidth + 1e-6) * self.flow[k, w]
            for k, link in enumerate(self.graph.links)
            for w in range(len(self.ways))
        )

    def maximise_value(self, weights: GraphObjective) -> None:
        """Follow ``value``: what it subtracts from the sum of the weights is made as small as can be."""
        network = self.network
        fullest_node, fullest_link = (self.h.addVariable(lb=0.0, ub=1.0) for _ in range(2))
        power: Any = 0.0
        for v in self.nodes:
            total = float(network.cpu_total[v])
            if total <= 0:
                continue
            taken = self._sum(c.cpu * self.at[u, v] for u, c in enumerate(self.graph.components))
            used = (total - float(network.cpu_free[v]) + taken) * (1 / total)
            self.h.addConstr(fullest_node >= used)
            on = self.h.addBinary()
            self.h.addConstr(on >= used)
            power = power + total * (IDLE_SHARE * on + (1 - IDLE_SHARE) * used)
        for e in range(len(network.ends)):
            total = float(network.bandwidth_total[e])
            if total > 0:
                carried = self._carried(e) if self.graph.links else 0.0
                self.h.addConstr(
                    fullest_link >= (total - float(network.bandwidth_free[e]) + carried) * (1 / total)
                )
        self.objective = (
            weights.nodes * fullest_node
            + weights.links * fullest_link
            + (weights.energy / float(network.cpu_total.sum())) * power
        )

    def solve(self, limit_s: float) -> GraphDecision:
        """Return the optimum as a placement."""
        self.h.setOptionValue("time_limit", limit_s)
        self.h.minimize(self.objective)
        status = self.h.getModelStatus()
        if status == highspy.HighsModelStatus.kInfeasible:
            return Refused(
                constraint="all together", detail="no placement satisfies every constraint (proven)"
            )
        if status != highspy.HighsModelStatus.kOptimal:
            return Refused(constraint="time", detail=f"not solved within {limit_s:g} s")
        answer = self._read()
        problems = violations(self.graph, self.network, answer)
        if problems:
            raise AssertionError(f"the exact model and the constraints disagree: {problems}")
        return answer

    def _read(self) -> Embedded:
        chosen = [next(v for v in self.nodes if self.h.val(self.at[u, v]) > 0.5) for u in self.parts]
        paths: list[tuple[int, ...]] = []
        cost = 0.0
        for k, link in enumerate(self.graph.links):
            follows = {
                a: (b, e) for w, (a, b, e) in enumerate(self.ways) if self.h.val(self.flow[k, w]) > 0.5
            }
            at, end, path = chosen[self.row[link.source]], chosen[self.row[link.target]], list[int]()
            while at != end:
                at, number = follows[at]
                path.append(number)
            paths.append(tuple(path))
            cost += link.bandwidth * len(path)
        return Embedded(nodes=tuple(self.network.names[v] for v in chosen), paths=tuple(paths), cost=cost)


def _loss_of(reliability: float) -> float:
    """Return minus the logarithm, without the crumbs that a solver would stumble over."""
    return round(-math.log(float(reliability)), 8)
