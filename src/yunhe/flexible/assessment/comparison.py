"""What would flexible placement give on these hosts: fixed ratios and the default on the same walk."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise

import msgspec
import numpy as np

from yunhe.flexible.overload.estimators import EstimateRequest, fixed_ratio
from yunhe.flexible.overload.margin import limits_with_margin, walk_forward
from yunhe.flexible.placing.packing import Limits, Load, first_fit, host_usage, limits_at
from yunhe.flexible.reading.sizes import shown
from yunhe.flexible.replay import ELASTIC, LONG_LIVED, ReplayOutcome, Schedule, Window, judge, windows
from yunhe.flexible.trace import DAY_S, HOUR_S, Dimension, Floats, Ints, Trace
from yunhe.kernel.errors import FieldProblem, InvalidInputError
from yunhe.kernel.money import Prices
from yunhe.kernel.units import show_duration, show_memory

STATED = (0.005, 0.01, 0.02, 0.05)
RATIOS = (1.0, 1.5, 2.0, 2.5, 3.0, 4.0, 5.0, 6.0, 8.0)
SHOWN_RATIOS = (1.0, 2.0, 3.0)
HEAT_COLUMNS = 48
ENOUGH_WINDOWS = 14
"""Placements below which a rate says little: overload comes in a few of them, two weeks of days have most kinds of day."""


class HostShape(msgspec.Struct, frozen=True):
    """So many equal hosts; memory 0 means that memory is not limited."""

    count: int
    cores: float
    memory_mib: float = 0.0


class PolicyResult(msgspec.Struct, frozen=True):
    """One policy on the hosts given, and how many hosts it needs for every instance.

    Never a density without its violation: both are here or neither.
    """

    name: str
    stated: float | None
    placed: float
    vcpus: float
    vcpu_per_core: float
    utilisation: float
    violation: float
    worst_host: float
    lost_work: float
    hosts_needed: float
    violation_when_all_placed: float
    cost_micros_per_vcpu_hour: int


class CalibrationPoint(msgspec.Struct, frozen=True):
    """What was stated, what then happened on the given hosts, and what every instance would need."""

    stated: float
    realised: float
    worst_window: float
    hosts: float
    realised_when_all_placed: float


class RatioPoint(msgspec.Struct, frozen=True):
    """A fixed ratio: hosts for every instance and the overload that came of it."""

    ratio: float
    realised: float
    hosts: float


class Totals(msgspec.Struct, frozen=True):
    """What is given out and what is used, over the whole trace."""

    instances: int
    days: float
    period_s: int
    requested_cores: float
    used_cores_mean: float
    used_cores_p95: float
    requested_memory_gib: float
    used_memory_gib_mean: float


class Assessment(msgspec.Struct, frozen=True):
    """Everything the tables and the report show."""

    totals: Totals
    hosts: HostShape
    windows: int
    profile: str
    stated: float
    policies: tuple[PolicyResult, ...]
    calibration: tuple[CalibrationPoint, ...]
    ratios: tuple[RatioPoint, ...]
    mean_utilisation: tuple[float, ...]
    p95_utilisation: tuple[float, ...]
    heat: tuple[tuple[float, ...], ...]
    heat_hours: float
    margin: float
    rule: str
    notes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class AssessmentRequest:
    """What to assess."""

    trace: Trace
    hosts: HostShape | None
    stated: float
    prices: Prices
    seed: int = 1
    cap: float | None = None
    """Requested CPU for each real core of a host, at most, however little of it is used."""
    window_s: int | None = None
    """How far back to look; as the paper's where it is not said."""


@dataclass(frozen=True, slots=True)
class _Bound:
    """An amount of each instance that must stay within a limit on every host, whatever is used."""

    amount: Floats
    limit: float


Progress = Callable[[int, int], None]
"""Told the windows done and how many there are."""


@dataclass(slots=True)
class _Run:
    """One policy while the walk goes on: on the given hosts, and on as many as it takes."""

    given: list[ReplayOutcome] = field(default_factory=list[ReplayOutcome])
    open_ended: list[ReplayOutcome] = field(default_factory=list[ReplayOutcome])


