"""A driver and a placer on fake pools, taken apart so that a test decides when each of them acts."""

from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import anyio
import anyio.lowlevel
import sqlalchemy as sa

from support import apart
from yunhe.control.plugins.in_process import in_process
from yunhe.control.pools.model import PoolSpec, Step
from yunhe.control.pools.service import PoolService
from yunhe.infrastructure.contract.kind import Target
from yunhe.infrastructure.fake.kind import FakeKind, FakeSite
from yunhe.kernel.clock import system_clock
from yunhe.kernel.ids import JobId, ProjectId, new_id
from yunhe.kernel.resources import Resources
from yunhe.runtime.plugin_parts import plugin_parts
from yunhe.runtime.settings import Settings
from yunhe.scheduling.decision.model import Alternative, Demand
from yunhe.scheduling.orchestration.jobs import store
from yunhe.scheduling.orchestration.jobs.collect import Releaser
from yunhe.scheduling.orchestration.jobs.driver import LEASE_S, Driver
from yunhe.scheduling.orchestration.jobs.model import Job, JobOrder, Mount
from yunhe.scheduling.orchestration.jobs.states import JobState
from yunhe.scheduling.orchestration.jobs.steps import StepDependencies
from yunhe.scheduling.orchestration.jobs.tables import JOBS
from yunhe.scheduling.orchestration.placing.placer import Placer
from yunhe.scheduling.perception.service import PerceptionService
from yunhe.storage.blobs import Blobs
from yunhe.storage.database import Database, T, Transaction
from yunhe.storage.migrate import migrate
from yunhe.storage.notices import Notices
from yunhe.storage.vault import Vault

OWNER = "test:1:1"


class GatedDatabase(Database):
    """A database whose readers wait at a gate while a test wants them to."""

    def __init__(self, url: str) -> None:
        super().__init__(url)
        self.hold_before: Callable[[], bool] = lambda: False
        self.hold_after: Callable[[object], bool] = lambda _answer: False
        self.reached = anyio.Event()
        self.gate = anyio.Event()

    async def read(self, transaction: Transaction[T]) -> T:
        if self.hold_before():
            await self._wait()
        answer = await super().read(transaction)
        if self.hold_after(answer):
            await self._wait()
        return answer

    async def _wait(self) -> None:
        self.hold_before, self.hold_after = lambda: False, lambda _answer: False
        self.reached.set()
        await self.gate.wait()


@dataclass
class Rig:
    """The parts; only the driver runs by itself."""

    database: Database
    gated: GatedDatabase
    kind: FakeKind
    pools: PoolService
    blobs: Blobs
    driver: Driver
    placer: Placer
    releaser: Releaser
    won: dict[JobId, int] = field(default_factory=dict[JobId, int])
    """The token of each job's lease, as the placer told it."""

    async def place(self, *, drive: bool = True) -> None:
        """Place what is pending; without *drive* the driver does not hear of it, as if it were busy starting."""
        before = dict(self.won)
        await self.placer.cycle()
        for job_id, token in self.won.items():
            if drive and before.get(job_id) != token:
                self.driver.take(job_id, token)

    def site(self, pool: str = "lab") -> FakeSite:
        return self.kind.site(Target(address=pool))

    async def add_pool(self, name: str) -> None:
        checks = [c async for c in self.pools.add(PoolSpec(name=name, kind="fake", target=name))]
        assert all(check.ok for check in checks)

    async def submit(
        self,
        script: str,
        *,
        retries: int = 0,
        mounts: tuple[Mount, ...] = (),
        outputs: tuple[str, ...] = (),
    ) -> JobId:
        now = system_clock()
        demand = Demand(
            job_id=JobId(new_id("job", now)),
            project_id=ProjectId("default"),
            alternatives=(Alternative(Resources(cpu_millis=1000, memory_mib=64)),),
        )
        order = JobOrder(
            demand=demand,
            name="task",
            submitted_by="test",
            steps=(Step(name="run", script=script),),
            retries=retries,
            mounts=mounts,
            outputs=outputs,
        )
        (job,) = await self.database.write(lambda c: store.insert_jobs(c, (order,), now))
        return job.id

    async def job(self, job_id: JobId) -> Job:
        return await self.database.read(lambda connection: store.read_job(connection, job_id))

    def state_now(self, job_id: JobId) -> JobState:
        with self.database.engine.connect() as connection:
            return store.read_job(connection, job_id).state

    async def row(self, job_id: JobId) -> sa.Row[tuple[object, ...]]:
        return await self.database.read(
            lambda connection: connection.execute(sa.select(JOBS).where(JOBS.c.id == job_id)).one()
        )

    async def until(self, job_id: JobId, *states: JobState, within_s: float = 10.0) -> Job:
        with anyio.fail_after(within_s):
            while (job := await self.job(job_id)).state not in states:
                await anyio.sleep(0.02)
        return job


@asynccontextmanager
async def rig(folder: Path) -> AsyncGenerator[Rig]:
    """Run a driver on a fresh database; placing and releasing is up to the test."""
    url = apart.database_url(folder)
    database, gated = Database(url), GatedDatabase(url)
    await migrate(database)
    kind, blobs = FakeKind(), Blobs(database, system_clock, 1 << 20)
    vault, notices = Vault.at(folder / "vault.key"), Notices(database)
    made = in_process({"fake": kind})
    kinds = plugin_parts(Settings(home=folder), database, vault, made, system_clock).kinds
    pools = PoolService(database, blobs, system_clock, kinds)
    means = StepDependencies(gated, pools, vault, notices, system_clock, OWNER, lambda: None)
    driver = Driver(means)
    perception = PerceptionService(database, pools, system_clock)
    won: dict[JobId, int] = {}
    placer = Placer(database, perception, system_clock, owner=OWNER, lease_s=LEASE_S, taken=won.__setitem__)
    releaser = Releaser(database, pools, system_clock)
    parts = Rig(database, gated, kind, pools, blobs, driver, placer, releaser, won)
    async with pools.running():
        await parts.add_pool("lab")
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(driver.run)
            await anyio.lowlevel.checkpoint()  # the driver has its task group from here on
            yield parts
            tasks.cancel_scope.cancel()
    database.close()
    gated.close()
