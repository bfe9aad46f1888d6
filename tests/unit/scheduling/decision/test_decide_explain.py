"""Waiting comes with the nearest yes."""

from typing import Any

import pytest

from support.worlds import NOW, cores, demand, node, pool, prices, world
from yunhe.kernel.places import Level, Place
from yunhe.kernel.resources import Accelerators, Resources
from yunhe.scheduling.decision.advice.smallest import smallest_change
from yunhe.scheduling.decision.cycle import Cycle
from yunhe.scheduling.decision.decide import decide
from yunhe.scheduling.decision.model import Affinity, DataNeed, Demand, Domain, Traffic, Waiting
from yunhe.scheduling.perception.model import DatasetFacts, LinkFacts, SiteFacts

NORTH = Place("cn-north", 39.9, 116.4, Level.CENTRAL)


def change(wanted: Demand, **facts: Any) -> str:
    """The change proposed in a world of one pool with 4 cores, 8 GiB and 3 accelerators free."""
    free = Resources(4000, 8192, 0, (Accelerators("a100", 3000),))
    good: dict[str, Any] = {"place": NORTH, "prices": prices(1.0), "speed": 1.0, "reliability": 0.9}
    decision = decide(wanted, world([pool("gpu-bj", **{**good, **facts})], [node("n", "gpu-bj", free)]))
    assert isinstance(decision, Waiting)
    return decision.smallest_change


CASES: list[tuple[Demand, dict[str, Any], str]] = [
    (demand(cores(6)), {}, "ask for 4 cores: gpu-bj has them free"),
    (demand(cores(1, 16)), {}, "ask for 8 GiB of memory: gpu-bj has it free"),
    (demand(cores(1, 1, Accelerators("a100", 4000))), {}, "ask for 3 × a100: gpu-bj has that free"),
    (
        demand(cores(2), members=3),
        {},
        "ask for 2 members: gpu-bj has room for them, or ask for 1.333 cores each: gpu-bj has room for all 3",
    ),
    (demand(cores(6), members=2), {}, "ask for 2 cores each: gpu-bj has room for all 2"),
    (demand(cores(2), budget_per_hour_micros=1_500_000), {}, "a budget of ¥2.00/h"),
    (demand(cores(2), run_s=7200.0, budget_micros=3_000_000), {"reliability": None}, "a budget of ¥4.00"),
    (demand(run_s=600.0, deadline_at=NOW + 60), {"reliability": None}, "a deadline 10 min from now"),
    (demand(reliability_min=0.95), {}, "a reliability of 90 %"),
    (demand(levels=(Level.EDGE,)), {}, "allow level central: gpu-bj has room"),
    (demand(residency=("eu",)), {}, "allow region cn-north: gpu-bj has room"),
    (demand(pools=("other",)), {}, "allow pool gpu-bj"),
    (demand(), {"taints": ("reserved",)}, "tolerate reserved: gpu-bj has room"),
    (demand(), {"accepts": False}, ""),
    (
        demand(cores(6), residency=("eu",)),
        {},
        "allow region cn-north and ask for 4 cores, together: gpu-bj has room",
    ),
    (
        demand(tolerations=("gpu",)),
        {"taints": ("gpu=only", "reserved")},
        "tolerate reserved: gpu-bj has room",
    ),
    (
        demand(cores(2), run_s=7200.0, budget_micros=3_000_000, budget_per_hour_micros=1_500_000),
        {"reliability": None},
        "a budget of ¥2.00/h and a budget of ¥4.00, together: gpu-bj has room",
    ),
    (demand(isa=("amd64",)), {}, "allow any architecture: gpu-bj has room"),
    (demand(where=("disk=ssd",)), {}, "do without disk=ssd: gpu-bj has room"),
    (demand(affinity=(Affinity("web"),)), {}, "allow it away from web: gpu-bj has room"),
    (demand(affinity=(Affinity("web", Domain.POOL),)), {}, "allow it away from web: gpu-bj has room"),
]


