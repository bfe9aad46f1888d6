"""What makes a plan worthless however cheap it is, counted apart from what made the plan."""

from collections.abc import Sequence

from lab.joint_placement.exact import Optimum
from yunhe.scheduling.decision.joint import WAITING_COSTS
from yunhe.scheduling.decision.model import Decision, Placed, Waiting
from yunhe.scheduling.perception.snapshot import Snapshot

TOLERANCE = 1e-6


def over_capacity(decisions: Sequence[Decision], here: Snapshot) -> list[str]:
    """Return the nodes and links that carry more than they have."""
    cpu, memory, disk = (
        here.cpu_free_millis.copy(),
        here.memory_free_mib.copy(),
        here.disk_free_mib.copy(),
    )
    mbps = here.network.free_mbps.copy()
    for decision in decisions:
        if isinstance(decision, Placed):
            for assignment in decision.assignments:
                row = here.row_of_node[assignment.node_id]
                cpu[row] -= assignment.resources.cpu_millis
                memory[row] -= assignment.resources.memory_mib
                disk[row] -= assignment.resources.disk_mib
            for transfer in decision.transfers:
                mbps[list(transfer.links)] -= transfer.rate_mbps or 0.0
            for route in decision.routes:
                mbps[list(route.links)] -= route.mbps
    broken = [here.node_ids[row] for row in range(len(cpu)) if min(cpu[row], memory[row], disk[row]) < 0]
    return broken + [f"link {link}" for link, left in enumerate(mbps.tolist()) if left < -TOLERANCE]


def placed_cost(decisions: Sequence[Decision]) -> float:
    """Return what those come to that are placed."""
    return sum(one.score for one in decisions if isinstance(one, Placed))


def faults(decisions: Sequence[Decision], here: Snapshot, optimum: Optimum) -> list[str]:
    """Say what is wrong with a plan: no plan may take more than there is or be better than the best."""
    found = [f"over capacity: {name}" for name in over_capacity(decisions, here)]
    if not optimum.proven:
        found.append("the optimum is not proven")
    waiting = sum(isinstance(one, Waiting) for one in decisions)
    best = optimum.cost - WAITING_COSTS * optimum.waiting
    cost = placed_cost(decisions)
    if waiting < optimum.waiting or (
        waiting == optimum.waiting and cost < best - TOLERANCE * max(1.0, abs(best))
    ):
        found.append(f"better than the optimum: {cost:.6f} with {waiting} waiting, {best:.6f} proven")
    return found
