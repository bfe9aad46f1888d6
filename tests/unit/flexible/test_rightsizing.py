"""Right-sizing: the demand is covered, nothing is wasted, and the guards hold."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from yunhe.flexible.placing.tiers import BEST_TO_WORST
from yunhe.flexible.sizing.explanation import explain_instance
from yunhe.flexible.sizing.rightsizing import (
    CPU_STEP_MILLIS,
    MEMORY_STEP_MIB,
    PRICE_BOOK,
    SPEC_QUANTILE,
    Guards,
    InstanceSize,
    Recommendation,
    Severity,
    cheapest_flavour,
    flavour_waste,
    recommend,
    unmet,
)
from yunhe.flexible.synthetic import Cluster, synthetic_trace
from yunhe.flexible.trace import DAY_S, Dimension, Trace
from yunhe.kernel.money import Tier

SEEN_START = Guards(unseen_start_keeps=0.0)


@pytest.fixture(scope="module")
def cluster() -> Trace:
    return synthetic_trace(Cluster(instances=60, days=14))


def one_instance(cpu: "np.ndarray[tuple[int, ...], np.dtype[np.float64]]", memory: float = 1000.0) -> Trace:
    """One 4-core, 8 GiB instance from a Monday on, a sample every 5 minutes."""
    usage = {
        Dimension.CPU: cpu[None, :].astype(np.float32),
        Dimension.MEMORY: np.full((1, len(cpu)), memory, dtype=np.float32),
    }
    request = {Dimension.CPU: np.array([4.0]), Dimension.MEMORY: np.array([8192.0])}
    return Trace(("one",), 345_600, 300, usage, request)


def advice(trace: Trace, tier: Tier = Tier.HIGH, guards: Guards = SEEN_START) -> Recommendation:
    return recommend(trace, tier, guards, PRICE_BOOK)[0]


@pytest.mark.parametrize("tier", BEST_TO_WORST)
def test_a_spec_covers_the_quantile_of_what_it_was_sized_on_and_hardly_more(cluster: Trace, tier: Tier):
    """How it does on what comes later is judged in ``test_lab_sizing`` and, on real traces, ``test_sizing``."""
    for one in recommend(cluster, tier, SEEN_START, PRICE_BOOK):
        row = cluster.instances.index(one.instance)
        short_cpu, short_memory = unmet(cluster, row, one.recommended)
        assert short_cpu <= 1 - SPEC_QUANTILE[tier] + 1e-3
        assert short_memory == 0
        usage = cluster.usage[Dimension.CPU][row]
        by_day = usage[: 14 * 288].reshape(14, 288)
        busiest = max(
            np.nanquantile(np.concatenate([by_day[day], by_day[day + 7]]), SPEC_QUANTILE[tier])
            for day in range(7)
        )
        assert one.recommended.cpu_millis - 1000 * busiest <= CPU_STEP_MILLIS, (
            "no more than a step above the demand"
        )
        peak = float(np.nanmax(cluster.usage[Dimension.MEMORY][row]))
        assert one.recommended.memory_mib - peak * 1.15 <= MEMORY_STEP_MIB
        assert one.flavour.covers(one.recommended)


def test_any_ratio_of_cpu_to_memory_can_come_out(cluster: Trace):
    ratios = {
        round(one.recommended.memory_mib / one.recommended.cpu_millis, 1)
        for one in recommend(cluster, Tier.HIGH, SEEN_START, PRICE_BOOK)
    }
    assert len(ratios) > 20


def test_a_lower_tier_never_gets_more(cluster: Trace):
    sizes = [
        {one.instance: one.recommended.cpu_millis for one in recommend(cluster, tier, SEEN_START, PRICE_BOOK)}
        for tier in BEST_TO_WORST
    ]
    assert all(high >= sizes[1][name] >= sizes[2][name] for name, high in sizes[0].items())


def test_a_quiet_week_with_one_busy_monday_is_sized_for_monday():
    cpu = np.full(14 * 288, 0.2)
    cpu[:288] = cpu[7 * 288 : 8 * 288] = 3.0
    assert advice(one_instance(cpu)).recommended.cpu_millis == 3000
    assert "on Mon" in advice(one_instance(cpu)).evidence[0]


def test_a_weekend_alone_shrinks_nothing():
    trace = replace(one_instance(np.full(2 * 288, 0.1)), start_s=345_600 + 5 * DAY_S)
    one = advice(trace)
    assert one.recommended == one.given
    assert any("not shrunk" in line for line in one.evidence)


def test_a_start_up_peak_is_covered_and_an_unseen_start_keeps_half():
    calm = one_instance(np.full(14 * 288, 0.2), memory=500.0)
    assert advice(calm, guards=Guards()).recommended.memory_mib == 4096
    memory = calm.usage[Dimension.MEMORY].copy()
    memory[0, 3] = 6000.0
    assert (
        advice(replace(calm, usage={**calm.usage, Dimension.MEMORY: memory})).recommended.memory_mib >= 6900
    )


def calm_pool(instances: int = 4) -> "np.ndarray[tuple[int, ...], np.dtype[np.float32]]":
    """Return 14 days of 500 MiB used; each instance has 8 GiB."""
    return np.full((instances, 14 * 288), 500.0, dtype=np.float32)


def pool_of(memory: "np.ndarray[tuple[int, ...], np.dtype[np.float32]]") -> Trace:
    """Return a trace of these amounts of memory; where one is missing, so is CPU's."""
    names = tuple(f"vm{n}" for n in range(len(memory)))
    cpu = np.where(np.isnan(memory), np.nan, 0.2).astype(np.float32)
    request = {Dimension.CPU: np.full(len(memory), 4.0), Dimension.MEMORY: np.full(len(memory), 8192.0)}
    return Trace(names, 345_600, 300, {Dimension.CPU: cpu, Dimension.MEMORY: memory}, request)


