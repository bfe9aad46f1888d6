"""What a snapshot shows as free is free; nothing is promised twice."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from support.worlds import NOW, cores, demand, node, pool, world
from yunhe.kernel.errors import InvalidInputError
from yunhe.kernel.ids import JobId, NodeId, PoolId
from yunhe.kernel.resources import Accelerators, Resources
from yunhe.scheduling.decision.decide import decide
from yunhe.scheduling.decision.model import Placed, Waiting
from yunhe.scheduling.perception.model import Device, FreeSize, Reservation
from yunhe.scheduling.perception.snapshot import Snapshot, check_snapshot

COLUMNS = (
    "node_pool",
    "pool_start",
    "cpu_total_millis",
    "cpu_free_millis",
    "memory_total_mib",
    "memory_free_mib",
    "disk_free_mib",
    "device_start",
    "device_free_milli",
    "device_memory_free_mib",
)


def test_a_reservation_holds_until_it_expires_and_not_longer() -> None:
    def here(expires_at: float) -> Snapshot:
        promised = Reservation(
            job_id=JobId("job_0"),
            pool_id=PoolId("a"),
            node_id=NodeId("n"),
            resources=cores(3),
            expires_at=expires_at,
        )
        return world([pool("a")], [node("n", "a", cores(4, 4))], reservations=[promised])

    assert isinstance(decide(demand(cores(2)), here(NOW + 30)), Waiting)
    assert isinstance(decide(demand(cores(2)), here(NOW)), Placed)


def test_a_reservation_in_a_pool_that_hides_its_nodes_takes_one_of_their_sizes() -> None:
    promised = Reservation(
        job_id=JobId("job_0"),
        pool_id=PoolId("a"),
        node_id=NodeId(""),
        resources=cores(3),
        expires_at=NOW + 30,
    )
    hidden = pool("a", shapes=(FreeSize(cores(4, 4), 1), FreeSize(cores(8, 4), 1)))
    here = world([hidden], [], reservations=[promised])
    assert sorted(here.cpu_free_millis.tolist()) == [1000, 8000]


def test_a_pool_that_hides_its_nodes_is_judged_by_its_sizes_and_not_by_their_sum() -> None:
    crumbs = world([pool("a", shapes=(FreeSize(cores(1), 2000),))], [])
    decision = decide(demand(cores(2)), crumbs)
    assert isinstance(decision, Waiting)
    assert decision.rejected[0].detail == "2 cores asked, 1 free"
    whole = decide(
        demand(cores(2)), world([pool("a", shapes=(FreeSize(cores(1), 5), FreeSize(cores(2), 1)))], [])
    )
    assert isinstance(whole, Placed)
    assert whole.assignments[0].node_id == ""


def test_a_taken_share_comes_off_the_devices_that_were_named() -> None:
    shared = node(
        "n",
        "a",
        Resources(8000, 8192, 0, (Accelerators("a100", 1800),)),
        total=Resources(8000, 8192, 0, (Accelerators("a100", 2000),)),
        devices=(Device("a100", 800), Device("a100", 1000)),
    )
    here = world([pool("a")], [shared])
    half = Resources(accelerators=(Accelerators("a100", 500),))
    assert here.after(0, half, (1,)).device_free_milli.tolist() == [800, 500]
    assert here.after(0, half).device_free_milli.tolist() == [300, 1000]
    assert here.device_free_milli.tolist() == [800, 1000]


def test_nodes_of_a_pool_nobody_knows_are_refused() -> None:
    with pytest.raises(InvalidInputError, match="not in the snapshot"):
        world([pool("a")], [node("n", "b", cores(1))])


def test_a_thing_that_is_no_snapshot_is_refused() -> None:
    with pytest.raises(InvalidInputError):
        check_snapshot({"pools": []})
    here = world([pool("a")], [node("n", "a", cores(1))])
    for name in COLUMNS:
        wrong: dict[str, Any] = {name: np.zeros(99)}
        with pytest.raises(InvalidInputError, match=name):
            check_snapshot(replace(here, **wrong))
