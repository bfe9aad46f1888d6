"""Tiers: who is reserved what, who leaves first, and what a mixed host may hold."""

from itertools import pairwise

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from yunhe.flexible.history import History
from yunhe.flexible.placing.packing import host_usage
from yunhe.flexible.placing.tiers import (
    BEST_TO_WORST,
    PROMISES,
    HostPark,
    Tenant,
    TieredRules,
    eviction_order,
    place_tiered,
    reservation,
    victims,
)
from yunhe.flexible.trace import Dimension, hour_of_week
from yunhe.kernel.money import Tier

TENANTS = st.lists(
    st.builds(Tenant, st.uuids().map(str), st.sampled_from(Tier), st.floats(0, 8)), max_size=12
)


@given(TENANTS, st.floats(0, 30))
@settings(max_examples=80)
def test_after_a_conflict_low_leaves_before_medium_and_medium_before_high(
    tenants: list[Tenant], excess: float
):
    ranks = [BEST_TO_WORST.index(one.tier) for one in eviction_order(tenants)]
    assert ranks == sorted(ranks, reverse=True)
    leaving = victims(tenants, excess)
    staying = [one for one in tenants if one not in leaving]
    for gone in leaving:
        worse = [one for one in staying if BEST_TO_WORST.index(one.tier) > BEST_TO_WORST.index(gone.tier)]
        assert not worse, "a better tier left while a worse one stayed"
    freed = sum(one.usage for one in leaving)
    assert freed >= excess or not staying
    if leaving:
        assert sum(one.usage for one in leaving[:-1]) < excess, "the last to leave was needed"


def test_within_a_tier_the_smallest_that_is_enough_leaves_alone():
    tenants = [Tenant("big", Tier.LOW, 6), Tenant("right", Tier.LOW, 2.5), Tenant("small", Tier.LOW, 1)]
    assert [one.name for one in victims(tenants, 2)] == ["right"]


def test_the_tiers_reserve_the_95th_percentile_the_mean_and_the_minimum():
    series = np.arange(101, dtype=np.float32)[None, :]
    assert [reservation(series, tier)[0] for tier in BEST_TO_WORST] == [95, 50, 0]
    assert [PROMISES[tier].degradation_below for tier in BEST_TO_WORST] == [0.05, 0.20, 0.50]


@st.composite
def crowds(draw: st.DrawFn) -> tuple[dict[Dimension, History], list[Tier], np.random.Generator]:
    random = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    count, slots = draw(st.integers(1, 12)), 60
    hours = hour_of_week(np.arange(slots) * 300)
    histories: dict[Dimension, History] = {}
    for dimension, unit in ((Dimension.CPU, 1.0), (Dimension.MEMORY, 1024.0), (Dimension.DISK, 100.0)):
        request = random.choice([1.0, 2.0, 4.0], count) * unit
        series = (request[:, None] * random.random((count, slots)) ** 3).astype(np.float32)
        histories[dimension] = History(series, hours, request, np.ones(count, dtype=bool), 300)
    return histories, [list(Tier)[i] for i in random.integers(0, 3, count)], random


@given(crowds(), st.booleans())
@settings(max_examples=25)
def test_a_mixed_host_keeps_every_reservation_every_promise_and_every_cap(
    crowd: tuple[dict[Dimension, History], list[Tier], np.random.Generator], memory_too: bool
):
    histories, tiers, random = crowd
    count = len(tiers)
    park = HostPark(
        {
            Dimension.CPU: np.full(4, 6.0),
            Dimension.MEMORY: np.full(4, 6144.0),
            Dimension.DISK: np.full(4, 700.0),
        },
        speed=np.array([1.0, 1.0, 1.25, 1.25]),
    )
    free = frozenset({Dimension.CPU, *((Dimension.MEMORY,) if memory_too else ())})
    rules = TieredRules(overcommit_cap=3.0, overcommitted=free)
    placed = place_tiered(histories, tiers, park, random.permutation(count), rules)
    for host in np.unique(placed[placed >= 0]):
        members = np.flatnonzero(placed == host)
        if len(members) == 1:
            continue  # alone it conflicts with nobody
        assert (
            histories[Dimension.CPU].request[members].sum()
            <= 3.0 * park.normalised(Dimension.CPU)[host] + 1e-6
        )
        for dimension, history in histories.items():
            capacity = park.normalised(dimension)[host]
            if dimension not in free:
                assert history.request[members].sum() <= capacity + 1e-6
                continue
            held = sum(float(reservation(history.series[[one]], tiers[one])[0]) for one in members)
            assert held <= capacity * (1 + 1e-6)
            for tier in BEST_TO_WORST:
                better = [
                    one for one in members if BEST_TO_WORST.index(tiers[one]) <= BEST_TO_WORST.index(tier)
                ]
                together = history.series[better].sum(axis=0, dtype=np.float64)
                assert (together > capacity * 1.001).mean() <= PROMISES[tier].overload + 1e-9


def test_a_faster_generation_holds_more_of_the_same():
    series = np.full((40, 10), 1.0, dtype=np.float32)
    history = History(
        series, hour_of_week(np.arange(10) * 300), np.full(40, 1.0), np.ones(40, dtype=bool), 300
    )
    park = HostPark({Dimension.CPU: np.array([8.0, 8.0])}, speed=np.array([1.0, 1.5]))
    placed = place_tiered({Dimension.CPU: history}, [Tier.HIGH] * 40, park, np.arange(40))
    assert [int((placed == host).sum()) for host in range(2)] == [8, 12]
    assert host_usage(placed, series.astype(np.float64)).max() == 12


def test_promises_loosen_from_tier_to_tier():
    loose = [(PROMISES[tier].overload, PROMISES[tier].degradation_below) for tier in BEST_TO_WORST]
    assert all(a < b for a, b in pairwise(loose))
