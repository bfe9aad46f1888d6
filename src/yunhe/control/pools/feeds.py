"""Feeds: facts of pools that are read from an address again and again."""

import logging

import anyio
import httpx
import msgspec

from yunhe.control.pools import store
from yunhe.control.pools.model import Fact, FactSource
from yunhe.kernel.carbon import CarbonSeries, parse_carbon
from yunhe.kernel.clock import Clock
from yunhe.kernel.errors import DatabaseUnavailableError
from yunhe.kernel.ids import PoolId
from yunhe.storage.database import Database

TICK_S = 1.0
ANSWER_WITHIN_S = 10.0
LARGEST_BYTES = 1024 * 1024

log = logging.getLogger(__name__)


class CarbonFeeds:
    """Reads the feeds of the pools that this process looks after, each every *every_s* seconds."""

    def __init__(self, database: Database, owner: str, clock: Clock, every_s: float) -> None:
        self._database = database
        self._owner = owner
        self._clock = clock
        self._every_s = every_s
        self._read_at: dict[tuple[PoolId, str], float] = {}

    async def run(self) -> None:
        """Read feeds until cancelled; one that does not answer holds up nobody else."""
        async with httpx.AsyncClient(timeout=ANSWER_WITHIN_S) as web:
            while True:
                try:
                    await self._read_due(web)
                except DatabaseUnavailableError:
                    await self._database.wait_until_available()
                await anyio.sleep(min(TICK_S, self._every_s))

    async def _read_due(self, web: httpx.AsyncClient) -> None:
        known = await self._database.read(lambda c: store.read_feeds(c, self._owner))
        feeds = {(pool_id, msgspec.convert(fact.value, CarbonSeries).feed) for pool_id, fact in known.items()}
        self._read_at = {feed: at for feed, at in self._read_at.items() if feed in feeds}
        now = self._clock()
        async with anyio.create_task_group() as tasks:
            for pool_id, feed in sorted(feeds):
                if feed and now - self._read_at.get((pool_id, feed), 0.0) >= self._every_s:
                    self._read_at[pool_id, feed] = now
                    tasks.start_soon(self._read, web, pool_id, feed)

    async def _read(self, web: httpx.AsyncClient, pool_id: PoolId, feed: str) -> None:
        try:
            with anyio.fail_after(ANSWER_WITHIN_S):
                series = parse_carbon(await _text(web, feed))
        except (httpx.HTTPError, TimeoutError, ValueError) as error:
            problem = f"The feed cannot be read: {str(error) or type(error).__name__}."
            log.warning("feed cannot be read", extra={"pool": pool_id, "problem": problem})
            await self._database.write(lambda c: store.note_feed(c, pool_id, feed, problem=problem))
            return
        series = msgspec.structs.replace(series, feed=feed)
        fact = Fact(value=msgspec.to_builtins(series), source=FactSource.REPORTED, at=self._clock())
        await self._database.write(lambda c: store.note_feed(c, pool_id, feed, fact=fact))


async def _text(web: httpx.AsyncClient, feed: str) -> str:
    """Return what an address answers; raise ``ValueError`` if that is no answer or too much of one."""
    body = bytearray()
    async with web.stream("GET", feed) as answer:
        if not answer.is_success:
            raise ValueError(f"it answered {answer.status_code}")
        async for piece in answer.aiter_bytes():
            body += piece
            if len(body) > LARGEST_BYTES:
                raise ValueError(f"it has more than {LARGEST_BYTES} bytes")
    return body.decode()
