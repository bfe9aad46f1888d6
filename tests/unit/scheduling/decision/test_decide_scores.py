"""What decisions weigh: money, time, data over real links, energy, distance, risk, and what others say."""

from dataclasses import replace
from random import Random
from typing import Any

import msgspec
import pytest

from support import decision_oracle as oracle
from support.worlds import NOW, cores, demand, node, pool, prices, random_demand, random_world, world
from yunhe.kernel.ids import PoolId
from yunhe.kernel.places import Place
from yunhe.kernel.resources import Accelerators, Resources
from yunhe.scheduling.decision.candidates import CRITERIA, pareto
from yunhe.scheduling.decision.decide import decide
from yunhe.scheduling.decision.model import (
    Candidate,
    DataNeed,
    Demand,
    Placed,
    Policy,
    Traffic,
    TransferMode,
    Waiting,
)
from yunhe.scheduling.decision.plans import ParetoPlan
from yunhe.scheduling.perception.model import (
    DatasetFacts,
    EnergyFacts,
    ExternalScore,
    LinkFacts,
    NodeFacts,
    SiteFacts,
    SpotFacts,
)
from yunhe.scheduling.perception.network import build_network
from yunhe.scheduling.perception.snapshot import Snapshot, SnapshotContext

USERS = Place("cn-north", 39.9, 116.4)
TB_MIB = 1024 * 1024


def machines(*names: str) -> list[NodeFacts]:
    return [node(f"{name}-1", name, cores(16, 64)) for name in names]


def goes(wanted: Demand, here: Snapshot) -> str:
    decision = decide(wanted, here)
    assert isinstance(decision, Placed)
    return decision.candidates[0].pool_name


def three_pools(**around: Any) -> Snapshot:
    """One cheap and far and dirty, one near and dear, one fast and green."""
    return world(
        [
            pool(
                "cheap",
                place=Place("us-west", 37.4, -122.1),
                prices=prices(0.02),
                speed=1.0,
                energy=EnergyFacts(watts_per_core=10, carbon_g_per_kwh=(600.0,)),
            ),
            pool(
                "near",
                place=Place("cn-north", 40.0, 116.0),
                prices=prices(0.10),
                speed=0.8,
                energy=EnergyFacts(watts_per_core=10, carbon_g_per_kwh=(700.0,)),
            ),
            pool(
                "fast",
                place=Place("eu-north", 59.3, 18.1),
                prices=prices(0.20),
                speed=2.0,
                energy=EnergyFacts(watts_per_core=10, carbon_g_per_kwh=(30.0,)),
            ),
        ],
        machines("cheap", "near", "fast"),
        **around,
    )


def test_each_policy_has_its_own_favourite() -> None:
    here = three_pools()
    chosen = {
        policy: goes(demand(policy=policy, near=USERS, run_s=3600.0), here)
        for policy in Policy
        if policy is not Policy.BALANCED
    }
    assert chosen == {
        Policy.CHEAPEST: "cheap",
        Policy.NEAREST: "near",
        Policy.FASTEST: "fast",
        Policy.GREENEST: "fast",
        Policy.LOWEST_LATENCY: "near",
    }


def test_weights_move_the_balance() -> None:
    here = three_pools()

    def chosen(**weights: float) -> str:
        return goes(demand(near=USERS, run_s=3600.0, weights=weights), here)

    assert chosen(cost_per_hour=1e3) == "cheap"
    assert chosen(distance_km=1e3) == "near"
    assert chosen(run_s=1e3) == "fast"
    assert chosen(carbon_g=1e3) == "fast"


NETWORK = [
    LinkFacts(source="data", target="cheap", bandwidth_mbps=200, latency_ms=180, price_micros_per_gib=90_000),
    LinkFacts(source="data", target="near", bandwidth_mbps=10_000, latency_ms=2, price_micros_per_gib=0),
    LinkFacts(
        source="data", target="fast", bandwidth_mbps=1_000, latency_ms=120, price_micros_per_gib=50_000
    ),
]
DATA_HERE: dict[str, Any] = {
    "sites": [SiteFacts("data", "cn-north")],
    "links": NETWORK,
    "datasets": [DatasetFacts(name="corpus", size_mib=TB_MIB, replicas=("data",))],
}