def schedule_for(trace: Trace, window_s: int | None = None) -> Schedule:
    """Return the long-lived schedule where the trace lasts long enough for it, else the elastic one.

    With *window_s* everything looks back so far: from a day on as the long-lived schedule, below as the elastic.
    """
    enough = {kind: trace.duration_s >= kind.least_s for kind in (LONG_LIVED, ELASTIC)}
    enough[ELASTIC] &= trace.period_s <= HOUR_S // 4
    if window_s is not None:
        return _looking_back(trace, window_s, enough)
    for kind, is_enough in enough.items():
        if is_enough:
            return kind
    raise InvalidInputError(
        f"{_extent(trace)}: too little to learn from one part and judge on another.",
        remedy="Give at least 5 hours of samples no more than 15 minutes apart, better two weeks.",
    )


def _looking_back(trace: Trace, window_s: int, enough: dict[Schedule, bool]) -> Schedule:
    kind = LONG_LIVED if window_s >= DAY_S else ELASTIC
    if window_s < HOUR_S or not enough[kind]:
        raise InvalidInputError(
            f"{_extent(trace)}: it cannot be judged looking back {show_duration(window_s)}.",
            remedy="A window of a day or more needs 8 days of samples; one of an hour to a day needs 5 hours of "
            "samples no more than 15 minutes apart.",
            fields=(FieldProblem("--window", "does not suit the trace", show_duration(window_s)),),
        )
    return replace(kind, profile_s=window_s, memory_s=window_s, recent_s=min(kind.recent_s, window_s))


def _extent(trace: Trace) -> str:
    return f"The trace lasts {show_duration(trace.duration_s)} with a sample every {show_duration(trace.period_s)}"


def default_hosts(trace: Trace) -> HostShape:
    """Return hosts at least twice as large as the largest instance, with a quarter of the requested cores.

    So at 1× a quarter of the instances finds room, and all of them only at 4×.
    """
    request = trace.request[Dimension.CPU]
    cores = next((size for size in (8, 16, 32, 64, 96, 128) if size >= 2 * request.max()), 256)
    return HostShape(max(1, int(np.ceil(request.sum() / (4 * cores)))), float(cores))


def assess(request: AssessmentRequest, progress: Progress = lambda _done, _of: None) -> Assessment:
    """Walk through the trace and return what each policy would have given."""
    schedule = schedule_for(request.trace, request.window_s)
    hosts = request.hosts or default_hosts(request.trace)
    trace, notes = _that_fit(request.trace, hosts)
    memory = _memory_requests(trace, hosts)
    runs = {ratio: _Run() for ratio in RATIOS}
    flexible = {one: _Run() for one in sorted({*STATED, request.stated})}
    last, placement = None, np.zeros(0, dtype=np.int64)
    total = trace.duration_s // schedule.horizon_s - schedule.practice - 1
    steps = windows([trace], schedule, request.seed)
    for done, walk in enumerate(walk_forward(steps, schedule, hosts.cores, tuple(flexible), hosts.count), 1):
        window = walk.window
        fixed = (
            [_Bound(np.array([memory[name] for name in window.instances]), hosts.memory_mib)]
            if memory
            else []
        )
        capped = [_Bound(window.history.request, request.cap * hosts.cores)] if request.cap else []
        for ratio, run in runs.items():
            load = fixed_ratio(ratio).load(window.history, EstimateRequest(request.stated, hosts.cores))
            _place_both(run, window, _bounded(load, fixed), hosts, (None, fixed))
        for stated, step in walk.steps.items():
            load = _bounded(
                step.rule.load(window.history, EstimateRequest(stated, hosts.cores)), [*fixed, *capped]
            )
            terms = (step.choice.margin, [*fixed, *capped])
            where = _place_both(flexible[stated], window, load, hosts, terms)
            placement = where if stated == request.stated else placement
        last = walk.steps[request.stated]
        progress(done, total)
    if last is None:
        raise InvalidInputError(
            "No window of the trace has enough samples to judge.", remedy="Give a trace with fewer gaps."
        )
    named: list[tuple[str, float | None, _Run]] = [
        (f"fixed {ratio:g}×", None, runs[ratio]) for ratio in SHOWN_RATIOS
    ]
    named.append(("flexible", request.stated, flexible[request.stated]))
    mean, peak = _utilisations(trace)
    return Assessment(
        totals=_totals(request.trace),
        hosts=hosts,
        windows=len(flexible[request.stated].given),
        profile=f"looking back {_span(schedule.memory_s)}, placed anew every {_span(schedule.horizon_s)}",
        stated=request.stated,
        policies=tuple(_policy(name, stated, run, hosts, request.prices) for name, stated, run in named),
        calibration=tuple(_calibration(stated, run) for stated, run in flexible.items()),
        ratios=tuple(_ratio(ratio, run.open_ended) for ratio, run in runs.items()),
        mean_utilisation=mean,
        p95_utilisation=peak,
        heat=_heat(placement, last.window, hosts.cores),
        heat_hours=schedule.horizon_s / HOUR_S,
        margin=last.choice.margin,
        rule=last.rule.name,
        notes=(*notes, *_about_cap(request.cap), *_few(len(flexible[request.stated].given))),
    )


