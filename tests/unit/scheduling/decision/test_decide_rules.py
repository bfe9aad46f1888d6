"""Every constraint has a name, and the rejection carries it."""

from typing import Any

import pytest

from support.worlds import NOW, cores, demand, node, pool, prices, world
from yunhe.kernel.ids import NodeId, PoolId, ProjectId
from yunhe.kernel.places import Level, Place
from yunhe.kernel.resources import Accelerators, Resources
from yunhe.scheduling.decision.cycle import Cycle
from yunhe.scheduling.decision.decide import decide
from yunhe.scheduling.decision.filter.explain import count_refusals, why_not
from yunhe.scheduling.decision.model import (
    Affinity,
    Alternative,
    DataNeed,
    Demand,
    Domain,
    Placed,
    Policy,
    Spread,
    Traffic,
    Waiting,
)
from yunhe.scheduling.perception.model import DatasetFacts, LinkFacts, PoolFacts, SiteFacts

BEIJING = Place("cn-north", 39.9, 116.4, Level.CENTRAL)
GPU = Accelerators("a100", 1000, 16_000)


def only(name: str, **facts: Any) -> PoolFacts:
    """The one pool of a world, with every good property."""
    good: dict[str, Any] = {
        "place": BEIJING,
        "prices": prices(0.05),
        "speed": 1.0,
        "reliability": 0.999,
        "wait_s": 0.0,
    }
    return pool(name, **{**good, **facts})


def roomy(**facts: Any) -> Any:
    return node("n1", "p", Resources(8000, 8192, 8000, (GPU,)), **facts)


