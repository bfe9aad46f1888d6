"""Gangs: priced and fed in every pool they span, kept apart by their own wish, and refused where they make no sense."""

import math
from collections import Counter
from typing import Any

import pytest

from support import decision_oracle as oracle
from support.worlds import NOW, cores, demand, node, pool, prices, world
from yunhe.kernel.errors import InvalidInputError
from yunhe.kernel.resources import Accelerators, Resources
from yunhe.scheduling.decision.decide import decide, decide_all
from yunhe.scheduling.decision.model import (
    Affinity,
    Alternative,
    DataNeed,
    Domain,
    Placed,
    Spread,
    Traffic,
    Waiting,
)
from yunhe.scheduling.perception.model import DatasetFacts, LinkFacts, SiteFacts
from yunhe.scheduling.perception.snapshot import Snapshot

OVER_BOTH: dict[str, Any] = {"members": 2, "one_pool": False, "run_s": 3600.0}


def two_pools(a_mbps: float = 100.0, b_mbps: float = 100.0, shared_mbps: float = 1000.0) -> Snapshot:
    """A cheap slow pool and a dear quick one with room for one member each, behind one line to the data."""
    return world(
        [
            pool("a", prices=prices(0.01), speed=1.0, wait_s=60.0, reliability=0.9),
            pool("b", prices=prices(10.0), speed=2.0, wait_s=0.0, reliability=0.8),
        ],
        [node("a1", "a", cores(1)), node("b1", "b", cores(1))],
        sites=[SiteFacts("out"), SiteFacts("hub")],
        links=[
            LinkFacts(
                source=source,
                target=target,
                bandwidth_mbps=mbps,
                latency_ms=latency_ms,
                price_micros_per_gib=price,
            )
            for source, target, mbps, latency_ms, price in (
                ("out", "hub", shared_mbps, 1.0, 0),
                ("hub", "a", a_mbps, 4.0, 10_000),
                ("hub", "b", b_mbps, 30.0, 20_000),
            )
        ],
        datasets=[DatasetFacts(name="corpus", size_mib=10 * 1024, replicas=("out",))],
    )


def test_a_gang_over_two_pools_costs_what_each_member_costs_and_takes_as_long_as_the_slower() -> None:
    decision = decide(demand(**OVER_BOTH), two_pools())
    assert isinstance(decision, Placed)
    assert sorted(one.node_id for one in decision.assignments) == ["a1", "b1"]
    assert decision.terms["cost_per_hour"] == pytest.approx(10.01)
    assert decision.terms["wait_s"] == 60.0
    assert decision.terms["run_s"] == pytest.approx(max(_alone_s(0.9, 1.0), _alone_s(0.8, 2.0)))
    assert decision.terms["risk"] == pytest.approx(1 - 0.9 * 0.8**0.5)
    assert decision.candidates[0].terms == decision.terms


def _alone_s(reliability: float, speed: float) -> float:
    """An hour's work with the runs that fail: (1 / p - 1) / -ln p hours, with p to the hours it takes alone."""
    rate = -math.log(reliability)
    return (math.exp(rate / speed) - 1) / rate * 3600


def test_every_pool_of_a_gang_is_fed_and_carries_its_part_of_the_traffic() -> None:
    wanted = demand(
        **OVER_BOTH,
        data=(DataNeed(dataset="corpus", rate_mbps=50.0),),
        traffic=(Traffic(site="out", mbps=40.0),),
    )
    (decision,), after = decide_all([wanted], two_pools())
    assert isinstance(decision, Placed)
    oracle.check_capacity(decision, two_pools())
    assert sorted(one.sites[-1] for one in decision.transfers) == ["a", "b"]
    assert sorted((one.sites[-1], one.mbps) for one in decision.routes) == [("a", 20.0), ("b", 20.0)]
    assert after.network.free_mbps.tolist() == [860.0, 30.0, 30.0]
    assert decision.terms["latency_ms"] == 31.0
    assert decision.terms["data_s"] == pytest.approx(10 * 8589.934592 / 50 + 0.031)
    hours = _alone_s(0.9, 1.0) / 3600
    flow_gib = 20 * 3600 / 8589.934592 * hours
    assert decision.terms["data_cost"] == pytest.approx(10 * 0.03 + flow_gib * 0.03)


def test_a_gang_waits_where_the_line_that_its_pools_share_cannot_feed_both() -> None:
    wanted = demand(**OVER_BOTH, data=(DataNeed(dataset="corpus", rate_mbps=50.0),))
    assert isinstance(decide(wanted, two_pools(shared_mbps=100.0)), Placed)
    assert isinstance(decide(wanted, two_pools(shared_mbps=99.0)), Waiting)


