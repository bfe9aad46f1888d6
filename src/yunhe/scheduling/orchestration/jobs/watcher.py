"""The watcher: one long poll per pool that has our allocations, and whoever drives them is woken by news.

A poll brings what changed since the last one; everything is asked for now and then, and after a failure.
"""

import logging
from collections.abc import Callable

import anyio
from anyio.abc import TaskGroup

from yunhe.control.pools.interface import Pools
from yunhe.control.pools.model import Observation, Observed
from yunhe.kernel.errors import NotFoundError, YunheError
from yunhe.kernel.ids import AllocationId, PoolId
from yunhe.observability.context import log_ids

WAIT_S = 15.0
RESYNC_S = 15.0
"""How often everything is asked for: counters and output grow without being changes, and nothing is missed for long."""
RETRY_S = 1.0

log = logging.getLogger(__name__)

Poke = Callable[[AllocationId], None]


class Watcher:
    """Knows what each watched pool last said of its allocations."""

    def __init__(self, pools: Pools, poke: Poke) -> None:
        self._pools = pools
        self._poke = poke
        self._wanted: dict[PoolId, int] = {}
        self._watched: set[PoolId] = set()
        self._seen: dict[PoolId, dict[AllocationId, Observed]] = {}
        self._looks: dict[PoolId, int] = {}
        self._finished: dict[PoolId, int] = {}

    def want(self, tasks: TaskGroup, pool_id: PoolId) -> None:
        """Watch a pool as long as somebody wants it."""
        self._wanted[pool_id] = self._wanted.get(pool_id, 0) + 1
        if pool_id not in self._watched:  # a watch that is not wanted any more goes on until its look is over
            self._watched.add(pool_id)
            with log_ids():  # it serves every job on the pool, not only the one that is driven here
                tasks.start_soon(self._watch, pool_id)

    def unwant(self, pool_id: PoolId) -> None:
        """Stop wanting a pool; the last one to do so ends the watch."""
        self._wanted[pool_id] -= 1
        if not self._wanted[pool_id]:
            del self._wanted[pool_id]

    def looks_begun(self, pool_id: PoolId) -> int:
        """Return the number of the last look that was begun."""
        return self._looks.get(pool_id, 0)

    def seen(self, pool_id: PoolId, allocation_id: AllocationId) -> Observed | None:
        """Return what was last seen of an allocation."""
        return self._seen.get(pool_id, {}).get(allocation_id)

    def surely_gone(self, pool_id: PoolId, allocation_id: AllocationId, *, begun_at_look: int) -> bool:
        """Return whether a look begun after that one came back without the allocation."""
        looked = self._finished.get(pool_id, 0) > begun_at_look
        return looked and pool_id in self._seen and allocation_id not in self._seen[pool_id]

    async def _watch(self, pool_id: PoolId) -> None:
        try:
            await self._look_while_wanted(pool_id)
        finally:
            self._watched.discard(pool_id)
            self._seen.pop(pool_id, None)

    async def _look_while_wanted(self, pool_id: PoolId) -> None:
        version, whole_at = -1, -RESYNC_S
        while pool_id in self._wanted:
            look = self._looks[pool_id] = self._looks.get(pool_id, 0) + 1
            left_s = whole_at + RESYNC_S - anyio.current_time()
            beyond = version if left_s > 0 else -1
            try:
                observation = await self._pools.observe(
                    pool_id, beyond=beyond, wait_s=min(WAIT_S, max(left_s, 0.0))
                )
            except NotFoundError:
                # The pool was removed: what was last seen of its allocations says nothing any more.
                for allocation_id in self._seen.pop(pool_id, {}):
                    self._poke(allocation_id)
                version = -1
                await anyio.sleep(RETRY_S)
                continue
            except YunheError as error:
                log.info("observe failed, will retry", extra={"pool": pool_id, "problem": str(error)})
                version = -1
                await anyio.sleep(RETRY_S)
                continue
            if observation.since > version:
                version = -1  # not what was asked for: changes in between would be missed
                continue
            if observation.since == -1:
                whole_at = anyio.current_time()
            version = observation.version
            self._fold(pool_id, observation)
            self._finished[pool_id] = look

    def _fold(self, pool_id: PoolId, observation: Observation) -> None:
        """Take in what was observed, and poke whoever it is news to; changes cost as much as there are of them."""
        known = self._seen.setdefault(pool_id, {})
        told = {seen.allocation_id: seen for seen in observation.allocations}
        gone = known.keys() - told.keys() if observation.since == -1 else known.keys() & set(observation.gone)
        for allocation_id in gone:
            del known[allocation_id]
            self._poke(allocation_id)
        for allocation_id, seen in told.items():
            before = known.get(allocation_id)
            known[allocation_id] = seen
            if before is None or before.phase is not seen.phase:
                self._poke(allocation_id)
