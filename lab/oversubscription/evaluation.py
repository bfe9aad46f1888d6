"""One walk through a set: every method on the same windows, hosts and order of arrival."""

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import islice

import numpy as np

from lab.oversubscription.datasets import DataSet
from lab.oversubscription.methods import DEFAULT, MAIN, STATED, Method, methods
from lab.oversubscription.printed import place_by
from yunhe.flexible.overload.estimators import EstimateRequest, Estimator, aligned, fixed_ratio
from yunhe.flexible.overload.margin import MarginStep, Trial, walk_forward
from yunhe.flexible.placing.packing import first_fit, host_usage, limits_at
from yunhe.flexible.replay import TIE, ReplayOutcome, Schedule, Window, judge, place, windows
from yunhe.flexible.trace import Dimension, Floats, Ints, Trace
from yunhe.kernel.errors import InvalidInputError

FEWEST_HOSTS, FEWEST_PER_HOST = 20, 8
ROOM = 1.25
"""A host has at least so many times the cores of an instance; larger instances are left out."""

SWEEP: Floats = np.exp(np.linspace(np.log(0.45), np.log(2.4), 9))
RATIOS: Floats = np.round(np.exp(np.linspace(0, np.log(16), 45)), 3)
OnPlacement = Callable[[str, float | None, Window, Ints, float], None]
"""Told the method, what was stated, the window, the host of each instance, and the cores of a host."""


@dataclass(frozen=True, slots=True)
class Hosts:
    """The hosts a set is packed on, and how they were chosen."""

    cores: float
    reason: str
    left_out: int


@dataclass(slots=True)
class Record:
    """What one method did, window by window."""

    name: str
    stated: float | None
    outcomes: list[ReplayOutcome] = field(default_factory=list[ReplayOutcome])
    seconds: float = 0.0


@dataclass(slots=True)
class Experiment:
    """The published experiment: a given number of hosts, and what each policy placed on them."""

    hosts: int
    cores: float
    offered: list[int] = field(default_factory=list[int])
    """Instances there were, window by window: where all found a place, a policy could not show what it can."""
    outcomes: dict[str, list[ReplayOutcome]] = field(default_factory=dict[str, list[ReplayOutcome]])


@dataclass(slots=True)
class Evaluation:
    """Everything the tables are printed from."""

    data: DataSet
    hosts: Hosts
    records: dict[tuple[str, float | None], Record] = field(
        default_factory=dict[tuple[str, float | None], Record]
    )
    sweeps: dict[str, list[Floats]] = field(default_factory=dict[str, list[Floats]])
    steps: dict[float, list[MarginStep]] = field(default_factory=dict[float, list[MarginStep]])
    trials: list[Trial] = field(default_factory=list[Trial])
    experiment: Experiment = field(default_factory=lambda: Experiment(0, 0.0))
    idle_and_hot: dict[str, list[tuple[float, float]]] = field(
        default_factory=dict[str, list[tuple[float, float]]]
    )


def evaluate(data: DataSet, seed: int, most_windows: int | None, on_placement: OnPlacement) -> Evaluation:
    """Walk through *data* once and return what every method did in the windows that nothing was tuned on."""
    hosts, traces = scaled_hosts(data, seed)
    result = Evaluation(data, hosts)
    compared = methods(data.schedule)
    steps = windows(traces, data.schedule, seed)
    walks = walk_forward(steps, data.schedule, hosts.cores, STATED, from_s=data.tuned_until_s)
    for walk in islice(walks, most_windows):
        result.trials.append(walk.trial)
        for stated, step in walk.steps.items():
            result.steps.setdefault(stated, []).append(step)
            _record(result, DEFAULT, stated).outcomes.append(step.outcome)
            on_placement(DEFAULT, stated, walk.window, step.placement, hosts.cores)
        for method in compared:
            _run(result, method, walk.window, on_placement)
        _sweep_ratios(result, walk.window)
    if not result.steps:
        raise _nothing_to_judge(data)
    result.experiment = _experiment(result)
    _fixed_hosts(result, windows(traces, data.schedule, seed), most_windows, on_placement)
    return result


