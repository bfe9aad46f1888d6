"""Whatever comes and goes, a job that could run is not left waiting."""

import os
import tempfile
from pathlib import Path
from random import Random
from typing import cast

import anyio
import msgspec
import pytest
import sqlalchemy as sa
from hypothesis import given, settings
from hypothesis import strategies as st
from sqlalchemy.engine import Connection

from yunhe.control.pools.model import Step
from yunhe.kernel.clock import system_clock
from yunhe.kernel.ids import JobId, NodeId, PoolId, ProjectId, new_id
from yunhe.kernel.resources import Accelerators, Resources
from yunhe.scheduling.decision.decide import decide
from yunhe.scheduling.decision.model import Alternative, Demand, Placed
from yunhe.scheduling.orchestration.jobs import store
from yunhe.scheduling.orchestration.jobs.events import JOB_CHANGED, JobChanged
from yunhe.scheduling.orchestration.jobs.model import JobOrder
from yunhe.scheduling.orchestration.jobs.states import JobState
from yunhe.scheduling.orchestration.jobs.store import AllocationState
from yunhe.scheduling.orchestration.jobs.tables import ALLOCATIONS, JOBS, ROUNDS
from yunhe.scheduling.orchestration.placing import placer as placing
from yunhe.scheduling.orchestration.placing import waiting
from yunhe.scheduling.orchestration.placing.placer import Placer
from yunhe.scheduling.perception.interface import Perception
from yunhe.scheduling.perception.model import NodeFacts, PoolFacts
from yunhe.scheduling.perception.snapshot import Snapshot, build_snapshot
from yunhe.storage.database import Database
from yunhe.storage.migrate import migrate
from yunhe.storage.outbox import EVENTS, Event

EXAMPLES = settings(max_examples=int(os.environ.get("YUNHE_EXAMPLES", "25")), deadline=None)
STEPS = 12


class World:
    """Pools that come, close and open again; a perception of them."""

    def __init__(self, rng: Random) -> None:
        self._rng = rng
        self._nodes: list[tuple[NodeId, PoolId, Resources]] = []
        self._closed: set[PoolId] = set()
        self.add_pool()

    def add_pool(self) -> None:
        pool = PoolId(f"pool-{len({pool for _, pool, _ in self._nodes})}")
        for number in range(self._rng.randrange(1, 3)):
            devices = (Accelerators("A100", 1000 * self._rng.randrange(1, 3)),) * self._rng.randrange(2)
            size = Resources(self._rng.randrange(1, 9) * 1000, self._rng.randrange(1, 9) * 1024, 0, devices)
            self._nodes.append((NodeId(f"{pool}/{number}"), pool, size))

    def open_or_close(self) -> None:
        pool = self._rng.choice([pool for _, pool, _ in self._nodes])
        self._closed ^= {pool}

    def now(self, promised: dict[NodeId, Resources]) -> Snapshot:
        pools = {
            pool: PoolFacts(id=pool, name=pool, accepts=pool not in self._closed)
            for _, pool, _ in self._nodes
        }
        nodes = [
            NodeFacts(id=node, pool_id=pool, total=size, free=_less(size, promised.get(node, Resources())))
            for node, pool, size in self._nodes
        ]
        return build_snapshot(list(pools.values()), nodes, version=1, taken_at=0.0)

    async def snapshot(
        self, promised: dict[NodeId, Resources], groups: dict[NodeId, tuple[str, ...]]
    ) -> Snapshot:
        return self.now(promised)


def _less(size: Resources, held: Resources) -> Resources:
    return Resources(
        size.cpu_millis - held.cpu_millis,
        size.memory_mib - held.memory_mib,
        0,
        tuple(Accelerators(a.kind, a.milli - held.accelerator_milli(a.kind)) for a in size.accelerators),
    )


def _order(rng: Random) -> JobOrder:
    def size() -> Resources:
        devices = (Accelerators("A100", rng.choice((500, 1000, 2000))),) * (rng.random() < 0.3)
        return Resources(rng.randrange(1, 17) * 500, rng.randrange(1, 17) * 512, 0, devices)

    pools = (f"pool-{rng.randrange(3)}",) * (rng.random() < 0.3)
    demand = Demand(
        job_id=JobId(new_id("job", system_clock())),
        project_id=ProjectId("p"),
        alternatives=tuple(Alternative(size(), pools) for _ in range(rng.randrange(1, 3))),
    )
    return JobOrder(demand=demand, name="j", submitted_by="t", steps=(Step(name="run", script="true"),))


def _end_one(connection: Connection, rng: Random) -> None:
    running = list(
        connection.execute(sa.select(ALLOCATIONS).where(ALLOCATIONS.c.state == AllocationState.INTENDED))
    )
    if running:
        ended = rng.choice(running)
        store.update_allocation(connection, ended.id, state=AllocationState.ENDED)
        connection.execute(JOBS.update().where(JOBS.c.id == ended.job_id).values(state=JobState.SUCCEEDED))


def _waiting(connection: Connection) -> list[Demand]:
    rows = connection.execute(sa.select(JOBS).where(JOBS.c.state == JobState.PENDING))
    return [store.pending_order(row) for row in rows]


def _clear(connection: Connection) -> None:
    for table in (ALLOCATIONS, JOBS, ROUNDS, EVENTS):
        connection.execute(table.delete())


async def _play(database: Database, seed: int, *, told: bool) -> None:
    rng = Random(seed)
    await database.write(_clear)
    world = World(rng)
    perception = cast("Perception", world)  # all that a placer asks of it
    placer = Placer(
        database, perception, system_clock, owner="t", lease_s=60.0, taken=lambda _job, _token: None
    )
    for _ in range(STEPS):
        match rng.choice(("submit", "submit", "end", "end", "pool", "close")):
            case "submit":
                order = _order(rng)
                await database.write(lambda c, o=order: store.insert_jobs(c, (o,), system_clock()))
                if told:
                    demand = order.demand
                    fact = JobChanged(
                        job_id=demand.job_id, project_id=demand.project_id, state=JobState.PENDING
                    )
                    placer.hear(Event(0, JOB_CHANGED, demand.job_id, 0.0, msgspec.json.encode(fact)))
            case "end":
                await database.write(lambda c: _end_one(c, rng))
            case "pool":
                world.add_pool()
            case _:
                world.open_or_close()
        if rng.random() < 0.7:
            await placer.cycle()
    rounds = 3 + len(await database.read(_waiting))
    for _ in range(rounds):
        await placer.cycle()
    now = world.now(await database.read(store.promised))
    for demand in await database.read(_waiting):
        assert not isinstance(decide(demand, now), Placed), f"{demand} waits, and there is room"


@pytest.mark.parametrize("told", [True, False])
def test_what_could_be_placed_is_placed_within_as_many_rounds_as_jobs_wait(
    told: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(placing, "PAGE", 2)
    monkeypatch.setattr(placing, "ARRIVALS", 2)
    monkeypatch.setattr(placing, "LOOKS", 2)
    monkeypatch.setattr(waiting, "IN_TURN", 0)  # nothing but what woke it lets a shape be looked at again

    with tempfile.TemporaryDirectory() as folder:
        database = Database(f"sqlite:///{Path(folder) / 'yunhe.db'}")
        anyio.run(migrate, database)

        @EXAMPLES
        @given(st.integers(0, 2**32))
        def play(seed: int) -> None:
            async def run() -> None:
                await _play(database, seed, told=told)

            anyio.run(run)

        play()
        database.close()
