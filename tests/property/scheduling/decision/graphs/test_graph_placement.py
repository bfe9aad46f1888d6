"""What every accepted placement of a graph keeps, each constraint on its own, and how near the search comes to the optimum."""

import math
from collections.abc import Callable
from itertools import product
from random import Random
from typing import NamedTuple

import msgspec
import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from lab.component_graphs.exact import place_exactly

from yunhe.kernel.errors import InvalidInputError
from yunhe.scheduling.decision.graphs.constraints import violations
from yunhe.scheduling.decision.graphs.model import (
    Component,
    Embedded,
    Graph,
    GraphLink,
    Refused,
    SubstrateNetwork,
    network,
)
from yunhe.scheduling.decision.graphs.place import Search, improve_worth, place_graph
from yunhe.scheduling.decision.graphs.value import value
from yunhe.scheduling.decision.model import GraphObjective

ALL_ALIKE = GraphObjective(nodes=1.0, links=1.0, energy=1.0)
PLAIN = Search(tries=12, more_tries=30, compiled=False)


@st.composite
def networks(draw: st.DrawFn) -> SubstrateNetwork:
    size = draw(st.integers(2, 6))
    names = [f"n{i}" for i in range(size)]
    nodes = {name: (float(draw(st.integers(1, 20))), float(draw(st.integers(1, 20)))) for name in names}
    pairs = [(names[draw(st.integers(0, i - 1))], names[i]) for i in range(1, size)]
    for a in range(size):
        for b in range(a + 1, size):
            if (names[a], names[b]) not in pairs and draw(st.booleans()):
                pairs.append((names[a], names[b]))
    links = [(a, b, float(draw(st.integers(1, 20)))) for a, b in pairs]
    some = st.floats(0.9, 1.0)
    return network(
        nodes,
        links,
        latency_ms=np.array([float(draw(st.integers(0, 10))) for _ in links]),
        reliability=(np.array([draw(some) for _ in names]), np.array([draw(some) for _ in links])),
        speed=np.array([float(draw(st.sampled_from([0.5, 1.0, 2.0]))) for _ in names]),
    )


@st.composite
def graphs(draw: st.DrawFn, *, together: bool = False) -> Graph:
    """Return a graph; *together*, some of its links keep their ends on one node."""
    size = draw(st.integers(1, 4))
    components = tuple(
        Component(
            name=f"c{i}",
            cpu=float(draw(st.integers(0, 8))),
            storage=float(draw(st.integers(0, 8))),
            run_s=float(draw(st.integers(0, 5))),
            nodes=draw(st.sampled_from([(), (), ("n0",), ("n0", "n1")])),
        )
        for i in range(size)
    )
    links = tuple(
        GraphLink(
            source=f"c{draw(st.integers(0, i - 1))}",
            target=f"c{i}",
            bandwidth=float(draw(st.integers(1, 8))),
            latency_ms=draw(st.sampled_from([math.inf, 4.0, 9.0])),
            reliability=draw(st.sampled_from([0.0, 0.85, 0.95])),
            data_mib=float(draw(st.integers(0, 4))),
            same_node=together and draw(st.booleans()),
        )
        for i in range(1, size)
    )
    return Graph(
        name="app",
        components=components,
        links=links,
        distinct_nodes=not together and draw(st.booleans()),
        finish_s=draw(st.sampled_from([math.inf, math.inf, 8.0])),
    )


def placed(graph: Graph, net: SubstrateNetwork) -> Embedded | None:
    answer = place_graph(graph, net, search=PLAIN)
    return answer if isinstance(answer, Embedded) else None


def rows(net: SubstrateNetwork, answer: Embedded) -> list[int]:
    return [net.names.index(node) for node in answer.nodes]


def shared_link() -> tuple[Graph, SubstrateNetwork]:
    """Return a graph two of whose links fit over a link of the network one by one and not together."""
    places = {"c0": "n0", "c1": "n2", "c2": "n2"}
    graph = Graph(
        name="app",
        components=tuple(Component(name=name, cpu=1.0, nodes=(node,)) for name, node in places.items()),
        links=tuple(GraphLink(source="c0", target=target, bandwidth=5.0) for target in ("c1", "c2")),
        distinct_nodes=False,
    )
    return graph, network(
        dict.fromkeys(("n0", "n1", "n2"), (9.0, 9.0)), [("n0", "n1", 20.0), ("n1", "n2", 8.0)]
    )


