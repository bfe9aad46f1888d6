"""The keeper: looks at every pool again and again, so that the inventory is live and silence is noticed."""

import logging

import anyio
import sqlalchemy as sa
from sqlalchemy.engine import Connection

from yunhe.control.plugins import store
from yunhe.control.plugins.model import Pool, PoolState
from yunhe.control.plugins.service import PluginService
from yunhe.kernel.clock import Clock
from yunhe.kernel.errors import PoolUnreachableError, YunheError
from yunhe.kernel.ids import PoolId
from yunhe.storage import leases
from yunhe.storage.database import Database

LOOK_EVERY_S = 5.0
LOOK_TIMEOUT_S = 10.0
LEASE_S = 30.0
OFFLINE_AFTER = 2

log = logging.getLogger(__name__)


class Keeper:
    """Claims pools by lease and looks at each in turn; one keeper per process, each pool has one at a time."""

    def __init__(self, database: Database, plugins: PluginService, owner: str, clock: Clock) -> None:
        self._database = database
        self._plugins = plugins
        self._owner = owner
        self._clock = clock
        self._failures: dict[PoolId, int] = {}

    async def run(self) -> None:
        """Look at pools until cancelled."""
        async with leases.held_until_end(self._database, store.POOLS, self._owner):
            while True:
                mine = await self._database.write(self._claim)
                async with anyio.create_task_group() as tasks:
                    for pool in mine:
                        tasks.start_soon(self._look, pool)
                await anyio.sleep(LOOK_EVERY_S)

    def _claim(self, connection: Connection) -> list[Pool]:
        now = self._clock()
        connected = sa.select(store.POOLS.c.id).where(store.POOLS.c.state != PoolState.CONNECTING)
        leases.claim(connection, store.POOLS, connected, owner=self._owner, now=now, ttl_s=LEASE_S)
        held = leases.keep(connection, store.POOLS, owner=self._owner, now=now, ttl_s=LEASE_S)
        return [pool for pool in store.read_pools(connection) if pool.id in held]

    async def _look(self, pool: Pool) -> None:
        try:
            with anyio.fail_after(LOOK_TIMEOUT_S):
                await self._plugins.look(pool.id, pool.spec)
        except (YunheError, TimeoutError) as error:
            problem = (
                error if isinstance(error, YunheError) else PoolUnreachableError("The pool does not answer.")
            )
            failures = self._failures[pool.id] = self._failures.get(pool.id, 0) + 1
            if failures >= OFFLINE_AFTER:
                await self._plugins.note(pool.id, problem)
            log.warning("pool does not answer", extra={"pool": pool.spec.name, "problem": str(problem)})
        else:
            self._failures.pop(pool.id, None)