def memory_of(memory: "np.ndarray[tuple[int, ...], np.dtype[np.float32]]") -> list[int]:
    """Return the memory each instance should have."""
    found = recommend(pool_of(memory), Tier.HIGH, Guards(), PRICE_BOOK)
    return [one.recommended.memory_mib for one in sorted(found, key=lambda one: one.instance)]


@given(st.lists(st.integers(0, 287), min_size=4, max_size=4), st.booleans())
@settings(max_examples=30, deadline=None)
def test_missing_first_samples_are_no_start_that_was_seen(missing: list[int], stray: bool):
    memory = calm_pool()
    for row, count in enumerate(missing):
        memory[row, :count] = np.nan
    if stray:
        memory = np.concatenate([np.full((4, 3 * 288), np.nan, dtype=np.float32), memory], axis=1)
        memory[0, 0] = 500.0
    assert memory_of(memory) == [4096] * 4


def test_a_start_after_an_outage_of_the_collector_was_not_seen():
    memory = calm_pool()
    memory[:, 5 * 288 : 6 * 288] = np.nan
    memory[1, : 6 * 288 + 4] = np.nan
    assert memory_of(memory) == [4096] * 4


def test_a_start_among_others_that_report_was_seen():
    memory = calm_pool()
    memory[1, : 3 * 288] = np.nan
    assert memory_of(memory) == [4096, 576, 4096, 4096]
    memory[1, 3 * 288] = 6000
    assert memory_of(memory)[1] == 6912, "its peak counts"


def test_one_instance_is_explained_with_what_all_the_others_tell():
    memory = calm_pool()
    memory[1, : 3 * 288] = np.nan
    trace = pool_of(memory)
    advice = {one.instance: one for one in recommend(trace, Tier.HIGH, Guards(), PRICE_BOOK)}
    for name in trace.instances:
        explained = explain_instance(trace, name, Tier.HIGH, PRICE_BOOK, frozenset())
        assert explained.recommendation == advice[name]


def test_an_autoscaled_instance_keeps_its_cpu():
    one = advice(
        one_instance(np.full(14 * 288, 0.2)), guards=replace(SEEN_START, autoscaled=frozenset({"one"}))
    )
    assert one.recommended.cpu_millis == 4000
    assert any("autoscaler" in line for line in one.evidence)


def test_cpu_only_leaves_memory_alone():
    one = advice(one_instance(np.full(14 * 288, 0.2)), guards=replace(SEEN_START, cpu_only=True))
    assert (one.recommended.cpu_millis, one.recommended.memory_mib) == (200, 8192)


def test_an_instance_short_of_cpu_is_critical_and_grows():
    one = advice(one_instance(np.full(14 * 288, 4.6)))
    assert one.severity is Severity.CRITICAL
    assert one.recommended.cpu_millis == 4600
    assert one.saving_micros_per_hour == one.given.cost_micros_per_hour(PRICE_BOOK) - (
        one.recommended.cost_micros_per_hour(PRICE_BOOK)
    )


def test_the_cheapest_flavour_covers_the_need_and_no_cheaper_one_does():
    assert cheapest_flavour(InstanceSize(1100, 3000), PRICE_BOOK) == InstanceSize(2000, 4096)
    assert cheapest_flavour(InstanceSize(100, 7000), PRICE_BOOK) == InstanceSize(1000, 8192)
    assert cheapest_flavour(InstanceSize(500_000, 100), PRICE_BOOK) == InstanceSize(500_000, 100), (
        "none is large enough"
    )


def test_waste_adds_up_over_all_instances(cluster: Trace):
    found = recommend(cluster, Tier.HIGH, SEEN_START, PRICE_BOOK)
    waste = flavour_waste(found, PRICE_BOOK)
    assert waste.given_micros_per_hour == sum(one.given.cost_micros_per_hour(PRICE_BOOK) for one in found)
    assert 0 < waste.share < 1