@pytest.mark.feature(
    "S41",
    file="src/yunhe/scheduling/decision/graphs/kernel.py",
    old="if not allowed[u, node] or cpu_free[node] < need[0][u] or storage_free[node] < need[1][u]:",
    new="if not allowed[u, node]:",
    also=[
        (
            "src/yunhe/scheduling/decision/graphs/constraints.py",
            "*_demand(graph, network, embedding),\n        *_capacity(graph, network, embedding),",
            "",
        )
    ],
)
@given(graphs(), networks())
def test_every_node_satisfies_the_demand_of_each_component_on_it(graph: Graph, net: SubstrateNetwork) -> None:
    if answer := placed(graph, net):
        for component, row in zip(graph.components, rows(net, answer), strict=True):
            assert component.cpu <= net.cpu_free[row]
            assert component.storage <= net.storage_free[row]


@pytest.mark.feature(
    "S42",
    file="src/yunhe/scheduling/decision/graphs/kernel.py",
    old="cpu_free[best] -= cpu[u]\n        storage_free[best] -= storage[u]\n        ",
    new="",
    also=[
        ("src/yunhe/scheduling/decision/graphs/constraints.py", "*_capacity(graph, network, embedding),", "")
    ],
)
@given(graphs(), networks())
def test_all_components_of_a_node_fit_together(graph: Graph, net: SubstrateNetwork) -> None:
    if answer := placed(graph, net):
        then = net.after(answer, graph)
        assert (then.cpu_free >= -1e-9).all()
        assert (then.storage_free >= -1e-9).all()
        if graph.distinct_nodes:
            assert len(set(answer.nodes)) == len(answer.nodes)


@pytest.mark.feature(
    "S43",
    file="src/yunhe/scheduling/decision/graphs/kernel.py",
    old="free[link] -= bandwidth[widest]",
    new="free[link] -= 0.0",
    also=[
        (
            "src/yunhe/scheduling/decision/graphs/constraints.py",
            "if amount > network.bandwidth_free[number] + TOLERANCE",
            "if amount < 0",
        )
    ],
)
@example(*shared_link())
@given(graphs(), networks())
def test_no_link_of_the_network_is_over_its_bandwidth_and_every_path_joins_its_ends(
    graph: Graph, net: SubstrateNetwork
) -> None:
    if answer := placed(graph, net):
        assert (net.after(answer, graph).bandwidth_free >= -1e-9).all()
        where = dict(zip((c.name for c in graph.components), rows(net, answer), strict=True))
        for link, path in zip(graph.links, answer.paths, strict=True):
            at = where[link.source]
            for number in path:
                a, b = net.ends[number]
                assert at in (a, b)
                at = int(a + b - at)
            assert at == where[link.target]


def in_place(graph: Graph, net: SubstrateNetwork, answer: Embedded) -> bool:
    """Whether each component is where it may be."""
    pairs = zip(graph.components, answer.nodes, strict=True)
    return all(not component.nodes or node in component.nodes for component, node in pairs)


def quick(graph: Graph, net: SubstrateNetwork, answer: Embedded) -> bool:
    """Whether no link of the graph takes longer to answer than it may."""
    pairs = zip(graph.links, answer.paths, strict=True)
    return all(sum(net.latency_ms[number] for number in path) <= link.latency_ms for link, path in pairs)


def in_time(graph: Graph, net: SubstrateNetwork, answer: Embedded) -> bool:
    """Whether all have ended in time, each beginning when what it waits for has arrived; links lead to later ones only."""
    ends: dict[str, float] = {}
    for component, row in zip(graph.components, rows(net, answer), strict=True):
        begins = [0.0]
        for link, path in zip(graph.links, answer.paths, strict=True):
            if link.target == component.name:
                moving = link.data_mib / link.bandwidth if path else 0.0
                begins.append(ends[link.source] + sum(net.latency_ms[n] for n in path) / 1000 + moving)
        ends[component.name] = max(begins) + component.run_s / net.speed[row]
    return max(ends.values()) <= graph.finish_s + 1e-9


def reliable(graph: Graph, net: SubstrateNetwork, answer: Embedded) -> bool:
    """Whether both ends of each link and all between them work as surely as they must."""
    where = dict(zip((c.name for c in graph.components), rows(net, answer), strict=True))
    for link, path in zip(graph.links, answer.paths, strict=True):
        at = where[link.source]
        works = net.node_reliability[at]
        for number in path:
            at = int(net.ends[number].sum() - at)
            works *= net.link_reliability[number] * net.node_reliability[at]
        if works < link.reliability - 1e-9:
            return False
    return True


