"""A snapshot brought up to date is the snapshot one would have built; nothing is promised twice."""

from dataclasses import replace
from random import Random
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings

from support.worlds import NOW, SEEDS, cores, demand, node, pool, random_node, random_pool, world
from yunhe.kernel.errors import ConflictError, InvalidInputError
from yunhe.kernel.ids import JobId, NodeId, PoolId
from yunhe.kernel.resources import Accelerators, Resources
from yunhe.scheduling.decision.decide import decide
from yunhe.scheduling.decision.model import Placed, Waiting
from yunhe.scheduling.perception.delta import SnapshotDelta, apply_delta
from yunhe.scheduling.perception.model import Device, FreeSize, Reservation
from yunhe.scheduling.perception.snapshot import Snapshot, build_snapshot, check_snapshot

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


def content(snapshot: Snapshot) -> dict[str, object]:
    """What a snapshot says of each node by name, whatever the order of nodes in a pool."""
    return {
        node_id: (
            snapshot.pools[int(snapshot.node_pool[row])].name,
            snapshot.classes[int(snapshot.node_class[row])],
            int(snapshot.cpu_free_millis[row]),
            int(snapshot.memory_free_mib[row]),
            [
                (
                    snapshot.device_kinds[int(snapshot.device_kind[d])],
                    int(snapshot.device_free_milli[d]),
                    int(snapshot.device_memory_free_mib[d]),
                )
                for d in range(int(snapshot.device_start[row]), int(snapshot.device_start[row + 1]))
            ],
            sorted(group for group, rows in snapshot.groups.items() if row in rows.tolist()),
        )
        for row, node_id in enumerate(snapshot.node_ids)
    }


@settings(max_examples=60, deadline=None)
@given(SEEDS)
def test_a_delta_brings_an_old_snapshot_to_what_a_new_one_would_be(seed: int) -> None:
    rng = Random(seed)
    names = ["a", "b", "c"]
    pools = {name: random_pool(rng, name) for name in names}
    nodes = {f"{p}-{i}": random_node(rng, f"{p}-{i}", p) for p in names for i in range(rng.randrange(4))}
    old = build_snapshot(list(pools.values()), list(nodes.values()), version=1, taken_at=NOW)

    gone_pool = rng.choice([None, *names])
    changed = {
        name: random_node(rng, name, facts.pool_id) for name, facts in nodes.items() if rng.random() < 0.4
    }
    added = {"new": random_node(rng, "new", "d")} if rng.random() < 0.5 else {}
    gone = [name for name in nodes if rng.random() < 0.2 and name not in changed]
    changed = {name: facts for name, facts in changed.items() if facts.pool_id != gone_pool}
    extra = [random_pool(rng, "d")] if added else []
    delta = SnapshotDelta(
        base_version=1,
        version=2,
        taken_at=NOW + 1,
        pools=tuple(extra),
        gone_pools=(PoolId(gone_pool),) if gone_pool else (),
        nodes=(*changed.values(), *added.values()),
        gone_nodes=tuple(NodeId(name) for name in gone),
    )
    delta = msgspec.json.decode(msgspec.json.encode(delta), type=SnapshotDelta)
    after = {**nodes, **changed, **added}
    left = [f for name, f in after.items() if name not in gone and f.pool_id != gone_pool]
    expected = build_snapshot(
        [p for p in (*pools.values(), *extra) if p.id != gone_pool], left, version=2, taken_at=NOW + 1
    )
    got = check_snapshot(apply_delta(old, delta))
    assert content(got) == content(expected)
    assert got.version == 2
    assert [p.name for p in got.pools] == [p.name for p in expected.pools]


def test_a_delta_from_another_version_is_refused() -> None:
    here = world([pool("a")], [], version=7)
    with pytest.raises(ConflictError):
        apply_delta(here, SnapshotDelta(base_version=6, version=8, taken_at=NOW))


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
