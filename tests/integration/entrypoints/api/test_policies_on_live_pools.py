"""Policies on live pools, against arithmetic that shares nothing with the decision core.

Facts and prices are told over the API, the choice is that of ``POST /v1/plan``. What a pool does not say is unknown.
"""

import math
import time
from collections.abc import Generator
from dataclasses import dataclass
from random import Random

import pytest

from integration.entrypoints.api.serving import add_fake_pool, serving
from yunhe.control.pools.facts import FACTS
from yunhe.control.pools.model import FactChanges
from yunhe.entrypoints.client import Client
from yunhe.kernel.carbon import CarbonSeries
from yunhe.kernel.money import Prices
from yunhe.kernel.places import Place
from yunhe.scheduling.decision.model import Placed, Policy, Waiting
from yunhe.trading.applications.model import Submission
from yunhe.trading.demand.model import ResourceSpec, Task

WORLDS = 200
CHANGED = 2
"""So many pools are told anew from one world to the next."""
SIZES = {"alder": 2, "birch": 4, "cedar": 8, "dogwood": 8, "elm": 8}
HERE = (39.9, 116.4)
POLICIES = (Policy.CHEAPEST, Policy.NEAREST, Policy.FASTEST, Policy.GREENEST, Policy.BALANCED)


@dataclass
class Told:
    """What was said of one pool; None: nothing."""

    cores: int
    core_price: float
    gib_price: float
    speed: float | None
    watts: float | None
    pue: float
    kwh_price: float | None
    carbon: tuple[float, ...]
    reliability: float | None
    wait_s: float | None
    place: tuple[float, float] | None


@dataclass
class Wish:
    """What is asked for."""

    cores: int
    gib: int
    hours: float


def some_pool(rng: Random, cores: int) -> Told:
    def maybe(value: float) -> float | None:
        return value if rng.random() < 0.8 else None

    return Told(
        cores=cores,
        core_price=rng.choice((0.01, 0.03, 0.05, 0.2)) + rng.random() / 1000,
        gib_price=rng.random() / 100,
        speed=maybe(rng.uniform(0.5, 3.0)),
        watts=maybe(rng.uniform(40, 400)),
        pue=rng.uniform(1.0, 1.8),
        kwh_price=maybe(rng.uniform(0.0, 0.8)),
        carbon=tuple(rng.uniform(20, 800) for _ in range(rng.choice((0, 1, 24, 24)))),
        reliability=maybe(rng.uniform(0.9, 1.0)),
        wait_s=maybe(rng.uniform(0, 900)),
        place=(rng.uniform(-60, 60), rng.uniform(-170, 170)) if rng.random() < 0.8 else None,
    )


def tell(client: Client, name: str, told: Told) -> None:
    facts = {
        "speed": told.speed,
        "watts_full": told.watts,
        "pue": told.pue,
        "energy_price_micros_per_kwh": None if told.kwh_price is None else round(told.kwh_price * 1e6),
        "carbon": CarbonSeries(g_per_kwh=told.carbon) if told.carbon else None,
        "reliability": told.reliability,
        "wait_s": told.wait_s,
        "place": None if told.place is None else Place(name, *told.place),
    }
    unset = tuple(fact for fact, value in facts.items() if value is None)
    client.set_pool_facts(name, FactChanges(**facts, unset=unset))  # type: ignore[arg-type]
    micros = Prices(
        cpu_core_hour_micros=round(told.core_price * 1e6), memory_gib_hour_micros=round(told.gib_price * 1e6)
    )
    client.set_prices(name, micros)


# --- the second opinion


def distance_km(a: tuple[float, float], b: tuple[float, float]) -> float:
    """By the spherical law of cosines; the core uses haversines."""
    (lat1, lon1), (lat2, lon2) = ((math.radians(x), math.radians(y)) for x, y in (a, b))
    turn = math.sin(lat1) * math.sin(lat2) + math.cos(lat1) * math.cos(lat2) * math.cos(lon1 - lon2)
    return 6371.0 * math.acos(max(-1.0, min(1.0, turn)))