@pytest.mark.parametrize(("budget", "placed"), [(10_010_000, True), (10_000_000, False)])
def test_the_budget_of_a_gang_is_judged_on_the_whole(budget: int, placed: bool) -> None:
    """Two members in the dear pool would cost 20; one there and one in the cheap pool do not."""
    decision = decide(demand(**OVER_BOTH, budget_per_hour_micros=budget), two_pools())
    assert isinstance(decision, Placed) == placed


def test_the_deadline_of_a_gang_is_that_of_its_last_member() -> None:
    for left_s, placed in ((2 * 3600.0, True), (0.6 * 3600.0, False)):
        decision = decide(demand(**OVER_BOTH, deadline_at=NOW + left_s), two_pools())
        assert isinstance(decision, Placed) == placed


@pytest.mark.parametrize(
    ("over", "members", "parts"),
    [(Domain.NODE, 2, 2), (Domain.POOL, 2, 2), (Domain.NODE, 4, None), (Domain.POOL, 3, None)],
)
def test_a_gang_that_keeps_apart_from_its_own_group_is_parted(
    over: Domain, members: int, parts: int | None
) -> None:
    here = world(
        [pool("a"), pool("b")],
        [node("a1", "a", cores(8, 8)), node("a2", "a", cores(8, 8)), node("b1", "b", cores(8, 8))],
    )
    apart = Affinity("web", over, apart=True)
    decision = decide(demand(members=members, one_pool=False, affinity=(apart,), groups=("web",)), here)
    if parts is None:
        assert isinstance(decision, Waiting)
        return
    assert isinstance(decision, Placed)
    domains = Counter(a.node_id if over is Domain.NODE else a.pool_id for a in decision.assignments)
    assert len(domains) == parts


def test_a_spread_and_a_wish_to_keep_apart_hold_together() -> None:
    here = world([pool("a")], [node("a1", "a", cores(8, 8)), node("a2", "a", cores(8, 8))])
    wanted = demand(
        members=2, spread=Spread(Domain.NODE, 2), affinity=(Affinity("web", apart=True),), groups=("web",)
    )
    decision = decide(wanted, here)
    assert isinstance(decision, Placed)
    assert sorted(a.node_id for a in decision.assignments) == ["a1", "a2"]


def test_the_members_of_a_gang_share_what_a_range_leaves_on_their_node() -> None:
    here = world([pool("a")], [node("a1", "a", cores(8, 8))])
    most = Alternative(cores(1), up_to=cores(5, 3))
    (decision,), after = decide_all([demand(alternatives=(most,), members=2)], here)
    assert isinstance(decision, Placed)
    assert [a.resources for a in decision.assignments] == [cores(5, 3), cores(3, 3)]
    assert after.cpu_free_millis.tolist() == [0]
    assert after.memory_free_mib.tolist() == [2048]


GPU = Accelerators("a100", 1000)
SENSELESS: dict[str, tuple[dict[str, Any], str]] = {
    "no members": ({"members": 0}, "members"),
    "more at least than at most": ({"members": 2, "members_min": 3}, "members_min"),
    "at least none": ({"members": 2, "members_min": 0}, "members_min"),
    "none in a domain": ({"members": 2, "spread": Spread(at_most=0)}, "spread.at_most"),
    "less than nothing": ({"resources": Resources(-1000, 1024)}, "alternatives[0].resources"),
    "less than no device": (
        {"resources": Resources(1000, 1024, 0, (Accelerators("a100", -500),))},
        "alternatives[0].resources",
    ),
    "no alternative": ({"alternatives": ()}, "alternatives"),
    "a range of devices": (
        {"alternatives": (Alternative(cores(1), up_to=cores(2, 2, GPU)),)},
        "alternatives[0].up_to",
    ),
    "a weight of nothing": ({"weights": {"cost_per_our": 2.0}}, "weights.cost_per_our"),
    "a rate of nothing": ({"data": (DataNeed(dataset="d", rate_mbps=0.0),)}, "data[0].rate_mbps"),
    "a flow of less": ({"traffic": (Traffic(site="s", mbps=-1.0),)}, "traffic[0].mbps"),
}


@pytest.mark.parametrize("name", SENSELESS)
def test_a_demand_that_makes_no_sense_is_refused_by_field(name: str) -> None:
    wishes, field = SENSELESS[name]
    here = world([pool("a")], [node("a1", "a", cores(8, 8))])
    with pytest.raises(InvalidInputError) as refused:
        decide(demand(**wishes), here)
    assert [problem.field for problem in refused.value.fields] == [field]
    with pytest.raises(InvalidInputError):
        decide_all([demand(**wishes)], here)