REFUSALS: list[tuple[str, PoolFacts, Any, Demand, str]] = [
    ("accepting", only("p", accepts=False, why_not="draining"), roomy(), demand(), "draining"),
    ("named", only("p"), roomy(), demand(pools=("q",)), "only q asked for"),
    ("fresh", only("p"), roomy(), demand(avoid_pools=(PoolId("p"),)), "just failed here"),
    ("serving", only("p", only_project=ProjectId("other")), roomy(), demand(), "another project"),
    ("resident", only("p"), roomy(), demand(residency=("eu",)), "is in cn-north, must stay in eu"),
    ("resident", only("p", place=None), roomy(), demand(residency=("cn",)), "an unknown region"),
    ("level", only("p"), roomy(), demand(levels=(Level.EDGE,)), "is at level central, edge asked for"),
    ("tolerated", only("p", taints=("maintenance",)), roomy(), demand(), "is tainted maintenance"),
    ("tolerated", only("p"), roomy(taints=("spot=yes",)), demand(), "is tainted spot=yes"),
    (
        "able",
        only("p", powers=("resize",), missing={"images": "It has neither podman nor docker."}),
        roomy(),
        demand(powers=("images",)),
        "has no images: It has neither podman nor docker.",
    ),
    ("able", only("p"), roomy(), demand(powers=("images",)), "has no images: whether it could is not known"),
    (
        "able",
        only("p"),
        roomy(),
        demand(powers=("sandboxed",)),
        "has no sandboxed: its hosts have no working gVisor (yunhe pool show says why); install runsc there",
    ),
    (
        "able",
        only("p"),
        roomy(),
        demand(powers=("python",)),
        "has no python: only hosts make Python environments; install in setup instead, or run in an image",
    ),
    ("architecture", only("p"), roomy(isa="amd64"), demand(isa=("arm64",)), "is amd64, arm64 asked for"),
    ("architecture", only("p"), roomy(), demand(isa=("arm64",)), "is unknown, arm64 asked for"),
    ("labelled", only("p"), roomy(labels={"disk": "hdd"}), demand(where=("disk=ssd",)), "disk=hdd"),
    (
        "together",
        only("p"),
        roomy(groups=("web",)),
        demand(affinity=(Affinity("web", Domain.POOL, apart=True),)),
        "web runs in this pool",
    ),
    ("together", only("p"), roomy(), demand(affinity=(Affinity("db", Domain.NODE),)), "db"),
    (
        "together",
        only("p"),
        roomy(groups=("web", "web")),
        demand(groups=("web",), spread=Spread(Domain.POOL, 2)),
        "2 of web run in this pool, at most 2 asked for",
    ),
    (
        "together",
        only("p"),
        roomy(groups=("web",)),
        demand(groups=("web",), spread=Spread(Domain.REGION, 1)),
        "1 of web runs in this region, at most 1 asked for",
    ),
    (
        "together",
        only("p"),
        roomy(groups=("web", "db")),
        demand(groups=("web",), spread=Spread(Domain.NODE, 1)),
        "as many of web run here as asked for: 1",
    ),
    (
        "reliable",
        only("p", reliability=None, too_old={"reliability": "told 2 d ago"}),
        roomy(),
        demand(reliability_min=0.9),
        "unknown how sure to finish, 90 % asked for; its reliability was told 2 d ago",
    ),
    (
        "resident",
        only("p", place=None, too_old={"place": "told 2 d ago", "speed": "told 2 d ago"}),
        roomy(),
        demand(residency=("cn",)),
        "is in an unknown region, must stay in cn; its place was told 2 d ago",
    ),
    (
        "known",
        only("p", speed=None, too_old={"place": "told 2 d ago", "speed": "told 2 d ago"}),
        roomy(),
        demand(policy=Policy.FASTEST),
        "yunhe pool set NAME --speed 1.2; its speed was told 2 d ago",
    ),
    (
        "affordable",
        only("p"),
        roomy(),
        demand(cores(2), budget_per_hour_micros=50_000),
        "¥0.1000/h, over the budget of ¥0.0500/h",
    ),
    (
        "affordable",
        only("p", prices=None),
        roomy(),
        demand(budget_per_hour_micros=50_000),
        "price unknown",
    ),
    (
        "affordable",
        only("p", reliability=None),
        roomy(),
        demand(cores(2), run_s=7200.0, budget_micros=100_000),
        "¥0.2000 in all, over the budget of ¥0.1000 in all",
    ),
    (
        "timely",
        only("p", wait_s=600.0),
        roomy(),
        demand(run_s=60.0, deadline_at=NOW + 300),
        "done in ~11 min, due in 5 min",
    ),
    (
        "reliable",
        only("p", reliability=0.9),
        roomy(),
        demand(run_s=7200.0, reliability_min=0.85),
        "81 % sure to finish, 85 % asked for",
    ),
    ("reliable", only("p", reliability=None), roomy(), demand(reliability_min=0.5), "unknown how"),
    (
        "reachable",
        only("p"),
        roomy(),
        demand(near=Place("eu-west", 48.9, 2.3), max_latency_ms=20.0),
        "20 ms allowed",
    ),
    (
        "linked",
        only("p"),
        roomy(),
        demand(traffic=(Traffic(site="users", mbps=500.0),)),
        "no route from users has 500 Mbit/s free",
    ),
    (
        "reachable",
        only("p"),
        roomy(),
        demand(traffic=(Traffic(site="users", mbps=10.0, max_latency_ms=5.0),)),
        "30 ms from users, 5 ms allowed",
    ),
    (
        "resident",
        only("p"),
        roomy(),
        demand(data=(DataNeed(dataset="secret"),)),
        "dataset secret may not leave eu",
    ),
    (
        "linked",
        only("p"),
        roomy(),
        demand(data=(DataNeed(dataset="corpus", rate_mbps=500.0),)),
        "no route for corpus has 500 Mbit/s free",
    ),
    ("roomy", only("p"), roomy(), demand(cores(9, 1)), "9 cores asked, 8 free"),
    ("roomy", only("p"), roomy(), demand(cores(1, 16)), "16 GiB asked, 8 GiB free"),
    ("roomy", only("p"), roomy(), demand(Resources(1000, 0, 9000)), "disk asked"),
    (
        "roomy",
        only("p"),
        roomy(),
        demand(cores(1, 1, Accelerators("a100", 2000))),
        "2 × a100 asked, 1 free",
    ),
    (
        "roomy",
        only("p"),
        roomy(),
        demand(cores(1, 1, Accelerators("a100", 500, 32_000))),
        "0.5 × a100 with 31.2 GiB asked, 0 free",
    ),
    ("roomy", only("p"), roomy(), demand(cores(3), members=4), "4 asked together, room for 2"),
    (
        "roomy",
        only("p"),
        roomy(),
        demand(cores(1), members=2, spread=Spread(Domain.NODE, 1)),
        "2 asked together, room for 1",
    ),
]

