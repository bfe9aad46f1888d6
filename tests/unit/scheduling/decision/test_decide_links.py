"""What one demand moves, together: never more than a link has, and the best that deadline and budget allow."""

import math
from random import Random
from typing import Any

import pytest

from support import decision_oracle as oracle
from support.worlds import NOW, cores, demand, node, pool, prices, world
from yunhe.scheduling.decision.decide import decide, decide_all
from yunhe.scheduling.decision.model import DataNeed, Demand, Placed, Policy, Traffic, Waiting
from yunhe.scheduling.perception.model import DatasetFacts, LinkFacts, SiteFacts
from yunhe.scheduling.perception.snapshot import Snapshot

HALF = DataNeed(dataset="corpus", rate_mbps=60.0)


def lines(*links: LinkFacts, size_mib: int = 102_400) -> Snapshot:
    """A pool, and a place where users and data are, with some lines between them."""
    return world(
        [pool("pool", prices=prices(0.01), speed=1.0, wait_s=0.0)],
        [node("n", "pool", cores(16, 64))],
        sites=[SiteFacts("out")],
        links=links,
        datasets=[
            DatasetFacts(name="corpus", size_mib=size_mib, replicas=("out",)),
            DatasetFacts(name="model", size_mib=size_mib, replicas=("out",)),
        ],
    )


def line(mbps: float | None, price_micros: int = 0, **facts: Any) -> LinkFacts:
    return LinkFacts(
        source="out",
        target="pool",
        bandwidth_mbps=mbps,
        latency_ms=facts.pop("latency_ms", 5.0),
        price_micros_per_gib=price_micros,
        **facts,
    )


def users(mbps: float, most_ms: float | None = None) -> Traffic:
    return Traffic(site="out", mbps=mbps, max_latency_ms=most_ms)


TWO_HALVES: dict[str, Any] = {
    "two flows": {"traffic": (users(60.0), users(60.0))},
    "a flow and a transfer": {"traffic": (users(60.0),), "data": (HALF,)},
    "two transfers": {"data": (HALF, DataNeed(dataset="model", rate_mbps=60.0))},
}


@pytest.mark.parametrize("name", TWO_HALVES)
def test_one_demand_is_not_promised_more_of_a_link_than_there_is(name: str) -> None:
    decision = decide(demand(**TWO_HALVES[name]), lines(line(100.0)))
    assert isinstance(decision, Waiting)
    assert decision.rejected[0].rule == "linked"
    assert "together" in decision.rejected[0].detail
    (placed,), after = decide_all([demand(**TWO_HALVES[name])], lines(line(120.0)))
    assert isinstance(placed, Placed)
    assert after.network.free_mbps.tolist() == [0.0]


@pytest.mark.parametrize("name", TWO_HALVES)
def test_what_finds_no_room_beside_the_rest_takes_the_next_best_way(name: str) -> None:
    here = lines(line(100.0), line(100.0, 10_000), line(100.0, 90_000))
    (placed,), after = decide_all([demand(**TWO_HALVES[name])], here)
    assert isinstance(placed, Placed)
    assert after.network.free_mbps.tolist() == [40.0, 40.0, 100.0]


def test_who_gives_way_is_who_loses_least_by_it() -> None:
    """The flow that must answer soon keeps the quick line, though it was named last."""
    here = lines(line(100.0, latency_ms=2.0), line(100.0, 10_000, latency_ms=80.0))
    wanted = demand(traffic=(users(60.0), users(60.0, most_ms=10.0)))
    decision = decide(wanted, here)
    assert isinstance(decision, Placed)
    assert [route.links for route in decision.routes] == [(1,), (0,)]


def test_two_ways_that_block_each_other_both_give_way_where_nothing_else_fits() -> None:
    """Each one's best crosses the other's best and second: only both seconds together have room, whoever goes first."""
    sites = [SiteFacts(name) for name in ("u", "v", "x", "y")]
    links = [
        LinkFacts(source=a, target=b, bandwidth_mbps=mbps, latency_ms=1.0, price_micros_per_gib=price)
        for a, b, mbps, price in (
            ("u", "x", 10.0, 0),
            ("v", "x", 10.0, 0),
            ("x", "pool", 10.0, 0),
            ("u", "y", 10.0, 50_000),
            ("v", "y", 10.0, 50_000),
            ("y", "pool", 20.0, 0),
        )
    ]
    here = world([pool("pool", prices=prices(0.01))], [node("n", "pool", cores(4))], sites=sites, links=links)
    decision = decide(demand(traffic=(Traffic(site="u", mbps=10.0), Traffic(site="v", mbps=10.0))), here)
    assert isinstance(decision, Placed)
    oracle.check_capacity(decision, here)
    assert sorted(len(set(route.links) & {2}) for route in decision.routes) == [0, 1]


def test_a_full_line_is_no_way_at_all_and_a_slow_one_is_late() -> None:
    due = demand(data=(DataNeed(dataset="corpus"),), run_s=60.0, deadline_at=NOW + 7200.0)
    rules = {}
    for free in (0.0, 1.0, 1000.0, None):
        bandwidth = None if free is None else 1000.0
        decision = decide(due, lines(line(bandwidth, free_mbps=free)))
        rules[free] = decision.rejected[0].rule if isinstance(decision, Waiting) else "placed"
    assert rules == {0.0: "linked", 1.0: "timely", 1000.0: "placed", None: "placed"}
    patient = demand(data=(DataNeed(dataset="corpus"),))
    full = decide(patient, lines(line(1000.0, free_mbps=0.0)))
    assert isinstance(full, Waiting)
    assert full.rejected[0].detail == "every route for corpus is full"
    beside = decide(patient, lines(line(1000.0, free_mbps=0.0), line(None, 90_000)))
    assert isinstance(beside, Placed)
    assert beside.transfers[0].links == (1,)  # how fast that is nobody knows, but not that it cannot be
    assert beside.terms["data_s"] is None


