"""Placements per second of the live placer, without and with its database, beside the core and beside plain writing.

Run with ``python -m bench.placing [sqlite|postgresql URL]``. 10,000 distinct jobs are queued over 100 fake pools of 50
nodes. Four ways alternate: ``place_all_in`` on demands that are ready; the placement round on rows as the database
gives them; the whole placer, from event to commit; and a control that only writes the rows that the placer wrote.
"""

import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

import anyio
import msgspec
import sqlalchemy as sa
from sqlalchemy.engine import Connection

from yunhe.control.plugins.in_process import in_process
from yunhe.control.pools.model import PoolSpec, Step
from yunhe.control.pools.service import PoolService
from yunhe.infrastructure.fake.kind import FakeKind
from yunhe.kernel.clock import system_clock
from yunhe.kernel.ids import JobId, ProjectId, new_id
from yunhe.kernel.money import Prices, Tier
from yunhe.kernel.places import Place
from yunhe.kernel.resources import Resources
from yunhe.runtime.plugin_parts import plugin_parts
from yunhe.runtime.settings import Settings
from yunhe.scheduling.decision.cycle import Cycle
from yunhe.scheduling.decision.decide import place_all_in
from yunhe.scheduling.decision.model import Alternative, Demand, Placed
from yunhe.scheduling.orchestration.jobs import store
from yunhe.scheduling.orchestration.jobs.events import JOB_CHANGED, JobChanged
from yunhe.scheduling.orchestration.jobs.model import JobOrder
from yunhe.scheduling.orchestration.jobs.states import JobState
from yunhe.scheduling.orchestration.jobs.tables import ALLOCATIONS, JOBS, ROUNDS
from yunhe.scheduling.orchestration.placing import placement_store
from yunhe.scheduling.orchestration.placing.placement_round import PlacementRound
from yunhe.scheduling.orchestration.placing.placer import PAGE, Placer
from yunhe.scheduling.perception.service import PerceptionService
from yunhe.scheduling.perception.snapshot import Snapshot
from yunhe.storage import outbox
from yunhe.storage.blobs import Blobs
from yunhe.storage.database import AnyRow, Database
from yunhe.storage.migrate import migrate
from yunhe.storage.outbox import EVENTS, Event
from yunhe.storage.vault import Vault

POOLS = 100
NODES = 50
QUEUED = 10_000
ROUNDS_TIMED = 5
CORE_RATIO = 0.8
CONTROL_RATIO = 0.5
RATE = 1_000.0


class Rate(NamedTuple):
    """Jobs per second of wall clock, and per second of processor time of this process."""

    wall: float
    cpu: float


async def main(url: str = "") -> int:
    """Print the medians, and return 1 where a target is missed."""
    with tempfile.TemporaryDirectory(prefix="yunhe-bench-") as folder:
        database = Database(url or f"sqlite:///{Path(folder) / 'yunhe.db'}")
        await migrate(database)
        perception = await _pools(database, Path(folder))
        await _fill(database)
        rates = await _measure(database, perception)
        size = await database.read(_stored)
        database.close()
    middle = {
        name: Rate(*(statistics.median(values) for values in zip(*rounds, strict=True)))
        for name, rounds in rates.items()
    }
    core, judged, placed, control = (rate.wall for rate in middle.values())
    print(f"{QUEUED} distinct jobs over {POOLS} pools × {NODES} nodes, {database.engine.dialect.name}")
    print(f"{'':22}{'jobs/s':>9}{'per cpu s':>11}   medians of {ROUNDS_TIMED} interleaved rounds")
    for name, rate in middle.items():
        walls = [one.wall for one in rates[name]]
        print(f"{name:22}{rate.wall:9,.0f}{rate.cpu:11,.0f}   {min(walls):,.0f} … {max(walls):,.0f} jobs/s")
    print(f"placer without database: {judged / core:.2f} of place_all_in")
    print(f"placer with database: {placed / control:.2f} of the control that writes its rows")
    print(f"a stored decision: {size:,.0f} bytes, with its share of the round")
    targets = {
        f"without database: {CORE_RATIO} of place_all_in": judged >= CORE_RATIO * core,
        f"with database: {RATE:,.0f}/s": placed >= RATE,
        f"with database: {CONTROL_RATIO} of the control": placed >= CONTROL_RATIO * control,
    }
    for name, held in targets.items():
        if not held:
            print(f"✗ {name}")
    return int(not all(targets.values()))


