"""What single nodes say to a demand, worked out again from a snapshot whenever somebody asks."""

from yunhe.kernel.errors import FieldProblem, NotFoundError
from yunhe.kernel.ids import NodeId
from yunhe.kernel.validation import nearest
from yunhe.scheduling.decision.cycle import Cycle
from yunhe.scheduling.decision.filter.explain import count_refusals, why_not
from yunhe.scheduling.decision.model import Demand, NodeAnswers
from yunhe.scheduling.perception.snapshot import Snapshot


def answers_of_nodes(demand: Demand, snapshot: Snapshot, node: str = "") -> NodeAnswers:
    """Return how many nodes refuse *demand*, by pool and rule, and what *node* says, by its name or pool/name."""
    cycle = Cycle(snapshot)
    found = _find(snapshot, node) if node else None
    return NodeAnswers(
        snapshot_version=snapshot.version,
        taken_at=snapshot.taken_at,
        refused=count_refusals(demand, cycle),
        node="" if found is None else _names(snapshot)[found],
        refusal=None if found is None else why_not(demand, cycle, found),
    )


def _names(snapshot: Snapshot) -> dict[NodeId, str]:
    """Return every node's name as people write it; what its pool hides has none."""
    return {
        node_id: f"{snapshot.pools[int(pool)].name}/{node_id.rpartition('/')[2]}"
        for node_id, pool in zip(snapshot.node_ids, snapshot.node_pool, strict=True)
        if node_id
    }


def _find(snapshot: Snapshot, wanted: str) -> NodeId:
    names = _names(snapshot)
    found = [node for node, name in names.items() if wanted in {node, name, name.partition("/")[2]}]
    if len(found) == 1:
        return found[0]
    problem = (
        "is the name of several nodes"
        if found
        else "is no node that takes work now: it is not known, not ready or cordoned"
    )
    meant = nearest(wanted, [*names.values(), *(name.partition("/")[2] for name in names.values())])
    raise NotFoundError(
        f"{wanted!r} {problem}.",
        remedy=f"Write POOL/NODE; see yunhe pool tree.{f' Did you mean {meant}?' if meant and not found else ''}",
        fields=(FieldProblem("node", problem, wanted, did_you_mean=meant),),
    )
