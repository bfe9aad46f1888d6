"""Trades: the price book, the ledger that grows with every meter reading, and what is owed."""

import logging
from collections.abc import AsyncIterator
from typing import Any

import anyio
import msgspec
import sqlalchemy as sa
from sqlalchemy.engine import Connection

from yunhe.kernel.clock import Clock
from yunhe.kernel.errors import FieldProblem, InvalidInputError
from yunhe.kernel.ids import PoolId, ProjectId
from yunhe.kernel.money import Prices, Tier
from yunhe.observability.failpoints import failpoint
from yunhe.scheduling.orchestration.events import ALLOCATION_METERED, AllocationMetered
from yunhe.scheduling.perception.interface import Perception
from yunhe.storage import audit, outbox
from yunhe.storage.database import Database
from yunhe.trading.trades import store
from yunhe.trading.trades.bill import DEFAULT_CURRENCY, began_at, bill
from yunhe.trading.trades.chain import masked, sealed
from yunhe.trading.trades.model import CostLine, CostQuery, CostReport, LedgerLine, PriceList
from yunhe.trading.trades.price import tier_prices

CONSUMER = "trades"
BATCH = 200
BILL_EVERY_S = 0.5
EXPORT_PAGE = 500

_GROUPS: dict[str, str] = {"job": "job_id", "project": "project_id", "pool": "pool_id"}

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
        if query.by not in _GROUPS:
            raise InvalidInputError(
                f"Costs cannot be grouped by {query.by!r}.",
                remedy="Use job, project or pool.",
                fields=(FieldProblem("by", "must be job, project or pool", query.by),),
            )
        rows = await self._database.read(lambda connection: list(connection.execute(_costs(query))))
        lines = tuple(
            CostLine(
                key=row.key,
                tier=row.tier if row.tiers == 1 else "mixed",
                entries=row.entries,
                cpu_us=int(row.cpu_us),
                memory_mib_ms=int(row.memory_mib_ms),
                io_bytes=int(row.io_bytes),
                network_bytes=None if row.network_bytes is None else int(row.network_bytes),
                amount_micros=int(row.amount_micros),
                reserved_micros=int(row.reserved_micros),
                currency=DEFAULT_CURRENCY,
            )
            for row in rows
        )
        return CostReport(
            by=query.by,
            lines=lines,
            amount_micros=sum(line.amount_micros for line in lines),
            reserved_micros=sum(line.reserved_micros for line in lines),
            currency=DEFAULT_CURRENCY,
        )

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


def _costs(query: CostQuery) -> sa.Select[Any]:
    ledger = store.LEDGER.c
    key = ledger[_GROUPS[query.by]].label("key")
    columns = [
        sa.func.sum(column).label(column.name)
        for column in (ledger.cpu_us, ledger.memory_mib_ms, ledger.io_bytes, ledger.network_bytes)
    ]
    money = [
        sa.func.sum(column).label(column.name) for column in (ledger.amount_micros, ledger.reserved_micros)
    ]
    selected = sa.select(
        key,
        sa.func.count().label("entries"),
        sa.func.min(ledger.tier).label("tier"),
        sa.func.count(sa.distinct(ledger.tier)).label("tiers"),
        *columns,
        *money,
    )
    if query.projects is not None:
        selected = selected.where(ledger.project_id.in_(query.projects))
    if query.job_id is not None:
        selected = selected.where(ledger.job_id == query.job_id)
    if query.since is not None:
        selected = selected.where(ledger.at >= query.since)
    if query.until is not None:
        selected = selected.where(ledger.at < query.until)
    return selected.group_by(key).order_by(sa.func.max(ledger.seq).desc()).limit(query.limit)
