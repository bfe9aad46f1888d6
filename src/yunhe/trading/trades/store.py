"""Tables of trades: the price book, the ledger, and where each allocation's bill stands."""

import msgspec
import sqlalchemy as sa
from sqlalchemy.engine import Connection

from yunhe.kernel.chains import GENESIS
from yunhe.kernel.ids import AllocationId, PoolId
from yunhe.kernel.money import Tier
from yunhe.storage.database import AnyRow, json_column, metadata
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
_SAID = (
    "seq",
    "at",
    "job_id",
    "project_id",
    "pool_id",
    "tier",
    "amount_micros",
    "reserved_micros",
    "hash",
)
_USED = ("cpu_us", "memory_mib_ms", "io_bytes", "network_bytes")
"""What of a line has a column of its own to search and sum by; its body has everything."""
BALANCES = sa.Table(
    "trade_balance",
    metadata,
    sa.Column("allocation_id", sa.String(40), primary_key=True),
    json_column("body"),
)


def read_price_list(
    connection: Connection, pool_id: PoolId, *, before: int | None = None
) -> PriceList | None:
    """Return a pool's newest price list, or the newest with a version before that one."""
    lists = sa.select(PRICES.c.body).where(PRICES.c.pool_id == pool_id)
    if before is not None:
        lists = lists.where(PRICES.c.version < before)
    row = connection.execute(lists.order_by(PRICES.c.version.desc()).limit(1)).first()
    return None if row is None else msgspec.json.decode(row.body, type=PriceList)


def read_price_lists(connection: Connection, pool_id: PoolId, since: float) -> list[PriceList]:
    """Return the price lists of a pool that were in force at a moment or later, oldest first."""
    lists: list[PriceList] = []
    older = read_price_list(connection, pool_id)
    while older is not None:
        lists.insert(0, older)
        # Most often the newest is old enough, and nothing more is read however long the book has become.
        reaches_back = older.since <= since
        older = None if reaches_back else read_price_list(connection, pool_id, before=older.version)
    return lists


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


def hash_at(connection: Connection, seq: int) -> str:
    """Return the hash of one line; empty where there is no such line."""
    return connection.scalar(sa.select(LEDGER.c.hash).where(LEDGER.c.seq == seq)) or ""


def append_line(connection: Connection, entry: LedgerEntry) -> None:
    """Write one line; a number that is taken is refused by the primary key."""
    said = {name: getattr(entry, name) for name in _SAID}
    used = {name: getattr(entry.used, name) for name in _USED}
    connection.execute(LEDGER.insert().values(**said, **used, body=msgspec.json.encode(entry)))


def read_lines(connection: Connection, after: int, limit: int) -> list[LedgerEntry]:
    """Return lines in order."""
    rows = connection.execute(
        sa.select(LEDGER).where(LEDGER.c.seq > after).order_by(LEDGER.c.seq).limit(limit)
    )
    return [_line(row) for row in rows]


def _line(row: AnyRow) -> LedgerEntry:
    """Return a line as its columns have it: costs are summed from those, so it is those that the chain must vouch for."""
    entry = msgspec.json.decode(row.body, type=LedgerEntry)
    columns = row._mapping  # noqa: SLF001 - SQLAlchemy's public name for a row by column
    used = msgspec.structs.replace(entry.used, **{name: columns[name] for name in _USED})
    said = {name: columns[name] for name in _SAID} | {"tier": Tier(row.tier)}
    return msgspec.structs.replace(entry, **said, used=used)


def read_balance(connection: Connection, allocation_id: AllocationId) -> Balance:
    """Return how far an allocation has been billed."""
    row = connection.execute(
        sa.select(BALANCES.c.body).where(BALANCES.c.allocation_id == allocation_id)
    ).first()
    return Balance() if row is None else msgspec.json.decode(row.body, type=Balance)


def forget_balances(connection: Connection, allocations: list[AllocationId]) -> None:
    """Drop how far allocations have been billed that are over and billed whole; their lines stay."""
    connection.execute(BALANCES.delete().where(BALANCES.c.allocation_id.in_(allocations)))


def write_balance(connection: Connection, allocation_id: AllocationId, balance: Balance) -> None:
    """Note how far an allocation has been billed."""
    connection.execute(BALANCES.delete().where(BALANCES.c.allocation_id == allocation_id))
    connection.execute(
        BALANCES.insert().values(allocation_id=allocation_id, body=msgspec.json.encode(balance))
    )