def mean_carbon(series: tuple[float, ...], begin_h: float, hours: float) -> float:
    """Hour by hour from the epoch, the series again and again."""
    total, at = 0.0, begin_h
    while at < begin_h + hours - 1e-12:
        until = min(math.floor(at) + 1.0, begin_h + hours)
        total += (until - at) * series[math.floor(at) % len(series)]
        at = until
    return total / hours


def terms_of(told: Told, wish: Wish, now: float) -> dict[str, float | None]:
    alone = wish.hours / (told.speed or 1.0)
    failing = 0.0 if told.reliability is None else -math.log(told.reliability)
    hours = math.expm1(failing * alone) / failing if failing > 1e-12 else alone
    rate = wish.cores * round(told.core_price * 1e6) / 1e6 + wish.gib * round(told.gib_price * 1e6) / 1e6
    kwh = None if told.watts is None else told.watts / told.cores * told.pue * wish.cores * hours / 1000
    grams = None
    if kwh is not None and told.carbon:
        grams = kwh * mean_carbon(told.carbon, (now + (told.wait_s or 0.0)) / 3600, hours)
    km = None if told.place is None else distance_km(HERE, told.place)
    return {
        "money": rate * hours,
        "energy": 0.0 if kwh is None else kwh * (told.kwh_price or 0.0),
        "wait": told.wait_s,
        "run": None if told.speed is None else hours * 3600,
        "carbon": grams,
        "km": km,
        "ms": None if km is None else km * 0.015,
    }


WORTH = {
    Policy.CHEAPEST: {"money": 1.0, "energy": 1.0},
    Policy.NEAREST: {"km": 1.0},
    Policy.FASTEST: {"wait": 1.0, "run": 1.0},
    Policy.GREENEST: {"carbon": 1.0},
    Policy.BALANCED: {
        "money": 1.0,
        "energy": 1.0,
        "wait": 1 / 3600,
        "run": 1 / 3600,
        "carbon": 0.0001,
        "ms": 0.001,
        "km": 0.0001,
    },
}
NEEDED = {Policy.NEAREST: "km", Policy.FASTEST: "run", Policy.GREENEST: "carbon"}


def best(world: dict[str, Told], wish: Wish, policy: Policy, now: float) -> dict[str, float]:
    """Pool → score of those that fit; what is unknown counts as the worst that is known of any."""
    found = {name: terms_of(told, wish, now) for name, told in world.items()}
    totals = dict.fromkeys(found, 0.0)
    for term, worth in WORTH[policy].items():
        worst = max((value for terms in found.values() if (value := terms[term]) is not None), default=0.0)
        for name, terms in found.items():
            value = terms[term]
            totals[name] += worth * (worst * (1 + 1e-9) if value is None else value)
    return {
        name: total
        for name, total in totals.items()
        if wish.cores <= world[name].cores
        and (policy not in NEEDED or found[name][NEEDED[policy]] is not None)
    }


# --- the tests


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Generator[Client]:
    with serving(tmp_path_factory.mktemp("policies")) as served, served.client() as client:
        for name, cores in SIZES.items():
            add_fake_pool(client, name, cpus=str(cores), memory="32GB")
        yield client


def plan(client: Client, wish: Wish, policy: Policy, **more: str) -> Placed | Waiting:
    task = Task(
        run="true",
        resources=ResourceSpec(cpus=wish.cores, memory=wish.gib),
        duration=f"{wish.hours:.6f}h",
        near=f"@{HERE[0]},{HERE[1]}",
        policy=policy,
        **more,  # type: ignore[arg-type]
    )
    decision = client.plan(Submission(task=task))
    assert isinstance(decision, Placed | Waiting)
    return decision


