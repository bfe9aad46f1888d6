"""The preset policies against brute force, over random worlds."""

import itertools
from dataclasses import replace

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from yunhe.kernel.errors import InvalidInputError
from yunhe.kernel.ids import JobId, NodeId, PoolId, ProjectId
from yunhe.kernel.money import Prices, Tier
from yunhe.kernel.places import Place
from yunhe.kernel.resources import Resources
from yunhe.scheduling.decision.decide import cost_per_hour_micros, decide
from yunhe.scheduling.decision.model import Alternative, Decision, Demand, Placed, Policy, ScoreTerm
from yunhe.scheduling.decision.network.reach import RTT_MS_PER_KM
from yunhe.scheduling.decision.score.terms import TERMS
from yunhe.scheduling.perception.snapshot import NodeFacts, PoolFacts, Snapshot, build_snapshot

HOME = Place("home", 39.9, 116.4)
ASK = Resources(cpu_millis=1000, memory_mib=1024)


class World:
    def __init__(self, pools: list[tuple[int, int, float, float]]) -> None:
        self.pools = [
            PoolFacts(
                id=PoolId(f"pool_{i}"),
                name=f"pool-{i}",
                place=Place(f"r{i}", latitude, longitude),
                prices={tier: Prices(cpu_core_hour_micros=price) for tier in Tier},
            )
            for i, (_, price, latitude, longitude) in enumerate(pools)
        ]
        self.nodes = [
            NodeFacts(
                id=NodeId(f"pool_{i}/n"),
                pool_id=PoolId(f"pool_{i}"),
                total=Resources(cpu_millis=8000, memory_mib=8192, disk_mib=1000),
                free=Resources(cpu_millis=cpu, memory_mib=8192, disk_mib=1000),
            )
            for i, (cpu, *_) in enumerate(pools)
        ]

    def snapshot(self) -> Snapshot:
        return build_snapshot(self.pools, self.nodes, version=1, taken_at=0.0)

    def feasible(self) -> list[int]:
        return [i for i, node in enumerate(self.nodes) if node.free.cpu_millis >= ASK.cpu_millis]

    def cost(self, i: int) -> float:
        prices = self.pools[i].prices
        assert prices is not None
        return cost_per_hour_micros(ASK, prices[Tier.HIGH])

    def distance(self, i: int) -> float:
        place = self.pools[i].place
        km = None if place is None else HOME.distance_km(place)
        assert km is not None
        return km


worlds = st.builds(
    World,
    st.lists(
        st.tuples(st.integers(0, 4000), st.integers(1, 10**6), st.floats(-60, 60), st.floats(-170, 170)),
        min_size=1,
        max_size=8,
    ),
)


def ask(policy: Policy, world: World, weights: dict[str, float] | None = None) -> Decision:
    demand = Demand(
        job_id=JobId("job"),
        project_id=ProjectId("default"),
        alternatives=(Alternative(ASK),),
        policy=policy,
        near=HOME,
        weights=weights or {},
    )
    return decide(demand, world.snapshot())


def chosen(decision: Decision) -> int:
    assert isinstance(decision, Placed)
    return int(decision.assignments[0].pool_id.removeprefix("pool_"))


@pytest.mark.feature(
    "S07",
    file="src/yunhe/scheduling/decision/score/terms.py",
    old="Policy.CHEAPEST: (\n        ScoreTerm.COST_PER_HOUR,",
    new="Policy.CHEAPEST: (",
)
@given(worlds)
def test_cheapest_chooses_the_least_cost_among_the_feasible(world: World) -> None:
    assume(world.feasible())
    assert world.cost(chosen(ask(Policy.CHEAPEST, world))) == min(world.cost(i) for i in world.feasible())


@pytest.mark.feature(
    "S08",
    file="src/yunhe/scheduling/decision/score/terms.py",
    old="Policy.NEAREST: (ScoreTerm.DISTANCE_KM,)",
    new="Policy.NEAREST: (ScoreTerm.COST_PER_HOUR,)",
)
@given(worlds)
def test_nearest_chooses_the_least_distance_among_the_feasible(world: World) -> None:
    assume(world.feasible())
    assert world.distance(chosen(ask(Policy.NEAREST, world))) == min(
        world.distance(i) for i in world.feasible()
    )


