"""Trades: the price book, the ledger that grows with every meter reading, and what is owed."""

import logging
from collections.abc import AsyncIterator

import anyio
import msgspec

from yunhe.kernel.clock import Clock
from yunhe.kernel.ids import PoolId, ProjectId
from yunhe.kernel.money import Prices, Tier
from yunhe.observability.failpoints import failpoint
from yunhe.scheduling.orchestration.jobs.events import ALLOCATION_METERED, AllocationMetered
from yunhe.scheduling.perception.interface import Perception
from yunhe.storage import audit, outbox
from yunhe.storage.database import Connection, Database
from yunhe.trading.trades import store
from yunhe.trading.trades.bill import began_at, bill
from yunhe.trading.trades.chain import masked, sealed
from yunhe.trading.trades.costs_store import report
from yunhe.trading.trades.model import CostQuery, CostReport, LedgerLine, PriceList
from yunhe.trading.trades.price import tier_prices

CONSUMER = "trades"
BATCH = 200
BILL_EVERY_S = 0.5
EXPORT_PAGE = 500

log = logging.getLogger(__name__)


class TradeService:
    """Implements ``Trades``."""

    def __init__(self, database: Database, perception: Perception, clock: Clock) -> None:
        self._database = database
        self._perception = perception
        self._clock = clock

    async def check_prices(self, high: Prices) -> None:
        """Refuse prices that could not be published."""
        tier_prices(high)

    async def publish_prices(
        self, pool_id: PoolId, high: Prices, tiers: dict[Tier, Prices] | None = None
    ) -> PriceList:
        """Set what a pool charges from now on; the same prices again change nothing."""
        wanted, by = tier_prices(high, tiers), audit.actor()

        def publish(connection: Connection) -> PriceList:
            known = store.read_price_list(connection, pool_id)
            if known is not None and known.tiers == wanted:
                return known
            prices = PriceList(
                pool_id=pool_id,
                version=(known.version if known else 0) + 1,
                # Clocks of servers differ and are set back; a list never begins before the one it follows.
                since=max(self._clock(), known.since if known else 0.0),
                tiers=wanted,
            )
            store.write_price_list(connection, prices)
            audit.append(
                connection, by, prices.since, "price set", pool_id, detail=f"version {prices.version}"
            )
            return prices

        prices = await self._database.write(publish)
        failpoint("prices-after-commit")
        await self._perception.set_prices(pool_id, prices.tiers)
        return prices

    async def price_list(self, pool_id: PoolId) -> PriceList | None:
        """Return what a pool charges now."""
        return await self._database.read(lambda connection: store.read_price_list(connection, pool_id))

    async def costs(self, query: CostQuery) -> CostReport:
        """Return what was used and is owed."""
        return await self._database.read(lambda connection: report(connection, query))

    async def export(self, projects: tuple[ProjectId, ...] | None = None) -> AsyncIterator[LedgerLine]:
        """Yield the ledger from its first line; lines of others are masked."""
        after = 0
        while True:
            page = await self._database.read(lambda c, a=after: store.read_lines(c, a, EXPORT_PAGE))
            for entry in page:
                yield entry if projects is None or entry.project_id in projects else masked(entry)
            if len(page) < EXPORT_PAGE:
                return
            after = page[-1].seq


class Biller:
    """Turns meter readings into lines of the ledger, each exactly once."""

    def __init__(self, database: Database, clock: Clock) -> None:
        self._database = database
        self._clock = clock

    async def run(self) -> None:
        """Bill until cancelled."""
        while True:
            billed = await self._database.write(self.bill_batch)
            if billed:
                failpoint("bill-after-commit")
            if billed < BATCH:
                await anyio.sleep(BILL_EVERY_S)

    def bill_batch(self, connection: Connection) -> int:
        """Bill the next readings; the cursor moves in the same transaction, so that none is billed twice or missed."""
        after = outbox.cursor(connection, CONSUMER)
        events = outbox.read(connection, (ALLOCATION_METERED,), after, BATCH)
        if not events:
            return 0
        seq, previous = store.last_line(connection)
        for event in events:
            reading = msgspec.json.decode(event.body, type=AllocationMetered)
            balance = store.read_balance(connection, reading.allocation_id)
            since = began_at(reading, event.at) + balance.to_ms / 1000
            book = store.read_price_lists(connection, reading.pool_id, since)
            entries, balance = bill(reading, balance, book, event.at)
            for entry in entries:
                seq += 1
                line = sealed(msgspec.structs.replace(entry, seq=seq), previous)
                previous = line.hash
                store.append_line(connection, line)
            store.write_balance(connection, reading.allocation_id, balance)
        failpoint("bill-before-commit")
        outbox.advance(connection, CONSUMER, events[-1].seq)
        return len(events)