def test_taking_away_network_location_or_data_changes_decisions() -> None:
    """Each of the three, removed alone, moves some decisions of a varied set, and none of them moves all."""
    rng = Random(16)
    worlds = [random_world(rng) for _ in range(260)]
    wishes = [
        msgspec.structs.replace(
            random_demand(rng, single=True),
            policy=Policy.BALANCED,
            near=USERS,
            data=(DataNeed(dataset="corpus"),),
            residency=(),
        )
        for _ in worlds
    ]

    def without_network(here: Snapshot) -> Snapshot:
        around = here.surroundings
        return _rebuilt(here, SnapshotContext(datasets=around.datasets))

    changed = {"network": 0, "location": 0, "data": 0}
    placed = 0
    for wanted, here in zip(wishes, worlds, strict=True):
        full = decide(wanted, here)
        if not isinstance(full, Placed):
            continue
        placed += 1
        ablated = {
            "network": decide(wanted, without_network(here)),
            "location": decide(msgspec.structs.replace(wanted, near=None), here),
            "data": decide(msgspec.structs.replace(wanted, data=()), here),
        }
        for name, other in ablated.items():
            changed[name] += (
                not isinstance(other, Placed) or other.candidates[0].pool_name != full.candidates[0].pool_name
            )
    assert placed > 40
    assert all(0 < count < placed for count in changed.values()), (placed, changed)


def _rebuilt(here: Snapshot, around: SnapshotContext) -> Snapshot:
    return replace(here, network=build_network(here.pools, (), around.links), surroundings=around)


@pytest.mark.parametrize("mib", [0, 10_000, TB_MIB])
def test_the_templates_for_latency_and_cost_reach_the_least_over_compute_and_network(mib: int) -> None:
    """Lowest latency and best cost, instantiated with parameters alone, against a count by hand."""
    here = three_pools(
        **{**DATA_HERE, "datasets": [DatasetFacts(name="corpus", size_mib=mib, replicas=("data",))]}
    )
    data = (DataNeed(dataset="corpus"),)
    run_h, amount = 2.0, cores(4, 0)
    per_core = {"cheap": 0.02, "near": 0.10, "fast": 0.20}
    speed = {"cheap": 1.0, "near": 0.8, "fast": 2.0}
    per_gib = {"cheap": 0.09, "near": 0.0, "fast": 0.05}
    cost = {name: 4 * per_core[name] * run_h / speed[name] + mib / 1024 * per_gib[name] for name in per_core}
    cheapest = goes(demand(amount, policy=Policy.CHEAPEST, data=data, run_s=run_h * 3600), here)
    assert cheapest == min(cost, key=lambda name: cost[name])
    latency = {"cheap": 180.0, "near": 2.0, "fast": 120.0}
    users = Traffic(site="data", mbps=10.0)
    decision = decide(demand(amount, policy=Policy.LOWEST_LATENCY, traffic=(users,)), here)
    assert isinstance(decision, Placed)
    assert decision.candidates[0].pool_name == min(latency, key=lambda name: latency[name])
    assert decision.terms["latency_ms"] == 2.0


def test_data_is_fetched_over_the_links_there_are_fast_or_cheap_as_asked() -> None:
    lines = [
        LinkFacts(source="data", target="pool", bandwidth_mbps=100, latency_ms=5, price_micros_per_gib=0),
        LinkFacts(
            source="data", target="pool", bandwidth_mbps=1000, latency_ms=5, price_micros_per_gib=80_000
        ),
    ]
    here = world(
        [pool("pool", prices=prices(0.01))],
        machines("pool"),
        sites=[SiteFacts("data")],
        links=lines,
        datasets=[DatasetFacts(name="corpus", size_mib=102_400, replicas=("data",))],
    )

    def transfer(mode: TransferMode, weight: float = 1.0) -> Any:
        decision = decide(
            demand(data=(DataNeed(dataset="corpus", mode=mode),), weights={"data_s": weight}), here
        )
        assert isinstance(decision, Placed)
        return decision.transfers[0]

    fast, cheap = transfer(TransferMode.FAST), transfer(TransferMode.CHEAP)
    assert (fast.links, fast.mode) == ((1,), TransferMode.FAST)
    assert fast.seconds == pytest.approx(102_400 * 8.388608 / 1000 + 0.005)
    assert fast.cost == pytest.approx(8.0)
    assert (cheap.links, cheap.cost) == ((0,), 0.0)
    assert transfer(TransferMode.AUTO).links == (0,)  # 2.1 h saved are not worth 8
    assert transfer(TransferMode.AUTO, weight=10.0).links == (1,)  # at ten an hour they are


