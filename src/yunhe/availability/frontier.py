"""The whole frontier: the best availability of the platform for every amount spent on it.

Modules are in series, so their curves add up. Concave curves are merged by always taking the largest gain
left, which is optimal for every total at once; equal modules share their gains, so a million sub-modules
are a sort of a few numbers. Curves that are not concave are added exactly by dynamic programming, or, when
there are too many, along their concave envelopes with the bound beside.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from yunhe.availability.envelope import hull_vertices, is_concave
from yunhe.availability.model import Model, Module, Service
from yunhe.availability.outage import (
    FloatArray,
    IntArray,
    Scenario,
    is_provably_concave,
    log_availability,
    scenarios,
)
from yunhe.availability.partition import Choice, Curve, GroupValue, Objective, module_curve, plain_bounds
from yunhe.kernel.errors import UnsupportedError

CONVOLUTION_OPERATIONS = 300_000_000
CONVOLUTION_MEMORY = 50_000_000
SEARCHED_ACROSS_MODULES = 12
"""Up to so many sub-modules the bound across modules is the exact optimum, else a looser one."""


@dataclass(frozen=True)
class ModuleKind:
    """Modules that are alike, by position in the model, and the curve they share."""

    curve: Curve
    modules: IntArray


@dataclass(frozen=True)
class Total:
    """Curves added up: value, bound and companions for each total cost."""

    values: FloatArray
    bounds: FloatArray
    companions: FloatArray


@dataclass(frozen=True)
class Merged(Total):
    """A total that was reached by taking gains in order."""

    kinds: Sequence[ModuleKind]
    vertices: Sequence[IntArray]
    kind_of: IntArray
    repeats: IntArray
    costs: IntArray

    def allocation(self, cost: int) -> IntArray:
        """Return what each module costs in the best plan of this total cost."""
        taken = int(np.searchsorted(self.costs, cost))
        upto = np.cumsum(self.repeats)
        whole = int(np.searchsorted(upto, taken, side="right"))
        partly = taken - (int(upto[whole - 1]) if whole else 0)
        levels = np.bincount(self.kind_of[:whole], minlength=len(self.kinds))
        spent = np.empty(sum(len(kind.modules) for kind in self.kinds), dtype=np.int64)
        for number, (kind, vertices) in enumerate(zip(self.kinds, self.vertices, strict=True)):
            spent[kind.modules] = vertices[levels[number]]
            if partly and self.kind_of[whole] == number:
                spent[kind.modules[:partly]] = vertices[levels[number] + 1]
        return spent


@dataclass(frozen=True)
class Convolved(Total):
    """A total that was reached by dynamic programming, one module after the other."""

    modules: IntArray
    picks: Sequence[NDArray[np.int32]]

    def allocation(self, cost: int) -> IntArray:
        """Return what each module costs in the best plan of this total cost."""
        spent = np.empty(len(self.modules), dtype=np.int64)
        for module, pick in zip(self.modules[::-1], reversed(self.picks), strict=True):
            spent[module] = pick[cost]
            cost -= int(pick[cost])
        return spent


def add_up(kinds: Sequence[ModuleKind]) -> Merged | Convolved:
    """Add the curves of all modules, exactly where that can be done."""
    can_merge = all(np.isfinite(kind.curve.companions[:, _finite(kind.curve.values)]).all() for kind in kinds)
    if can_merge and all(_is_concave(kind.curve, kind.curve.values) for kind in kinds):
        return _merge(kinds)
    lengths = [len(kind.curve.values) for kind in kinds for _ in kind.modules]
    width = sum(lengths)
    if width * sum(lengths) <= CONVOLUTION_OPERATIONS and width * len(lengths) <= CONVOLUTION_MEMORY:
        return _convolve(kinds)
    if not can_merge:
        raise UnsupportedError(
            "Mixed replicas over zones cannot be planned for so many modules.",
            remedy="Plan with equal replicas, or without zones, or fewer modules at a time.",
        )
    return _merge(kinds)


def _finite(values: FloatArray) -> IntArray:
    return np.flatnonzero(np.isfinite(values))


def _is_concave(curve: Curve, values: FloatArray) -> bool:
    finite = _finite(values)
    return curve.concave or (len(finite) == finite[-1] - finite[0] + 1 and is_concave(values[finite]))


def _vertices(curve: Curve, values: FloatArray) -> IntArray:
    finite = _finite(values)
    if _is_concave(curve, values):
        return finite
    return finite[hull_vertices(finite.astype(np.float64), values[finite])]


def _merge(kinds: Sequence[ModuleKind]) -> Merged:
    vertices = [_vertices(kind.curve, kind.curve.values) for kind in kinds]
    sizes = np.array([len(kind.modules) for kind in kinds])
    slopes = [_slopes(kind.curve.values, points) for kind, points in zip(kinds, vertices, strict=True)]
    kind_of = np.repeat(np.arange(len(kinds)), [len(slope) for slope in slopes])
    order = np.argsort(-np.concatenate([np.zeros(0), *slopes]), kind="stable")
    repeats = sizes[kind_of[order]]
    taken = np.repeat(order, repeats)

    def along(rows: Sequence[FloatArray]) -> FloatArray:
        start = sum(row[points[0]] * size for row, points, size in zip(rows, vertices, sizes, strict=True))
        gains = np.concatenate([np.diff(row[points]) for row, points in zip(rows, vertices, strict=True)])
        return np.concatenate(([start], start + np.cumsum(gains[taken])))

    costs = along([np.arange(len(kind.curve.values), dtype=np.float64) for kind in kinds]).astype(np.int64)
    values = np.full(costs[-1] + 1, -np.inf)
    values[costs] = along([kind.curve.values for kind in kinds])
    companions = np.full((len(kinds[0].curve.companions), costs[-1] + 1), -np.inf)
    for number, row in enumerate(companions):
        row[costs] = along([kind.curve.companions[number] for kind in kinds])
    is_exact = all(
        kind.curve.bounds is kind.curve.values and _is_concave(kind.curve, kind.curve.values)
        for kind in kinds
    )
    bounds = values if is_exact else _envelope_total(kinds, len(values))
    return Merged(values, bounds, companions, kinds, vertices, kind_of[order], repeats, costs)


def _slopes(values: FloatArray, vertices: IntArray) -> FloatArray:
    # rounding must not let a later gain of a module overtake an earlier one
    return np.minimum.accumulate(np.diff(values[vertices]) / np.diff(vertices))


def _envelope_total(kinds: Sequence[ModuleKind], width: int) -> FloatArray:
    start_cost, start_value = 0, 0.0
    steps: list[tuple[FloatArray, FloatArray]] = []
    for kind in kinds:
        vertices = _vertices(kind.curve, kind.curve.bounds)
        start_cost += int(vertices[0]) * len(kind.modules)
        start_value += float(kind.curve.bounds[vertices[0]]) * len(kind.modules)
        widths = np.tile(np.diff(vertices), len(kind.modules)).astype(np.float64)
        gains = np.tile(np.diff(kind.curve.bounds[vertices]), len(kind.modules))
        steps.append((widths, gains))
    widths = np.concatenate([step[0] for step in steps])
    gains = np.concatenate([step[1] for step in steps])
    order = np.argsort(-gains / widths, kind="stable")
    costs = start_cost + np.concatenate(([0.0], np.cumsum(widths[order])))
    totals = start_value + np.concatenate(([0.0], np.cumsum(gains[order])))
    axis = np.arange(width)
    return np.where(axis < start_cost, -np.inf, np.interp(axis, costs, totals))


def _convolve(kinds: Sequence[ModuleKind]) -> Convolved:
    companions = np.zeros((len(kinds[0].curve.companions), 1))
    values, picks, modules = np.zeros(1), list[NDArray[np.int32]](), list[int]()
    for kind in kinds:
        for module in kind.modules:
            values, pick = _convolve_one(values, kind.curve.values)
            before = np.arange(len(values)) - pick
            known = np.where(before < companions.shape[1], before, 0)
            companions = companions[:, known] + kind.curve.companions[:, pick]
            picks.append(pick)
            modules.append(int(module))
    bounds = values
    if any(kind.curve.bounds is not kind.curve.values for kind in kinds):
        bounds = np.zeros(1)
        for kind in kinds:
            for _ in kind.modules:
                bounds, _ = _convolve_one(bounds, kind.curve.bounds)
    return Convolved(values, bounds, companions, np.array(modules), picks)


def _convolve_one(total: FloatArray, curve: FloatArray) -> tuple[FloatArray, NDArray[np.int32]]:
    best = np.full(len(total) + len(curve) - 1, -np.inf)
    pick = np.zeros(len(best), dtype=np.int32)
    for cost in _finite(curve):
        reached = total + curve[cost]
        window = slice(cost, cost + len(total))
        better = reached > best[window]
        best[window][better] = reached[better]
        pick[window][better] = cost
    return best, pick


# --- the platform --------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Frontier:
    """For each cost (the index): ln availability reached, and a bound that no plan of that cost exceeds."""

    model: Model
    reached: FloatArray
    bound: FloatArray
    _totals: Sequence[Merged | Convolved] = field(repr=False)
    _winner: IntArray = field(repr=False)
    _kinds: Sequence[Sequence[ModuleKind]] = field(repr=False)

    def services(self, cost: int) -> tuple[Service, ...]:
        """Return the services of the best plan of exactly this cost, in the order of the modules."""
        winner = int(self._winner[cost])
        spent = self._totals[winner].allocation(cost)
        curve_of = {int(module): kind.curve for kind in self._kinds[winner] for module in kind.modules}
        services = list[Service]()
        for number, module in enumerate(self.model.modules):
            by_weight = np.argsort(_weights(module), kind="stable")
            for group in curve_of[number].partition(int(spent[number])):
                members = np.sort(by_weight[list(group.members)])
                names = tuple(module.submodules[member].name for member in members)
                services.append(Service(module.name, names, group.replicas))
        return tuple(services)

    def cheapest(self, log_target: float) -> int | None:
        """Return the least cost at which the target is reached."""
        return _first(reaches(self.reached, log_target))

    def cheapest_possible(self, log_target: float) -> int | None:
        """Return a cost below which no plan can reach the target; none where no plan can at all."""
        return _first(reaches(self.bound, log_target))


def reaches(log_availability: FloatArray, log_target: float) -> NDArray[np.bool_]:
    """Whether a target is met; what rounding alone denies is granted."""
    return -np.expm1(log_availability) <= -np.expm1(log_target) * (1 + 1e-10)


def find_frontier(model: Model, choices: Sequence[Choice]) -> Frontier:
    """Return the frontier of a platform whose services have one of these numbers of replicas."""
    return _frontier(model, [_weights(module) for module in model.modules], choices)


def least_services_across_modules(model: Model, log_target: float) -> int | None:
    """Return how many services no plan could do without even if any sub-modules might share one.

    A bound, not a plan: it gives up the cohesion of modules.
    """
    everything = np.concatenate([_weights(module) for module in model.modules])
    if np.ptp(everything) == 0 or len(everything) <= SEARCHED_ACROSS_MODULES:
        return _frontier(model, [everything], (Choice(model.replicas, 1),)).cheapest_possible(log_target)
    states = scenarios(model, [model.replicas])
    is_concave = is_provably_concave(model.assumptions)
    bounds = [
        state.log_weight
        + plain_bounds(everything, model.replicas, Objective(_value_in(state, model), (), is_concave))
        for state in states
    ]
    return _first(reaches(_log_sum(np.array(bounds)), log_target))


def _frontier(model: Model, weights: Sequence[FloatArray], choices: Sequence[Choice]) -> Frontier:
    states = scenarios(model, [choice.replicas for choice in choices])
    values = [_value_in(state, model) for state in states]
    is_concave = is_provably_concave(model.assumptions)
    objectives = [Objective(value, tuple(values), is_concave) for value in values]
    if len(states) > 1 and len(choices) > 1:
        objectives.append(Objective(_average(states, values), tuple(values), concave=False))
    kinds = [_kinds_of(weights, choices, objective) for objective in objectives]
    totals = [add_up(each) for each in kinds]
    log_weights = np.array([state.log_weight for state in states])[:, None]
    reached = np.array([_log_sum(total.companions + log_weights) for total in totals])
    bounds = np.array([total.bounds for total in totals[: len(states)]])
    winner = reached.argmax(axis=0)
    best = reached[winner, np.arange(reached.shape[1])]
    return Frontier(model, best, np.maximum(_log_sum(bounds + log_weights), best), totals, winner, kinds)


def _value_in(state: Scenario, model: Model) -> GroupValue:
    def value(weights: FloatArray, replicas: int) -> FloatArray:
        return log_availability(weights, state.live(replicas), model.assumptions)

    return value


def _average(states: Sequence[Scenario], values: Sequence[GroupValue]) -> GroupValue:
    """Return a service's availability averaged over the states of the zones.

    Services stand and fall together with zones, so the product of averages is below the true average of
    the product: a plan found by it is only better than it looks.
    """

    def value(weights: FloatArray, replicas: int) -> FloatArray:
        terms = [
            state.log_weight + of_state(weights, replicas)
            for state, of_state in zip(states, values, strict=True)
        ]
        return _log_sum(np.array(terms))

    return value


def _log_sum(rows: FloatArray) -> FloatArray:
    if len(rows) == 1:
        return rows[0]
    with np.errstate(divide="ignore"):
        return np.log(np.exp(rows).sum(axis=0))


def _kinds_of(
    weights: Sequence[FloatArray], choices: Sequence[Choice], objective: Objective
) -> list[ModuleKind]:
    alike: dict[bytes, list[int]] = {}
    for number, of_module in enumerate(weights):
        alike.setdefault(np.sort(of_module).tobytes(), []).append(number)
    return [
        ModuleKind(module_curve(np.frombuffer(sorted_weights), choices, objective), np.array(numbers))
        for sorted_weights, numbers in alike.items()
    ]


def _weights(module: Module) -> FloatArray:
    return -np.log([submodule.availability for submodule in module.submodules])


def _first(found: NDArray[np.bool_]) -> int | None:
    positions = np.flatnonzero(found)
    return int(positions[0]) if len(positions) else None
