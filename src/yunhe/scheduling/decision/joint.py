"""Several demands at once: greedy in good orders, then local search, so that one's luck is not another's loss.

A plan is judged by the sum of its scores; a demand left waiting costs more than any placement. Ways for data and traffic
are chosen with each place, on the bandwidth that the others leave.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from yunhe.scheduling.decision.compiling import compile_kernels
from yunhe.scheduling.decision.cycle import Cycle, HeldResources
from yunhe.scheduling.decision.decide import place_in
from yunhe.scheduling.decision.demands import check_demand
from yunhe.scheduling.decision.model import Decision, Demand, Placed, Waiting
from yunhe.scheduling.decision.network import kernels as route_kernels
from yunhe.scheduling.decision.nodes import kernels
from yunhe.scheduling.decision.score import kernels as score_kernels
from yunhe.scheduling.perception.snapshot import Snapshot, check_snapshot

WAITING_COSTS = 1e6
NOTHING_GAINED = 1e-9
COMPILE_FROM = 5000
"""From so many pairs of demands times nodes on, compiling takes less time than it saves."""


class Effort(NamedTuple):
    """How long to search."""

    starts: int = 8
    """Greedy passes in different orders; the best few are improved."""
    improved: int = 3
    rounds: int = 6
    """Passes of local search over one plan, while they still gain something."""
    repairs: int = 24
    """Further orders, those that found no room to the front, while somebody waits."""


DEFAULT_EFFORT = Effort()


class Plan(NamedTuple):
    """Decisions for all demands, in their order, and what they come to."""

    decisions: tuple[Decision, ...]
    cost: float
    held: tuple[HeldResources | None, ...]
    """What each placement takes."""


def plan_jointly(
    demands: Sequence[Demand], snapshot: Snapshot, *, effort: Effort = DEFAULT_EFFORT, seed: int = 0
) -> Plan:
    """Return the best plan found for *demands*; the same arguments always give the same answer."""
    return best_plan(demands, JointSearch(demands, Cycle(check_snapshot(snapshot))), effort=effort, seed=seed)


def best_plan(
    demands: Sequence[Demand], search: "JointSearch", *, effort: Effort = DEFAULT_EFFORT, seed: int = 0
) -> Plan:
    """Return the best plan that *search* finds: greedy in several orders, improved, then repaired."""
    orders = _orders(demands, effort.starts, seed)
    plans = sorted((search.greedy(order) for order in orders), key=lambda plan: plan.cost)
    best = plans[0]
    for plan in plans[: effort.improved]:
        best = min(best, search.improve(plan, effort.rounds), key=lambda one: one.cost)
    return _repaired(best, search, effort, seed)


def _repaired(best: Plan, search: "JointSearch", effort: Effort, seed: int) -> Plan:
    """Return a plan in which fewer wait, if orders with those in front find one."""
    random = np.random.default_rng(seed + 1)
    impossible: set[int] = set()
    for _ in range(effort.repairs):
        late = [i for i, one in enumerate(best.decisions) if isinstance(one, Waiting) and i not in impossible]
        if not late:
            break
        order = late + [
            index for index in random.permutation(len(best.decisions)).tolist() if index not in late
        ]
        plan = search.greedy(order)
        if isinstance(plan.decisions[order[0]], Waiting):
            impossible.add(order[0])  # it had everything to itself
            continue
        best = min(best, search.improve(plan, effort.rounds), key=lambda one: one.cost)
    return best


def greedy_plan(demands: Sequence[Demand], snapshot: Snapshot) -> Plan:
    """Return what deciding one by one, in the order given, comes to."""
    return JointSearch(demands, Cycle(check_snapshot(snapshot))).greedy(list(range(len(demands))))


def cost_of(decisions: Sequence[Decision]) -> float:
    """Return what decisions come to together."""
    return sum(one.score if isinstance(one, Placed) else WAITING_COSTS for one in decisions)


def _orders(demands: Sequence[Demand], starts: int, seed: int) -> list[list[int]]:
    """Return the order given, the largest first, the most data first, and shuffles."""
    given = list(range(len(demands)))
    size = [sum(_amounts(one)) for one in demands]
    data = [sum(need.size_mib or 0 for need in one.data) for one in demands]
    orders = [
        given,
        sorted(given, key=lambda index: -size[index]),
        sorted(given, key=lambda index: -data[index]),
        sorted(given, key=lambda index: size[index]),
    ]
    random = np.random.default_rng(seed)
    while len(orders) < starts:
        orders.append(random.permutation(len(demands)).tolist())
    return orders[:starts]


def _amounts(demand: Demand) -> tuple[float, float]:
    first = demand.alternatives[0].resources
    return first.cpu_millis / 1000, first.memory_mib / 4096


class JointSearch:
    """Plans on one cycle: whatever is tried is taken back before the next."""

    def __init__(self, demands: Sequence[Demand], cycle: Cycle) -> None:
        self._demands = [check_demand(demand) for demand in demands]
        self._cycle = cycle
        if len(demands) ** 2 * len(cycle.snapshot.node_ids) >= COMPILE_FROM:
            for module in (kernels, score_kernels, route_kernels):  # thousands of decisions are to come
                compile_kernels(module)

    def greedy(self, order: Sequence[int]) -> Plan:
        """Return the plan of deciding in *order*."""
        decisions = {index: place_in(self._demands[index], self._cycle) for index in order}
        ordered = tuple(decisions[index] for index in range(len(self._demands)))
        return Plan(ordered, cost_of(ordered), self._taken_out(range(len(self._demands))))

    def improve(self, plan: Plan, rounds: int) -> Plan:
        """Return *plan* after moves of one demand and exchanges of two, as long as they gain something."""
        self.put_back(plan)
        decisions, cost = list(plan.decisions), plan.cost
        for _ in range(rounds):
            before = cost
            for first in range(len(self._demands)):
                cost -= self._moved(decisions, (first,))
                for second in range(len(self._demands)):
                    if first != second:
                        cost -= self._moved(decisions, (first, second))
            if cost >= before - NOTHING_GAINED:
                break
        held = self._taken_out(range(len(self._demands)))
        return Plan(tuple(decisions), cost_of(decisions), held)

    def put_back(self, plan: Plan) -> None:
        """Reserve all that *plan* takes."""
        self._put_back(range(len(self._demands)), plan.held)

    def _moved(self, decisions: list[Decision], moved: tuple[int, ...]) -> float:
        """Take some demands out and decide them anew in the order of *moved*; return what that gains, and keep it."""
        held = self._taken_out(moved)
        tried = [place_in(self._demands[index], self._cycle) for index in moved]
        gain = cost_of([decisions[index] for index in moved]) - cost_of(tried)
        if gain > NOTHING_GAINED:
            for index, decision in zip(moved, tried, strict=True):
                decisions[index] = decision
            return gain
        self._taken_out(moved)
        self._put_back(moved, held)
        return 0.0

    def _taken_out(self, indices: Sequence[int]) -> tuple[HeldResources | None, ...]:
        jobs = [self._demands[index].job_id for index in indices]
        return tuple([self._cycle.release(job) if self._cycle.holds(job) else None for job in jobs])

    def _put_back(self, indices: Sequence[int], held: Sequence[HeldResources | None]) -> None:
        for index, one in zip(indices, held, strict=True):
            if one is not None:
                self._cycle.hold(self._demands[index].job_id, one)
