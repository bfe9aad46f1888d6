"""Tables of trades: the price book, the ledger, and where each allocation's bill stands."""

import msgspec
import sqlalchemy as sa
from sqlalchemy.engine import Connection

from yunhe.kernel.ids import AllocationId, PoolId
from yunhe.storage.database import json_column, metadata
from yunhe.trading.trades.chain import GENESIS
from yunhe.trading.trades.model import Balance, LedgerEntry, PriceList

PRICES = sa.Table(
    "trade_price",
    metadata,
    sa.Column("pool_id", sa.String(40), primary_key=True),
    sa.Column("version", sa.Integer, primary_key=True),
    json_column("body"),
)
LEDGER = sa.Table(
    "trade_ledger",
    metadata,
    sa.Column("seq", sa.BigInteger, primary_key=True, autoincrement=False),
    sa.Column("at", sa.Float, nullable=False, index=True),
    sa.Column("job_id", sa.String(40), nullable=False, index=True),
    sa.Column("project_id", sa.String(64), nullable=False, index=True),
    sa.Column("pool_id", sa.String(40), nullable=False, index=True),
    sa.Column("tier", sa.String(16), nullable=False),
    sa.Column("cpu_us", sa.BigInteger, nullable=False),
    sa.Column("memory_mib_ms", sa.BigInteger, nullable=False),
    sa.Column("io_bytes", sa.BigInteger, nullable=False),
    sa.Column("network_bytes", sa.BigInteger),
    sa.Column("amount_micros", sa.BigInteger, nullable=False),
    sa.Column("reserved_micros", sa.BigInteger, nullable=False),
    sa.Column("hash", sa.String(64), nullable=False),
    json_column("body"),
)
BALANCES = sa.Table(
    "trade_balance",
    metadata,
    sa.Column("allocation_id", sa.String(40), primary_key=True),
    json_column("body"),
)


def read_price_list(connection: Connection, pool_id: PoolId) -> PriceList | None:
    """Return a pool's newest price list."""
    row = connection.execute(
        sa.select(PRICES.c.body).where(PRICES.c.pool_id == pool_id).order_by(PRICES.c.version.desc()).limit(1)
    ).first()
    return None if row is None else msgspec.json.decode(row.body, type=PriceList)


def write_price_list(connection: Connection, prices: PriceList) -> None:
    """Add a price list; older ones stay, for the bills made by them."""
    connection.execute(
        PRICES.insert().values(
            pool_id=prices.pool_id, version=prices.version, body=msgspec.json.encode(prices)
        )
    )


def last_line(connection: Connection) -> tuple[int, str]:
    """Return the number and hash of the ledger's last line."""
    row = connection.execute(
        sa.select(LEDGER.c.seq, LEDGER.c.hash).order_by(LEDGER.c.seq.desc()).limit(1)
    ).first()
    return (0, GENESIS) if row is None else (row.seq, row.hash)


def append_line(connection: Connection, entry: LedgerEntry) -> None:
    """Write one line; a number that is taken is refused by the primary key."""
    connection.execute(
        LEDGER.insert().values(
            seq=entry.seq,
            at=entry.at,
            job_id=entry.job_id,
            project_id=entry.project_id,
            pool_id=entry.pool_id,
            tier=entry.tier,
            cpu_us=entry.used.cpu_us,
            memory_mib_ms=entry.used.memory_mib_ms,
            io_bytes=entry.used.io_bytes,
            network_bytes=entry.used.network_bytes,
            amount_micros=entry.amount_micros,
            reserved_micros=entry.reserved_micros,
            hash=entry.hash,
            body=msgspec.json.encode(entry),
        )
    )


def read_lines(connection: Connection, after: int, limit: int) -> list[LedgerEntry]:
    """Return lines in order."""
    rows = connection.execute(
        sa.select(LEDGER.c.body).where(LEDGER.c.seq > after).order_by(LEDGER.c.seq).limit(limit)
    )
    return [msgspec.json.decode(row.body, type=LedgerEntry) for row in rows]


def read_balance(connection: Connection, allocation_id: AllocationId) -> Balance:
    """Return how far an allocation has been billed."""
    row = connection.execute(
        sa.select(BALANCES.c.body).where(BALANCES.c.allocation_id == allocation_id)
    ).first()
    return Balance() if row is None else msgspec.json.decode(row.body, type=Balance)


def write_balance(connection: Connection, allocation_id: AllocationId, balance: Balance) -> None:
    """Note how far an allocation has been billed."""
    connection.execute(BALANCES.delete().where(BALANCES.c.allocation_id == allocation_id))
    connection.execute(
        BALANCES.insert().values(allocation_id=allocation_id, body=msgspec.json.encode(balance))
    )