SLOW_OR_DEAR = (line(10.0), line(100.0, 40_000), line(1000.0, 90_000))
"""100 GiB take a day for nothing, 2.4 hours for 4, or a quarter of an hour for 9."""


@pytest.mark.parametrize(
    ("limits", "links"),
    [
        ({}, (0,)),
        ({"deadline_at": NOW + 4 * 3600.0}, (1,)),
        ({"deadline_at": NOW + 2 * 3600.0}, (2,)),
        ({"deadline_at": NOW + 4 * 3600.0, "budget_micros": 5_000_000}, (1,)),
        ({"deadline_at": NOW + 2 * 3600.0, "budget_micros": 5_000_000}, "timely"),
    ],
)
def test_data_takes_the_best_way_that_deadline_and_budget_allow(
    limits: dict[str, Any], links: tuple[int, ...] | str
) -> None:
    wanted = demand(policy=Policy.CHEAPEST, data=(DataNeed(dataset="corpus"),), run_s=3600.0, **limits)
    decision = decide(wanted, lines(*SLOW_OR_DEAR))
    if isinstance(decision, Waiting):
        assert decision.rejected[0].rule == links
    else:
        assert decision.transfers[0].links == links


def test_a_line_that_opens_never_makes_work_late() -> None:
    """The cheap slow line is preferred as soon as it has anything left; the deadline still is not missed."""
    wanted = demand(
        policy=Policy.CHEAPEST, data=(DataNeed(dataset="corpus"),), run_s=60.0, deadline_at=NOW + 7200.0
    )
    for free in (0.0, 1.0, 500.0):
        decision = decide(wanted, lines(line(500.0, free_mbps=free), line(1000.0, 90_000)))
        assert isinstance(decision, Placed), free


def test_several_moves_together_are_the_least_of_all_combinations() -> None:
    """Small networks with tight links, against every combination of simple paths."""
    tight = refused = 0
    for seed in range(80):
        wanted, here = crowded(Random(seed))
        best, alone = cheapest_combination(wanted, here), cheapest_combination(wanted, here, alone=True)
        decision = decide(wanted, here)
        assert isinstance(decision, Placed) == (best is not None), seed
        if isinstance(decision, Placed):
            oracle.check_capacity(decision, here)
            assert decision.terms["data_cost"] == pytest.approx(best), seed
        refused += best is None and alone is not None
        tight += best is not None and alone is not None and best > alone + 1e-9
    assert tight >= 15
    assert refused >= 15


def crowded(rng: Random) -> tuple[Demand, Snapshot]:
    """Three things to move to one pool over lines that rarely hold all of them."""
    ends = ["a", "b", "x", "pool"]
    links = [
        LinkFacts(
            source=a,
            target=b,
            bandwidth_mbps=rng.choice((60.0, 100.0)),
            latency_ms=1.0,
            price_micros_per_gib=rng.choice((0, 10_000, 30_000, 70_000)),
        )
        for i, a in enumerate(ends)
        for b in ends[i + 1 :]
        for _ in range(rng.choice((0, 1, 1, 2)))
    ]
    here = world(
        [pool("pool", prices=prices(0.0), speed=1.0)],
        [node("n", "pool", cores(4))],
        sites=[SiteFacts(name) for name in ends[:-1]],
        links=links,
        datasets=[DatasetFacts(name="corpus", size_mib=102_400, replicas=("a", "b"))],
    )
    wanted = demand(
        policy=Policy.CHEAPEST,
        run_s=3600.0,
        traffic=tuple(Traffic(site=rng.choice("ab"), mbps=rng.choice((30.0, 60.0))) for _ in range(2)),
        data=(DataNeed(dataset="corpus", rate_mbps=rng.choice((40.0, 60.0))),),
    )
    return wanted, here


def cheapest_combination(wanted: Demand, here: Snapshot, *, alone: bool = False) -> float | None:
    """The least money of any combination of paths that the links hold (*alone*: that hold each by itself)."""
    target, need = int(here.network.pool_site[0]), wanted.data[0]
    replicas = [here.network.site(name) for name in here.dataset[need.dataset].replicas]
    moves = [(need.rate_mbps or 0.0, 100.0, replicas)]
    moves += [
        (flow.mbps, flow.mbps * 3600 / 8.388608 / 1024, [here.network.site(flow.site)])
        for flow in wanted.traffic
    ]
    listed = [
        [
            (links, mbps, gib * float(here.network.price_per_gib[links].sum()))
            for site in sites
            for _, links in oracle.simple_paths(here, site, target)
        ]
        for mbps, gib, sites in moves
    ]
    free = [float(mbps) for mbps in here.network.free_mbps]
    if alone:
        each = [_least([one], free) for one in listed]
        return None if math.inf in each else sum(each)
    least = _least(listed, free)
    return None if least == math.inf else least


def _least(listed: list[list[tuple[list[int], float, float]]], free: list[float]) -> float:
    """The least money with which each takes one of its paths, on what those before it leave."""
    if not listed:
        return 0.0
    least = math.inf
    for links, mbps, money in listed[0]:
        if money < least and all(free[link] >= mbps - 1e-9 for link in links):
            left = [have - mbps * (link in links) for link, have in enumerate(free)]
            least = min(least, money + _least(listed[1:], left))
    return least