def test_a_replica_in_the_pool_costs_nothing_and_takes_no_time() -> None:
    here = world(
        [pool("with", prices=prices(0.05)), pool("without", prices=prices(0.04))],
        machines("with", "without"),
        links=[LinkFacts(source="with", target="without", bandwidth_mbps=100, price_micros_per_gib=10_000)],
        datasets=[DatasetFacts(name="corpus", size_mib=TB_MIB, replicas=("with",))],
    )
    decision = decide(demand(data=(DataNeed(dataset="corpus"),)), here)
    assert isinstance(decision, Placed)
    assert decision.candidates[0].pool_name == "with"
    assert decision.terms["data_s"] == 0.0
    assert decision.transfers[0].sites == ("with",)


def test_what_is_unknown_stays_unknown_and_loses_to_what_is_known() -> None:
    here = world(
        [pool("known", prices=prices(5.0)), pool("alike", prices=prices(5.0)), pool("unknown")],
        machines("known", "alike", "unknown"),
    )
    decision = decide(demand(), here)
    assert isinstance(decision, Placed)
    assert [c.pool_name for c in decision.candidates] == ["alike", "known", "unknown"]
    assert decision.candidates[2].terms["cost_per_hour"] is None
    assert decision.candidates[2].terms["carbon_g"] is None
    assert decision.omitted == ("wait_s", "run_s", "carbon_g"), "said, as nobody knows them"
    asked_near = decide(demand(near=USERS), here)
    assert isinstance(asked_near, Placed)
    assert asked_near.omitted[-2:] == ("latency_ms", "distance_km")


NAMED = {
    Policy.CHEAPEST: ({"prices": prices(5.0)}, "yunhe pool price NAME"),
    Policy.NEAREST: ({"place": Place("r", 30.0, 60.0)}, "yunhe pool set NAME --place"),
    Policy.LOWEST_LATENCY: ({"place": Place("r", 30.0, 60.0)}, "yunhe pool set NAME --place"),
    Policy.FASTEST: ({"speed": 2.0}, "yunhe pool set NAME --speed 1.2"),
    Policy.GREENEST: (
        {"energy": EnergyFacts(watts_per_core=5.0, carbon_g_per_kwh=(100.0,))},
        "yunhe pool set NAME --watts 60..250 --carbon 400",
    ),
}


@pytest.mark.parametrize("policy", NAMED)
def test_a_policy_refuses_who_does_not_say_what_it_is_named_after(policy: Policy) -> None:
    says, remedy = NAMED[policy]
    asked = demand(policy=policy, near=USERS)
    nobody = decide(asked, world([pool("a"), pool("b")], machines("a", "b")))
    assert isinstance(nobody, Waiting)
    assert {no.rule for no in nobody.rejected} == {"known"}
    assert all(remedy in no.detail for no in nobody.rejected)
    assert nobody.smallest_change.startswith("use policy balanced")
    one = decide(asked, world([pool("a"), pool("b", **says)], machines("a", "b")))
    assert isinstance(one, Placed)
    assert [c.pool_name for c in one.candidates] == ["b"]
    assert [no.rule for no in one.rejected] == ["known"]


def test_of_equal_scores_the_cheaper_wins_however_far_it_is() -> None:
    here = world(
        [
            pool("dear-and-near", prices=prices(0.9), speed=1.0, place=Place("r", 30.0, 60.0)),
            pool("cheap-and-far", prices=prices(0.000001), speed=1.0, place=Place("s", -30.0, -120.0)),
        ],
        machines("dear-and-near", "cheap-and-far"),
    )
    assert goes(demand(policy=Policy.FASTEST, near=Place("r", 30.0, 60.0)), here) == "cheap-and-far"


def test_estimates_say_that_they_are() -> None:
    here = world([pool("p", place=Place("eu-west", 48.9, 2.3), speed=1.0)], machines("p"))
    guessed = decide(demand(near=USERS), here)
    told = decide(demand(near=USERS, run_s=60.0), here)
    assert isinstance(guessed, Placed)
    assert isinstance(told, Placed)
    assert guessed.candidates[0].estimated == ("run_s", "latency_ms")
    assert told.candidates[0].estimated == ("latency_ms",)