def _about_cap(cap: float | None) -> tuple[str, ...]:
    if cap is None:
        return ()
    return (f"flexible placement is held to {cap:g} vCPU for each core of a host, as --cap says",)


def _few(judged: int) -> tuple[str, ...]:
    if judged >= ENOUGH_WINDOWS:
        return ()
    note = (
        f"only {judged} placement{'s were' if judged != 1 else ' was'} judged: too few to show whether a stated overload "
        f"is kept; {ENOUGH_WINDOWS} or more are needed, so give a longer trace"
    )
    return (note,)


def _span(seconds: int) -> str:
    unit, count = ("day", seconds // DAY_S) if seconds % DAY_S == 0 else ("hour", seconds // HOUR_S)
    return unit if count == 1 else f"{count} {unit}s"


def _that_fit(trace: Trace, hosts: HostShape) -> tuple[Trace, tuple[str, ...]]:
    """Return the instances that a host can take, and a note of those that none can."""
    fits = trace.request[Dimension.CPU] <= hosts.cores
    size = f"{hosts.cores:g} cores"
    if hosts.memory_mib and Dimension.MEMORY in trace.request:
        fits = fits & (trace.request[Dimension.MEMORY] <= hosts.memory_mib)
        size += f" and {show_memory(hosts.memory_mib)}"
    if not fits.any():
        raise InvalidInputError(
            f"No instance fits a host of {size}.",
            remedy="Give larger hosts: --hosts COUNTxCORES or COUNTxCORESxMEMORY.",
            fields=(FieldProblem("--hosts", "are too small for every instance", f"{hosts.count} of {size}"),),
        )
    if fits.sum() < 2:
        raise InvalidInputError(
            "There is only one instance to place: nothing could share a host with it.",
            remedy="Give samples of several instances; yunhe flex recommend sizes a single one.",
        )
    if fits.all():
        return trace, ()
    names = [name for name, fit in zip(trace.instances, fits, strict=True) if not fit]
    return trace.only(fits), (f"left out, as no host can take them: {shown(names)}",)


def _memory_requests(trace: Trace, hosts: HostShape) -> dict[str, float]:
    sizes = trace.request.get(Dimension.MEMORY)
    if sizes is None or hosts.memory_mib == 0:
        return {}
    return dict(zip(trace.instances, sizes.tolist(), strict=True))


def _bounded(load: Load, bounds: Sequence[_Bound]) -> Load:
    """Return *load* with a rule for each of *bounds*, after its own; these hold whatever is used."""
    amounts = np.array([bound.amount for bound in bounds]).reshape(len(bounds), load.size.shape[1])
    return replace(
        load,
        size=np.vstack([load.size, amounts]),
        weights=np.vstack([load.weights.reshape(-1, load.size.shape[1]), amounts]),
        firm=len(bounds),
    )


def _place_both(
    run: _Run, window: Window, load: Load, hosts: HostShape, terms: tuple[float | None, Sequence[_Bound]]
) -> Ints:
    """Place on the given hosts and on as many as it takes, with the margin given or as the load stands.

    Returns the former. What is bounded, memory first, is never overcommitted: the last rules of *load* are those
    of the bounds.
    """
    margin, bounds = terms
    placements: list[Ints] = []
    for count, outcomes in ((hosts.count, run.given), (len(window.instances), run.open_ended)):
        limits = (
            limits_at(np.full(count, hosts.cores), load, np.full(count, hosts.cores))
            if margin is None
            else limits_with_margin(count, load, hosts.cores, margin)
        )
        placements.append(first_fit(window.order, load, _with_bounds(limits, bounds)))
        outcomes.append(judge(window, placements[-1], hosts.cores))
    return placements[0]


def _with_bounds(limits: Limits, bounds: Sequence[_Bound]) -> Limits:
    capacity, weights = limits.capacity.copy(), limits.weights.copy()
    for row, bound in enumerate(reversed(bounds), 1):
        capacity[-row] = weights[-row] = bound.limit
    return replace(limits, capacity=capacity, weights=weights)


def _rate(outcomes: Sequence[ReplayOutcome]) -> float:
    return sum(one.overloaded for one in outcomes) / max(1, sum(one.judged for one in outcomes))


def _policy(name: str, stated: float | None, run: _Run, hosts: HostShape, prices: Prices) -> PolicyResult:
    vcpus = float(np.mean([one.requested for one in run.given]))
    slots = [one.judged / max(1, one.hosts) for one in run.given]
    cores = hosts.count * hosts.cores
    return PolicyResult(
        name=name,
        stated=stated,
        placed=float(np.mean([one.placed for one in run.given])),
        vcpus=vcpus,
        vcpu_per_core=vcpus / cores,
        utilisation=sum(one.used for one in run.given) / (cores * sum(slots)),
        violation=_rate(run.given),
        worst_host=max(one.worst_host for one in run.given),
        lost_work=sum(one.lost for one in run.given) / max(1e-9, sum(one.used for one in run.given)),
        hosts_needed=float(np.mean([one.hosts for one in run.open_ended])),
        violation_when_all_placed=_rate(run.open_ended),
        cost_micros_per_vcpu_hour=round(cores * prices.cpu_core_hour_micros / max(1e-9, vcpus)),
    )


def _calibration(stated: float, run: _Run) -> CalibrationPoint:
    return CalibrationPoint(
        stated,
        _rate(run.given),
        max(one.violation for one in run.given),
        float(np.mean([one.hosts for one in run.open_ended])),
        _rate(run.open_ended),
    )


def _ratio(ratio: float, outcomes: Sequence[ReplayOutcome]) -> RatioPoint:
    return RatioPoint(ratio, _rate(outcomes), float(np.mean([one.hosts for one in outcomes])))


def _totals(trace: Trace) -> Totals:
    cpu = trace.usage[Dimension.CPU]
    together: Floats = np.asarray(np.nansum(cpu, axis=0, dtype=np.float64))[~np.isnan(cpu).all(axis=0)]
    memory, given = trace.usage.get(Dimension.MEMORY), trace.request.get(Dimension.MEMORY)
    used_memory = 0.0 if memory is None else float(np.nansum(memory, axis=0, dtype=np.float64).mean())
    return Totals(
        instances=len(trace.instances),
        days=trace.duration_s / DAY_S,
        period_s=trace.period_s,
        requested_cores=float(trace.request[Dimension.CPU].sum()),
        used_cores_mean=float(together.mean()),
        used_cores_p95=float(np.quantile(together, 0.95)),
        requested_memory_gib=0.0 if given is None else float(given.sum()) / 1024,
        used_memory_gib_mean=used_memory / 1024,
    )


def _utilisations(trace: Trace) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Return each instance's mean and 95th percentile as a share of its request."""
    means: list[float] = []
    peaks: list[float] = []
    for row, request in zip(trace.usage[Dimension.CPU], trace.request[Dimension.CPU], strict=True):
        known = row[~np.isnan(row)].astype(np.float64)
        if len(known) and request > 0:
            means.append(float(known.mean() / request))
            peaks.append(float(np.quantile(known, 0.95) / request))
    return tuple(means), tuple(peaks)


def _heat(placement: Ints, window: Window, cores: float) -> tuple[tuple[float, ...], ...]:
    """Return hosts × columns of time: the highest share of its cores each host used."""
    usage = host_usage(placement, window.future) / cores
    columns = min(HEAT_COLUMNS, usage.shape[1])
    edges = np.linspace(0, usage.shape[1], columns + 1).astype(int)
    return tuple(tuple(float(row[a:b].max()) for a, b in pairwise(edges)) for row in usage)
