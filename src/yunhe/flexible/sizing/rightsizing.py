"""What each instance should be: any ratio of CPU to memory, from what it really used.

The guards are the complaints people have of other tools: a quiet weekend shrinks Monday, a start-up peak is
cut off and the next start runs out of memory, an autoscaler and the recommender chase each other.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum

import numpy as np

from yunhe.flexible.history import reporting_slots
from yunhe.flexible.placing.tiers import reservation
from yunhe.flexible.trace import DAY_S, WEEK_S, Bools, Dimension, Floats, Ints, Singles, Trace, hour_of_week
from yunhe.kernel.money import Prices, Tier

CPU_STEP_MILLIS = 100
MEMORY_STEP_MIB = 64
SPEC_QUANTILE: Mapping[Tier, float] = {Tier.HIGH: 0.99, Tier.MEDIUM: 0.95, Tier.LOW: 0.90}
"""Share of the time the recommended CPU must be enough, on the busiest day of the week."""

FLAVOUR_CORES = (1, 2, 4, 8, 16, 32, 64, 128)
FLAVOUR_GIB_PER_CORE = (1, 2, 4, 8)
"""The flavours of elastic computing: powers of two, and memory at 1, 2, 4 or 8 GiB per core."""

PRICE_BOOK = Prices(cpu_core_hour_micros=100_000, memory_gib_hour_micros=12_000)
"""The stated price book: 0.10 per core-hour and 0.012 per GiB-hour."""


START_SEEN_AFTER_S = DAY_S
"""Who first reports after the others have reported for so long without a break was started then."""


class Severity(StrEnum):
    """How much it matters: short of CPU or memory, a large waste, a small one, well sized."""

    CRITICAL = "critical"
    WARNING = "warning"
    OK = "ok"
    GOOD = "good"


@dataclass(frozen=True, slots=True)
class InstanceSize:
    """CPU and memory of an instance; memory 0 where the trace has none."""

    cpu_millis: int
    memory_mib: int = 0

    def cost_micros_per_hour(self, prices: Prices) -> int:
        """Return what an hour costs."""
        cpu = self.cpu_millis * prices.cpu_core_hour_micros // 1000
        return cpu + self.memory_mib * prices.memory_gib_hour_micros // 1024

    def covers(self, other: "InstanceSize") -> bool:
        """Return whether this is at least *other* in both."""
        return self.cpu_millis >= other.cpu_millis and self.memory_mib >= other.memory_mib


@dataclass(frozen=True, slots=True)
class Guards:
    """When not to follow the numbers."""

    least_history_s: int = WEEK_S
    """Nothing is shrunk on less: a weekend must not decide about Monday."""
    memory_headroom: float = 1.15
    unseen_start_keeps: float = 0.5
    """Share of today's memory kept as a floor when the start of the instance is not in the data."""
    autoscaled: frozenset[str] = field(default_factory=frozenset[str])
    """Instances whose CPU an autoscaler watches: a smaller request would only make it add more."""
    cpu_only: bool = False


@dataclass(frozen=True, slots=True)
class Recommendation:
    """What an instance should be, and why."""

    instance: str
    tier: Tier
    given: InstanceSize
    recommended: InstanceSize
    reserved: InstanceSize
    flavour: InstanceSize
    severity: Severity
    saving_micros_per_hour: int
    evidence: tuple[str, ...]


def recommend(trace: Trace, tier: Tier, guards: Guards, prices: Prices) -> tuple[Recommendation, ...]:
    """Return a recommendation for every instance, the largest savings first."""
    all_of_them = recommend_some(trace, range(len(trace.instances)), tier, guards, prices)
    return tuple(sorted(all_of_them, key=lambda one: (-one.saving_micros_per_hour, one.instance)))


def recommend_some(
    trace: Trace, rows: Iterable[int], tier: Tier, guards: Guards, prices: Prices
) -> list[Recommendation]:
    """Return a recommendation for the instances at *rows*; what all the others did tells who was seen to start."""
    days, started = _day_of_week(trace), starts_seen(trace)
    return [_one(trace, row, (days, bool(started[row])), (tier, guards, prices)) for row in rows]


