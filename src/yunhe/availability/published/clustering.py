"""FCA, the fast clustering algorithm of Teymourian, Izadkhah and Isazadeh (IEEE TSE 48(4), 2022).

It groups what depends on each other and knows nothing of availability: the paper's third baseline. Two
rounds over an undirected graph. First each node, those that stand out most in their neighbourhood first,
joins a neighbour of least degree for which it is one of least degree too. Then those left over join where
they have most links, and clusters they are tied between become one. A node without links stays alone.

The published source clears the wrong cluster after such a merge and then loses or repeats nodes; here the
merged clusters become one, as its text says.
"""

from collections.abc import Sequence
from typing import NamedTuple


class _Fit(NamedTuple):
    """How well a node fits a place, the least first: most links, then light, then small, then listed first."""

    missing_links: int
    weight: float
    size: int


class _Clustering:
    def __init__(self, neighbours: Sequence[frozenset[int]]) -> None:
        self._neighbours = neighbours
        self._degree = [len(near) for near in neighbours]
        self._reach = [sum(self._degree[other] for other in near) for near in neighbours]
        self.cluster_of: dict[int, frozenset[int]] = {}

    def order(self) -> list[int]:
        """Return the nodes that have links, the most prominent first."""

        def prominence(node: int) -> float:
            return self._reach[node] / sum(self._reach[other] for other in self._neighbours[node])

        linked = [node for node, near in enumerate(self._neighbours) if near]
        return sorted(linked, key=lambda node: -prominence(node))

    def join_mutual(self, node: int) -> bool:
        """Put *node* with its best mutual neighbour of least degree; say whether there was one."""
        mutual = [
            other
            for other in sorted(self._neighbours[node])
            if self._degree[other] == self._least(node) and self._degree[node] == self._least(other)
        ]
        if not mutual:
            return False
        self._unite(node, [min(mutual, key=lambda other: self._fit(node, other))])
        return True

    def join_most_linked(self, node: int) -> None:
        """Put *node* where it has most links, uniting all that are tied."""
        fits = {other: self._fit(node, other) for other in sorted(self._neighbours[node])}
        best = min(fits.values())
        if best.missing_links < -1:
            tied = [other for other, fit in fits.items() if fit.missing_links == best.missing_links]
        else:
            tied = [other for other, fit in fits.items() if fit == best]
        self._unite(node, tied)

    def touches_cluster(self, node: int) -> bool:
        return any(other in self.cluster_of for other in self._neighbours[node])

    def _least(self, node: int) -> int:
        return min(self._degree[other] for other in self._neighbours[node])

    def _fit(self, node: int, other: int) -> _Fit:
        cluster = self.cluster_of.get(other)
        if cluster is None:
            return _Fit(-1, self._degree[other] * self._reach[other], 1)
        reach = sum(self._reach[member] for member in cluster) / len(cluster)
        degree = sum(self._degree[member] for member in cluster) / len(cluster)
        return _Fit(-len(self._neighbours[node] & cluster), reach * degree, len(cluster))

    def _unite(self, node: int, others: Sequence[int]) -> None:
        members = {node}
        for other in others:
            members |= self.cluster_of.get(other, frozenset({other}))
        for member in members:
            self.cluster_of[member] = frozenset(members)


def fast_clusters(nodes: Sequence[str], links: Sequence[tuple[str, str]]) -> tuple[tuple[str, ...], ...]:
    """Return the clusters, in the order of their first node; ties fall to the order of *nodes*."""
    position = {name: index for index, name in enumerate(nodes)}
    near: list[set[int]] = [set() for _ in nodes]
    for a, b in links:
        near[position[a]].add(position[b])
        near[position[b]].add(position[a])
    clustering = _Clustering([frozenset(others - {node}) for node, others in enumerate(near)])
    clustered = clustering.cluster_of
    left_over = [
        node for node in clustering.order() if node not in clustered and not clustering.join_mutual(node)
    ]
    near_cluster = [node for node in left_over if clustering.touches_cluster(node)]
    far = [node for node in left_over if node not in near_cluster]
    for node in (*sorted(near_cluster, reverse=True), *far):
        if node not in clustered:
            clustering.join_most_linked(node)
    clusters = [clustered.get(node, frozenset({node})) for node in range(len(nodes))]
    return tuple(
        tuple(nodes[member] for member in sorted(cluster))
        for node, cluster in enumerate(clusters)
        if node == min(cluster)
    )
