"""Tasks planned together against every possible assignment, one after another, and every pool alone."""

from itertools import product
from random import Random

import pytest
from hypothesis import given, settings
from lab.joint_placement.exact import plan_exactly

from support.worlds import SEEDS, cores, demand, node, pool, prices, world
from yunhe.kernel.errors import InvalidInputError
from yunhe.kernel.resources import Resources
from yunhe.scheduling.decision.model import Demand, Placed, Policy, Waiting
from yunhe.scheduling.decision.plans import JointPlan
from yunhe.scheduling.decision.together import plan_together
from yunhe.scheduling.perception.snapshot import Snapshot


def market(rng: Random, tasks: int) -> tuple[list[Demand], Snapshot, dict[str, float]]:
    """Tasks that compete for the cheap nodes, and what a core costs in each pool."""
    price = {
        name: round(rng.choice((0.05, 0.1, 0.2, 0.4)) + rng.random() / 100, 6) for name in ("p", "q", "r")
    }
    here = world(
        [pool(name, prices=prices(price[name])) for name in price],
        [
            node(f"{name}-{n}", name, cores(rng.choice((2, 3, 4, 6)), rng.choice((4, 8))))
            for name in price
            for n in range(rng.randint(1, 2))
        ],
    )
    wanted = [
        demand(cores(rng.choice((1, 2, 3)), rng.choice((1, 2, 4))), job=f"job_{i}", policy=Policy.CHEAPEST)
        for i in range(tasks)
    ]
    return wanted, here, price


def cheapest_of_all(wanted: list[Demand], here: Snapshot, price: dict[str, float]) -> tuple[int, float]:
    """Fewest waiting, then least cost, over every assignment of tasks to nodes."""
    best = (len(wanted), 0.0)
    sizes = [one.alternatives[0].resources for one in wanted]
    for places in product(range(-1, len(here.node_ids)), repeat=len(wanted)):
        used = [Resources(0, 0, 0) for _ in here.node_ids]
        cost = 0.0
        for place, size in zip(places, sizes, strict=True):
            if place >= 0:
                used[place] = used[place].plus(size)
                cost += size.cpu_millis / 1000 * price[here.pools[int(here.node_pool[place])].name]
        fits = all(
            amount.cpu_millis <= here.cpu_free_millis[row] and amount.memory_mib <= here.memory_free_mib[row]
            for row, amount in enumerate(used)
        )
        if fits:
            best = min(best, (places.count(-1), cost))
    return best


def within_nodes(plan: JointPlan, here: Snapshot) -> bool:
    after = here.after_all(
        (here.row_of_node[one.node_id], one.resources, ())
        for decision in plan.decisions
        if isinstance(decision, Placed)
        for one in decision.assignments
    )
    return bool((after.cpu_free_millis >= 0).all() and (after.memory_free_mib >= 0).all())


@settings(max_examples=60, deadline=None)
@given(SEEDS)
def test_the_plan_of_a_few_tasks_is_the_best_of_all_assignments(seed: int) -> None:
    rng = Random(seed)
    wanted, here, price = market(rng, rng.randint(1, 4))
    plan = plan_together(wanted, here)
    waiting, cost = cheapest_of_all(wanted, here, price)
    assert (plan.waiting, plan.cost) == (waiting, pytest.approx(cost))
    assert plan.exact
    assert within_nodes(plan, here)


@settings(max_examples=8, deadline=None)
@given(SEEDS)
def test_no_plan_is_dearer_than_one_after_another_or_than_one_pool(seed: int) -> None:
    wanted, here, _ = market(Random(seed), 9)
    plan = plan_together(wanted, here)
    assert (plan.waiting, plan.cost) <= (plan.waiting_one_after_another, plan.one_after_another + 1e-9)
    for name, alone in plan.single_pools.items():
        assert (plan.waiting, plan.cost) <= (0, alone + 1e-9), name
    assert within_nodes(plan, here)


@pytest.mark.parametrize("seed", range(8))
def test_a_dozen_tasks_come_to_the_optimum_of_the_integer_program(seed: int) -> None:
    wanted, here, _ = market(Random(seed), 8)
    plan, optimum = plan_together(wanted, here), plan_exactly(wanted, here)
    assert optimum.proven
    assert plan.waiting == optimum.waiting
    assert plan.cost == pytest.approx(optimum.cost - 1e6 * optimum.waiting)


def test_the_order_given_costs_more_than_planning_together() -> None:
    """The first task takes the cheap node, which is all that the second could have used cheaply."""
    here = world(
        [pool("cheap", prices=prices(0.1)), pool("dear", prices=prices(1.0))],
        [node("c", "cheap", cores(4, 8)), node("d", "dear", cores(8, 8))],
    )
    wanted = [
        demand(cores(1), job="small", policy=Policy.CHEAPEST),
        demand(cores(4), job="large", policy=Policy.CHEAPEST),
    ]
    plan = plan_together(wanted, here)
    assert plan.one_after_another == pytest.approx(0.1 + 4.0)
    assert plan.cost == pytest.approx(1.0 + 0.4)
    assert plan.single_pools == {"dear": pytest.approx(5.0)}


def test_what_does_not_fit_beside_the_others_names_the_nearest_miss() -> None:
    here = world([pool("p", prices=prices(0.1))], [node("n", "p", cores(4, 8))])
    plan = plan_together([demand(cores(3), job="a"), demand(cores(2), job="b")], here)
    (waits,) = [one for one in plan.decisions if isinstance(one, Waiting)]
    assert plan.waiting == 1
    assert waits.nearest_first[0].detail in {"2 cores asked, 1 free", "3 cores asked, 2 free"}


def test_scores_of_different_policies_are_not_added_up() -> None:
    here = world([pool("p")], [node("n", "p", cores(4))])
    wanted = [demand(policy=Policy.CHEAPEST), demand(job="b", policy=Policy.FASTEST)]
    with pytest.raises(InvalidInputError, match="different policies"):
        plan_together(wanted, here)
