"""An alternative goes only where it says itself, whatever the others may do."""

from typing import Any

import pytest

from support.worlds import cores, demand, node, pool, prices, world
from yunhe.kernel.ids import NodeId
from yunhe.kernel.places import Place
from yunhe.kernel.resources import Accelerators
from yunhe.scheduling.decision.cycle import Cycle
from yunhe.scheduling.decision.decide import decide
from yunhe.scheduling.decision.filter.explain import why_not
from yunhe.scheduling.decision.model import Alternative, Placed, Waiting

GPU = Accelerators("A100", 1000)
WORLD = world(
    [
        pool("east", kind="vm", labels={"cloud": "aws"}, place=Place("us-east-1"), prices=prices(2.0)),
        pool("west", kind="vm", labels={"cloud": "aws"}, place=Place("us-west-2"), prices=prices(1.0)),
        pool("lab", kind="kubernetes", prices=prices(3.0)),
        pool("desk", kind="local", prices=prices(4.0)),
    ],
    [
        node("east/1", "east", cores(4, 4), labels={"zone": "a"}),
        node("west/1", "west", cores(4, 4, GPU), taints=("spot",)),
        node("lab/1", "lab", cores(4, 4), labels={"node.kubernetes.io/instance-type": "g5"}),
        node("desk/1", "desk", cores(4, 4)),
    ],
)


def goes(*alternatives: Alternative) -> str:
    decision = decide(demand(alternatives=alternatives), WORLD)
    return decision.assignments[0].node_id if isinstance(decision, Placed) else "waits"


@pytest.mark.parametrize(
    ("infra", "where", "place"),
    [
        ("", (), "east/1"),
        ("aws", (), "east/1"),
        ("AWS/us-east-1", (), "east/1"),
        ("aws/us-*", (), "east/1"),
        ("aws/eu-west-1", (), "waits"),
        ("*/us-east-1", ("zone=a",), "east/1"),
        ("*/us-east-1", ("zone=b",), "waits"),
        ("kubernetes", (), "lab/1"),
        ("kubernetes/lab", ("instance_type=g5",), "lab/1"),
        ("kubernetes/other", (), "waits"),
        ("ssh", (), "desk/1"),
        ("gcp", (), "waits"),
    ],
)
def test_an_alternative_goes_where_its_infra_and_labels_say(
    infra: str, where: tuple[str, ...], place: str
) -> None:
    assert goes(Alternative(cores(1), infra=infra, where=where)) == place


def test_only_the_alternative_that_says_so_uses_capacity_that_can_be_taken_back() -> None:
    spot: dict[str, Any] = {"interruptible": True, "tolerations": ("spot",)}
    assert goes(Alternative(cores(1), infra="aws/us-west-2")) == "waits"
    assert goes(Alternative(cores(1), infra="aws/us-west-2", **spot)) == "west/1"
    assert goes(Alternative(cores(1), infra="kubernetes"), Alternative(cores(1), **spot)) == "west/1"
    lab, west = (
        Alternative(cores(1), infra="kubernetes", **spot),
        Alternative(cores(1), infra="aws/us-west-2"),
    )
    assert goes(lab, west) == "lab/1"


def test_who_waits_is_told_what_to_allow() -> None:
    decision = decide(demand(alternatives=(Alternative(cores(1), infra="gcp", where=("zone=c",)),)), WORLD)
    assert isinstance(decision, Waiting)
    details = {refusal.pool_name: refusal.detail for refusal in decision.rejected}
    assert details["east"] == "is aws in us-east-1, only gcp asked for (infra)"
    assert details["desk"] == "is local, only gcp asked for (infra)"
    assert decision.smallest_change.startswith("allow any infra")
    assert "do without zone=c" in decision.smallest_change
    labelled = demand(alternatives=(Alternative(cores(1), infra="aws/us-east-1", where=("zone=c",)),))
    refusal = why_not(labelled, Cycle(WORLD), NodeId("east/1"))
    assert refusal is not None
    assert refusal.detail.endswith("zone=c asked for")
