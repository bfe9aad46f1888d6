"""Housekeeping: forgetting what nobody will ask for again."""

import anyio

from yunhe.kernel.clock import Clock
from yunhe.scheduling.orchestration.jobs.submission_store import forget_before
from yunhe.storage import outbox
from yunhe.storage.blobs import Blobs
from yunhe.storage.database import Connection, Database

EVERY_S = 600.0
EVENTS_KEPT_S = 7 * 86400.0
KEYS_KEPT_S = 7 * 86400.0


class Housekeeping:
    """Drops old facts, idempotency keys and archives; repeating it is harmless."""

    def __init__(self, database: Database, blobs: Blobs, clock: Clock, blobs_kept_s: float) -> None:
        self._database = database
        self._blobs = blobs
        self._clock = clock
        self._blobs_kept_s = blobs_kept_s

    async def run(self) -> None:
        """Clean up until cancelled."""
        while True:
            now = self._clock()

            def forget(connection: Connection, now: float = now) -> None:
                outbox.forget_before(connection, now - EVENTS_KEPT_S)
                forget_before(connection, now - KEYS_KEPT_S)

            await self._database.write(forget)
            await self._blobs.forget_before(now - self._blobs_kept_s)
            await anyio.sleep(EVERY_S)
