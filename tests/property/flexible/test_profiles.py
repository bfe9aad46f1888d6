"""Profiles add up: what is known does not depend on how the samples came, only on what they say."""

from typing import NamedTuple

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from yunhe.flexible.profiles.histogram import Grid
from yunhe.flexible.profiles.profile import Profile, ProfileSettings, new_profile
from yunhe.flexible.trace import WEEK_S, Floats, Ints

GRID = Grid(0.25, 64)
REQUEST = 4.0
SETTINGS = st.sampled_from(
    [
        ProfileSettings(WEEK_S, half_life_s=WEEK_S / 2, slot_s=1800, warm_after_s=86400),
        ProfileSettings(7200, half_life_s=1800, slot_s=60, warm_after_s=1800),
    ]
)


class Samples(NamedTuple):
    """Some samples of one instance, each with how long it lasted."""

    times_s: Ints
    usage: Floats
    period_s: Ints

    def only(self, which: Ints) -> "Samples":
        return Samples(self.times_s[which], self.usage[which], self.period_s[which])


@st.composite
def samples(draw: st.DrawFn) -> Samples:
    """Up to 40 samples within two weeks or two hours, of one to 5,000 seconds each, in any order."""
    count = draw(st.integers(1, 40))
    span_s = draw(st.sampled_from([7200, 2 * WEEK_S]))
    start_s = draw(st.integers(0, 2_000_000_000))
    random = np.random.default_rng(draw(st.integers(0, 2**32)))
    return Samples(
        start_s + random.integers(0, span_s, count),
        random.gamma(0.8, 2.0, count).clip(0, 15),
        random.integers(1, draw(st.sampled_from([2, 61, 301, 5001])), count),
    )


def empty(how: ProfileSettings) -> Profile:
    return new_profile(how, GRID, REQUEST)


def same(one: Profile, other: Profile) -> bool:
    """Return whether nothing that can be asked of a profile tells the two apart."""
    return (
        one.next_slot == other.next_slot
        and one.warm == other.warm
        and np.allclose(one.covered, other.covered)
        and np.allclose(one.total, other.total, rtol=1e-4, atol=1e-4)
        and np.allclose(one.series(), other.series(), rtol=1e-4, atol=1e-4)
        and np.allclose(one.by_hour, other.by_hour, rtol=1e-4, atol=1e-4)
        and np.allclose(one.accumulated.mass, other.accumulated.mass, atol=1e-9)
        and bool(np.isclose(one.accumulated.weight, other.accumulated.weight))
    )


@given(SETTINGS, samples(), st.data())
@settings(max_examples=100)
def test_samples_in_any_batches_and_any_order_give_the_profile_of_all_at_once(
    how: ProfileSettings, seen: Samples, data: st.DataObject
):
    order = np.array(data.draw(st.permutations(range(len(seen.times_s)))))
    cuts = data.draw(st.lists(st.integers(0, len(order)), max_size=6))
    profile = empty(how)
    for part in np.split(order, sorted(cuts)):
        profile = profile.observed(*seen.only(part))
    assert same(profile, empty(how).observed(*seen))


@given(SETTINGS, samples(), st.integers(0, 40))
@settings(max_examples=100)
def test_what_two_observers_saw_merges_into_what_one_would_have_seen_whoever_is_asked(
    how: ProfileSettings, seen: Samples, cut: int
):
    which = np.arange(len(seen.times_s))
    mine, theirs = (empty(how).observed(*seen.only(part)) for part in (which[:cut], which[cut:]))
    assert same(mine.merged(theirs), empty(how).observed(*seen))
    assert same(theirs.merged(mine), mine.merged(theirs))


@given(SETTINGS, samples())
@settings(max_examples=100)
def test_a_profile_agrees_with_counting_every_second(how: ProfileSettings, seen: Samples):
    profile = empty(how).observed(*seen)
    seconds = np.concatenate([np.arange(time, time + period) for time, _, period in zip(*seen, strict=True)])
    usage = np.repeat(seen.usage, seen.period_s)
    slot = seconds // how.slot_s
    assert profile.next_slot == slot.max() + 1
    weights = 0.5 ** ((slot.max() - slot) * how.slot_s / how.half_life_s)
    assert profile.accumulated.weight == pytest.approx(weights.sum())
    assert profile.accumulated.mean == pytest.approx((weights * usage).sum() / weights.sum(), rel=1e-6)
    place = slot - (profile.next_slot - len(profile.covered))
    inside = place >= 0
    assert np.allclose(profile.covered, np.bincount(place[inside], minlength=len(profile.covered)))
    assert float(profile.total.sum()) == pytest.approx(usage[inside].sum(), rel=1e-4)


@given(SETTINGS, samples(), st.integers(1, 7))
@settings(max_examples=60)
def test_a_sample_reported_in_parts_says_the_same(how: ProfileSettings, seen: Samples, parts: int):
    long = Samples(seen.times_s, seen.usage, seen.period_s * parts)
    offsets = np.arange(parts)[:, None] * seen.period_s
    short = Samples(
        (seen.times_s + offsets).ravel(), np.tile(seen.usage, parts), np.tile(seen.period_s, parts)
    )
    assert same(empty(how).observed(*long), empty(how).observed(*short))


@given(SETTINGS, samples(), st.integers(0, 400), st.integers(0, 400))
@settings(max_examples=60)
def test_ageing_in_two_steps_is_ageing_in_one(how: ProfileSettings, seen: Samples, first: int, then: int):
    profile = empty(how).observed(*seen)
    end = profile.next_slot
    in_two = profile.aged_to(end + first).aged_to(end + first + then)
    assert same(in_two, profile.aged_to(end + first + then))
    assert in_two.accumulated.mean == pytest.approx(profile.accumulated.mean), "only weights fade"
