"""Several tasks planned together: the joint search, every way where there are few, and what that saves.

The joint plan is never worse than one task after another in the order given, nor than all tasks in one pool.
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from yunhe.kernel.errors import FieldProblem, InvalidInputError
from yunhe.scheduling.decision.cycle import Cycle, Fit, GangMember, HeldResources, Placement
from yunhe.scheduling.decision.decide import decide_in, short_decision
from yunhe.scheduling.decision.demands import check_demand
from yunhe.scheduling.decision.joint import (
    NOTHING_GAINED,
    WAITING_COSTS,
    JointSearch,
    Plan,
    best_plan,
    cost_of,
)
from yunhe.scheduling.decision.model import Decision, Demand, Placed, Waiting
from yunhe.scheduling.decision.nodes import kernels
from yunhe.scheduling.decision.options import NO_DEVICES, amount_of
from yunhe.scheduling.decision.plans import JointPlan
from yunhe.scheduling.perception.snapshot import Snapshot, check_snapshot

MOST_TASKS = 50
MOST_STEPS = 4_000
"""So many partial placements are looked at in the search through every way; beyond, the best so far stands."""
SINGLE_POOLS = 200
"""In so many pools it is tried whether one alone takes all."""


def plan_together(demands: Sequence[Demand], snapshot: Snapshot) -> JointPlan:
    """Return where *demands* would go together, and what that saves; those that wait say why."""
    _check(demands)
    cycle = Cycle(check_snapshot(snapshot))
    search = JointSearch(demands, cycle)
    given = list(range(len(demands)))
    in_turn = search.greedy(given)
    singles = _single_pools(demands, cycle)
    plans = [best_plan(demands, search), in_turn, *singles.values()]
    best, exact = _through_every_way(demands, cycle, min(plans, key=lambda plan: plan.cost))
    decisions = _explained(demands, cycle, search, best)
    return JointPlan(
        decisions=decisions,
        cost=_placed_cost(best.decisions),
        waiting=_waiting(best.decisions),
        one_after_another=_placed_cost(in_turn.decisions),
        waiting_one_after_another=_waiting(in_turn.decisions),
        single_pools={snapshot.pools[pool].name: plan.cost for pool, plan in singles.items()},
        exact=exact,
        snapshot_version=snapshot.version,
    )


def _check(demands: Sequence[Demand]) -> None:
    """Refuse what cannot be added up: nothing, too much, or scores in different units."""
    policies = list(dict.fromkeys(demand.policy for demand in demands))
    if len(policies) > 1:
        raise InvalidInputError(
            f"The tasks follow different policies ({', '.join(policies)}), whose scores cannot be added up.",
            remedy=f"Plan them under one: add --policy {policies[0]}, or set policy in each file.",
            fields=(FieldProblem("policy", "differs between the tasks", ", ".join(policies)),),
        )
    if not 1 <= len(demands) <= MOST_TASKS:
        raise InvalidInputError(
            f"1 to {MOST_TASKS} tasks can be planned together, and these are {len(demands)}.",
            remedy="Plan them in groups.",
            fields=(FieldProblem("submissions", f"must be 1 to {MOST_TASKS}", str(len(demands))),),
        )


def _placed_cost(decisions: Sequence[Decision]) -> float:
    return sum(one.score for one in decisions if isinstance(one, Placed))


def _waiting(decisions: Sequence[Decision]) -> int:
    return sum(isinstance(one, Waiting) for one in decisions)


def _explained(
    demands: Sequence[Demand], cycle: Cycle, search: JointSearch, plan: Plan
) -> tuple[Decision, ...]:
    """Return the plan's decisions, those that wait with every pool's reason beside what the others take."""
    search.put_back(plan)
    decisions = tuple(
        decide_in(demand, cycle) if isinstance(decision, Waiting) else decision
        for demand, decision in zip(demands, plan.decisions, strict=True)
    )
    for demand in demands:
        if cycle.holds(demand.job_id):
            cycle.release(demand.job_id)
    return decisions


def _single_pools(demands: Sequence[Demand], cycle: Cycle) -> dict[int, Plan]:
    """Return pool → the plan that puts all of *demands* there, for each that has the room."""
    largest_first = sorted(demands, key=lambda one: -one.alternatives[0].resources.cpu_millis)
    found: dict[int, Plan] = {}
    for pool in range(min(len(cycle.snapshot.pools), SINGLE_POOLS)):
        placed: dict[str, tuple[Decision, HeldResources]] = {}
        for demand in largest_first:
            fit = _fit_in(demand, cycle, pool)
            if fit is None:
                break
            placed[demand.job_id] = _taken(demand, cycle, fit)
        if len(placed) == len(demands):
            decisions = tuple(placed[demand.job_id][0] for demand in demands)
            held = tuple(placed[demand.job_id][1] for demand in demands)
            found[pool] = Plan(decisions, cost_of(decisions), held)
        for demand in demands:
            if demand.job_id in placed:
                cycle.release(demand.job_id)
    return found


def _fit_in(demand: Demand, cycle: Cycle, pool: int) -> Fit | None:
    """Return the best way in which one pool takes *demand*."""
    fits: list[Fit] = []
    for index in range(len(demand.alternatives)):
        option = cycle.appraiser.option(demand, index)
        fit = None if option.order[pool] == np.inf else cycle.fit_in(demand, index, option, pool)
        if fit is not None:
            if demand.ordered:
                return fit
            fits.append(fit)
    return min(fits, key=lambda fit: fit.score, default=None)


def _taken(demand: Demand, cycle: Cycle, fit: Fit) -> tuple[Decision, HeldResources]:
    """Reserve what a fit takes; return the decision and what it holds."""
    given = cycle.given(demand, fit)
    amounts = zip(fit.members, map(amount_of, given), strict=True)
    held = HeldResources(tuple(amounts), cycle.shown(demand, fit).moves.links, demand.groups)
    cycle.hold(demand.job_id, held)
    return short_decision(demand, cycle, Placement(fit, given)), held


def _through_every_way(demands: Sequence[Demand], cycle: Cycle, best: Plan) -> tuple[Plan, bool]:
    """Return a plan at least as good as *best*, and whether it is known that none is better."""
    if not all(_stands_alone(demand) for demand in demands):
        return best, False
    walk = _Walk([check_demand(demand) for demand in demands], cycle, best.cost)
    found = walk.run()
    if found is None:
        return best, walk.complete
    placed: dict[int, tuple[Decision, HeldResources]] = {
        index: _taken(demands[index], cycle, fit) for index, fit in found.items()
    }
    decisions = tuple(
        placed[index][0] if index in placed else short_decision(demand, cycle, None)
        for index, demand in enumerate(demands)
    )
    held = tuple(placed[index][1] if index in placed else None for index in range(len(demands)))
    for index in placed:
        cycle.release(demands[index].job_id)
    return Plan(decisions, cost_of(decisions), held), walk.complete


def _stands_alone(demand: Demand) -> bool:
    """Return whether what a demand costs in a pool does not depend on where the others go."""
    return not (
        demand.members > 1
        or demand.ordered
        or demand.affinity
        or demand.data
        or demand.traffic
        or demand.spread
        or any(one.up_to for one in demand.alternatives)
    )


class _Choice(NamedTuple):
    """One demand on one node."""

    score: float
    fit: Fit
    amount: kernels.IntArray


class _Walk:
    """Branch and bound: demands in the order of how much is at stake, nodes in the order of their scores."""

    def __init__(self, demands: Sequence[Demand], cycle: Cycle, bound: float) -> None:
        self._demands, self._cycle, self._bound = demands, cycle, bound - NOTHING_GAINED
        most = int(np.diff(cycle.snapshot.device_start).max(initial=0))
        self._chosen = np.zeros((max(1, most), 3), dtype=np.int64)
        self._choices = [self._choices_of(demand) for demand in demands]
        at_stake = [-(one[-1].score - one[0].score) if one else 0.0 for one in self._choices]
        self._order = sorted(range(len(demands)), key=lambda index: at_stake[index])
        least = [
            self._choices[index][0].score if self._choices[index] else WAITING_COSTS for index in self._order
        ]
        self._rest = [*np.cumsum(least[::-1])[::-1].tolist(), 0.0]
        """What the demands from here on cost at least."""
        self._steps = 0
        self._taken: dict[int, Fit] = {}
        self._found: dict[int, Fit] | None = None

    @property
    def complete(self) -> bool:
        """Whether every way was looked at."""
        return self._steps < MOST_STEPS

    def run(self) -> dict[int, Fit] | None:
        """Return demand → fit for a plan that costs less than the bound; None: none was found."""
        self._descend(0, 0.0)
        return self._found

    def _choices_of(self, demand: Demand) -> list[_Choice]:
        choices: list[_Choice] = []
        for index, alternative in enumerate(demand.alternatives):
            option, amount = self._cycle.appraiser.option(demand, index), amount_of(alternative.resources)
            for row, pool in enumerate(self._cycle.snapshot.node_pool.tolist()):
                if option.order[pool] < np.inf and kernels.fits(
                    self._cycle.room, row, option.ask, self._chosen
                ):
                    fit = Fit(index, option, pool, (GangMember(pool, row, NO_DEVICES),))
                    choices.append(_Choice(fit.score, fit, amount))
        return sorted(choices, key=lambda choice: choice.score)

    def _descend(self, depth: int, cost: float) -> None:
        if cost + self._rest[depth] >= self._bound or self._steps >= MOST_STEPS:
            return
        if depth == len(self._order):
            self._bound, self._found = cost - NOTHING_GAINED, dict(self._taken)
            return
        index = self._order[depth]
        for choice in self._distinct(self._choices[index]):
            self._steps += 1
            self._try(index, choice, depth, cost)
        self._descend(depth + 1, cost + WAITING_COSTS)

    def _try(self, index: int, choice: _Choice, depth: int, cost: float) -> None:
        demand, room = self._demands[index], self._cycle.room
        member = choice.fit.members[0]
        if choice.fit.option.ask.accelerators.shape[0]:
            used = kernels.choose_devices(room, member.row, choice.fit.option.ask, self._chosen)
            member = member._replace(devices=self._chosen[:used].copy())
        self._cycle.hold(demand.job_id, HeldResources(((member, choice.amount),), (), ()))
        self._taken[index] = choice.fit._replace(members=(member,))
        self._descend(depth + 1, cost + choice.score)
        del self._taken[index]
        self._cycle.release(demand.job_id)

    def _distinct(self, choices: Sequence[_Choice]) -> Iterator[_Choice]:
        """Yield the choices that fit now; of nodes that are alike in all, one."""
        room, snapshot, seen = self._cycle.room, self._cycle.snapshot, set[object]()
        for choice in choices:
            row, option = choice.fit.members[0].row, choice.fit.option
            if not kernels.fits(room, row, option.ask, self._chosen):
                continue
            first, last = int(snapshot.device_start[row]), int(snapshot.device_start[row + 1])
            alike = (
                choice.fit.alternative,
                choice.fit.pool,
                int(snapshot.node_class[row]),
                room.free[row].tobytes(),
                snapshot.device_kind[first:last].tobytes(),
                room.device_free[first:last].tobytes(),
                room.device_memory[first:last].tobytes(),
            )
            if alike not in seen:
                seen.add(alike)
                yield choice