@given(graphs(), networks())
def test_deadline_delay_and_location_hold(graph: Graph, net: SubstrateNetwork) -> None:
    if answer := placed(graph, net):
        assert in_place(graph, net, answer)
        assert quick(graph, net, answer)
        assert in_time(graph, net, answer)


@given(graphs(), networks())
def test_no_plan_is_less_reliable_than_it_must_be(graph: Graph, net: SubstrateNetwork) -> None:
    if answer := placed(graph, net):
        assert reliable(graph, net, answer)


class Limited(NamedTuple):
    """A constraint: how to ask for it and for nothing else, and whether a placement keeps it."""

    asked: Callable[[Graph, Random], Graph]
    kept: Callable[[Graph, SubstrateNetwork, Embedded], bool]


def _each_link(graph: Graph, **limits: float) -> Graph:
    links = tuple(msgspec.structs.replace(link, **limits) for link in graph.links)
    return msgspec.structs.replace(graph, links=links)


def _placed_apart(graph: Graph, rng: Random) -> Graph:
    components = [
        msgspec.structs.replace(c, nodes=tuple(rng.sample(["n0", "n1", "n2", "n3"], 2)))
        for c in graph.components
    ]
    return msgspec.structs.replace(graph, components=tuple(components))


def _answered_soon(graph: Graph, rng: Random) -> Graph:
    return _each_link(graph, latency_ms=rng.choice((2.0, 5.0)))


def _ended_soon(graph: Graph, rng: Random) -> Graph:
    return msgspec.structs.replace(graph, finish_s=rng.choice((4.0, 7.0)))


def _sure(graph: Graph, rng: Random) -> Graph:
    return _each_link(graph, reliability=rng.choice((0.85, 0.92)))


LIMITS = {
    "location": Limited(_placed_apart, in_place),
    "delay": Limited(_answered_soon, quick),
    "deadline": Limited(_ended_soon, in_time),
    "reliability": Limited(_sure, reliable),
}


@pytest.mark.parametrize("name", ["location", "delay", "deadline", "reliability"])
def test_each_limit_changes_placements_that_would_break_it(name: str) -> None:
    """The same graphs with and without one limit: where it binds, the answer is another placement that keeps it, or none."""
    limit, other, none = LIMITS[name], 0, 0
    for seed in range(120):
        rng = Random(seed)
        free, net = drawn(rng)
        graph = limit.asked(free, rng)
        without = placed(free, net)
        if without is None or limit.kept(graph, net, without):
            continue
        answer = placed(graph, net)
        assert answer is None or limit.kept(graph, net, answer), seed
        other, none = other + (answer is not None), none + (answer is None)
    assert other >= 5, "too few cases in which another placement keeps the limit"
    assert none >= 5, "too few cases in which no placement keeps the limit"


def drawn(rng: Random) -> tuple[Graph, SubstrateNetwork]:
    """A graph without limits, and a network whose parts differ in delay, speed and reliability."""
    names = ["n0", "n1", "n2", "n3", "n4"]
    links = [(a, b, float(rng.randint(4, 20))) for i, a in enumerate(names) for b in names[i + 1 :]]
    links = [link for link in links if rng.random() < 0.7 or link[:2] == ("n0", link[1])]
    net = network(
        {name: (float(rng.randint(4, 12)), 10.0) for name in names},
        links,
        latency_ms=np.array([float(rng.randint(0, 8)) for _ in links]),
        reliability=(
            np.array([rng.uniform(0.93, 1.0) for _ in names]),
            np.array([rng.uniform(0.9, 1.0) for _ in links]),
        ),
        speed=np.array([rng.choice((0.5, 1.0, 2.0)) for _ in names]),
    )
    size = rng.randint(2, 4)
    components = tuple(
        Component(name=f"c{i}", cpu=float(rng.randint(1, 6)), run_s=float(rng.randint(1, 4)))
        for i in range(size)
    )
    wires = tuple(
        GraphLink(
            source=f"c{rng.randrange(i)}", target=f"c{i}", bandwidth=float(rng.randint(1, 4)), data_mib=2.0
        )
        for i in range(1, size)
    )
    return Graph(name="app", components=components, links=wires), net