def test_power_its_price_and_its_carbon_move_work_westward_and_into_the_sunny_hours() -> None:
    """Energy supply (carbon by hour), climate (PUE), and the price of power enter the objective."""

    def here(
        carbon: tuple[float, ...] = (500.0,), pue: float = 1.5, price: int | None = None, at: float = 0.0
    ) -> Snapshot:
        east = EnergyFacts(watts_per_core=10, pue=1.5, price_micros_per_kwh=price, carbon_g_per_kwh=(500.0,))
        west = EnergyFacts(
            watts_per_core=10,
            pue=pue,
            price_micros_per_kwh=price,
            carbon_g_per_kwh=carbon,
            carbon_from=NOW - at,
        )
        return world(
            [
                pool("east", prices=prices(0.05), energy=east, speed=1.0),
                pool("west", prices=prices(0.0505), energy=west, speed=1.0),
            ],
            machines("east", "west"),
        )

    work = demand(cores(8), run_s=36_000.0)
    assert goes(work, here()) == "east"  # the same power: the cheaper list wins
    assert goes(work, here(carbon=(20.0,))) == "west"
    assert goes(work, here(pue=1.05, price=1_000_000)) == "west"  # colder air, where power is passed on
    assert goes(msgspec.structs.replace(work, weights={"carbon_g": 0.0}), here(carbon=(20.0,))) == "east"
    solar = (20.0,) * 12 + (900.0,) * 12
    assert goes(work, here(carbon=solar, at=0.0)) == "west"  # the ten hours are sunny ones
    assert goes(work, here(carbon=solar, at=12 * 3600.0)) == "east"  # the same work at nightfall
    assert goes(demand(policy=Policy.GREENEST), here(carbon=(499.0,))) == "west"


def test_an_unreliable_pool_costs_the_runs_that_fail() -> None:
    here = world(
        [
            pool("steady", prices=prices(0.10), speed=1.0, reliability=1.0),
            pool("shaky", prices=prices(0.08), speed=1.0, reliability=0.8),
        ],
        machines("steady", "shaky"),
    )
    assert goes(demand(run_s=60.0), here) == "shaky"
    assert goes(demand(run_s=36_000.0), here) == "steady"
    decision = decide(demand(run_s=36_000.0), here)
    assert isinstance(decision, Placed)
    assert decision.candidates[1].terms["risk"] == pytest.approx(1 - 0.8**10)


def test_interruptible_work_pays_the_price_of_spot_and_runs_its_risk() -> None:
    spot = SpotFacts(price_ratio_history=(0.3, 0.4, 0.5), interruptions_per_hour=0.05)
    here = world(
        [
            pool("listed", prices=prices(0.05), speed=1.0),
            pool("spot", prices=prices(0.10), speed=1.0, spot=spot),
        ],
        machines("listed", "spot"),
    )
    assert goes(demand(policy=Policy.CHEAPEST, run_s=600.0), here) == "listed"
    assert goes(demand(policy=Policy.CHEAPEST, run_s=600.0, interruptible=True), here) == "spot"
    decision = decide(demand(interruptible=True), here)
    assert isinstance(decision, Placed)
    by_name = {c.pool_name: c for c in decision.candidates}
    assert by_name["spot"].terms["cost_per_hour"] == pytest.approx(0.04)


def test_an_outside_score_counts_until_it_expires() -> None:
    def here(valid_until: float) -> Snapshot:
        said = ExternalScore(
            name="noise", pool_id=PoolId("a"), valid_until=valid_until, cost=1.0, seconds=60.0
        )
        return world(
            [pool("a", prices=prices(0.01), speed=1.0), pool("b", prices=prices(0.02), speed=1.0)],
            machines("a", "b"),
            external=[said],
        )

    assert goes(demand(), here(NOW + 1)) == "b"
    assert goes(demand(), here(NOW)) == "a"
    assert goes(demand(policy=Policy.FASTEST), here(NOW + 1)) == "b"


def test_traffic_gets_the_best_pair_of_path_and_node() -> None:
    """Every pair on small topologies, against all simple paths to all pools."""
    for seed in range(40):
        rng = Random(seed)
        names = [f"p{i}" for i in range(4)]
        relays = [SiteFacts(f"r{i}") for i in range(3)]
        users = SiteFacts("users", relays=False)
        ends = ["users", *names, *(site.name for site in relays)]
        links = [
            LinkFacts(
                source=a,
                target=b,
                bandwidth_mbps=rng.choice((50.0, 200.0)),
                latency_ms=rng.choice((2.0, 9.0, 31.0)),
                price_micros_per_gib=rng.choice((0, 10_000, 60_000)),
            )
            for i, a in enumerate(ends)
            for b in ends[i + 1 :]
            if rng.random() < 0.5
        ]
        here = world(
            [pool(name, prices=prices(rng.choice((0.01, 0.05, 0.3))), speed=1.0) for name in names],
            machines(*names),
            sites=[users, *relays],
            links=links,
        )
        wanted = demand(traffic=(Traffic(site="users", mbps=100.0, max_latency_ms=60.0),), run_s=3600.0)
        decision = decide(wanted, here)
        best = _best_pair(here, names)
        assert (best is None) == (not isinstance(decision, Placed)), seed
        if isinstance(decision, Placed) and best is not None:
            assert decision.score == pytest.approx(best), seed
            route = decision.routes[0]
            assert all(here.network.free_mbps[link] >= 100.0 for link in route.links)