def starts_seen(trace: Trace) -> Bools:
    """Return whose start, with its peak of memory, is in the data.

    The first sample of an instance is its start only if the pool was watched before it: not at the beginning of
    the data, nor where samples of the first minutes are missing there, nor after an outage of the collector.
    """
    usage = trace.usage.get(Dimension.MEMORY)
    if usage is None:
        return np.zeros(len(trace.instances), dtype=np.bool_)
    reported = ~np.isnan(usage)
    silent = np.concatenate([[0], np.cumsum(~reporting_slots(reported))])
    first = np.argmax(reported, axis=1)
    before = first - max(1, START_SEEN_AFTER_S // trace.period_s)
    return (before >= 0) & (silent[first] == silent[np.maximum(before, 0)])


def cheapest_flavour(need: InstanceSize, prices: Prices) -> InstanceSize:
    """Return the cheapest power-of-two flavour that covers *need*; one without limit if none does."""
    offers = [
        InstanceSize(cores * 1000, cores * ratio * 1024 if need.memory_mib else 0)
        for cores in FLAVOUR_CORES
        for ratio in FLAVOUR_GIB_PER_CORE
    ]
    fitting = [offer for offer in offers if offer.covers(need)] or [need]
    return min(fitting, key=lambda offer: (offer.cost_micros_per_hour(prices), offer.cpu_millis))


@dataclass(frozen=True, slots=True)
class FlavourWaste:
    """What fixed flavours waste on a trace, against what was given and against tailored sizes."""

    given_micros_per_hour: int
    flavours_micros_per_hour: int
    tailored_micros_per_hour: int

    @property
    def share(self) -> float:
        """Return the share of the flavours' cost that no demand needs."""
        if not self.flavours_micros_per_hour:  # nothing has a price
            return 0.0
        return 1 - self.tailored_micros_per_hour / self.flavours_micros_per_hour


def flavour_waste(recommendations: tuple[Recommendation, ...], prices: Prices) -> FlavourWaste:
    """Return the hourly cost of all instances as given, in the best flavours, and tailored."""
    return FlavourWaste(
        sum(one.given.cost_micros_per_hour(prices) for one in recommendations),
        sum(one.flavour.cost_micros_per_hour(prices) for one in recommendations),
        sum(one.recommended.cost_micros_per_hour(prices) for one in recommendations),
    )


def _day_of_week(trace: Trace) -> Ints:
    return hour_of_week(trace.slot_times_s(0, trace.slots)) // 24


def _one(
    trace: Trace, row: int, seen: tuple[Ints, bool], terms: tuple[Tier, Guards, Prices]
) -> Recommendation:
    (days, started), (tier, guards, prices) = seen, terms
    name = trace.instances[row]
    given = _given(trace, row)
    evidence: list[str] = []
    cpu = _cpu(trace.usage[Dimension.CPU][row], days, tier, evidence)
    memory = _memory(trace, row, guards, evidence)
    needed = InstanceSize(_step_up(cpu * 1000, CPU_STEP_MILLIS), _step_up(memory, MEMORY_STEP_MIB))
    spec = _guarded(needed, given, (trace, row, started), guards, evidence)
    saving = given.cost_micros_per_hour(prices) - spec.cost_micros_per_hour(prices)
    return Recommendation(
        instance=name,
        tier=tier,
        given=given,
        recommended=spec,
        reserved=_reserved(trace, row, tier),
        flavour=cheapest_flavour(spec, prices),
        severity=_severity(given, spec),
        saving_micros_per_hour=saving,
        evidence=tuple(evidence),
    )


def _given(trace: Trace, row: int) -> InstanceSize:
    memory = trace.request.get(Dimension.MEMORY)
    return InstanceSize(
        round(float(trace.request[Dimension.CPU][row]) * 1000),
        0 if memory is None else round(float(memory[row])),
    )


def _cpu(series: Singles, days: Ints, tier: Tier, evidence: list[str]) -> float:
    """Return the tier's quantile on the busiest day of the week, so that quiet days dilute nothing."""
    level = SPEC_QUANTILE[tier]
    by_day = {int(day): series[(days == day) & ~np.isnan(series)] for day in np.unique(days)}
    peaks = {day: float(np.quantile(used, level)) for day, used in by_day.items() if len(used)}
    if not peaks:
        evidence.append("CPU: no samples")
        return 0.0
    busiest = max(peaks, key=lambda day: peaks[day])
    name = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")[busiest]
    evidence.append(f"CPU: p{100 * level:g} is {peaks[busiest]:.2f} cores on {name}, the busiest day")
    return peaks[busiest]


def _memory(trace: Trace, row: int, guards: Guards, evidence: list[str]) -> float:
    usage = trace.usage.get(Dimension.MEMORY)
    if usage is None or not np.isfinite(usage[row]).any():
        return 0.0
    peak = float(np.nanmax(usage[row]))
    evidence.append(f"memory: highest seen {peak:.0f} MiB, × {guards.memory_headroom:g} headroom")
    return peak * guards.memory_headroom


def _guarded(
    needed: InstanceSize,
    given: InstanceSize,
    who: tuple[Trace, int, bool],
    guards: Guards,
    evidence: list[str],
) -> InstanceSize:
    (trace, row, started), cpu, memory = who, needed.cpu_millis, needed.memory_mib
    seen = np.flatnonzero(~np.isnan(trace.usage[Dimension.CPU][row]))
    lived_s = (int(seen[-1] - seen[0]) + 1) * trace.period_s if len(seen) else 0
    if lived_s < guards.least_history_s and not needed.covers(given):
        evidence.append(
            f"not shrunk: {lived_s / DAY_S:.1f} days seen, {guards.least_history_s / DAY_S:g} needed to know a week"
        )
        cpu, memory = max(cpu, given.cpu_millis), max(memory, given.memory_mib)
    if trace.instances[row] in guards.autoscaled and cpu < given.cpu_millis:
        evidence.append("CPU left alone: an autoscaler watches it")
        cpu = given.cpu_millis
    if guards.cpu_only or not needed.memory_mib:
        memory = given.memory_mib
    elif not started and memory < given.memory_mib * guards.unseen_start_keeps:
        memory = _step_up(given.memory_mib * guards.unseen_start_keeps, MEMORY_STEP_MIB)
        evidence.append("memory: its start is not in the data, so at least half of today's is kept")
    return InstanceSize(cpu, memory)


def _reserved(trace: Trace, row: int, tier: Tier) -> InstanceSize:
    def amount(dimension: Dimension) -> float:
        usage = trace.usage.get(dimension)
        if usage is None:
            return 0.0
        known = usage[row][~np.isnan(usage[row])]
        return float(reservation(known[None, :], tier)[0]) if len(known) else 0.0

    cpu, memory = amount(Dimension.CPU), amount(Dimension.MEMORY)
    return InstanceSize(_step_up(cpu * 1000, CPU_STEP_MILLIS), _step_up(memory, MEMORY_STEP_MIB))


def _step_up(amount: float, step: int) -> int:
    return max(step if amount > 0 else 0, int(np.ceil(amount / step - 1e-6)) * step)


def _severity(given: InstanceSize, spec: InstanceSize) -> Severity:
    if spec.cpu_millis > given.cpu_millis * 1.05 or spec.memory_mib > given.memory_mib * 1.05:
        return Severity.CRITICAL
    unused_cpu, unused_memory = given.cpu_millis - spec.cpu_millis, given.memory_mib - spec.memory_mib
    if unused_cpu >= 1000 or unused_memory >= 4096:
        return Severity.WARNING
    return Severity.OK if unused_cpu >= 250 or unused_memory >= 512 else Severity.GOOD


def unmet(trace: Trace, row: int, spec: InstanceSize) -> Floats:
    """Return the share of samples above the spec: CPU first, then memory."""
    shares: list[float] = []
    for dimension, limit in (
        (Dimension.CPU, spec.cpu_millis / 1000),
        (Dimension.MEMORY, float(spec.memory_mib)),
    ):
        usage = trace.usage.get(dimension)
        known = usage[row][~np.isnan(usage[row])] if usage is not None else np.zeros(0)
        shares.append(float((known > limit).mean()) if len(known) else 0.0)
    return np.array(shares)