@given(graphs(), networks())
def test_taking_and_giving_back_leaves_the_network_as_it_was(graph: Graph, net: SubstrateNetwork) -> None:
    if answer := placed(graph, net):
        back = net.after(answer, graph).after(answer, graph, sign=1.0)
        assert np.allclose(back.cpu_free, net.cpu_free)
        assert np.allclose(back.bandwidth_free, net.bandwidth_free)


@settings(deadline=None)
@given(graphs(), networks())
def test_the_same_arguments_give_the_same_answer_compiled_or_not(graph: Graph, net: SubstrateNetwork) -> None:
    plain = place_graph(graph, net, search=PLAIN)
    assert plain == place_graph(graph, net, search=PLAIN)
    compiled = place_graph(graph, net, search=Search(tries=12, more_tries=30))
    assert type(plain) is type(compiled)
    if isinstance(plain, Embedded) and isinstance(compiled, Embedded):
        assert plain.cost == pytest.approx(compiled.cost)


@settings(max_examples=25, deadline=None)
@given(graphs(), networks())
def test_the_exact_model_never_finds_what_breaks_a_constraint_and_the_search_never_beats_it(
    graph: Graph, net: SubstrateNetwork
) -> None:
    exact = place_exactly(graph, net)
    found = placed(graph, net)
    if isinstance(exact, Refused):
        assert found is None, "the search found what the exact model proved impossible"
    else:
        assert violations(graph, net, exact) == ()
        if found is not None:
            hops = sum(k.bandwidth * len(p) for k, p in zip(graph.links, found.paths, strict=True))
            assert hops >= exact.cost - 1e-6


def test_on_random_graphs_the_search_is_near_the_optimum() -> None:
    random = np.random.default_rng(7)
    gaps: list[float] = []
    missed = feasible = 0
    for _ in range(25):
        net, graph = random_case(random)
        exact = place_exactly(graph, net)
        if not isinstance(exact, Embedded):
            continue
        feasible += 1
        answer = place_graph(graph, net)
        if not isinstance(answer, Embedded):
            missed += 1
            continue
        used = sum(k.bandwidth * len(p) for k, p in zip(graph.links, answer.paths, strict=True))
        gaps.append(used / exact.cost - 1)
    assert feasible >= 15
    assert missed <= 1
    assert float(np.median(gaps)) <= 0.05


def random_case(random: np.random.Generator) -> tuple[SubstrateNetwork, Graph]:
    size = 8
    nodes = {f"n{i}": (float(random.integers(5, 20)), 10.0) for i in range(size)}
    pairs = {(int(random.integers(0, i)), i) for i in range(1, size)}
    pairs |= {(a, b) for a in range(size) for b in range(a + 1, size) if random.random() < 0.25}
    net = network(nodes, [(f"n{a}", f"n{b}", float(random.integers(5, 20))) for a, b in sorted(pairs)])
    parts = tuple(Component(name=f"c{i}", cpu=float(random.integers(1, 12))) for i in range(4))
    ends = [(a, b) for a in range(4) for b in range(a + 1, 4) if random.random() < 0.7] or [(0, 1)]
    links = tuple(
        GraphLink(source=f"c{a}", target=f"c{b}", bandwidth=float(random.integers(1, 8))) for a, b in ends
    )
    return net, Graph(name="app", components=parts, links=links)


def test_the_value_agrees_with_cases_computed_by_hand() -> None:
    net = network({"a": (10.0, 0.0), "b": (20.0, 0.0)}, [("a", "b", 8.0)])
    graph = Graph(
        name="g",
        components=(Component(name="u", cpu=5.0), Component(name="v", cpu=5.0)),
        links=(GraphLink(source="u", target="v", bandwidth=2.0),),
        distinct_nodes=False,
    )
    apart = Embedded(nodes=("a", "b"), paths=((0,),), cost=2.0)
    together = Embedded(nodes=("b", "b"), paths=((),), cost=0.0)
    # apart: nodes 5/10 and 5/20, link 2/8; power 10·(.5+.5·.5) + 20·(.5+.5·.25) = 20 of 30
    assert value(graph, net, apart, ALL_ALIKE).total == pytest.approx((1 - 0.5) + (1 - 0.25) + (1 - 20 / 30))
    # together: node b 10/20, link unused; power 20·(.5+.5·.5) = 15 of 30
    assert value(graph, net, together, ALL_ALIKE).total == pytest.approx((1 - 0.5) + 1.0 + (1 - 15 / 30))
    only_links = GraphObjective(links=2.0)
    assert value(graph, net, apart, only_links).total == pytest.approx(1.5)
    best = place_exactly(graph, net, weights=ALL_ALIKE)
    assert isinstance(best, Embedded)
    assert best.nodes == ("b", "b")


