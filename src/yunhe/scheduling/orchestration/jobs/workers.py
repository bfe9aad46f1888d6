"""What runs beside orchestration in a worker: the placer, the driver and the releaser, wired to each other."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import anyio

from yunhe.control.pools.interface import Pools
from yunhe.kernel.clock import Clock
from yunhe.kernel.ids import JobId
from yunhe.observability.supervise import supervise
from yunhe.scheduling.orchestration.jobs.collect import Releaser
from yunhe.scheduling.orchestration.jobs.driver import LEASE_S, Driver
from yunhe.scheduling.orchestration.jobs.events import JOB_ASKED, JOB_CHANGED
from yunhe.scheduling.orchestration.jobs.orphans import OrphanCleanup
from yunhe.scheduling.orchestration.jobs.steps import StepDependencies
from yunhe.scheduling.orchestration.placing.placer import Placer
from yunhe.scheduling.perception.interface import Perception
from yunhe.storage.database import Database
from yunhe.storage.notices import Notices
from yunhe.storage.quotas import QuotaBook
from yunhe.storage.vault import Vault


class Workers:
    """Places and drives jobs; any number of processes may do so at once."""

    def __init__(  # noqa: PLR0913 - what they work with
        self,
        database: Database,
        notices: Notices,
        vault: Vault,
        services: tuple[Perception, Pools],
        clock: Clock,
        owner: str,
        *,
        quotas: QuotaBook,
    ) -> None:
        perception, pools = services
        means = StepDependencies(database, pools, vault, notices, clock, owner, self._room_freed, quotas)
        self._driver = Driver(means)
        self._placer = Placer(
            database,
            perception,
            clock,
            owner=owner,
            lease_s=LEASE_S,
            taken=self._driver.take,
            quotas=quotas,
        )
        self._releaser = Releaser(database, pools, clock)
        self._orphans = OrphanCleanup(database, pools)
        notices.listen(JOB_CHANGED, self._placer.hear)
        notices.listen(JOB_ASKED, lambda event: self._driver.poke(JobId(event.key)))

    def _room_freed(self) -> None:
        self._placer.wake()
        self._releaser.wake()

    @asynccontextmanager
    async def running(self) -> AsyncGenerator[None]:
        """Run until the block ends."""
        async with anyio.create_task_group() as tasks:
            for name, loop in (
                ("driver", self._driver.run),
                ("placer", self._placer.run),
                ("releaser", self._releaser.run),
                ("orphans", self._orphans.run),
            ):
                tasks.start_soon(supervise, name, loop)
            try:
                yield
            finally:
                tasks.cancel_scope.cancel()
