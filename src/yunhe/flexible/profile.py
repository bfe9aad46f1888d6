"""The profile of one instance: what it uses, how often, at which hour, and when together with others."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from yunhe.flexible.histogram import Grid, Histogram, histogram
from yunhe.flexible.history import ENOUGH_COVERAGE, History
from yunhe.flexible.trace import DAY_S, HOUR_S, WEEK_S, Floats, Ints, hour_of_week

GAP = np.uint16(65535)
_STEPS_PER_REQUEST = 16384  # a slot holds up to four times the request, in steps of 0.006 % of it
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
    """What is remembered of one instance in one dimension: 26 KB over a week, 4 KB over an hour.

    ``accumulated`` is every sample so far, older ones counting less; ``by_hour`` the same for each hour of
    the week on a coarser grid, where the window is a week; ``ring`` the mean of each slot of the window,
    quantised, so that profiles of several instances can be added up slot by slot.
    """

    settings: ProfileSettings
    request: float
    accumulated: Histogram
    by_hour: npt.NDArray[np.float32]
    ring: npt.NDArray[np.uint16]
    next_slot: int = 0

    @property
    def nbytes(self) -> int:
        """Return the memory the profile takes."""
        return self.accumulated.mass.nbytes + self.by_hour.nbytes + self.ring.nbytes

    @property
    def warm(self) -> bool:
        """Return whether enough was seen to trust the profile rather than the request."""
        seen = int((self.ring != GAP).sum())
        life = len(self.ring) - int(np.argmax(self.ring != GAP))
        enough = min(self.settings.warm_after_s // self.settings.slot_s, len(self.ring))
        return seen >= enough and seen >= ENOUGH_COVERAGE * life

    def quantile(self, q: float) -> float:
        """Return the amount that *q* of the samples do not exceed; the request until warm."""
        return self.accumulated.quantile(q) if self.warm else self.request

    def at_hour(self, hour: int) -> Histogram:
        """Return the distribution at one hour of the week (Monday 00:00 UTC is 0)."""
        weights = self.by_hour[hour].astype(np.float64)
        mass = weights / weights.sum() if weights.sum() else weights
        return Histogram(_hour_grid(self.request), mass, float(weights.sum()))

    def series(self, until_slot: int | None = None) -> Floats:
        """Return the slots of the window before *until_slot*; gaps at the mean, all at request until warm."""
        if not self.warm:
            return np.full(len(self.ring), self.request)
        ring = self.ring if until_slot is None else _shifted(self.ring, until_slot - self.next_slot)
        values = ring.astype(np.float64) * self.request / _STEPS_PER_REQUEST
        seen = ring != GAP
        return np.where(seen, values, values[seen].mean() if seen.any() else self.request)

    def observed(self, times_s: Ints, usage: Floats) -> "Profile":
        """Return the profile after samples of any period; times need not be regular, only finite.

        Samples older than the window still count in the accumulated histogram, aged as they are.
        """
        known = ~np.isnan(usage)
        times_s, usage = times_s[known], usage[known]
        if len(times_s) == 0:
            return self
        settings = self.settings
        newest = int(times_s.max()) // settings.slot_s + 1
        elapsed_s = max(0, newest - self.next_slot) * settings.slot_s if self.next_slot else 0
        decay = 0.5 ** (elapsed_s / settings.half_life_s)
        ring = _shifted(self.ring, max(0, newest - self.next_slot))
        next_slot = max(newest, self.next_slot)
        place = times_s // settings.slot_s - (next_slot - len(ring))
        return replace(
            self,
            accumulated=self.accumulated.updated(usage, elapsed_s, settings.half_life_s),
            by_hour=_with_samples(self.by_hour * np.float32(decay), times_s, usage, _hour_grid(self.request)),
            ring=_with_slots(ring, place, usage, self.request),
            next_slot=next_slot,
        )

    def merged(self, other: "Profile") -> "Profile":
        """Return the profile of both sets of samples, as when two observers each saw a part."""
        if other.settings != self.settings or other.request != self.request:
            raise ValueError("only profiles of the same instance and settings can be merged")
        next_slot = max(self.next_slot, other.next_slot)
        mine = _shifted(self.ring, next_slot - self.next_slot)
        theirs = _shifted(other.ring, next_slot - other.next_slot)
        return replace(
            self,
            accumulated=self.accumulated.merged(other.accumulated),
            by_hour=self.by_hour + other.by_hour,
            ring=np.where(mine == GAP, theirs, mine),
            next_slot=next_slot,
        )


def new_profile(settings: ProfileSettings, grid: Grid, request: float) -> Profile:
    """Return the profile of an instance nothing is known of but its request."""
    return Profile(
        settings,
        request,
        accumulated=histogram(np.zeros(0), grid),
        by_hour=np.zeros((168 if settings.window_s >= WEEK_S else 0, _HOUR_BINS), dtype=np.float32),
        ring=np.full(settings.window_s // settings.slot_s, GAP, dtype=np.uint16),
    )


def history_of(profiles: Sequence[Profile]) -> History:
    """Return the profiles side by side on one clock, as the estimators read them."""
    settings = profiles[0].settings
    until = max(profile.next_slot for profile in profiles)
    slots = len(profiles[0].ring)
    return History(
        series=np.array([profile.series(until) for profile in profiles], dtype=np.float32),
        hours=hour_of_week(np.arange(until - slots, until, dtype=np.int64) * settings.slot_s),
        request=np.array([profile.request for profile in profiles]),
        warm=np.array([profile.warm for profile in profiles]),
        period_s=settings.slot_s,
    )


def _shifted(ring: npt.NDArray[np.uint16], slots: int) -> npt.NDArray[np.uint16]:
    kept = ring[min(slots, len(ring)) :]
    return np.concatenate([kept, np.full(len(ring) - len(kept), GAP, dtype=np.uint16)])


def _with_slots(
    ring: npt.NDArray[np.uint16], place: Ints, usage: Floats, request: float
) -> npt.NDArray[np.uint16]:
    inside = (place >= 0) & (place < len(ring))
    count = np.bincount(place[inside], minlength=len(ring))
    total = np.bincount(place[inside], weights=usage[inside], minlength=len(ring))
    mean = total[count > 0] / count[count > 0]
    updated = ring.copy()
    steps = np.rint(mean / request * _STEPS_PER_REQUEST) if request else np.zeros(len(mean))
    updated[count > 0] = np.clip(steps, 0, GAP - 1).astype(np.uint16)
    return updated


def _with_samples(
    by_hour: npt.NDArray[np.float32], times_s: Ints, usage: Floats, grid: Grid
) -> npt.NDArray[np.float32]:
    if not len(by_hour):
        return by_hour
    place = np.clip(usage / grid.step, 0, grid.bins - 1)
    below = np.minimum(place.astype(np.int64), grid.bins - 2)
    upper_share = (place - below).astype(np.float32)
    updated = by_hour.copy()
    hours = hour_of_week(times_s)
    np.add.at(updated, (hours, below), 1 - upper_share)
    np.add.at(updated, (hours, below + 1), upper_share)
    return updated


def _hour_grid(request: float) -> Grid:
    return Grid(max(request, 1e-9) / _HOUR_STEPS_PER_REQUEST, _HOUR_BINS)