def _experiment(result: Evaluation) -> Experiment:
    """Return hosts with about 0.6 of the cores that all instances need, so that somebody finds no place.

    Where all instances are alike a host has room for a whole number of them, or a fixed ratio of 3 would be less
    than 3: two instances of 4 cores on a host of 5, say, are a ratio of 1.6 at most.
    """
    first = result.steps[MAIN][0]
    sizes = first.window.history.request
    cores = result.hosts.cores
    if (sizes == sizes[0]).all():
        cores = float(sizes[0] * np.ceil(cores / sizes[0]))
    needed = first.outcome.hosts * result.hosts.cores
    return Experiment(max(2, round(0.6 * needed / cores)), cores)


def scaled_hosts(data: DataSet, seed: int) -> tuple[Hosts, tuple[Trace, ...]]:
    """Return hosts of a size that lets at least 20 be used, or as many as leave 8 instances each.

    Decided once, on what is known before the first reported window, with the aligned 99th percentile.
    """
    steps = windows(data.traces, data.schedule, seed)
    after_practice = (
        window
        for window in steps
        if window.index >= data.schedule.practice
        and (data.tuned_until_s is None or window.start_s >= data.tuned_until_s)
    )
    window = next(after_practice, None)
    if window is None:
        raise _nothing_to_judge(data)
    sizes = window.history.request
    usual = float(np.quantile(sizes, 0.9, method="higher"))
    many = len(sizes) >= FEWEST_HOSTS * FEWEST_PER_HOST
    step = float(sizes.min()) if many else 1.0  # where all are alike, a host holds a whole number of them
    cores = best = step * np.ceil(ROOM * usual / step)
    most = float(window.history.series.sum(axis=0).max())
    while cores <= max(most, best) + 1:
        used, kept = _hosts_used(window, aligned(0.99), float(cores))
        if not _overloads_at_one_to_one(window, float(cores)):
            if many and used >= FEWEST_HOSTS:
                best = cores
            if not many and used <= max(1.0, kept / FEWEST_PER_HOST):
                best = cores
                break
        cores += step
    keep = [trace.request[Dimension.CPU] * ROOM <= best for trace in data.traces]
    traces = tuple(trace.only(mask) for trace, mask in zip(data.traces, keep, strict=True))
    reason = "so that at least 20 are used" if many else "so that about 8 instances share one"
    return Hosts(float(best), reason, int((~keep[0]).sum())), traces


def _nothing_to_judge(data: DataSet) -> InvalidInputError:
    return InvalidInputError(
        f"No window is left to judge after {data.schedule.practice} of practice ({profile_text(data.schedule)}).",
        remedy="It takes at least two instances that report together for longer.",
    )


def _hosts_used(window: Window, estimator: Estimator, cores: float) -> tuple[int, int]:
    kept, placement = _packed(window, estimator, cores)
    return int(placement.max(initial=-1)) + 1, len(kept)


def _overloads_at_one_to_one(window: Window, cores: float) -> bool:
    """Return whether hosts of this size are overloaded though every vCPU has a core.

    Clocks above nominal make some instances use up to 106 % of what they have; two of 8 cores then overflow
    a host of 16, which says nothing about oversubscription.
    """
    kept, placement = _packed(window, fixed_ratio(1), cores)
    usage = host_usage(placement, window.history.series[kept].astype(np.float64))
    return float((usage > cores).mean()) > 0.0005


def _packed(window: Window, estimator: Estimator, cores: float) -> tuple[Ints, Ints]:
    kept = np.flatnonzero(window.history.request * ROOM <= cores)
    load = estimator.load(window.history.of(kept), EstimateRequest(MAIN, cores))
    limits = limits_at(np.full(len(kept), cores), load, np.full(len(kept), cores))
    order = np.random.default_rng(window.index).permutation(len(kept))
    return kept, first_fit(order, load, limits)