@settings(max_examples=15, deadline=None)
@given(graphs(), networks())
def test_no_placement_found_by_search_is_worth_more_than_the_exact_one(
    graph: Graph, net: SubstrateNetwork
) -> None:
    best = place_exactly(graph, net, weights=ALL_ALIKE)
    found = placed(graph, net)
    if found is not None:
        assert isinstance(best, Embedded)
        assert value(graph, net, found, ALL_ALIKE).total <= value(graph, net, best, ALL_ALIKE).total + 1e-6


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 2**32 - 1))
def test_the_placement_of_most_worth_is_the_best_of_all_assignments(seed: int) -> None:
    random = np.random.default_rng(seed)
    sizes = {f"n{i}": (float(random.integers(2, 9)), 100.0) for i in range(4)}
    net = network(sizes, [])
    parts = tuple(Component(name=f"c{i}", cpu=float(random.integers(1, 5))) for i in range(3))
    graph = Graph(name="g", components=parts, distinct_nodes=False)
    objective = GraphObjective(nodes=random.random(), energy=random.random())
    start = placed(graph, net)
    if start is None:
        return

    def worth(found: Embedded) -> float:
        return value(graph, net, found, objective).total

    found = improve_worth(graph, net, start, worth=worth, also=lambda _: ())
    assert not violations(graph, net, found)
    every = [Embedded(nodes=names, paths=(), cost=0.0) for names in product(sizes, repeat=3)]
    assert worth(found) == pytest.approx(
        max(worth(one) for one in every if not violations(graph, net, one)), abs=1e-9
    )


BROKEN: dict[str, tuple[Graph, Embedded]] = {
    "node demand": (
        Graph(name="g", components=(Component(name="u", cpu=11.0),)),
        Embedded(nodes=("a",), paths=(), cost=0),
    ),
    "node capacity": (
        Graph(
            name="g",
            components=(Component(name="u", cpu=6.0), Component(name="v", cpu=6.0)),
            distinct_nodes=False,
        ),
        Embedded(nodes=("a", "a"), paths=(), cost=0),
    ),
    "distinct nodes": (
        Graph(name="g", components=(Component(name="u"), Component(name="v"))),
        Embedded(nodes=("a", "a"), paths=(), cost=0),
    ),
    "location": (
        Graph(name="g", components=(Component(name="u", nodes=("b",)),)),
        Embedded(nodes=("a",), paths=(), cost=0),
    ),
    "finish time": (
        Graph(name="g", components=(Component(name="u", run_s=9.0),), finish_s=8.0),
        Embedded(nodes=("a",), paths=(), cost=0),
    ),
    "same node": (
        Graph(
            name="g",
            components=(Component(name="u"), Component(name="v")),
            links=(GraphLink(source="u", target="v", same_node=True),),
            distinct_nodes=False,
        ),
        Embedded(nodes=("a", "b"), paths=((0,),), cost=0),
    ),
    **{
        name: (
            Graph(
                name="g",
                components=(Component(name="u"), Component(name="v")),
                links=(link,),
            ),
            Embedded(nodes=("a", "b"), paths=(path,), cost=0),
        )
        for name, link, path in (
            ("link bandwidth", GraphLink(source="u", target="v", bandwidth=9.0), (0,)),
            ("transfer delay", GraphLink(source="u", target="v", latency_ms=1.0), (0,)),
            ("reliability", GraphLink(source="u", target="v", reliability=0.99), (0,)),
            ("path", GraphLink(source="u", target="v"), ()),
        )
    },
}


