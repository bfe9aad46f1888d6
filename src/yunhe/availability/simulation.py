"""Monte-Carlo with repair times: what the formulas say, checked by letting every part fail and be repaired.

Every sub-module of every instance, zone and shared dependency is up for an exponential time and then
under repair for one, so that it is up as often as the model says. An instance is down while any of its
sub-modules or its zone is; a service while all its instances are, or while a failover does not work or
is not done yet; the platform while any service or shared dependency is.
"""

import math
from collections.abc import Callable, Sequence

import msgspec
import numpy as np

from yunhe.availability.evaluation import platform_log_availability
from yunhe.availability.model import Assumptions, Model, Service
from yunhe.availability.outage import FloatArray
from yunhe.availability.percent import SECONDS_PER_YEAR
from yunhe.kernel.errors import FieldProblem, InvalidInputError, UnsupportedError

MAX_PARTS = 50_000
FAILURES_AT_ONCE = 1_000_000
Z_95 = 1.959964


class Intervals:
    """Stretches of time, sorted and disjoint."""

    def __init__(self, starts: FloatArray, ends: FloatArray) -> None:
        order = np.argsort(starts, kind="stable")
        starts, latest = starts[order], np.maximum.accumulate(ends[order])
        first = np.ones(len(starts), dtype=bool)
        first[1:] = starts[1:] > latest[:-1]
        last = np.append(first[1:], True)[: len(starts)]
        self.starts, self.ends = starts[first], latest[last]

    @property
    def lengths(self) -> FloatArray:
        """How long each stretch is."""
        return self.ends - self.starts


class Simulation(msgspec.Struct, frozen=True):
    """What happened, with a 95 % interval, beside what the formulas predict."""

    years: float
    seed: int
    availability_percent: float
    interval_percent: tuple[float, float]
    predicted_percent: float
    predicted_unavailability: float
    agrees: bool
    outages: int
    outages_per_year: float
    mean_outage_s: float
    longest_outage_s: float
    downtime_share_percent: dict[str, float]


def simulate(
    model: Model,
    services: Sequence[Service],
    years: float,
    seed: int,
    on_progress: Callable[[float], None] = lambda _share: None,
) -> Simulation:
    """Let the platform run for so many years, in stretches that each start from a random moment."""
    if not 0 < years < math.inf:
        problem = FieldProblem("years", "must be more than 0", f"{years:g}")
        raise InvalidInputError("This cannot be simulated.", remedy="Try --years 200.", fields=(problem,))
    platform = _Platform(model, services)
    total_s = years * SECONDS_PER_YEAR
    stretches = max(1, math.ceil(platform.failures_per_s * total_s / FAILURES_AT_ONCE))
    random = np.random.default_rng(seed)
    outages, by_part = list[FloatArray](), dict[str, float]()
    for number in range(stretches):
        down, downtime = platform.run(total_s / stretches, random)
        outages.append(down.lengths)
        for part, seconds in downtime.items():
            by_part[part] = by_part.get(part, 0.0) + seconds
        on_progress((number + 1) / stretches)
    predicted = -math.expm1(platform_log_availability(model, services))
    return _summary(np.concatenate(outages), by_part, years, (seed, predicted, model.assumptions.repair_s))


def _summary(
    outages: FloatArray, by_part: dict[str, float], years: float, given: tuple[int, float, float]
) -> Simulation:
    seed, predicted, repair_s = given
    total_s = years * SECONDS_PER_YEAR
    low, high = downtime_interval(outages, repair_s)
    all_parts = sum(by_part.values())
    return Simulation(
        years,
        seed,
        100 * (1 - float(outages.sum()) / total_s),
        (100 * (1 - high / total_s), 100 * (1 - low / total_s)),
        100 * (1 - predicted),
        predicted,
        low / total_s <= predicted <= high / total_s,
        len(outages),
        len(outages) / years,
        float(outages.mean()) if len(outages) else 0.0,
        float(outages.max()) if len(outages) else 0.0,
        {part: 100 * seconds / all_parts for part, seconds in by_part.items() if seconds},
    )


def downtime_interval(outages: FloatArray, repair_s: float) -> tuple[float, float]:
    """Return a 95 % interval for expected total downtime, from the outages seen (Fay and Feuer, 1997).

    Outages come as a Poisson process with lengths as weights. Holds for few and even for no outages,
    where one repair stands for the longest; errs on the wide side when outages follow each other closely.
    """
    total, squares = float(outages.sum()), float((outages**2).sum())
    longest = max(float(outages.max()) if len(outages) else 0.0, repair_s if len(outages) < 30 else 0.0)
    low = 0.0
    if total > 0:
        low = squares / (2 * total) * _chi_square(2 * total**2 / squares, -Z_95)
    total, squares = total + longest, squares + longest**2
    return low, squares / (2 * total) * _chi_square(2 * total**2 / squares, Z_95)


def _chi_square(degrees: float, z: float) -> float:
    """Return a quantile by Wilson and Hilferty, good to about 1 % from two degrees of freedom on."""
    spread = 2 / (9 * degrees)
    return degrees * max(0.0, 1 - spread + z * math.sqrt(spread)) ** 3


