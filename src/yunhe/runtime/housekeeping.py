"""Housekeeping: removes what is older, or more, than is kept; see ``Retention`` for how long that is.

One server process does this at a time, in many small transactions. Each leaves the database as it should be, counters
of quotas included, so that dying between two of them loses nothing: the next sweep goes on.
"""

import logging

import anyio

from yunhe.kernel.clock import Clock
from yunhe.kernel.errors import FencedError
from yunhe.observability.failpoints import failpoint
from yunhe.runtime.limits import DAY_S
from yunhe.runtime.notary import Notary
from yunhe.runtime.settings import Settings
from yunhe.scheduling.orchestration.jobs import retention_store, submission_store
from yunhe.scheduling.orchestration.jobs.retention_store import PruneBounds
from yunhe.scheduling.perception import store as usage_store
from yunhe.storage import outbox
from yunhe.storage.blobs import Blobs
from yunhe.storage.database import Connection, Database
from yunhe.storage.sweeps import Sweep
from yunhe.trading.accounts import store as account_store
from yunhe.trading.trades import store as trade_store

EVENTS_KEPT_S = 7 * DAY_S
KEYS_KEPT_S = 7 * DAY_S
MOST_IDEMPOTENCY_KEYS = 100_000
"""Of one user."""
MOST_ROUNDS = 100_000
AT_ONCE = 100
"""Jobs, blobs or logs in one transaction."""
LEASE_S = 60.0

log = logging.getLogger(__name__)


class Housekeeping:
    """Sweeps again and again, while no other process does."""

    def __init__(
        self,
        database: Database,
        blobs: Blobs,
        notary: Notary,
        clock: Clock,
        settings: Settings,
        owner: str,
    ) -> None:
        self._blobs = blobs
        self._notary = notary
        self._clock = clock
        self._kept = settings.retention
        self._audit_s = settings.audit_retention_s
        self._sweep = Sweep(database, "housekeeping", owner, LEASE_S)
        self._database = database

    async def run(self) -> None:
        """Sweep until cancelled."""
        while True:
            await self.sweep()
            await anyio.sleep(self._kept.sweep_s)

    async def sweep(self) -> bool:
        """Remove everything that is not kept any more; return whether it was for this process to do."""
        if not await self._sweep.begin(self._clock()):
            return False
        try:
            await self._forget_small()
            await self._forget_blobs()
            await self._forget_logs()
            await self._forget_jobs()
            await self._forget_audit()
        except FencedError:
            log.info("another process sweeps")
            return False
        finally:
            with anyio.CancelScope(shield=True):
                await self._sweep.end()
        return True

    async def _forget_small(self) -> None:
        now, kept = self._clock(), self._kept

        def forget(connection: Connection) -> None:
            outbox.forget_before(connection, now - EVENTS_KEPT_S, kept.events)
            submission_store.forget_before(connection, now - KEYS_KEPT_S, MOST_IDEMPOTENCY_KEYS)
            usage_store.forget_usage(connection, now - kept.usage_days * DAY_S)
            account_store.forget_keys(connection, now - kept.keys_days * DAY_S)
            retention_store.forget_wait_reasons(connection, now)
            retention_store.forget_rounds(connection, MOST_ROUNDS)

        await self._sweep.write(forget, now)

    async def _forget_blobs(self) -> None:
        before = self._clock() - self._kept.blobs_days * DAY_S
        gone = AT_ONCE
        while gone >= AT_ONCE:
            gone = await self._sweep.write(
                lambda c: self._blobs.forget_some(c, before, AT_ONCE), self._clock()
            )
        while await self._blobs.remove_contents(AT_ONCE) >= AT_ONCE:
            await self._sweep.write(lambda _: None, self._clock())  # so that the lease does not end meanwhile
        while await self._blobs.move_row():
            await self._sweep.write(lambda _: None, self._clock())

    async def _forget_logs(self) -> None:
        before, after = self._clock() - self._kept.logs_days * DAY_S, ""
        while True:
            after = await self._sweep.write(
                lambda c, a=after: retention_store.forget_logs(c, a, before, AT_ONCE), self._clock()
            )
            if not after:
                return

    async def _forget_jobs(self) -> None:
        before = self._clock() - self._kept.jobs_days * DAY_S
        bounds = PruneBounds(before, self._kept.ended_jobs, AT_ONCE)
        for project_id in await self._database.read(retention_store.projects_with_jobs):
            while await self._sweep.write(lambda c, p=project_id: _prune(c, p, bounds), self._clock()):
                failpoint("prune-after-commit")

    async def _forget_audit(self) -> None:
        now = self._clock()
        await self._notary.prune_audit(
            now - self._audit_s,
            most=self._kept.audit_lines,
            guard=lambda c: self._sweep.guard(c, now),
        )


def _prune(connection: Connection, project_id: str, bounds: PruneBounds) -> bool:
    """Remove some jobs with all that is known of them but for what they cost; return whether there were any."""
    allocations = retention_store.prune_jobs(connection, project_id, bounds)
    if allocations is None:
        return False
    usage_store.forget_usage_of(connection, allocations)
    trade_store.forget_balances(connection, allocations)
    failpoint("prune-before-commit")
    return True
