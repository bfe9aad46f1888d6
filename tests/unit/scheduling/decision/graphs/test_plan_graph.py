"""An app of components over a snapshot: where each goes, what each tie uses, and what stands in the way."""

from hypothesis import given, settings
from hypothesis import strategies as st

from yunhe.kernel.ids import JobId, NodeId, PoolId, ProjectId
from yunhe.kernel.resources import Accelerators, Resources
from yunhe.scheduling.decision.graphs.planning import plan_graph
from yunhe.scheduling.decision.model import (
    Alternative,
    Demand,
    GraphDemand,
    GraphPlaced,
    GraphWaiting,
    Part,
    Tie,
    TieRoute,
)
from yunhe.scheduling.perception.model import LinkFacts, NodeFacts, PoolFacts, SiteFacts
from yunhe.scheduling.perception.snapshot import Snapshot, SnapshotContext, build_snapshot


def part(
    name: str, cores: int = 1, *, pools: tuple[str, ...] = (), disk_mib: int = 0, gpus: float = 0
) -> Part:
    devices = (Accelerators("A100", round(gpus * 1000)),) if gpus else ()
    amount = Resources(cpu_millis=cores * 1000, memory_mib=1024, disk_mib=disk_mib, accelerators=devices)
    return Part(
        name,
        Demand(job_id=JobId(""), project_id=ProjectId("p"), alternatives=(Alternative(amount, pools),)),
    )


def world(
    pools: dict[str, list[int]],
    links: tuple[LinkFacts, ...] = (),
    *,
    sites: tuple[SiteFacts, ...] = (),
    gpus: int = 0,
) -> Snapshot:
    """Return pools of nodes with so many cores each, 8 GiB, 1 GiB of disk and *gpus* accelerators."""
    devices = (Accelerators("A100", gpus * 1000),) if gpus else ()
    nodes: list[NodeFacts] = []
    for pool, sizes in pools.items():
        for number, cores in enumerate(sizes):
            room = Resources(cpu_millis=cores * 1000, memory_mib=8192, disk_mib=1024, accelerators=devices)
            nodes.append(
                NodeFacts(id=NodeId(f"{pool}/n{number}"), pool_id=PoolId(pool), total=room, free=room)
            )
    return build_snapshot(
        [PoolFacts(id=PoolId(pool), name=pool) for pool in pools],
        nodes,
        version=7,
        taken_at=0.0,
        surroundings=SnapshotContext(sites=sites, links=links),
    )


def wire(
    source: str, target: str, mbps: float | None = 100.0, *, ms: float | None = 5.0, both: bool = True
) -> LinkFacts:
    return LinkFacts(source=source, target=target, bandwidth_mbps=mbps, latency_ms=ms, both_ways=both)


def app(*parts: Part, ties: tuple[Tie, ...] = ()) -> GraphDemand:
    return GraphDemand(parts=parts, ties=ties)


def placed(demand: GraphDemand, snapshot: Snapshot) -> GraphPlaced:
    plan = plan_graph(demand, snapshot)
    assert isinstance(plan, GraphPlaced), plan
    return plan


def waiting(demand: GraphDemand, snapshot: Snapshot) -> GraphWaiting:
    plan = plan_graph(demand, snapshot)
    assert isinstance(plan, GraphWaiting), plan
    return plan


APART = (part("web", pools=("a",)), part("db", pools=("b",)))
FLOW = Tie(source="web", target="db", mbps=60.0, max_latency_ms=10.0)


def test_components_in_two_pools_use_the_link_between_them() -> None:
    plan = placed(app(*APART, ties=(FLOW,)), world({"a": [4], "b": [4]}, (wire("a", "b"),)))
    assert [(one.name, one.pool_name, one.node_id) for one in plan.parts] == [
        ("web", "a", "a/n0"),
        ("db", "b", "b/n0"),
    ]
    assert plan.ties == (TieRoute(source="web", target="db", mbps=60.0, sites=("a", "b"), latency_ms=5.0),)
    assert plan.snapshot_version == 7


def test_inside_a_pool_nothing_is_taken_from_links_between_sites() -> None:
    big = app(part("web", 3), part("db", 3), ties=(Tie(source="web", target="db", mbps=1e6),))
    plan = placed(big, world({"a": [4, 4], "b": [4]}, (wire("a", "b"),)))
    assert {one.pool_name for one in plan.parts} == {"a"}
    assert plan.ties[0].sites == ("a",)


def test_two_ties_may_not_share_a_link_that_is_wide_enough_for_one() -> None:
    two = app(*APART, ties=(FLOW, FLOW))
    refused = waiting(two, world({"a": [4], "b": [4]}, (wire("a", "b"),)))
    assert refused.constraint == "link bandwidth"
    placed(two, world({"a": [4], "b": [4]}, (wire("a", "b"), wire("a", "b"))))