class _Platform:
    def __init__(self, model: Model, services: Sequence[Service]) -> None:
        availability_of = {
            (module.name, submodule.name): submodule.availability
            for module in model.modules
            for submodule in module.submodules
        }
        self._assumptions = model.assumptions
        self._units: list[tuple[str, list[float], int]] = [
            (
                f"{service.module}: {', '.join(service.submodules)}",
                [availability_of[service.module, name] for name in service.submodules],
                service.replicas,
            )
            for service in services
        ]
        self._units += [
            (f"shared: {each.name}", [each.availability], each.instances) for each in model.shared
        ]
        parts = sum(len(parts) * replicas for _, parts, replicas in self._units)
        if parts > MAX_PARTS:
            raise UnsupportedError(
                f"{parts:,} instances of sub-modules are too many to simulate one by one.",
                remedy=f"Simulate up to {MAX_PARTS:,}; the formulas, which plan and explain use, have no limit.",
            )
        self.failures_per_s = sum(
            replicas * sum((1 - a) / model.assumptions.repair_s for a in parts)
            for _, parts, replicas in self._units
        )

    def run(self, duration_s: float, random: np.random.Generator) -> tuple[Intervals, dict[str, float]]:
        """Return when the platform was down, and for how long each part was."""
        zones = [
            Intervals(*_failures([zone.availability], duration_s, self._assumptions.repair_s, random))
            for zone in self._assumptions.zones
        ]
        down, by_part = list[Intervals](), dict[str, float]()
        for name, parts, replicas in self._units:
            unit = _service_down(parts, replicas, zones, (duration_s, self._assumptions), random)
            down.append(unit)
            by_part[name] = float(unit.lengths.sum())
        return _union(down), by_part


def _service_down(
    parts: list[float],
    replicas: int,
    zones: Sequence[Intervals],
    given: tuple[float, Assumptions],
    random: np.random.Generator,
) -> Intervals:
    duration_s, assumptions = given
    own, common = _alone_and_common(parts, assumptions.common_cause)
    instances = list[Intervals]()
    for replica in range(replicas):
        instance = Intervals(*_failures(own, duration_s, assumptions.repair_s, random))
        instances.append(_union([instance, zones[replica % len(zones)]]) if zones else instance)
    down = [_all_down(instances)]
    if replicas > 1:
        down.append(_failing_over(instances[0], assumptions, random))
    if common > 0:
        down.append(Intervals(*_failures([1 - common], duration_s, assumptions.repair_s, random)))
    return _union(down)


def _alone_and_common(parts: list[float], common_cause: float) -> tuple[list[float], float]:
    """Return the parts' availabilities without what they share, and the unavailability they share."""
    weight = -sum(math.log(a) for a in parts)
    unavailable = -math.expm1(-weight)
    common = common_cause * unavailable
    alone = (unavailable - common) / (1 - common)
    return [a ** (-math.log1p(-alone) / weight) for a in parts], common


def _failing_over(primary: Intervals, assumptions: Assumptions, random: np.random.Generator) -> Intervals:
    """Return when the primary is down and the switch does not work, or has not happened yet."""
    works = random.random(len(primary.starts)) < assumptions.failover
    until = np.where(works, np.minimum(primary.ends, primary.starts + assumptions.switchover_s), primary.ends)
    is_down = until > primary.starts
    return Intervals(primary.starts[is_down], until[is_down])


def _failures(
    parts: Sequence[float], duration_s: float, repair_s: float, random: np.random.Generator
) -> tuple[FloatArray, FloatArray]:
    """Return starts and ends of all failures; what is left of a repair at the start is as long as a whole one."""
    starts, ends = [np.zeros(0)], [np.zeros(0)]
    for availability in parts:
        if availability >= 1:
            continue
        mean_up_s = repair_s * availability / (1 - availability)
        now, starts_down = 0.0, random.random() >= availability
        while now < duration_s:
            count = math.ceil(1.1 * (duration_s - now) / (mean_up_s + repair_s)) + 10
            up_s, down_s = random.exponential(mean_up_s, count), random.exponential(repair_s, count)
            if starts_down:
                up_s[0], starts_down = 0.0, False
            cycle_ends = now + np.cumsum(up_s + down_s)
            starts.append(cycle_ends - down_s)
            ends.append(cycle_ends)
            now = float(cycle_ends[-1])
    started, ended = np.concatenate(starts), np.minimum(np.concatenate(ends), duration_s)
    within = started < duration_s
    return started[within], ended[within]


def _union(parts: Sequence[Intervals]) -> Intervals:
    return Intervals(
        np.concatenate([part.starts for part in parts]), np.concatenate([part.ends for part in parts])
    )


def _all_down(instances: Sequence[Intervals]) -> Intervals:
    """Return when all are down at once."""
    times = np.concatenate([*(each.starts for each in instances), *(each.ends for each in instances)])
    total = len(times) // 2
    steps = np.concatenate((np.ones(total, dtype=np.int64), np.full(total, -1, dtype=np.int64)))
    order = np.lexsort((steps, times))
    level = np.cumsum(steps[order])
    full = np.flatnonzero(level == len(instances))
    return Intervals(times[order][full], times[order][np.minimum(full + 1, 2 * total - 1)])
