"""One instance, explained: its profile, what it should be, and what that rests on."""

import difflib

import msgspec
import numpy as np

from yunhe.flexible.profiles.histogram import grid_for_host
from yunhe.flexible.profiles.profile import LONG_LIVED_PROFILE, new_profile
from yunhe.flexible.sizing.rightsizing import Guards, Recommendation, recommend_some, unmet
from yunhe.flexible.trace import Dimension, Trace, hour_of_week
from yunhe.kernel.errors import NotFoundError
from yunhe.kernel.money import Prices, Tier


class InstanceExplanation(msgspec.Struct, frozen=True):
    """What is known of an instance, and the advice that follows from it."""

    instance: str
    warm: bool
    samples: int
    profile_bytes: int
    mean_cores: float
    p50_cores: float
    p95_cores: float
    p99_cores: float
    highest_cores: float
    by_hour_cores: tuple[float, ...]
    """Mean use at each hour of the day, UTC."""
    busiest_hour_of_week: int
    cpu_short: float
    memory_short: float
    recommendation: Recommendation


def explain_instance(
    trace: Trace, instance: str, tier: Tier, prices: Prices, autoscaled: frozenset[str]
) -> InstanceExplanation:
    """Return everything about *instance*; raises NotFoundError with the nearest names."""
    if instance not in trace.instances:
        close = difflib.get_close_matches(instance, trace.instances, n=3, cutoff=0.4) or trace.instances[:3]
        raise NotFoundError(
            f"There is no instance {instance!r} among {len(trace.instances)}.",
            remedy=f"Did you mean {', '.join(close)}?",
        )
    row = trace.instances.index(instance)
    times = trace.slot_times_s(0, trace.slots)
    usage = trace.usage[Dimension.CPU][row].astype(np.float64)
    request = float(trace.request[Dimension.CPU][row])
    profile = new_profile(LONG_LIVED_PROFILE, grid_for_host(max(request, 1.0)), request).observed(
        times, usage, trace.period_s
    )
    known = ~np.isnan(usage)
    hours = hour_of_week(times)
    by_week = np.array([_mean(usage[known & (hours == hour)]) for hour in range(168)])
    advice = recommend_some(trace, [row], tier, Guards(autoscaled=autoscaled), prices)[0]
    short = unmet(trace, row, advice.recommended)
    return InstanceExplanation(
        instance=instance,
        warm=profile.warm,
        samples=int(known.sum()),
        profile_bytes=profile.nbytes,
        mean_cores=_mean(usage[known]),
        p50_cores=float(np.quantile(usage[known], 0.5)),
        p95_cores=float(np.quantile(usage[known], 0.95)),
        p99_cores=float(np.quantile(usage[known], 0.99)),
        highest_cores=float(usage[known].max()),
        by_hour_cores=tuple(_mean(usage[known & (hours % 24 == hour)]) for hour in range(24)),
        busiest_hour_of_week=int(np.argmax(by_week)),
        cpu_short=float(short[0]),
        memory_short=float(short[1]),
        recommendation=advice,
    )


def _mean(values: "np.ndarray[tuple[int, ...], np.dtype[np.float64]]") -> float:
    return float(values.mean()) if len(values) else 0.0