@pytest.mark.feature(
    "S10",
    file="src/yunhe/scheduling/decision/score/terms.py",
    old="TERMS[term].worth * weights.get(term, TERMS[term].weight) for term",
    new="TERMS[term].worth * TERMS[term].weight for term",
)
@given(worlds, st.floats(0.1, 10), st.floats(0.1, 10))
def test_balanced_is_on_the_pareto_front_and_follows_the_weights(
    world: World, cost: float, distance: float
) -> None:
    assume(world.feasible())
    best = chosen(ask(Policy.BALANCED, world, {"cost_per_hour": cost, "distance_km": distance}))
    for i in world.feasible():
        better_or_equal = world.cost(i) <= world.cost(best) and world.distance(i) <= world.distance(best)
        strictly = world.cost(i) < world.cost(best) or world.distance(i) < world.distance(best)
        assert not (better_or_equal and strictly)
    # What a unit of each term is worth is the product's to say; how much it counts is the caller's.
    total = {
        i: cost * TERMS[ScoreTerm.COST_PER_HOUR].worth * world.cost(i) / 1e6
        + distance * TERMS[ScoreTerm.DISTANCE_KM].worth * world.distance(i)
        + TERMS[ScoreTerm.LATENCY_MS].worth
        * TERMS[ScoreTerm.LATENCY_MS].weight
        * world.distance(i)
        * RTT_MS_PER_KM
        for i in world.feasible()
    }
    assert total[best] == pytest.approx(min(total.values()))


def test_other_weights_make_balanced_choose_another_pool() -> None:
    dear_and_near, cheap_and_far = (4000, 2_000_000, 40.0, 116.0), (4000, 1_000_000, 30.0, 120.0)
    world = World([dear_and_near, cheap_and_far])
    choices = [
        chosen(ask(Policy.BALANCED, world, {"cost_per_hour": cost, "distance_km": distance}))
        for cost, distance in ((10.0, 0.1), (0.001, 10.0))
    ]
    nearest = min((0, 1), key=world.distance)
    assert choices == [min((0, 1), key=world.cost), nearest]
    assert choices[0] != choices[1]


@given(worlds)
def test_it_waits_exactly_when_no_pool_has_room_and_every_pool_says_why(world: World) -> None:
    decision = ask(Policy.BALANCED, world)
    assert isinstance(decision, Placed) == bool(world.feasible())
    refused = {int(r.pool_id.removeprefix("pool_")) for r in decision.rejected}
    assert refused == set(range(len(world.pools))) - set(world.feasible())
    assert all(r.detail for r in decision.rejected)


@given(worlds)
def test_the_same_arguments_give_the_same_answer(world: World) -> None:
    answers = [ask(Policy.BALANCED, world) for _ in range(2)]
    assert answers[0] == answers[1]


@pytest.mark.feature(
    "S01",
    file="src/yunhe/scheduling/perception/snapshot.py",
    old="not isinstance(snapshot, Snapshot) or snapshot.schema != SCHEMA",
    new="not isinstance(snapshot, Snapshot)",
)
def test_a_decision_is_refused_on_anything_that_encapsulation_did_not_produce() -> None:
    world = World([(4000, 1, 0.0, 0.0)])
    good = world.snapshot()
    demand = Demand(job_id=JobId("j"), project_id=ProjectId("default"), alternatives=(Alternative(ASK),))
    assert isinstance(decide(demand, good), Placed)

    class Lookalike:
        def __getattr__(self, name: str) -> object:
            return getattr(good, name)

    damaged: list[object] = [
        Lookalike(),
        {"pools": good.pools},
        replace(good, schema=good.schema + 1),
        replace(good, cpu_free_millis=good.cpu_free_millis[:0]),
        replace(good, memory_free_mib=good.memory_free_mib.astype("float64")),
    ]
    for snapshot in damaged:
        with pytest.raises(InvalidInputError):
            decide(demand, snapshot)  # pyright: ignore[reportArgumentType]
    stranger = NodeFacts(id=NodeId("x"), pool_id=PoolId("nobody"), total=ASK, free=ASK)
    with pytest.raises(InvalidInputError, match="nobody"):
        build_snapshot(world.pools, [stranger], version=1, taken_at=0.0)


def test_an_unknown_price_is_never_taken_for_free() -> None:
    world = World([(4000, 500_000, 0.0, 0.0), (4000, 1, 0.0, 0.0)])
    world.pools[1] = PoolFacts(id=world.pools[1].id, name="silent", place=world.pools[1].place)
    assert chosen(ask(Policy.CHEAPEST, world)) == 0


def test_an_earlier_alternative_wins_when_ordered_and_the_score_decides_when_not() -> None:
    world = World([(4000, 900, 0.0, 0.0)])
    large, small = Alternative(Resources(cpu_millis=4000)), Alternative(Resources(cpu_millis=500))
    for ordered, expected in itertools.product((True, False), (4000, 500)):
        demand = Demand(
            job_id=JobId("j"),
            project_id=ProjectId("default"),
            alternatives=(large, small) if expected == 4000 or not ordered else (small, large),
            ordered=ordered,
            policy=Policy.CHEAPEST,
        )
        decision = decide(demand, world.snapshot())
        assert isinstance(decision, Placed)
        assert decision.assignments[0].resources.cpu_millis == (expected if ordered else 500)
