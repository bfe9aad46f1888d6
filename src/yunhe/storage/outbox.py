"""The outbox: facts written in the transaction that made them true, read in order by whoever listens."""

from collections.abc import Mapping
from typing import Any

import msgspec
import sqlalchemy as sa
from sqlalchemy.engine import Connection

from yunhe.storage.database import insert_if_missing, json_column, metadata

EVENTS = sa.Table(
    "outbox_event",
    metadata,
    sa.Column(
        "seq", sa.BigInteger().with_variant(sa.Integer, "sqlite"), primary_key=True, autoincrement=True
    ),
    sa.Column("topic", sa.String(80), nullable=False),
    sa.Column("key", sa.String(80), nullable=False),
    sa.Column("at", sa.Float, nullable=False),
    json_column("body"),
    sqlite_autoincrement=True,
)
CURSORS = sa.Table(
    "outbox_cursor",
    metadata,
    sa.Column("consumer", sa.String(80), primary_key=True),
    sa.Column("seq", sa.BigInteger, nullable=False),
)

_APPEND = EVENTS.insert().inline()
_APPEND_LOCK = 0x59554E48  # any constant; one per purpose


class Event(msgspec.Struct, frozen=True):
    """A fact: its topic says its type, its key whom it concerns."""

    seq: int
    topic: str
    key: str
    at: float
    body: bytes


def append(connection: Connection, topic: str, key: str, at: float, body: Any) -> None:
    """Write a fact in the transaction that makes it true."""
    append_many(connection, topic, at, {key: body})


def append_many(connection: Connection, topic: str, at: float, bodies: Mapping[str, Any]) -> None:
    """Write facts of one topic, by key.

    On PostgreSQL sequence numbers are drawn before commits happen; the lock makes their order the order of commits,
    so that a reader that has seen number n will never find a smaller one appear.
    """
    if connection.dialect.name == "postgresql":
        connection.execute(sa.select(sa.func.pg_advisory_xact_lock(_APPEND_LOCK)))
    connection.execute(
        _APPEND,
        [
            {"topic": topic, "key": key, "at": at, "body": msgspec.json.encode(body)}
            for key, body in bodies.items()
        ],
    )


def read(connection: Connection, topics: tuple[str, ...], after: int, limit: int) -> list[Event]:
    """Return facts on *topics* in order, beyond *after*."""
    return _read(connection, EVENTS.c.topic.in_(topics) & (EVENTS.c.seq > after), limit)


def read_all(connection: Connection, after: int, limit: int) -> list[Event]:
    """Return facts on every topic in order, beyond *after*."""
    return _read(connection, EVENTS.c.seq > after, limit)


def _read(connection: Connection, which: sa.ColumnElement[bool], limit: int) -> list[Event]:
    rows = connection.execute(sa.select(EVENTS).where(which).order_by(EVENTS.c.seq).limit(limit))
    return [Event(row.seq, row.topic, row.key, row.at, row.body) for row in rows]


def cursor(connection: Connection, consumer: str) -> int:
    """Return how far *consumer* has come, locking it until the transaction ends; a new one starts at the beginning."""
    insert_if_missing(connection, CURSORS, consumer=consumer, seq=0)
    mine = sa.select(CURSORS.c.seq).where(CURSORS.c.consumer == consumer).with_for_update()
    return connection.execute(mine).scalar_one()


def advance(connection: Connection, consumer: str, seq: int) -> None:
    """Note that *consumer* has dealt with everything up to *seq*; in the same transaction as what it did."""
    connection.execute(CURSORS.update().where(CURSORS.c.consumer == consumer).values(seq=seq))


def newest(connection: Connection) -> int:
    """Return the last sequence number written."""
    return connection.scalar(sa.select(sa.func.coalesce(sa.func.max(EVENTS.c.seq), 0))) or 0


def dealt_with(connection: Connection) -> int:
    """Return how far every consumer has come."""
    return connection.scalar(sa.select(sa.func.coalesce(sa.func.min(CURSORS.c.seq), 0))) or 0


def forget_before(connection: Connection, at: float, most: int | None = None) -> int:
    """Drop facts older than *at*, and the oldest beyond the *most* that are kept; none that a consumer has not dealt with."""
    old = EVENTS.c.at < at
    if most is not None:
        old |= EVENTS.c.seq <= newest(connection) - most
    return connection.execute(EVENTS.delete().where(old, EVENTS.c.seq <= dealt_with(connection))).rowcount