@pytest.mark.parametrize(("wanted", "facts", "expected"), CASES, ids=[case[2] or "nothing" for case in CASES])
def test_the_smallest_change_is_named(wanted: Demand, facts: dict[str, Any], expected: str) -> None:
    assert change(wanted, **facts) == expected


def test_the_proposed_change_would_really_let_it_run() -> None:
    here = world([pool("a")], [node("n1", "a", cores(3, 2)), node("n2", "a", cores(1, 64))])
    waiting = decide(demand(cores(4, 2)), here)
    assert isinstance(waiting, Waiting)
    assert waiting.smallest_change == "ask for 3 cores: a has them free"
    assert not isinstance(decide(demand(cores(3, 2)), here), Waiting)


def test_a_gang_that_may_span_pools_is_told_how_many_they_hold_together() -> None:
    here = world([pool("a"), pool("b")], [node("n1", "a", cores(4, 8)), node("n2", "b", cores(6, 8))])
    waiting = decide(demand(cores(2), members=6, one_pool=False), here)
    assert isinstance(waiting, Waiting)
    assert waiting.smallest_change == (
        "ask for 5 members: the pools together have room for them, "
        "or ask for 1.5 cores each: the pools together have room for all 6"
    )
    assert not isinstance(decide(demand(cores(1.5), members=6, one_pool=False), here), Waiting)
    assert not isinstance(decide(demand(cores(2), members=5, one_pool=False), here), Waiting)


def test_what_a_node_asks_for_is_told_as_what_a_pool_does() -> None:
    nodes = [node("n", "a", cores(8, 8), isa="arm64", taints=("gpu", "spot"), labels={"disk": "hdd"})]
    here = world([pool("a", taints=("old",))], nodes)

    def told(**wishes: Any) -> str:
        decision = decide(demand(tolerations=("old", "gpu"), **wishes), here)
        assert isinstance(decision, Waiting)
        return decision.smallest_change

    assert told() == "tolerate spot: a has room"
    both = told(isa=("amd64",), where=("disk=ssd",))
    assert both == "allow arm64, tolerate spot and do without disk=ssd, together: a has room"
    pool_and_node = decide(demand(tolerations=("gpu",)), here)
    assert isinstance(pool_and_node, Waiting)
    assert pool_and_node.smallest_change == "tolerate old, spot: a has room"


NETWORK_CASES: list[tuple[dict[str, Any], str]] = [
    ({"traffic": (Traffic(site="office", mbps=60.0),)}, "ask for 40 Mbit/s with office: a has room"),
    (
        {"traffic": (Traffic(site="office", mbps=5.0, max_latency_ms=10.0),)},
        "allow 31 ms to office: a has room",
    ),
    ({"data": (DataNeed(dataset="corpus", rate_mbps=60.0),)}, "bring corpus with 40 Mbit/s: a has room"),
    (
        {"data": (DataNeed(dataset="corpus"),), "residency": ("cn",)},
        "allow region eu-west: a has room",
    ),
    ({"data": (DataNeed(dataset="secret"),)}, "do without dataset secret: a has room"),
]


@pytest.mark.parametrize(("wishes", "expected"), NETWORK_CASES, ids=[case[1] for case in NETWORK_CASES])
def test_what_the_network_does_not_carry_is_told_too(wishes: dict[str, Any], expected: str) -> None:
    here = world(
        [pool("a", place=NORTH)],
        [node("n", "a", cores(8, 8))],
        sites=[SiteFacts("office", "eu-west")],
        links=[LinkFacts(source="office", target="a", bandwidth_mbps=40.5, latency_ms=30.2)],
        datasets=[
            DatasetFacts(name="corpus", size_mib=100, replicas=("office",)),
            DatasetFacts(name="secret", size_mib=100, replicas=("office",), stay_in=("eu",)),
        ],
    )
    decision = decide(demand(**wishes), here)
    assert isinstance(decision, Waiting)
    assert decision.smallest_change.split(", or ")[0] == expected


