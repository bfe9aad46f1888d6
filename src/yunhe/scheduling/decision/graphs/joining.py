"""Components that must share a node are placed as one, which makes the search both smaller and sure to keep them together."""

import msgspec

from yunhe.scheduling.decision.graphs.model import Component, Embedded, Graph


class MergedGraph:
    """A graph with each set of components that share a node made into one."""

    def __init__(self, graph: Graph) -> None:
        self.whole = self._whole = graph
        self._set_of = _sets(graph)
        self.graph = self._joined() if any(link.same_node for link in graph.links) else graph
        """What is searched for; the graph itself where nothing is kept together."""

    def _joined(self) -> Graph:
        members: dict[str, list[Component]] = {}
        for component in self._whole.components:
            members.setdefault(self._set_of[component.name], []).append(component)
        self._number = {name: number for number, name in enumerate(members)}
        self._kept = [k for k in self._whole.links if self._set_of[k.source] != self._set_of[k.target]]
        self._name = {name: " and ".join(one.name for one in ones) for name, ones in members.items()}
        return msgspec.structs.replace(
            self._whole,
            components=tuple(_one(self._name[name], ones) for name, ones in members.items()),
            links=tuple(
                msgspec.structs.replace(
                    link,
                    source=self._name[self._set_of[link.source]],
                    target=self._name[self._set_of[link.target]],
                )
                for link in self._kept
            ),
        )

    def joined_nodes(self, embedding: Embedded) -> tuple[str, ...]:
        """Return where a placement of the graph itself puts each of what was joined."""
        if self.graph is self._whole:
            return embedding.nodes
        at = dict(zip((one.name for one in self._whole.components), embedding.nodes, strict=True))
        first: dict[str, str] = {}
        for one in self._whole.components:
            first.setdefault(self._set_of[one.name], at[one.name])
        return tuple(first.values())

    def parted(self, embedding: Embedded) -> Embedded:
        """Return a placement of what was joined as one of the graph itself."""
        if self.graph is self._whole:
            return embedding
        path = iter(embedding.paths)
        return Embedded(
            nodes=tuple(
                embedding.nodes[self._number[self._set_of[one.name]]] for one in self._whole.components
            ),
            paths=tuple(
                () if self._set_of[k.source] == self._set_of[k.target] else next(path)
                for k in self._whole.links
            ),
            cost=embedding.cost,
        )


NOWHERE = "\0nowhere"
"""No node is called this: what may be nowhere at all."""


def _one(name: str, members: list[Component]) -> Component:
    """Return components as one: it needs what they need together, and may be where each of them may be."""
    where = [set(member.nodes) for member in members if member.nodes]
    shared = set[str].intersection(*where) if where else set[str]()
    return Component(
        name=name,
        cpu=sum(member.cpu for member in members),
        storage=sum(member.storage for member in members),
        run_s=max(member.run_s for member in members),
        nodes=(tuple(sorted(shared)) or (NOWHERE,)) if where else (),
    )


def _sets(graph: Graph) -> dict[str, str]:
    """Return for each component the one that stands for all that share its node."""
    parent = {component.name: component.name for component in graph.components}

    def top(name: str) -> str:
        while parent[name] != name:
            name = parent[name]
        return name

    for link in graph.links:
        if link.same_node:
            parent[top(link.source)] = top(link.target)
    return {name: top(name) for name in parent}