@pytest.mark.feature(
    "B07",
    file="src/yunhe/scheduling/decision/score/kernels.py",
    old="0.0 if np.isnan(kwh) else kwh * facts.price_per_kwh[pool]",
    new="0.0",
)
def test_every_policy_chooses_the_least_of_an_independent_computation_in_200_worlds(client: Client) -> None:
    rng = Random(13)
    world = {name: some_pool(rng, cores) for name, cores in SIZES.items()}
    for name, told in world.items():
        tell(client, name, told)
    winners: dict[Policy, set[str]] = {policy: set() for policy in POLICIES}
    disagreements, waited = 0, 0
    for number in range(WORLDS):
        for name in rng.sample(list(world), CHANGED) if number else ():
            world[name] = some_pool(rng, SIZES[name])
            tell(client, name, world[name])
        wish = Wish(rng.choice((1, 2, 3, 6)), rng.choice((1, 4, 16)), round(rng.uniform(0.1, 6.0), 6))
        choices: list[str] = []
        for policy in POLICIES:
            decision, able = plan(client, wish, policy), best(world, wish, policy, time.time())
            if isinstance(decision, Waiting):
                assert not able, f"world {number}: {policy} waits, and {able} could take it"
                waited += 1
                continue
            chosen = decision.candidates[0].pool_name
            assert set(able) == {one.pool_name for one in decision.candidates}, f"world {number}, {policy}"
            assert able[chosen] <= min(able.values()) * (1 + 1e-6), f"world {number}, {policy}: {able}"
            winners[policy].add(chosen)
            choices.append(chosen)
        disagreements += len(set(choices)) > 1
    assert all(len(names) == len(SIZES) for names in winners.values()), "each pool wins under each policy"
    assert disagreements > WORLDS / 2, "policies would not matter in these worlds"
    assert waited, "no world in which nobody says what a policy is named after"


def test_carbon_by_hour_changes_the_choice_with_the_hour(client: Client) -> None:
    rng = Random(7)
    for name, cores in SIZES.items():
        tell(client, name, some_pool(rng, cores))
    now = time.time()
    clean_at: dict[str, int] = {"cedar": 0, "dogwood": 1, "elm": 2}
    for name, cores in SIZES.items():
        turn = clean_at.get(name, 9)
        series = tuple(10.0 if hour % 3 == turn else 500.0 for hour in range(24))
        said = CarbonSeries(g_per_kwh=series, starts_at=now - 600)  # ten minutes into the first hour
        client.set_pool_facts(name, FactChanges(speed=1.0, watts_full=10.0 * cores, carbon=said, pue=1.0))
    wish = Wish(1, 1, 0.25)
    for hour in range(6):
        more = {"start_after": f"{hour}h"} if hour else {}
        decision = plan(client, wish, Policy.GREENEST, **more)
        assert isinstance(decision, Placed)
        assert clean_at[decision.candidates[0].pool_name] == hour % 3, f"in {hour} hours"
        assert decision.terms["carbon_g"] == pytest.approx(0.01 * 0.25 * 10.0, rel=1e-3)


def test_a_policy_that_nobody_knows_enough_for_waits_with_the_remedy(client: Client) -> None:
    for name in SIZES:
        client.set_prices(name, Prices(cpu_core_hour_micros=50_000))
        client.set_pool_facts(name, FactChanges(unset=FACTS))
    wish = Wish(1, 1, 1.0)
    remedies = {
        Policy.FASTEST: "does not say how fast it is: yunhe pool set NAME --speed 1.2",
        Policy.GREENEST: "does not say its carbon: yunhe pool set NAME --watts 60..250 --carbon 400",
        Policy.NEAREST: "does not say where it is: yunhe pool set NAME --place cn-north@39.9,116.4",
        Policy.LOWEST_LATENCY: "does not say how far it is: yunhe pool set NAME --place cn-north@39.9,116.4",
    }
    for policy, remedy in remedies.items():
        decision = plan(client, wish, policy)
        assert isinstance(decision, Waiting)
        assert {(no.rule, no.detail) for no in decision.rejected} == {("known", remedy)}
        assert decision.smallest_change.startswith("use policy balanced")
    balanced = plan(client, wish, Policy.BALANCED)
    assert isinstance(balanced, Placed)
    assert balanced.omitted == ("wait_s", "run_s", "carbon_g", "latency_ms", "distance_km")
    client.set_prices("elm", Prices(cpu_core_hour_micros=100))
    client.set_prices("cedar", Prices(cpu_core_hour_micros=900_000))
    client.set_pool_facts("cedar", FactChanges(speed=1.0, place=Place("near", *HERE)))
    client.set_pool_facts("elm", FactChanges(speed=1.0, place=Place("far", -40.0, -60.0)))
    tied = plan(client, wish, Policy.FASTEST)
    assert isinstance(tied, Placed)
    assert tied.candidates[0].pool_name == "elm", "of equal speeds the cheaper wins, however far it is"