def test_over_many_pools_the_nearest_advice_is_given_with_how_many_could() -> None:
    names = [f"pool-{number:03d}" for number in range(100)]
    nodes = [node(f"{name}-{at}", name, cores(at, 4)) for name in names for at in range(5)]
    here = world([pool(name) for name in names], nodes)
    assert (
        smallest_change(demand(cores(48, 2)), Cycle(here))
        == "ask for 4 cores: pool-000 has them free (100 pools do)"
    )


def test_two_ways_out_are_named_nearest_first() -> None:
    pools = [pool("near", prices=prices(1.0)), pool("dear", prices=prices(3.0))]
    here = world(pools, [node("n1", "near", cores(3, 8)), node("n2", "dear", cores(8, 8))])
    waiting = decide(demand(cores(4), budget_per_hour_micros=8_000_000), here)
    assert isinstance(waiting, Waiting)
    assert waiting.smallest_change == "ask for 3 cores: near has them free, or a budget of ¥12.00/h"


def test_where_two_things_are_lacking_the_nearest_node_says_what_it_could_give() -> None:
    pools = [pool("far"), pool("near"), pool("full")]
    nodes = [
        node("n1", "far", cores(1, 4)),
        node("n2", "near", cores(6, 40)),
        node("n3", "full", cores(0, 0)),
    ]
    here = world(pools, nodes)
    waiting = decide(demand(cores(8, 64)), here)
    assert isinstance(waiting, Waiting)
    assert waiting.smallest_change == "ask for 6 cores and 40 GiB of memory: near has that free"
    assert not isinstance(decide(demand(cores(6, 40)), here), Waiting)


def test_a_device_that_no_pool_has_is_not_bargained_for() -> None:
    waiting = decide(
        demand(cores(8, 64, Accelerators("a100", 1000))), world([pool("a")], [node("n", "a", cores(2, 2))])
    )
    assert isinstance(waiting, Waiting)
    assert waiting.smallest_change == ""


@pytest.mark.parametrize(
    ("asked", "nearest"),
    [
        ({"deadline_at": NOW + 600.0, "run_s": 3600.0}, ["quick", "slow", "vague"]),
        ({"reliability_min": 0.9999, "run_s": 3600.0}, ["quick", "slow", "vague"]),
        ({"budget_per_hour_micros": 10}, ["slow", "quick", "vague"]),
        ({"near": Place("", 0.0, 0.0), "max_latency_ms": 1.0}, ["quick", "slow", "vague"]),
    ],
)
def test_who_misses_a_limit_by_least_is_told_first_and_who_does_not_say_last(
    asked: dict[str, Any], nearest: list[str]
) -> None:
    pools = [
        pool("another", taints=("reserved",)),
        pool("slow", speed=1.0, reliability=0.9, prices=prices(0.01), place=Place("", 0.0, 90.0)),
        pool("vague", speed=0.5),
        pool("quick", speed=2.0, reliability=0.99, prices=prices(0.05), place=Place("", 0.0, 9.0)),
    ]
    names = ("another", "slow", "vague", "quick")
    waiting = decide(demand(**asked), world(pools, [node(f"n-{name}", name, cores(8, 8)) for name in names]))
    assert isinstance(waiting, Waiting)
    assert [no.pool_name for no in waiting.nearest_first] == [*nearest, "another"]


def test_the_refusals_are_told_nearest_miss_first() -> None:
    pools = [pool("another", taints=("reserved",)), pool("far"), pool("near")]
    nodes = [
        node("n1", "another", cores(8, 8)),
        node("n2", "far", cores(1, 8)),
        node("n3", "near", cores(3, 8)),
    ]
    here = world(pools, nodes)
    waiting = decide(demand(cores(4, 2)), here)
    assert isinstance(waiting, Waiting)
    assert [no.pool_name for no in waiting.nearest_first] == ["near", "far", "another"]
    told = decide(demand(cores(4, 2), pools=("far", "another")), here)
    assert isinstance(told, Waiting)
    assert [no.pool_name for no in told.nearest_first] == ["far", "another", "near"], "near was not asked for"