async def _pools(database: Database, home: Path) -> PerceptionService:
    vault, blobs = Vault.at(home / "vault.key"), Blobs(database, system_clock, 1 << 20)
    made, rng = in_process({"fake": FakeKind()}), Random(5)
    kinds = plugin_parts(Settings(home=home), database, vault, made, system_clock).kinds
    pools = PoolService(database, blobs, system_clock, kinds)
    perception = PerceptionService(database, pools, system_clock)
    async with pools.running():
        for number in range(POOLS):
            options = {"cpus": str(rng.choice((16, 32, 64))), "memory": "128GB", "nodes": str(NODES)}
            place = Place(f"region-{number % 7}", rng.uniform(20, 45), rng.uniform(100, 122))
            spec = PoolSpec(
                name=f"pool-{number:03d}", kind="fake", target=f"t{number}", options=options, place=place
            )
            async for check in pools.add(spec):
                if not check.ok:
                    raise RuntimeError(check.detail)
        for pool in await pools.pools():
            prices = Prices(rng.randrange(20_000, 90_000), rng.randrange(2_000, 9_000))
            await perception.set_prices(pool.id, dict.fromkeys(Tier, prices))
    return perception


async def _fill(database: Database) -> None:
    rng, now = Random(7), time.time()
    for _ in range(QUEUED // PAGE):
        orders = [_order(rng, now) for _ in range(PAGE)]
        await database.write(lambda c, o=orders: store.insert_jobs(c, o, now))


def _order(rng: Random, now: float) -> JobOrder:
    size = Resources(rng.randrange(100, 8000), rng.randrange(128, 16_384))
    demand = Demand(
        job_id=JobId(new_id("job", now)),
        project_id=ProjectId("default"),
        alternatives=(Alternative(size),),
        near=Place(f"region-{rng.randrange(7)}", 30.0, 110.0),
        run_s=float(rng.randrange(60, 90_000)),
    )
    steps = (Step(name="run", script="python train.py --epochs 10\n"),)
    return JobOrder(demand=demand, name="train", submitted_by="bench", steps=steps)


async def _measure(database: Database, perception: PerceptionService) -> dict[str, list[Rate]]:
    rows = await database.read(_queued)
    demands = [store.pending_order(row) for row in rows]
    snapshot = await perception.snapshot({}, {})
    rates: dict[str, list[Rate]] = {
        name: [] for name in ("place_all_in", "placer, no database", "placer", "control")
    }
    _core(snapshot, demands[:PAGE])  # machine code is loaded
    for _ in range(ROUNDS_TIMED):
        rates["place_all_in"].append(_rate(lambda: _core(snapshot, demands)))
        rates["placer, no database"].append(_rate(lambda: _judged(snapshot, rows)))
        rates["placer"].append(await _placed(database, perception, rows))
        written = await database.read(_written)
        await database.write(_reset)
        rates["control"].append(await _control(database, written))
        await database.write(_reset)
    await _placed(database, perception, rows)
    return rates


class Timer:
    """Measures jobs per second of wall clock and of processor time."""

    def __init__(self) -> None:
        self._wall, self._cpu = time.perf_counter(), time.process_time()

    def rate(self) -> Rate:
        """Return the rates since this was made."""
        return Rate(QUEUED / (time.perf_counter() - self._wall), QUEUED / (time.process_time() - self._cpu))


def _rate(way: Callable[[], None]) -> Rate:
    timer = Timer()
    way()
    return timer.rate()


def _core(snapshot: Snapshot, demands: Sequence[Demand]) -> None:
    if not all(isinstance(decision, Placed) for decision in place_all_in(demands, Cycle(snapshot))):
        raise RuntimeError("somebody found no room; the benchmark times successes")


def _judged(snapshot: Snapshot, rows: Sequence[AnyRow]) -> None:
    current = PlacementRound(snapshot, {}, 0)
    for start in range(0, len(rows), PAGE):
        current.judge(rows[start : start + PAGE])
    if current.refused:
        raise RuntimeError("somebody found no room; the benchmark times successes")


async def _placed(database: Database, perception: PerceptionService, rows: Sequence[AnyRow]) -> Rate:
    taken: list[JobId] = []
    placer = Placer(
        database,
        perception,
        system_clock,
        owner="bench",
        lease_s=60.0,
        taken=lambda job_id, _token: taken.append(job_id),
    )
    timer = Timer()
    for row in rows:
        fact = JobChanged(job_id=row.id, project_id=row.project_id, state=JobState.PENDING, shape=row.shape)
        placer.hear(Event(0, JOB_CHANGED, row.id, 0.0, msgspec.json.encode(fact)))
    while len(taken) < QUEUED:
        before = len(taken)
        await placer.cycle()
        if len(taken) == before:
            raise RuntimeError(f"only {before} of {QUEUED} were placed")
    return timer.rate()


Rows = list[dict[str, Any]]


def _queued(connection: Connection) -> list[AnyRow]:
    ids = list(connection.scalars(sa.select(JOBS.c.id).order_by(JOBS.c.id)))
    pages = (ids[start : start + PAGE] for start in range(0, len(ids), PAGE))
    return [row for page in pages for row in placement_store.pending_rows(connection, page)]


def _written(connection: Connection) -> tuple[Rows, Rows, Rows]:
    """Return the rows that the placer wrote, as a statement takes them."""
    names = ("id", "state", "attempts", "allocation_id", "decision", "decided_at")
    leases = ("lease_owner", "lease_until", "lease_token")
    jobs = connection.execute(sa.select(*(JOBS.c[name].label(f"n_{name}") for name in (*names, *leases))))
    events = connection.execute(
        sa.select(EVENTS.c.topic, EVENTS.c.key, EVENTS.c.at, EVENTS.c.body)
        .order_by(EVENTS.c.seq.desc())
        .limit(QUEUED)
    )
    allocations = connection.execute(sa.select(ALLOCATIONS))
    rows = [[dict(row) for row in found.mappings()] for found in (jobs, allocations, events)]
    return rows[0], rows[1], rows[2]


async def _control(database: Database, written: tuple[Rows, Rows, Rows]) -> Rate:
    jobs, allocations, events = written
    changed = {name.removeprefix("n_"): sa.bindparam(name) for name in jobs[0] if name != "n_id"}
    update = JOBS.update().where(JOBS.c.id == sa.bindparam("n_id")).values(changed)

    def write(connection: Connection, start: int) -> None:
        part = slice(start, start + PAGE)
        connection.execute(update, jobs[part])
        connection.execute(ALLOCATIONS.insert(), allocations[part])
        connection.execute(EVENTS.insert(), events[part])

    timer = Timer()
    for start in range(0, QUEUED, PAGE):
        await database.write(lambda c, s=start: write(c, s))
    return timer.rate()


def _reset(connection: Connection) -> None:
    """Let everything wait again."""
    newest = outbox.newest(connection)
    connection.execute(EVENTS.delete().where(EVENTS.c.seq > newest - QUEUED))
    connection.execute(ALLOCATIONS.delete())
    connection.execute(ROUNDS.delete())
    connection.execute(
        JOBS.update().values(state=JobState.PENDING, attempts=0, allocation_id=None, decision=None)
    )


def _stored(connection: Connection) -> float:
    decisions = connection.scalar(sa.select(sa.func.sum(sa.func.length(JOBS.c.decision)))) or 0
    kept = sa.func.length(ROUNDS.c.world) + sa.func.length(ROUNDS.c.reserved)
    return (decisions + (connection.scalar(sa.select(sa.func.sum(kept))) or 0)) / QUEUED


if __name__ == "__main__":
    sys.exit(anyio.run(main, "".join(sys.argv[1:])))
