"""Profiles: the published periods, the online update, hours of the week, and how small they are."""

import re

import numpy as np
import pytest

from yunhe.flexible.overload.estimators import EstimateRequest, aligned
from yunhe.flexible.profiles.histogram import grid_for_host
from yunhe.flexible.profiles.profile import (
    ELASTIC_PROFILE,
    LONG_LIVED_PROFILE,
    Profile,
    ProfileSettings,
    history_of,
    new_profile,
)
from yunhe.flexible.trace import DAY_S, HOUR_S, WEEK_S, Floats, Ints

GRID = grid_for_host(64)
MONDAY_S = 345_600  # Monday 5 January 1970


def seen(times_s: Ints, usage: Floats, period_s: int = 60, request: float = 4.0) -> Profile:
    return new_profile(LONG_LIVED_PROFILE, GRID, request).observed(times_s, usage, period_s)


def a_week(seed: int = 0, request: float = 4.0) -> tuple[Ints, Floats]:
    times = MONDAY_S + np.arange(0, WEEK_S, 60)
    random = np.random.default_rng(seed)
    hour = (times // HOUR_S) % 24
    return times, request * (0.2 + 0.5 * (hour == 9) + 0.1 * random.random(len(times)))


def aged_mean(times_s: Ints, usage: Floats, half_life_s: float) -> float:
    """The mean in which a sample counts half for every half-life it is older than the newest, spelled out."""
    weights = 0.5 ** ((times_s.max() - times_s) / half_life_s)
    return float((weights * usage).sum() / weights.sum())


@pytest.mark.feature(
    "F36",
    file="src/yunhe/flexible/profiles/histogram.py",
    old="self.weight * 0.5 ** (elapsed_s / half_life_s)",
    new="self.weight",
)
@pytest.mark.parametrize("settings", [LONG_LIVED_PROFILE, ELASTIC_PROFILE])
def test_the_periods_are_seven_days_and_one_hour_and_every_update_counts_samples_by_their_age(
    settings: ProfileSettings,
):
    assert (LONG_LIVED_PROFILE.window_s, ELASTIC_PROFILE.window_s) == (7 * DAY_S, HOUR_S)
    times = MONDAY_S + np.arange(0, 4 * settings.window_s, settings.slot_s)
    usage = np.where(times < MONDAY_S + 2 * settings.window_s, 1.0, 3.0)
    expected = aged_mean(times, usage, settings.half_life_s)
    assert expected == pytest.approx(2.6, rel=0.01), "the older half of four half-lives weighs a quarter"
    for batches in (1, 2, 28):
        profile = new_profile(settings, GRID, 4.0)
        for part in np.array_split(np.arange(len(times)), batches):
            profile = profile.observed(times[part], usage[part], settings.slot_s)
        assert profile.accumulated.mean == pytest.approx(expected, rel=1e-6), f"in {batches} batches"
        assert profile.accumulated.mass.sum() == pytest.approx(1)


def test_a_new_instance_counts_at_its_request_until_it_is_warm():
    profile = seen(MONDAY_S + np.arange(0, DAY_S // 2, 300), np.full(DAY_S // 600, 0.5), 300)
    assert not profile.warm
    assert profile.quantile(0.95) == 4.0
    assert (profile.series() == 4.0).all()
    later = MONDAY_S + np.arange(DAY_S // 2, 2 * DAY_S, 300)
    warm = profile.observed(later, np.full(len(later), 0.5), 300)
    assert warm.warm
    assert warm.quantile(0.95) == pytest.approx(0.5, abs=GRID.step)


@pytest.mark.parametrize("period_s", [1, 7, 60, 300, 420, 600, 900, 1800, HOUR_S, 2 * HOUR_S])
def test_a_week_is_a_week_at_whatever_period_it_was_sampled(period_s: int):
    times = MONDAY_S + np.arange(0, WEEK_S, period_s)
    usage = 1 + (times // (6 * HOUR_S) % 2).astype(np.float64)
    profile = seen(times, usage, period_s)
    assert profile.warm
    assert not seen(times[: DAY_S // period_s - 1], usage[: DAY_S // period_s - 1], period_s).warm
    exact = 1 + (np.arange(0, WEEK_S, 300) // (6 * HOUR_S) % 2)
    assert np.abs(profile.series()[: len(exact)] - exact).mean() < 0.03, "each slot at its own level"
    weights = 0.5 ** (np.arange(WEEK_S // 300)[::-1] * 300 / WEEK_S)
    assert profile.accumulated.mean == pytest.approx(float((weights * exact).sum() / weights.sum()), rel=0.01)
    assert profile.accumulated.quantile(0.4) == pytest.approx(1, abs=GRID.step)
    assert profile.accumulated.quantile(0.6) == pytest.approx(2, abs=GRID.step)


@pytest.mark.parametrize("period_s", [60, 300, 600, 1200, 1800])
def test_an_hour_warms_an_elastic_profile_at_whatever_period_it_was_sampled(period_s: int):
    times = MONDAY_S + np.arange(0, HOUR_S, period_s)
    profile = new_profile(ELASTIC_PROFILE, GRID, 4.0).observed(times, np.full(len(times), 1.0), period_s)
    assert profile.warm
    assert np.allclose(profile.series(), 1.0)


def test_a_change_of_period_does_not_make_the_finer_half_count_more():
    coarse = MONDAY_S + np.arange(0, 3 * DAY_S, 1800)
    fine = MONDAY_S + 3 * DAY_S + np.arange(0, 3 * DAY_S, 10)
    both = seen(coarse, np.full(len(coarse), 1.0), 1800).observed(fine, np.full(len(fine), 3.0), 10)
    assert both.accumulated.mean == pytest.approx(1 + 2 / (1 + 0.5 ** (3 / 7)), rel=0.01)
    assert both.warm


def test_a_sample_that_lasts_over_several_slots_and_hours_counts_in_each():
    profile = seen(np.array([MONDAY_S + 3 * HOUR_S + 1700]), np.array([2.0]), 2 * HOUR_S)
    assert profile.covered[profile.seen].tolist() == [100.0, *[300.0] * 23, 200.0]
    weights = [profile.at_hour(hour).weight for hour in range(2, 7)]
    assert [weight > 0 for weight in weights] == [False, True, True, True, False]
    assert profile.at_hour(4).mean == pytest.approx(2.0)


def test_a_slot_fed_second_by_second_keeps_the_mean_of_all_of_them():
    usage = np.linspace(0, 7.98, 300)
    profile = new_profile(LONG_LIVED_PROFILE, GRID, 4.0)
    for second, used in enumerate(usage):
        profile = profile.observed(np.array([MONDAY_S + second]), np.array([used]), 1)
    assert profile.covered[-1] == 300
    assert profile.total[-1] / profile.covered[-1] == pytest.approx(3.99, rel=1e-5)


def test_a_peak_of_three_seconds_in_an_hour_is_in_the_histogram():
    usage = np.full(HOUR_S, 0.5)
    usage[1000:1003] = 3.5
    profile = seen(MONDAY_S + np.arange(HOUR_S), usage, 1)
    assert profile.accumulated.probability_above(3.0) == pytest.approx(3 / HOUR_S, rel=0.01)


def test_samples_that_last_no_time_are_refused():
    with pytest.raises(ValueError, match="at least a second"):
        seen(np.array([MONDAY_S]), np.array([1.0]), 0)


def test_an_hour_of_the_week_has_a_distribution_of_its_own():
    profile = seen(*a_week())
    assert profile.at_hour(9).mean == pytest.approx(4 * 0.75, abs=0.05)
    assert profile.at_hour(24 + 3).mean == pytest.approx(4 * 0.25, abs=0.05)


def test_two_observers_of_one_instance_merge_into_what_one_would_have_seen():
    times, usage = a_week()
    half = len(times) // 2
    whole = seen(times, usage)
    older, newer = seen(times[:half], usage[:half]), seen(times[half:], usage[half:])
    for merged in (older.merged(newer), newer.merged(older)):
        assert np.allclose(merged.series(), whole.series())
        assert merged.accumulated.weight == pytest.approx(whole.accumulated.weight)
        assert np.allclose(merged.accumulated.mass, whole.accumulated.mass)
        assert np.allclose(merged.by_hour, whole.by_hour, rtol=1e-5)
    with pytest.raises(ValueError, match="same instance"):
        whole.merged(new_profile(LONG_LIVED_PROFILE, GRID, 8.0))


def test_a_profile_takes_as_many_bytes_as_its_description_says():
    stated = re.search(r"([\d.]+) KB over a week, ([\d.]+) KB over an hour", Profile.__doc__ or "")
    assert stated
    week, hour = (1000 * float(size) for size in stated.groups())
    elastic = new_profile(ELASTIC_PROFILE, GRID, 4.0).observed(np.array([60]), np.array([1.0]), 60)
    assert seen(*a_week()).nbytes == pytest.approx(week, abs=50)
    assert elastic.nbytes == pytest.approx(hour, abs=50)


def test_profiles_side_by_side_are_a_history_an_estimator_reads():
    pair = [seen(*a_week(seed)) for seed in range(2)]
    late = pair[1].observed(np.array([MONDAY_S + WEEK_S + 600]), np.array([1.0]), 60)
    history = history_of([pair[0], late])
    assert history.series.shape == (2, WEEK_S // 300)
    assert history.warm.all()
    demand = aligned(1.0).demand(history, EstimateRequest(0.01, 16))
    assert demand == pytest.approx(float(history.series.sum(axis=0).max()), abs=0.002)
    assert 6 * 0.75 < demand < 8 * 0.85


def test_a_gap_longer_than_the_window_leaves_nothing_of_the_past_in_the_ring():
    week = seen(*a_week())
    profile = week.observed(np.array([MONDAY_S + 4 * WEEK_S]), np.array([2.0]), 60)
    assert not profile.warm
    assert profile.seen.sum() == 1
    assert profile.accumulated.weight == pytest.approx(week.accumulated.weight / 8 + 60, rel=0.001)
