"""Orphans: allocations that a pool still has and that are over in our books, because the pool was removed meanwhile."""

import logging

import anyio

from yunhe.control.pools.interface import Pools
from yunhe.control.pools.model import PoolState
from yunhe.kernel.errors import ConflictError, YunheError
from yunhe.kernel.ids import AllocationId, PoolId
from yunhe.scheduling.orchestration.jobs import lease_store
from yunhe.scheduling.orchestration.jobs.store import AllocationState
from yunhe.storage.database import Database

LOOK_EVERY_S = 5.0
LOOK_AGAIN_S = 60.0
"""How often a pool is looked at in which no orphan was found."""
OVER = (AllocationState.ENDED, AllocationState.RELEASED)

log = logging.getLogger(__name__)


class OrphanCleanup:
    """Has pools stop and release what they should not have; repeating it is harmless, so every process may do it.

    An allocation that our database does not know belongs to another platform, and is left alone.
    """

    def __init__(self, database: Database, pools: Pools) -> None:
        self._database = database
        self._pools = pools
        self._look_at: dict[PoolId, float] = {}

    async def run(self) -> None:
        """Look at each pool soon after it was connected, and now and then; until cancelled."""
        while True:
            ready = {pool.id for pool in await self._pools.pools() if pool.state is PoolState.READY}
            self._look_at = {pool_id: at for pool_id, at in self._look_at.items() if pool_id in ready}
            for pool_id in sorted(ready):
                if self._look_at.get(pool_id, 0.0) <= anyio.current_time():
                    found = await self._clean(pool_id)
                    self._look_at[pool_id] = anyio.current_time() + (0.0 if found else LOOK_AGAIN_S)
            await anyio.sleep(LOOK_EVERY_S)

    async def _clean(self, pool_id: PoolId) -> bool:
        """Begin to end a pool's orphans; return whether there may be more to do."""
        try:
            known = (await self._pools.observe(pool_id, beyond=-1, wait_s=0)).allocations
            ids = [seen.allocation_id for seen in known]
            strays = await self._database.read(
                lambda connection: lease_store.strays(connection, pool_id, ids)
            )
            for row in strays:
                if row.state in OVER:
                    await self._end(pool_id, AllocationId(row.id), row.lease_token)
        except YunheError as error:
            log.info("orphans wait on the pool", extra={"pool": pool_id, "problem": str(error)})
            return True
        return bool(strays)

    async def _end(self, pool_id: PoolId, allocation_id: AllocationId, token: int) -> None:
        log.warning("orphan is ended", extra={"pool": pool_id, "allocation": allocation_id})
        await self._pools.stop(pool_id, allocation_id, token)
        try:
            await self._pools.release(pool_id, allocation_id, token)
        except ConflictError:
            return  # it is still ending: the next look releases it