AROUND: dict[str, Any] = {
    "sites": [SiteFacts("users", "cn-north", relays=False)],
    "links": [LinkFacts(source="users", target="p", bandwidth_mbps=100.0, latency_ms=30.0)],
    "datasets": [
        DatasetFacts(name="secret", size_mib=1000, replicas=("users",), stay_in=("eu",)),
        DatasetFacts(name="corpus", size_mib=1000, replicas=("users",)),
    ],
}


@pytest.mark.feature(
    "S39",
    file="src/yunhe/scheduling/decision/filter/rules.py",
    old="(Rule.RESIDENT, _resident),",
    new="",
)
@pytest.mark.parametrize(
    ("rule", "facts", "machine", "wanted", "detail"),
    REFUSALS,
    ids=[f"{r[0]}-{i}" for i, r in enumerate(REFUSALS)],
)
def test_a_broken_constraint_is_named_in_the_rejection(
    rule: str, facts: PoolFacts, machine: Any, wanted: Demand, detail: str
) -> None:
    decision = decide(wanted, world([facts], [machine], **AROUND))
    assert isinstance(decision, Waiting)
    assert [(r.rule, detail in r.detail) for r in decision.rejected] == [(rule, True)], decision.rejected


def test_each_constraint_of_the_table_is_the_only_thing_in_the_way() -> None:
    """What refuses above is the constraint and not the world: without any, everything is taken."""
    assert isinstance(decide(demand(), world([only("p")], [roomy()], **AROUND)), Placed)


def test_a_tolerated_taint_a_matching_label_and_a_wildcard_let_work_in() -> None:
    tainted = world(
        [only("p", taints=("gpu=only", "maintenance"), labels={"zone": "a"})], [roomy(labels={"disk": "ssd"})]
    )
    for tolerations in (("gpu=only", "maintenance"), ("gpu", "maintenance"), ("*",)):
        wanted = demand(tolerations=tolerations, where=("disk=ssd", "zone=a", "zone!=b"))
        assert isinstance(decide(wanted, tainted), Placed)
    assert isinstance(decide(demand(tolerations=("gpu=other", "maintenance")), tainted), Waiting)


def test_a_group_is_joined_or_kept_away_from_by_node_pool_and_region() -> None:
    here = world(
        [
            only("p"),
            only("q", place=Place("eu-west", 48.9, 2.3)),
            only("r", place=Place("eu-west", 50.0, 4.0)),
        ],
        [
            node("n1", "p", cores(4, 4), groups=("web",)),
            node("n2", "p", cores(4, 4)),
            node("n3", "q", cores(4, 4)),
            node("n4", "r", cores(4, 4), groups=("db",)),
        ],
    )

    def goes(*affinity: Affinity) -> str:
        decision = decide(demand(affinity=affinity), here)
        assert isinstance(decision, Placed)
        return decision.assignments[0].node_id

    assert goes(Affinity("web")) == "n1"
    assert goes(Affinity("web", apart=True), Affinity("web", Domain.POOL)) == "n2"
    assert goes(Affinity("web", Domain.POOL, apart=True), Affinity("db", Domain.POOL, apart=True)) == "n3"
    assert goes(Affinity("db", Domain.REGION), Affinity("db", Domain.POOL, apart=True)) == "n3"
    lonely = decide(demand(affinity=(Affinity("nobody"),)), here)
    assert isinstance(lonely, Waiting)