def _best_pair(here: Snapshot, names: list[str]) -> float | None:
    """The least money (with latency at a tenth of a cent a millisecond) of any pool over any simple path."""
    source = here.network.site("users")
    gib = 100.0 * 3600 / 8.388608 / 1024
    found: list[float] = []
    for row, name in enumerate(names):
        facts = here.pools[row]
        assert facts.name == name
        assert facts.prices is not None
        run = next(iter(facts.prices.values())).cpu_core_hour_micros / 1e6 + 1.0
        for _, links in oracle.simple_paths(here, source, int(here.network.pool_site[row])):
            latency = sum(float(here.network.latency_ms[link]) for link in links)
            wide = all(here.network.free_mbps[link] >= 100.0 for link in links)
            if wide and latency <= 60.0:
                price = sum(float(here.network.price_per_gib[link]) for link in links)
                found.append(run + gib * price + 0.001 * latency)
    return min(found, default=None)


def test_the_candidates_shown_are_the_best_few_and_the_whole_pareto_front() -> None:
    """Markets of random pools against sorting and pairwise comparison, both by brute force."""
    markets = {"a choice": 0, "more than are shown": 0, "somebody beaten": 0}
    for seed in range(800):
        rng = Random(seed)
        here, wanted = random_world(rng), random_demand(rng, single=True)
        decision = decide(wanted, here)
        everyone = decision.candidates if isinstance(decision, Placed) else ()
        able = _scores_by_brute_force(wanted, here)
        assert sorted((one.alternative, one.pool_name) for one in everyone) == sorted(able)
        if not wanted.ordered:
            least = sorted(able.values())[:3]
            assert [one.score for one in everyone[:3]] == pytest.approx(least, rel=1e-3, abs=1e-6), seed
        values = [(one, _criteria(wanted, here, one)) for one in everyone]
        front = [
            one
            for index, (one, mine) in enumerate(values)
            if index == 0 or not any(_beaten_by(mine, theirs) for _, theirs in values)
        ]
        shown = pareto(wanted, here)
        if isinstance(shown, ParetoPlan):
            assert [one.candidate for one in shown.choices] == front, seed
            assert [one.candidate for one in shown.beaten] == [one for one in everyone if one not in front]
        else:
            assert not everyone
        markets["a choice"] += len(everyone) > 1
        markets["more than are shown"] += len(everyone) > 3
        markets["somebody beaten"] += len(front) < len(everyone)
    assert all(count >= 10 for count in markets.values()), markets


def _scores_by_brute_force(wanted: Demand, here: Snapshot) -> dict[tuple[int, str], float]:
    """Every alternative in every pool that has room for it, with its score, by the slow second opinion."""
    least = wanted.members if wanted.members_min is None else wanted.members_min
    return {
        (alternative, here.pools[row].name): oracle.scores(wanted, here, alternative)[row]
        for alternative in range(len(wanted.alternatives))
        for row in oracle.able_pools(wanted, here, alternative)
        if oracle.members_that_fit(wanted, here, alternative, [row]) >= least
    }


def _criteria(wanted: Demand, here: Snapshot, one: Candidate) -> list[float | None]:
    """Money in all, seconds until and while it runs, grams, milliseconds, kilometres, risk; None where a part is unknown."""
    found = oracle.terms(wanted, here, here.row_of_pool[one.pool_id], one.alternative)
    hours = found["hours"]
    assert hours is not None
    money = _sum(found["cost"], found["data_cost"], found["energy_cost"])
    start = _sum(found["wait_s"], found["data_s"])
    criteria = [
        money,
        start,
        *(found[name] for name in ("run_s", "carbon_g", "latency_ms", "distance_km", "risk")),
    ]
    assert len(CRITERIA) == len(criteria)
    return criteria


def _sum(*parts: float | None) -> float | None:
    return None if None in parts else sum(part or 0.0 for part in parts)