def test_a_tie_keeps_its_latency_and_what_is_unknown_is_never_promised() -> None:
    for slow in (wire("a", "b", ms=11.0), wire("a", "b", ms=None)):
        refused = waiting(app(*APART, ties=(FLOW,)), world({"a": [4], "b": [4]}, (slow,)))
        assert refused.constraint == "transfer delay"
    patient = Tie(source="web", target="db", mbps=60.0)
    free = placed(app(*APART, ties=(patient,)), world({"a": [4], "b": [4]}, (wire("a", "b", ms=None),)))
    assert free.ties[0].latency_ms is None
    unknown = world({"a": [4], "b": [4]}, (wire("a", "b", None),))
    assert waiting(app(*APART, ties=(FLOW,)), unknown).constraint == "link bandwidth"


def test_nothing_runs_against_a_one_way_link_or_through_a_site_that_relays_nothing() -> None:
    tie = (Tie(source="web", target="db", mbps=1.0),)
    against = world({"a": [4], "b": [4]}, (wire("b", "a", both=False),))
    assert "one-way" in waiting(app(*APART, ties=tie), against).detail
    placed(app(*APART, ties=tie), world({"a": [4], "b": [4]}, (wire("a", "b", both=False),)))
    for relays in (False, True):
        over = world(
            {"a": [4], "b": [4]},
            (wire("a", "x"), wire("x", "b")),
            sites=(SiteFacts("x", relays=relays),),
        )
        plan = plan_graph(app(*APART, ties=tie), over)
        if relays:
            assert isinstance(plan, GraphPlaced)
            assert plan.ties[0].sites == ("a", "x", "b")
        else:
            assert isinstance(plan, GraphWaiting)
            assert "x, which relays nothing" in plan.detail


def test_what_shares_a_node_goes_where_there_is_room_for_all_of_it() -> None:
    together = app(part("web", 3), part("db", 3), ties=(Tie(source="web", target="db", same_node=True),))
    plan = placed(together, world({"a": [4, 4, 6]}))
    assert [one.node_id for one in plan.parts] == ["a/n2", "a/n2"]
    assert plan.ties == (TieRoute(source="web", target="db", latency_ms=0.0),)
    refused = waiting(together, world({"a": [4, 4]}))
    assert "web and db" in refused.detail


def test_a_component_that_fits_nowhere_alone_says_so_like_any_other_demand() -> None:
    refused = waiting(app(part("web"), part("db", 9)), world({"a": [4], "b": [6]}))
    assert refused.part == "db"
    assert refused.rejected[0].pool_name == "b"
    assert refused.smallest_change == "ask for 6 cores: b has them free"


def test_disk_and_accelerators_of_a_node_are_not_given_twice() -> None:
    """The search weighs cores and memory; what else a node has is judged of the whole placement."""
    disks = app(part("web", disk_mib=600), part("db", disk_mib=600))
    assert len({one.node_id for one in placed(disks, world({"a": [9, 4]})).parts}) == 2
    assert "disk" in waiting(disks, world({"a": [9]})).detail
    cards = app(part("web", gpus=1), part("db", gpus=0.5))
    assert len({one.node_id for one in placed(cards, world({"a": [9, 4]}, gpus=1)).parts}) == 2
    assert "accelerators" in waiting(cards, world({"a": [9]}, gpus=1)).detail
    assert len({one.node_id for one in placed(cards, world({"a": [9]}, gpus=2)).parts}) == 1


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.lists(st.integers(1, 6), min_size=1, max_size=3), min_size=1, max_size=3),
    st.lists(st.integers(1, 4), min_size=2, max_size=4),
    st.data(),
)
def test_no_node_and_no_link_is_given_more_than_it_has(
    sizes: list[list[int]], cores: list[int], data: st.DataObject
) -> None:
    pools = {f"p{i}": nodes for i, nodes in enumerate(sizes)}
    wires = tuple(wire(f"p{i}", f"p{i + 1}") for i in range(len(sizes) - 1))
    snapshot = world(pools, wires)
    parts = tuple(part(f"c{i}", size) for i, size in enumerate(cores))
    ties = tuple(
        Tie(
            source=f"c{i}",
            target=f"c{i + 1}",
            mbps=float(data.draw(st.sampled_from([0, 40, 70]))),
            same_node=data.draw(st.booleans()),
        )
        for i in range(len(cores) - 1)
    )
    plan = plan_graph(app(*parts, ties=ties), snapshot)
    if isinstance(plan, GraphWaiting):
        return
    used: dict[str, int] = {}
    for one, size in zip(plan.parts, cores, strict=True):
        used[one.node_id] = used.get(one.node_id, 0) + size
    assert all(amount <= pools[node.split("/")[0]][int(node[-1])] for node, amount in used.items())
    at = {one.name: one.node_id for one in plan.parts}
    carried: dict[frozenset[str], float] = {}
    for tie, route in zip(ties, plan.ties, strict=True):
        assert not tie.same_node or at[tie.source] == at[tie.target]
        if route.sites:
            ends = (at[tie.source].split("/")[0], at[tie.target].split("/")[0])
            assert (route.sites[0], route.sites[-1]) == ends
        for pair in zip(route.sites, route.sites[1:], strict=False):
            carried[frozenset(pair)] = carried.get(frozenset(pair), 0.0) + tie.mbps
        assert len(route.sites) <= 2, "no pool of these relays"
    assert all(amount <= 100.0 for amount in carried.values())