def test_members_spread_over_pools_and_regions_when_asked_to() -> None:
    pools = [
        only("p"),
        only("q", place=Place("eu-west", 48.9, 2.3)),
        only("r", place=Place("eu-west", 50.0, 4.0)),
    ]
    here = world(pools, [node(f"{name}1", name, cores(8, 8)) for name in "pqr"])
    over_pools = decide(demand(members=3, one_pool=False, spread=Spread(Domain.POOL, 1)), here)
    assert isinstance(over_pools, Placed)
    assert sorted(a.pool_id for a in over_pools.assignments) == ["p", "q", "r"]
    over_regions = decide(demand(members=3, one_pool=False, spread=Spread(Domain.REGION, 1)), here)
    assert isinstance(over_regions, Waiting)
    two = decide(demand(members=2, one_pool=False, spread=Spread(Domain.REGION, 1)), here)
    assert isinstance(two, Placed)
    assert len({a.pool_id for a in two.assignments} & {"q", "r"}) == 1


def test_fewer_members_are_taken_only_down_to_the_least() -> None:
    here = world([only("p")], [node("n1", "p", cores(5, 8))])
    fewer = decide(demand(cores(2), members=4, members_min=2), here)
    assert isinstance(fewer, Placed)
    assert len(fewer.assignments) == 2
    assert isinstance(decide(demand(cores(2), members=4, members_min=3), here), Waiting)


def test_a_range_is_filled_as_far_as_the_node_has_room() -> None:
    here = world([only("p")], [node("n1", "p", cores(6, 8))])
    ranged = Alternative(cores(2, 1), up_to=cores(16, 4))
    decision = decide(demand(alternatives=(ranged,)), here)
    assert isinstance(decision, Placed)
    assert decision.assignments[0].resources == cores(6, 4)
    assert isinstance(decide(demand(alternatives=(Alternative(cores(7), up_to=cores(9)),)), here), Waiting)


@pytest.mark.parametrize("level", list(Level))
def test_work_goes_only_to_the_levels_it_names(level: Level) -> None:
    here = world(
        [only(str(one), place=Place("cn-north", 39.9, 116.4, one)) for one in Level],
        [node(f"n-{one}", str(one), cores(4, 4)) for one in Level],
    )
    decision = decide(demand(levels=(level,)), here)
    assert isinstance(decision, Placed)
    assert {c.pool_name for c in decision.candidates} == {str(level)}
    assert {r.rule for r in decision.rejected} == {"level"}


def test_any_node_says_why_it_does_not_take_a_demand_and_the_counts_agree() -> None:
    machines = [
        node("small", "p", cores(1, 8), isa="amd64"),
        node("arm", "p", cores(8, 8), isa="arm64"),
        node("tainted", "p", cores(8, 8), isa="amd64", taints=("spot",)),
        node("good", "p", cores(8, 8), isa="amd64"),
        node("far", "q", cores(8, 8), isa="amd64"),
    ]
    cycle = Cycle(world([only("p"), only("q", accepts=False)], machines))
    wanted = demand(cores(2), isa=("amd64",))
    reasons = {
        name: why_not(wanted, cycle, NodeId(name)) for name in ("small", "arm", "tainted", "good", "far")
    }
    assert {name: reason and reason.rule for name, reason in reasons.items()} == {
        "small": "roomy",
        "arm": "architecture",
        "tainted": "tolerated",
        "good": None,
        "far": "accepting",
    }
    assert count_refusals(wanted, cycle) == {
        "p": {"roomy": 1, "architecture": 1, "tolerated": 1},
        "q": {"accepting": 1},
    }