@pytest.mark.feature(
    "S39",
    file="src/yunhe/scheduling/decision/graphs/constraints.py",
    old="*_reliability(graph, network, embedding),",
    new="",
)
@pytest.mark.parametrize("name", BROKEN)
def test_each_constraint_that_is_broken_is_named_and_the_refusal_names_it_too(name: str) -> None:
    net = network(
        {"a": (10.0, 0.0), "b": (10.0, 0.0)},
        [("a", "b", 8.0)],
        latency_ms=np.array([4.0]),
        reliability=(np.array([0.99, 0.99]), np.array([0.99])),
    )
    graph, wrong = BROKEN[name]
    assert name in [v.constraint for v in violations(graph, net, wrong)]
    answer = place_graph(graph, net, search=PLAIN)
    if isinstance(answer, Refused):
        also = {"node capacity": "node demand"}
        assert answer.constraint in (name, also.get(name))
        assert answer.detail
    else:
        assert name in ("node capacity", "distinct nodes", "location", "path", "same node"), (
            "another placement keeps these"
        )
        assert violations(graph, net, answer) == ()


def test_a_graph_that_makes_no_sense_is_refused_by_field() -> None:
    with pytest.raises(InvalidInputError) as refused:
        Graph(
            name="g",
            components=(Component(name="u", cpu=-1.0), Component(name="u")),
            links=(GraphLink(source="u", target="x"), GraphLink(source="u", target="u")),
        )
    assert {problem.field for problem in refused.value.fields} >= {
        "components",
        "links[0]",
        "links[1]",
        "components.u",
    }


@settings(deadline=None)
@given(graphs(together=True), networks())
def test_what_is_kept_together_shares_a_node_and_breaks_nothing_else(
    graph: Graph, net: SubstrateNetwork
) -> None:
    if answer := placed(graph, net):
        at = dict(zip((c.name for c in graph.components), answer.nodes, strict=True))
        assert all(at[k.source] == at[k.target] for k in graph.links if k.same_node)
        assert violations(graph, net, answer) == ()


@settings(max_examples=25, deadline=None)
@given(graphs(together=True), networks())
def test_the_exact_model_keeps_together_what_must_be_and_the_search_never_beats_it(
    graph: Graph, net: SubstrateNetwork
) -> None:
    exact, found = place_exactly(graph, net), placed(graph, net)
    if isinstance(exact, Embedded):
        at = dict(zip((c.name for c in graph.components), exact.nodes, strict=True))
        assert all(at[k.source] == at[k.target] for k in graph.links if k.same_node)
    else:
        assert found is None


def test_keeping_together_changes_where_components_go() -> None:
    """Apart they fit on two nodes; together only on the third, which is farther than either."""
    net = network({"a": (4.0, 0.0), "b": (4.0, 0.0), "c": (6.0, 0.0)}, [("a", "b", 9.0), ("b", "c", 9.0)])
    apart = Graph(
        name="g",
        components=(
            Component(name="u", cpu=3.0, nodes=("a", "c")),
            Component(name="v", cpu=3.0, nodes=("b", "c")),
        ),
        links=(GraphLink(source="u", target="v", bandwidth=1.0, data_mib=5.0),),
        distinct_nodes=False,
    )
    together = msgspec.structs.replace(
        apart, links=(GraphLink(source="u", target="v", data_mib=5.0, same_node=True),), finish_s=1.0
    )
    one = placed(together, net)
    assert one is not None
    assert one.nodes == ("c", "c")
    assert one.paths == ((),)
    both = msgspec.structs.replace(
        together, components=(Component(name="u", cpu=4.0), Component(name="v", cpu=3.0))
    )
    refused = place_graph(both, net, search=PLAIN)
    assert isinstance(refused, Refused)
    assert "u and v" in refused.detail
    nowhere = msgspec.structs.replace(
        together, components=(Component(name="u", nodes=("a",)), Component(name="v", nodes=("b",)))
    )
    assert place_graph(nowhere, net, search=PLAIN) == Refused(
        constraint="location", detail="u and v may only be where there is no node"
    )


@pytest.mark.parametrize(
    ("link", "distinct"),
    [
        (GraphLink(source="u", target="v", data_mib=5.0), False),
        (GraphLink(source="u", target="v", same_node=True), True),
    ],
    ids=["data over no bandwidth", "one node and never two on one"],
)
def test_a_link_that_contradicts_itself_is_refused_by_its_number(link: GraphLink, distinct: bool) -> None:
    parts = (Component(name="u"), Component(name="v"))
    with pytest.raises(InvalidInputError) as refused:
        Graph(name="g", components=parts, links=(link,), distinct_nodes=distinct, finish_s=9.0)
    assert [problem.field for problem in refused.value.fields] == ["links[0]"]