def _beaten_by(mine: list[float | None], theirs: list[float | None]) -> bool:
    """Whether the other is as good in every respect and better in one, as far as is known of it."""
    better = False
    for name, my, their in zip(CRITERIA, mine, theirs, strict=True):
        if their is None:
            if my is not None:
                return False
            continue
        margin = 1e-3 * their if name == "carbon_g" else 1e-9
        if my is not None and their > my + margin:
            return False
        better = better or my is None or their < my - margin
    return better


@pytest.mark.parametrize("unknown", ["wait_s", "speed", "reliability", "prices", "data"])
def test_what_is_unknown_beats_nobody_in_the_pareto_set(unknown: str) -> None:
    facts: dict[str, Any] = {"wait_s": 5.0, "speed": 1.0, "reliability": 1.0, "prices": prices(0.05)}
    here = world(
        [pool("known", **facts), pool("vague", **{name: facts[name] for name in facts if name != unknown})],
        machines("known", "vague"),
        links=[
            LinkFacts(source="data", target="known", bandwidth_mbps=100, price_micros_per_gib=1000),
            LinkFacts(
                source="data",
                target="vague",
                bandwidth_mbps=None if unknown == "data" else 100,
                price_micros_per_gib=1000,
            ),
        ],
        sites=[SiteFacts("data")],
        datasets=[DatasetFacts(name="corpus", size_mib=1000, replicas=("data",))],
    )
    shown = pareto(demand(data=(DataNeed(dataset="corpus"),), run_s=3600.0), here)
    assert isinstance(shown, ParetoPlan)
    assert [one.candidate.pool_name for one in shown.choices] == ["known"]
    assert [(one.candidate.pool_name, one.by) for one in shown.beaten] == [("vague", "known")]


@pytest.mark.parametrize("unknown", ["speed", "reliability"])
@pytest.mark.parametrize("policy", [Policy.CHEAPEST, Policy.GREENEST])
def test_the_policy_s_choice_is_on_the_pareto_front_and_first_whatever_else_it_does_not_say(
    unknown: str, policy: Policy
) -> None:
    def power(grams: float) -> EnergyFacts:
        return EnergyFacts(watts_per_core=10.0, carbon_g_per_kwh=(grams,))

    facts: dict[str, Any] = {"speed": 1.0, "reliability": 0.9, "energy": power(400.0)}
    vague = {name: value for name, value in facts.items() if name != unknown} | {"energy": power(10.0)}
    here = world(
        [
            pool("alder", prices=prices(0.05), **facts),
            pool("birch", prices=prices(0.01), **vague),
            pool("cedar", prices=prices(0.06), **facts),
        ],
        machines("alder", "birch", "cedar"),
    )
    wanted = demand(policy=policy, run_s=3600.0)
    placed, shown = decide(wanted, here), pareto(wanted, here)
    assert isinstance(placed, Placed)
    assert isinstance(shown, ParetoPlan)
    assert placed.candidates[0].pool_name == "birch"
    assert [one.candidate.pool_name for one in shown.choices] == ["birch", "alder"]
    assert [(one.candidate.pool_name, one.by) for one in shown.beaten] == [("cedar", "alder")]


def test_a_choice_that_a_tie_made_stays_the_first_though_another_beats_it() -> None:
    """The policy goes by the cost alone: of equal ones it takes the first, and the second is nearer."""
    here = world(
        [
            pool("alder", prices=prices(0.05), place=Place("far", 0.0, 90.0)),
            pool("birch", prices=prices(0.05), place=Place("near", 0.0, 1.0)),
        ],
        machines("alder", "birch"),
    )
    wanted = demand(policy=Policy.CHEAPEST, near=Place("", 0.0, 0.0))
    placed, shown = decide(wanted, here), pareto(wanted, here)
    assert isinstance(placed, Placed)
    assert isinstance(shown, ParetoPlan)
    assert [one.candidate.pool_name for one in shown.choices] == ["alder", "birch"]
    assert placed.candidates[0].pool_name == "alder"


@pytest.mark.parametrize("kind", ["a100", "a100|h100", "*"])
def test_any_of_several_kinds_of_accelerator_will_do(kind: str) -> None:
    ask = Resources(1000, 512, 0, (Accelerators(kind, 1000),))
    gpu = node("g", "p", Resources(4000, 4096, 0, (Accelerators("a100", 1000),)))
    decision = decide(demand(ask), world([pool("p", prices=prices(0.0, a100=2.5))], [gpu]))
    assert isinstance(decision, Placed)
    assert decision.assignments[0].devices == (0,)
    assert decision.terms["cost_per_hour"] == pytest.approx(2.5)
