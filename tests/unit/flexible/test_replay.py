"""Walks: nothing from the future is known, and what is judged is what happened."""

from dataclasses import replace

import numpy as np
import pytest
from lab.oversubscription.printed import place_by

from yunhe.flexible.history import history_before
from yunhe.flexible.overload.estimators import EstimateRequest, aligned, fixed_ratio
from yunhe.flexible.overload.margin import walk_forward
from yunhe.flexible.replay import ELASTIC, LONG_LIVED, judge, windows
from yunhe.flexible.synthetic import Cluster, synthetic_trace
from yunhe.flexible.trace import DAY_S, HOUR_S, WEEK_S, Dimension, Trace


def small_trace(days: int = 9, seed: int = 3) -> Trace:
    return synthetic_trace(Cluster(instances=24, days=days, period_s=900, seed=seed))


def test_the_published_periods_are_the_defaults():
    assert LONG_LIVED.profile_s == 7 * DAY_S
    assert ELASTIC.profile_s == HOUR_S


def test_nothing_after_a_window_begins_can_change_its_placement():
    trace = small_trace()
    cut = 8 * DAY_S // trace.period_s
    random = np.random.default_rng(1)
    changed = trace.usage[Dimension.CPU].copy()
    changed[:, cut:] = random.random(changed[:, cut:].shape).astype(np.float32)
    other = replace(trace, usage={**trace.usage, Dimension.CPU: changed})
    before, after = (
        {
            walk.window.start_s: walk.steps[0.01]
            for walk in walk_forward(windows([one], LONG_LIVED, 1), LONG_LIVED, 16.0, (0.01,))
        }
        for one in (trace, other)
    )
    known = trace.start_s + cut * trace.period_s
    assert any(start <= known for start in before)
    for start, step in before.items():
        if start <= known:
            assert (step.placement == after[start].placement).all()
            assert step.choice == after[start].choice


def test_a_walk_is_the_same_for_the_same_seed_and_another_for_another():
    trace = small_trace()
    first, same, other = (
        [window.order.tolist() for window in windows([trace], LONG_LIVED, seed)] for seed in (1, 1, 2)
    )
    assert first == same
    assert first != other


def test_judging_counts_host_slots_above_capacity():
    trace = small_trace()
    window = next(iter(windows([trace], LONG_LIVED, 1)))
    placement = place_by(window, fixed_ratio(50), EstimateRequest(0.01, 64.0))
    outcome = judge(window, placement, 16.0)
    usage = [window.future[placement == host].sum(axis=0) for host in range(outcome.hosts)]
    assert outcome.overloaded == sum(int((row > 16.0).sum()) for row in usage)
    assert outcome.judged == outcome.hosts * window.future.shape[1]
    assert outcome.worst_host == max((row > 16.0).mean() for row in usage)
    assert outcome.lost == pytest.approx(sum(np.maximum(row - 16.0, 0).sum() for row in usage))


def test_an_instance_without_a_day_of_samples_counts_at_its_request():
    trace = small_trace()
    usage = trace.usage[Dimension.CPU].copy()
    slot = 5 * DAY_S // trace.period_s
    usage[0, : slot - 10] = np.nan
    young = replace(trace, usage={**trace.usage, Dimension.CPU: usage})
    known = history_before(young, slot, WEEK_S, DAY_S)
    row = int(np.flatnonzero(known.present == 0)[0])
    assert not known.history.warm[row]
    assert (known.history.series[row] == known.history.request[row]).all()


def test_an_instance_that_stopped_reporting_is_not_there_and_an_outage_of_all_is_no_absence():
    trace = small_trace()
    usage = trace.usage[Dimension.CPU].copy()
    slot = 5 * DAY_S // trace.period_s
    usage[0, slot - 20 : slot] = np.nan
    usage[:, slot - 8 : slot] = np.nan
    known = history_before(replace(trace, usage={**trace.usage, Dimension.CPU: usage}), slot, WEEK_S, DAY_S)
    assert 0 not in known.present
    assert len(known.present) == 23
    assert known.history.slots == slot - 8


def test_a_gap_longer_than_anything_looks_back_is_stepped_over():
    trace = small_trace(days=24)
    usage = trace.usage[Dimension.CPU].copy()
    per_day = DAY_S // trace.period_s
    usage[:, 8 * per_day : 17 * per_day] = np.nan
    silent = replace(trace, usage={**trace.usage, Dimension.CPU: usage})
    known = history_before(silent, 17 * per_day, WEEK_S, DAY_S)
    assert len(known.present) == 0
    starts = [(one.start_s - trace.start_s) // DAY_S for one in windows([silent], LONG_LIVED, 1)]
    assert starts == [1, 2, 3, 4, 5, 6, 7, 18, 19, 20, 21, 22, 23]


def test_a_young_instance_repeats_its_own_day_at_its_own_hours():
    trace = small_trace()
    usage = trace.usage[Dimension.CPU].copy()
    per_day = DAY_S // trace.period_s
    slot = 5 * per_day
    usage[0, : 3 * per_day] = np.nan
    usage = np.nan_to_num(usage, nan=-1)
    usage[usage < 0] = np.nan
    known = history_before(replace(trace, usage={**trace.usage, Dimension.CPU: usage}), slot, WEEK_S, DAY_S)
    series = known.history.series[0]
    real = usage[0, 3 * per_day : 4 * per_day]
    repeated = series[2 * per_day : 3 * per_day]
    same = ~np.isnan(real)
    assert (repeated[same] == real[same]).all()


def test_the_ratio_of_a_host_follows_its_tenants():
    """Busy instances share a host sparsely, idle ones densely, under the same stated probability."""
    slots = 8 * DAY_S // 900
    random = np.random.default_rng(5)
    busy = 2 * np.clip(0.8 + 0.1 * random.normal(size=(30, slots)), 0, 1)
    idle = 2 * np.clip(0.05 + 0.02 * random.normal(size=(120, slots)), 0, 1)
    trace = Trace(
        (*(f"busy-{n}" for n in range(30)), *(f"idle-{n}" for n in range(120))),
        0,
        900,
        {Dimension.CPU: np.vstack([busy, idle]).astype(np.float32)},
        {Dimension.CPU: np.full(150, 2.0)},
    )
    window = list(windows([trace], LONG_LIVED, 1))[-1]
    question = EstimateRequest(0.01, 16.0)
    apart = replace(window, order=np.arange(150))
    placement = place_by(apart, aligned(), question)
    ratios = [2.0 * (placement == host).sum() / 16.0 for host in range(int(placement.max()) + 1)]
    assert max(ratios) > 3 * min(ratios)
    for host, ratio in enumerate(ratios):
        share = float((window.history.series[placement == host].mean(axis=1) / 2).mean())
        assert ratio * share < 1, "what is used stays below what is there"
    assert judge(apart, placement, 16.0).violation <= 0.02
