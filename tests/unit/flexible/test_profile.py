"""Profiles: the published periods, the online update, hours of the week, and how small they are."""

import numpy as np
import pytest

from yunhe.flexible.estimators import Question, aligned
from yunhe.flexible.histogram import grid_for_host
from yunhe.flexible.profile import ELASTIC_PROFILE, LONG_LIVED_PROFILE, Profile, history_of, new_profile
from yunhe.flexible.trace import DAY_S, HOUR_S, WEEK_S, Floats, Ints

GRID = grid_for_host(64)
MONDAY_S = 345_600  # Monday 5 January 1970


def seen(times_s: Ints, usage: Floats, request: float = 4.0) -> Profile:
    return new_profile(LONG_LIVED_PROFILE, GRID, request).observed(times_s, usage)


def a_week(seed: int = 0, request: float = 4.0) -> tuple[Ints, Floats]:
    times = MONDAY_S + np.arange(0, WEEK_S, 60)
    random = np.random.default_rng(seed)
    hour = (times // HOUR_S) % 24
    return times, request * (0.2 + 0.5 * (hour == 9) + 0.1 * random.random(len(times)))


@pytest.mark.feature("F36")
def test_the_periods_are_seven_days_and_one_hour_and_an_update_counts_old_samples_less():
    assert (LONG_LIVED_PROFILE.window_s, ELASTIC_PROFILE.window_s) == (7 * DAY_S, HOUR_S)
    for settings in (LONG_LIVED_PROFILE, ELASTIC_PROFILE):
        first = np.arange(0, settings.window_s, settings.slot_s)
        profile = new_profile(settings, GRID, 4.0).observed(first, np.full(len(first), 1.0))
        later = first + int(settings.half_life_s)
        profile = profile.observed(later, np.full(len(first), 3.0))
        assert profile.accumulated.mean == pytest.approx((0.5 * 1 + 3) / 1.5, rel=1e-3), (
            "one half-life has passed"
        )
        assert profile.accumulated.mass.sum() == pytest.approx(1)


def test_a_new_instance_counts_at_its_request_until_it_is_warm():
    profile = seen(MONDAY_S + np.arange(0, DAY_S // 2, 300), np.full(DAY_S // 600, 0.5))
    assert not profile.warm
    assert profile.quantile(0.95) == 4.0
    assert (profile.series() == 4.0).all()
    warm = profile.observed(MONDAY_S + np.arange(DAY_S // 2, 2 * DAY_S, 300), np.full(3 * DAY_S // 600, 0.5))
    assert warm.warm
    assert warm.quantile(0.95) == pytest.approx(0.5, abs=GRID.step)


def test_samples_of_any_period_give_the_same_slots():
    times, usage = a_week()
    fine = seen(times, usage)
    coarse = seen(times[::5], usage.reshape(-1, 5).mean(axis=1))
    assert np.abs(fine.series() - coarse.series()).max() < 4.0 / 16384 + 1e-9


def test_an_hour_of_the_week_has_a_distribution_of_its_own():
    profile = seen(*a_week())
    assert profile.at_hour(9).mean == pytest.approx(4 * 0.75, abs=0.05)
    assert profile.at_hour(24 + 3).mean == pytest.approx(4 * 0.25, abs=0.05)


def test_two_observers_of_one_instance_merge_into_what_one_would_have_seen():
    times, usage = a_week()
    half = len(times) // 2
    whole = seen(times, usage)
    merged = seen(times[:half], usage[:half]).merged(seen(times[half:], usage[half:]))
    assert (merged.ring == whole.ring).all()
    assert merged.accumulated.weight == whole.accumulated.weight
    assert np.allclose(merged.accumulated.mass, whole.accumulated.mass)
    with pytest.raises(ValueError, match="same instance"):
        whole.merged(new_profile(LONG_LIVED_PROFILE, GRID, 8.0))


def test_a_profile_takes_as_many_bytes_as_its_description_says():
    assert seen(*a_week()).nbytes == pytest.approx(26_000, rel=0.05)
    elastic = new_profile(ELASTIC_PROFILE, GRID, 4.0)
    assert elastic.nbytes == pytest.approx(4_200, rel=0.05)


def test_profiles_side_by_side_are_a_history_an_estimator_reads():
    pair = [seen(*a_week(seed)) for seed in range(2)]
    late = pair[1].observed(np.array([MONDAY_S + WEEK_S + 600]), np.array([1.0]))
    history = history_of([pair[0], late])
    assert history.series.shape == (2, WEEK_S // 300)
    assert history.warm.all()
    demand = aligned(1.0).demand(history, Question(0.01, 16))
    assert demand == pytest.approx(float(history.series.sum(axis=0).max()), abs=0.002)
    assert 6 * 0.75 < demand < 8 * 0.85


def test_a_gap_longer_than_the_window_leaves_nothing_of_the_past_in_the_ring():
    profile = seen(*a_week()).observed(np.array([MONDAY_S + 4 * WEEK_S]), np.array([2.0]))
    assert not profile.warm
    assert profile.accumulated.weight < 10_080
