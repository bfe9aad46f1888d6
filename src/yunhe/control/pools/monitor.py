"""The monitor: looks at every pool again and again, so that the inventory is live and silence is noticed."""

import logging

import anyio
from anyio.abc import TaskGroup

from yunhe.control.pools import store
from yunhe.control.pools.model import PoolSpec
from yunhe.control.pools.service import PoolService
from yunhe.kernel.clock import Clock
from yunhe.kernel.errors import DatabaseUnavailableError, PoolUnreachableError, YunheError
from yunhe.kernel.ids import PoolId
from yunhe.storage.database import Database

LOOK_EVERY_S = 1.5
"""Less than a plugin's heartbeat: what is told of a pool is never older than that."""
LOOK_TIMEOUT_S = 10.0
LEASE_S = 30.0
OFFLINE_AFTER = 2
"""Looks that fail in a row. A look that fails is repeated ``LOOK_EVERY_S`` after it began, so a host that stops answering
gets no more placements 5.25 s later at most: the longest pause before a look, and two looks of ``LOOK_WITHIN_S`` each."""
SLOWEST_LOOK_EVERY_S = 5.0
"""How often a pool that does not answer is tried."""

log = logging.getLogger(__name__)


class PoolMonitor:
    """Claims pools by lease and looks at each in turn; one monitor per process; each pool has one at a time."""

    def __init__(self, database: Database, pools: PoolService, owner: str, clock: Clock) -> None:
        self._database = database
        self._pools = pools
        self._owner = owner
        self._clock = clock
        self._failures: dict[PoolId, int] = {}
        self._looking: set[PoolId] = set()
        self._not_before: dict[PoolId, float] = {}
        self._silent: set[str] = set()

    async def run(self) -> None:
        """Look at pools until cancelled; one that is slow to answer holds up nobody else."""
        async with (
            store.held_until_end(self._database, self._owner),
            anyio.create_task_group() as tasks,
        ):
            while True:
                try:
                    await self._begin_looks(tasks)
                except DatabaseUnavailableError:
                    await self._database.wait_until_available()
                await anyio.sleep(LOOK_EVERY_S)

    async def take_silence(self, reasons: dict[str, str]) -> None:
        """Mark the pools of plugins that are silent, each with its reason; look soon at those of one that is back."""
        if reasons:
            await self._pools.mark_silent(reasons)
        if self._silent - reasons.keys():
            self._not_before.clear()
        self._silent = set(reasons)

    async def _begin_looks(self, tasks: TaskGroup) -> None:
        now = self._clock()
        mine = await self._database.write(lambda c: store.claim(c, owner=self._owner, now=now, ttl_s=LEASE_S))
        due = {
            pool_id: spec
            for pool_id, spec in mine.items()
            if pool_id not in self._looking and self._not_before.get(pool_id, 0.0) <= now
        }
        for number, (pool_id, spec) in enumerate(due.items()):
            self._looking.add(pool_id)
            tasks.start_soon(self._look, pool_id, spec, LOOK_EVERY_S / 2 * number / len(due))

    async def _look(self, pool_id: PoolId, spec: PoolSpec, after_s: float) -> None:
        """Look at one pool, a little after the round began: all at once would be a burst every time."""
        try:
            await anyio.sleep(after_s)
            began = anyio.current_time()
            await self._look_once(pool_id, spec)
            while 0 < self._failures.get(pool_id, 0) < OFFLINE_AFTER:
                await anyio.sleep(max(0.0, began + LOOK_EVERY_S - anyio.current_time()))
                began = anyio.current_time()
                await self._look_once(pool_id, spec)
        finally:
            self._looking.discard(pool_id)

    async def _look_once(self, pool_id: PoolId, spec: PoolSpec) -> None:
        try:
            with anyio.fail_after(LOOK_TIMEOUT_S):
                await self._pools.look(pool_id, spec)
        except DatabaseUnavailableError:
            self._failures.pop(pool_id, None)  # nothing is known of the pool
            log.info("look waits for the database", extra={"pool": spec.name})
        except (YunheError, TimeoutError) as error:
            await self._missed(pool_id, spec, error)
        except Exception as error:
            # A fault in one look must not end the looks at every other pool; nor is a pool that cannot be looked at
            # one to send work to.
            log.exception("look failed, will be repeated", extra={"pool": spec.name})
            await self._missed(
                pool_id, spec, PoolUnreachableError(f"The look at the pool failed: {error!r}.")
            )
        else:
            self._failures.pop(pool_id, None)

    async def _missed(self, pool_id: PoolId, spec: PoolSpec, error: YunheError | TimeoutError) -> None:
        problem = (
            error if isinstance(error, YunheError) else PoolUnreachableError("The pool does not answer.")
        )
        failures = self._failures[pool_id] = self._failures.get(pool_id, 0) + 1
        if failures >= OFFLINE_AFTER:
            await self._pools.note(pool_id, problem)
            self._not_before[pool_id] = self._clock() + SLOWEST_LOOK_EVERY_S
        log.warning("pool does not answer", extra={"pool": spec.name, "problem": str(problem)})