def _record(result: Evaluation, name: str, stated: float | None) -> Record:
    return result.records.setdefault((name, stated), Record(name, stated))


def _run(result: Evaluation, method: Method, window: Window, on_placement: OnPlacement) -> None:
    capacity = result.hosts.cores
    for stated in method.stated or (None,):
        record = _record(result, method.name, stated)
        began = time.perf_counter()
        load = method.estimator.load(window.history, EstimateRequest(stated or MAIN, capacity))
        placement = place(window, load, capacity, capacity)
        record.seconds += time.perf_counter() - began
        record.outcomes.append(judge(window, placement, capacity))
        on_placement(method.name, stated, window, placement, capacity)
        if method.name.startswith("fixed"):
            result.idle_and_hot.setdefault(method.name, []).append(_idle_and_hot(window, placement, capacity))
        elif stated in {None, MAIN}:
            rates = [
                _rate(window, place(window, load, capacity / margin, capacity), capacity) for margin in SWEEP
            ]
            result.sweeps.setdefault(method.name, []).append(np.array(rates))


def _rate(window: Window, placement: Ints, capacity: float) -> tuple[float, ...]:
    """Return hosts, overloaded and judged host-slots, lost and used core-slots."""
    usage = host_usage(placement, window.future)
    over = usage > capacity * (1 + TIE)
    lost = np.maximum(usage - capacity, 0).sum()
    return float(len(over)), float(over.sum()), float(over.size), float(lost), float(usage.sum())


def _sweep_ratios(result: Evaluation, window: Window) -> None:
    capacity = result.hosts.cores
    rates = [
        _rate(window, place_by(window, fixed_ratio(float(ratio)), EstimateRequest(MAIN, capacity)), capacity)
        for ratio in RATIOS
    ]
    result.sweeps.setdefault("fixed ratio", []).append(np.array(rates))


def _idle_and_hot(window: Window, placement: Ints, capacity: float) -> tuple[float, float]:
    """Return the share of hosts used below a quarter on average, and of hosts overloaded at some time."""
    usage = host_usage(placement, window.future)
    return float((usage.mean(axis=1) < 0.25 * capacity).mean()), float((usage > capacity).any(axis=1).mean())


def _fixed_hosts(
    result: Evaluation, steps: Iterator[Window], most_windows: int | None, on_placement: OnPlacement
) -> None:
    """The published experiment: a given number of hosts, more instances than they can hold."""
    data, given = result.data, result.experiment
    capacity, hosts = given.cores, given.hosts
    suffix = f" on {hosts} hosts"
    walks = walk_forward(steps, data.schedule, capacity, (MAIN,), hosts, data.tuned_until_s)
    for walk in islice(walks, most_windows):
        window = walk.window
        given.offered.append(len(window.instances))
        for ratio in (1, 2, 3):
            estimator = fixed_ratio(ratio)
            load = estimator.load(window.history, EstimateRequest(MAIN, capacity))
            placement = place(window, load, capacity, capacity, hosts)
            given.outcomes.setdefault(estimator.name, []).append(judge(window, placement, capacity))
            on_placement(estimator.name + suffix, None, window, placement, capacity)
        step = walk.steps[MAIN]
        given.outcomes.setdefault(DEFAULT, []).append(step.outcome)
        on_placement(DEFAULT + suffix, MAIN, window, step.placement, capacity)


def profile_text(schedule: Schedule) -> str:
    """Return how a set is walked, for people."""
    day = 86400
    length = (
        f"{schedule.profile_s // day} d" if schedule.profile_s >= day else f"{schedule.profile_s // 3600} h"
    )
    step = (
        f"{schedule.horizon_s // day} d" if schedule.horizon_s >= day else f"{schedule.horizon_s // 3600} h"
    )
    return f"profile {length}, judged over the next {step}"
