"""Tables of perception: prices to weigh, and usage minute by minute with a retention."""

from contextlib import AbstractAsyncContextManager

import msgspec
import sqlalchemy as sa

from yunhe.control.pools.model import UsageMinute
from yunhe.kernel.ids import AllocationId, PoolId
from yunhe.kernel.money import Prices, Tier
from yunhe.storage import leases
from yunhe.storage.database import Connection, Database, insert_if_missing, json_column, metadata
from yunhe.storage.leases import lease_columns

PRICES = sa.Table(
    "perception_price",
    metadata,
    sa.Column("pool_id", sa.String(40), primary_key=True),
    json_column("tiers"),
)
USAGE = sa.Table(
    "perception_usage",
    metadata,
    sa.Column("allocation_id", sa.String(40), primary_key=True),
    sa.Column("minute", sa.BigInteger, primary_key=True),
    json_column("body"),
    sa.Index("ix_perception_usage_minute", "minute"),
)
FEEDS = sa.Table(
    "perception_feed",
    metadata,
    sa.Column("id", sa.String(40), primary_key=True),  # the pool
    sa.Column("seq", sa.BigInteger, nullable=False, server_default="-1"),
    *lease_columns(),
)


def read_prices(connection: Connection) -> dict[PoolId, dict[Tier, Prices]]:
    """Return every pool's prices."""
    return {
        PoolId(row.pool_id): msgspec.json.decode(row.tiers, type=dict[Tier, Prices])
        for row in connection.execute(sa.select(PRICES))
    }


def write_prices(connection: Connection, pool_id: PoolId, tiers: dict[Tier, Prices]) -> None:
    """Replace a pool's prices."""
    connection.execute(PRICES.delete().where(PRICES.c.pool_id == pool_id))
    connection.execute(PRICES.insert().values(pool_id=pool_id, tiers=msgspec.json.encode(tiers)))


def claim_feeds(
    connection: Connection, pools: list[PoolId], *, owner: str, now: float, ttl_s: float
) -> dict[PoolId, int]:
    """Take the feeds of *pools* that nobody reads; return how far each feed held now has been read."""
    for pool_id in pools:
        insert_if_missing(connection, FEEDS, id=pool_id)
    mine = sa.select(FEEDS.c.id).where(FEEDS.c.id.in_(pools))
    leases.claim(connection, FEEDS, mine, owner=owner, now=now, ttl_s=ttl_s)
    held = leases.keep(connection, FEEDS, owner=owner, now=now, ttl_s=ttl_s)
    rows = connection.execute(sa.select(FEEDS.c.id, FEEDS.c.seq).where(FEEDS.c.id.in_(held)))
    return {PoolId(row.id): row.seq for row in rows}


def feeds_held_until_end(database: Database, owner: str) -> AbstractAsyncContextManager[None]:
    """End every lease of *owner* on feeds when the block ends."""
    return leases.held_until_end(database, FEEDS, owner)


def advance_feed(connection: Connection, pool_id: PoolId, seq: int) -> None:
    """Note that a pool's minutes have been read up to *seq*."""
    connection.execute(FEEDS.update().where(FEEDS.c.id == pool_id).values(seq=seq))


def forget_usage(connection: Connection, before: float) -> None:
    """Drop the minutes before a point in time."""
    connection.execute(USAGE.delete().where(USAGE.c.minute < int(before // 60)))


def forget_usage_of(connection: Connection, allocations: list[AllocationId]) -> None:
    """Drop the minutes of allocations that are not in our books any more."""
    connection.execute(USAGE.delete().where(USAGE.c.allocation_id.in_(allocations)))


def write_usage(connection: Connection, minutes: tuple[UsageMinute, ...]) -> None:
    """Keep minutes; one that came before is replaced, so that a repeated delivery counts once."""
    for minute in minutes:
        connection.execute(
            USAGE.delete().where(
                USAGE.c.allocation_id == minute.allocation_id, USAGE.c.minute == minute.minute
            )
        )
        connection.execute(
            USAGE.insert().values(
                allocation_id=minute.allocation_id, minute=minute.minute, body=msgspec.json.encode(minute)
            )
        )


def read_usage(connection: Connection, allocation_id: AllocationId, since: float) -> tuple[UsageMinute, ...]:
    """Return an allocation's minutes in order."""
    rows = connection.execute(
        sa.select(USAGE.c.body)
        .where(USAGE.c.allocation_id == allocation_id, USAGE.c.minute >= int(since // 60))
        .order_by(USAGE.c.minute)
    )
    return tuple(msgspec.json.decode(row.body, type=UsageMinute) for row in rows)
