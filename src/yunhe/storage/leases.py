"""Leases on rows: claim, keep, let go. The token fences out whoever held the row before."""

from collections.abc import AsyncGenerator, Iterable
from contextlib import asynccontextmanager
from typing import Any

import anyio
import sqlalchemy as sa

from yunhe.kernel.errors import FencedError
from yunhe.storage.database import AnyRow, Connection, Database, metadata


def lease_columns() -> tuple[sa.Column[Any], ...]:
    """Return the columns that make a table's rows claimable."""
    return (
        sa.Column("lease_owner", sa.String(64), nullable=False, server_default=""),
        sa.Column("lease_until", sa.Float, nullable=False, server_default="0"),
        sa.Column("lease_token", sa.BigInteger, nullable=False, server_default="0"),
    )


def claim(
    connection: Connection, table: sa.Table, rows: sa.Select[Any], *, owner: str, now: float, ttl_s: float
) -> list[AnyRow]:
    """Take the free rows among *rows* (a select of the table's ``id``); each gets a new token."""
    free = rows.where(table.c.lease_until < now).with_for_update(skip_locked=True)
    ids = list(connection.scalars(free))
    if not ids:
        return []
    connection.execute(
        table.update()
        .where(table.c.id.in_(ids))
        .values(lease_owner=owner, lease_until=now + ttl_s, lease_token=table.c.lease_token + 1)
    )
    return list(connection.execute(table.select().where(table.c.id.in_(ids))))


def keep(connection: Connection, table: sa.Table, *, owner: str, now: float, ttl_s: float) -> set[str]:
    """Prolong every lease of *owner* and return the IDs still held.

    One that has run out and that nobody has claimed is prolonged too: its token is still the newest.
    """
    connection.execute(table.update().where(table.c.lease_owner == owner).values(lease_until=now + ttl_s))
    return set(connection.scalars(sa.select(table.c.id).where(table.c.lease_owner == owner)))


def apply(connection: Connection, table: sa.Table, row_id: str, token: int, **values: Any) -> None:
    """Change a row if the lease with *token* still stands; raise ``FencedError`` otherwise."""
    changed = connection.execute(
        table.update().where(table.c.id == row_id, table.c.lease_token == token).values(**values)
    )
    if changed.rowcount != 1:
        raise FencedError(f"The lease on {row_id} has passed to another process.")


def count_held(connection: Connection, *, owner: str, now: float) -> dict[str, float]:
    """Return how many leases *owner* holds in each table that has leases."""
    return {
        table.name: connection.scalar(
            sa.select(sa.func.count()).where(table.c.lease_owner == owner, table.c.lease_until >= now)
        )
        or 0
        for table in metadata.tables.values()
        if "lease_owner" in table.c
    }


def end_all(connection: Connection) -> None:
    """End every lease of every table: for a process that knows it is the only one."""
    for table in metadata.tables.values():
        if "lease_until" in table.c:
            connection.execute(table.update().values(lease_owner="", lease_until=0))


@asynccontextmanager
async def held_until_end(database: Database, table: sa.Table, owner: str) -> AsyncGenerator[None]:
    """End every lease of *owner* when the block ends, so that others need not wait for them to run out."""
    try:
        yield
    finally:
        with anyio.CancelScope(shield=True):
            await database.write(lambda connection: let_go(connection, table, owner=owner))


def let_go(connection: Connection, table: sa.Table, *, owner: str, ids: Iterable[str] | None = None) -> None:
    """End leases of *owner* (all, or those on *ids*) so that others may claim at once."""
    mine = table.update().where(table.c.lease_owner == owner)
    if ids is not None:
        mine = mine.where(table.c.id.in_(list(ids)))
    connection.execute(mine.values(lease_owner="", lease_until=0))
