"""The profile of one instance: what it uses, how often, at which hour, and when together with others.

Everything here adds up. A sample is cut at the borders of the slots it lasts over, and each piece weighs as many
seconds as it has, halved for every half-life that has passed since; so it does not matter at which period the
samples were taken, in how many batches or in which order they came, or who of several observers saw them.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from yunhe.flexible.history import ENOUGH_COVERAGE, History
from yunhe.flexible.profiles.histogram import Grid, Histogram, histogram, weight_by_group
from yunhe.flexible.trace import DAY_S, HOUR_S, WEEK_S, Bools, Floats, Ints, Singles, hour_of_week

_HOUR_STEPS_PER_REQUEST, _HOUR_BINS = 20, 27  # coarse, as there is one for each hour of the week


@dataclass(frozen=True, slots=True)
class ProfileSettings:
    """How far a profile looks back and how quickly it forgets."""

    window_s: int
    half_life_s: float
    slot_s: int
    warm_after_s: int


LONG_LIVED_PROFILE = ProfileSettings(WEEK_S, half_life_s=WEEK_S, slot_s=300, warm_after_s=DAY_S)
"""For instances that stay: the published period of seven days."""

ELASTIC_PROFILE = ProfileSettings(HOUR_S, half_life_s=HOUR_S, slot_s=60, warm_after_s=HOUR_S // 2)
"""For instances that come and go: the published period of one hour."""


@dataclass(frozen=True, slots=True)
class Profile:
    """What is remembered of one instance in one dimension: 38.4 KB over a week, 4.6 KB over an hour.

    ``accumulated`` is every second so far, older ones counting less; ``by_hour`` the same for each hour of
    the week on a coarser grid, where the window is a week. ``total`` is what was used in each slot of the
    window before ``next_slot``, times seconds, and ``covered`` the seconds that samples lasted in it: their
    ratio is the slot's mean, and profiles of several instances can be added up slot by slot.
    """

    settings: ProfileSettings
    request: float
    accumulated: Histogram
    by_hour: Singles
    total: Singles
    covered: Singles
    next_slot: int = 0

    @property
    def nbytes(self) -> int:
        """Return the memory the profile takes."""
        parts = (self.accumulated.mass, self.by_hour, self.total, self.covered)
        return sum(part.nbytes for part in parts)

    @property
    def seen(self) -> Bools:
        """Return the slots of the window that a sample lasted in."""
        return self.covered > 0

    @property
    def warm(self) -> bool:
        """Return whether enough was seen to trust the profile rather than the request.

        Seconds are counted rather than samples: a day is a day, at whatever period it was sampled.
        """
        seen_s = float(np.minimum(self.covered, self.settings.slot_s).sum())
        life_s = (len(self.covered) - int(np.argmax(self.seen))) * self.settings.slot_s
        enough_s = min(self.settings.warm_after_s, self.settings.window_s)
        return seen_s >= enough_s and seen_s >= ENOUGH_COVERAGE * life_s

    def quantile(self, q: float) -> float:
        """Return the amount that is not exceeded *q* of the time; the request until warm."""
        return self.accumulated.quantile(q) if self.warm else self.request

    def at_hour(self, hour: int) -> Histogram:
        """Return the distribution at one hour of the week (Monday 00:00 UTC is 0)."""
        weights = self.by_hour[hour].astype(np.float64)
        mass = weights / weights.sum() if weights.sum() else weights
        return Histogram(_hour_grid(self.request), mass, float(weights.sum()))

    def series(self, until_slot: int | None = None) -> Floats:
        """Return the slots of the window before *until_slot*; gaps at the mean, all at request until warm."""
        if not self.warm:
            return np.full(len(self.total), self.request)
        now = self if until_slot is None else self.aged_to(until_slot)
        if not now.seen.any():
            return np.full(len(self.total), self.request)
        values = now.total[now.seen].astype(np.float64) / now.covered[now.seen]
        filled = np.full(len(self.total), values.mean())
        filled[now.seen] = values
        return filled

    def observed(self, times_s: Ints, usage: Floats, period_s: int | Ints) -> "Profile":
        """Return the profile after samples that each last from their time on for *period_s*.

        One period for all or one for each; times need not be regular or in order. NaN are gaps. What lasted
        before the window still counts in the histograms, at its age.
        """
        period = np.broadcast_to(np.asarray(period_s, dtype=np.int64), times_s.shape)
        if (period < 1).any():
            raise ValueError("every sample must last at least a second")
        known = ~np.isnan(usage)
        if not known.any():
            return self
        pieces = _cut(times_s[known], usage[known], period[known], self.settings.slot_s)
        return self.merged(_of_pieces(self, pieces))

    def merged(self, other: "Profile") -> "Profile":
        """Return the profile of both sets of samples, as when two observers each saw a part."""
        if other.settings != self.settings or other.request != self.request:
            raise ValueError("only profiles of the same instance and settings can be merged")
        next_slot = max(self.next_slot, other.next_slot)
        mine, theirs = self.aged_to(next_slot), other.aged_to(next_slot)
        return replace(
            mine,
            accumulated=mine.accumulated.merged(theirs.accumulated),
            by_hour=mine.by_hour + theirs.by_hour,
            total=mine.total + theirs.total,
            covered=mine.covered + theirs.covered,
        )

    def aged_to(self, next_slot: int) -> "Profile":
        """Return the profile as it stands when *next_slot*, no earlier than its own, is about to begin."""
        slots, settings = next_slot - self.next_slot, self.settings
        if slots < 0:
            raise ValueError("a profile cannot be made younger than its newest sample")
        if slots == 0:
            return self
        return replace(
            self,
            accumulated=self.accumulated.decayed(slots * settings.slot_s, settings.half_life_s),
            by_hour=self.by_hour * np.float32(_decay(slots, settings)),
            total=_shifted(self.total, slots),
            covered=_shifted(self.covered, slots),
            next_slot=next_slot,
        )


def new_profile(settings: ProfileSettings, grid: Grid, request: float) -> Profile:
    """Return the profile of an instance nothing is known of but its request."""
    slots = settings.window_s // settings.slot_s
    return Profile(
        settings,
        request,
        accumulated=histogram(np.zeros(0), grid),
        by_hour=np.zeros((168 if settings.window_s >= WEEK_S else 0, _HOUR_BINS), dtype=np.float32),
        total=np.zeros(slots, dtype=np.float32),
        covered=np.zeros(slots, dtype=np.float32),
    )


def history_of(profiles: Sequence[Profile]) -> History:
    """Return the profiles side by side on one clock, as the estimators read them."""
    settings = profiles[0].settings
    until = max(profile.next_slot for profile in profiles)
    slots = len(profiles[0].total)
    return History(
        series=np.array([profile.series(until) for profile in profiles], dtype=np.float32),
        hours=hour_of_week(np.arange(until - slots, until, dtype=np.int64) * settings.slot_s),
        request=np.array([profile.request for profile in profiles]),
        warm=np.array([profile.warm for profile in profiles]),
        period_s=settings.slot_s,
    )


@dataclass(frozen=True, slots=True)
class _Pieces:
    """Samples cut at the borders of slots: each lies in one slot and lasts some seconds of it."""

    slot: Ints
    usage: Floats
    seconds: Floats


def _cut(times_s: Ints, usage: Floats, period_s: Ints, slot_s: int) -> _Pieces:
    first, last = times_s // slot_s, (times_s + period_s - 1) // slot_s
    count = last - first + 1
    sample = np.repeat(np.arange(len(times_s)), count)
    slot = first[sample] + np.arange(len(sample)) - np.repeat(np.cumsum(count) - count, count)
    begin = np.maximum(times_s[sample], slot * slot_s)
    end = np.minimum((times_s + period_s)[sample], (slot + 1) * slot_s)
    return _Pieces(slot, usage[sample], (end - begin).astype(np.float64))


def _of_pieces(like: Profile, pieces: _Pieces) -> Profile:
    """Return a profile of these pieces alone; a piece in the newest slot has its full weight."""
    settings, grid = like.settings, _hour_grid(like.request)
    next_slot = int(pieces.slot.max()) + 1
    weights = pieces.seconds * _decay(next_slot - 1 - pieces.slot, settings)
    place = pieces.slot - (next_slot - len(like.total))
    inside = place >= 0

    def by_slot(amounts: Floats) -> Singles:
        summed = np.bincount(place[inside], weights=amounts[inside], minlength=len(like.total))
        return summed.astype(np.float32)

    by_hour = like.by_hour
    if len(by_hour):
        hours = hour_of_week(pieces.slot * settings.slot_s)
        by_hour = weight_by_group(pieces.usage, grid, hours, len(by_hour), weights=weights).astype(np.float32)
    return replace(
        like,
        accumulated=histogram(pieces.usage, like.accumulated.grid, weights=weights),
        by_hour=by_hour,
        total=by_slot(pieces.usage * pieces.seconds),
        covered=by_slot(pieces.seconds),
        next_slot=next_slot,
    )


def _decay(slots: int | Ints, settings: ProfileSettings) -> float | Floats:
    """Return what is left of a weight after so many slots."""
    return 0.5 ** (slots * settings.slot_s / settings.half_life_s)


def _shifted(ring: npt.NDArray[np.float32], slots: int) -> Singles:
    kept = ring[min(slots, len(ring)) :]
    return np.concatenate([kept, np.zeros(len(ring) - len(kept), dtype=np.float32)])


def _hour_grid(request: float) -> Grid:
    return Grid(max(request, 1e-9) / _HOUR_STEPS_PER_REQUEST, _HOUR_BINS)
