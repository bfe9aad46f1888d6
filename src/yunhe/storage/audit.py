"""The audit log: who did, or was refused, what and when; a change and its line are one transaction.

Who acts is known at the door and needed where the change is written, several calls below; it travels as context, so that
no verb in between has to pass it on. A loop of the platform's own acts for nobody and leaves no line.
"""

from collections.abc import Callable
from contextvars import ContextVar
from dataclasses import dataclass

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from yunhe.kernel.chains import AUDITED, GENESIS, ChainHead, digest_of, link
from yunhe.storage import outbox
from yunhe.storage.database import Database, T, metadata

SUBJECT_LENGTH = 200
_CHAIN_LOCK = 0x59554E43
SEALED_AT_ONCE = 500
LATE_LINES = 10_000
"""How many lines that took a later number may be in the chain before a line whose transaction took long."""
DETAIL_LENGTH = 500
"""Lines are summaries: who sends much does not fill the log with it."""

LOG = sa.Table(
    "account_audit",
    metadata,
    sa.Column(
        "seq", sa.BigInteger().with_variant(sa.Integer, "sqlite"), primary_key=True, autoincrement=True
    ),
    sa.Column("at", sa.Float, nullable=False),
    sa.Column("user", sa.String(64), nullable=False),
    sa.Column("key_id", sa.String(40), nullable=False),
    sa.Column("action", sa.String(64), nullable=False),
    sa.Column("subject", sa.String(SUBJECT_LENGTH), nullable=False),
    sa.Column("project_id", sa.String(64), nullable=False),
    sa.Column("outcome", sa.String(16), nullable=False),
    sa.Column("detail", sa.Text, nullable=False),
    sqlite_autoincrement=True,
)
_APPEND = LOG.insert().inline()

CHAIN = sa.Table(
    "account_audit_chain",
    metadata,
    sa.Column("number", sa.BigInteger, primary_key=True, autoincrement=False),
    sa.Column("seq", sa.BigInteger, nullable=False, unique=True, index=True),
    sa.Column("previous", sa.String(64), nullable=False),
    sa.Column("hash", sa.String(64), nullable=False),
)
"""Where each line stands in the hash chain; lines themselves are never changed."""


@dataclass(frozen=True, slots=True)
class Actor:
    """Who asks for a change, and with which key."""

    user: str
    key_id: str = ""


_acting: ContextVar[Actor | None] = ContextVar("acting", default=None)


def act_as(actor: Actor) -> None:
    """Let what follows in this context be *actor*'s doing."""
    _acting.set(actor)


def actor() -> Actor | None:
    """Return who acts; ask before the transaction begins, which may run in another thread."""
    return _acting.get()


def append(  # noqa: PLR0913 - one for each column
    connection: Connection,
    by: Actor | None,
    at: float,
    action: str,
    subject: str = "",
    *,
    project_id: str = "",
    outcome: str = "done",
    detail: str = "",
) -> None:
    """Write one line, in the transaction of the change it tells of; nothing where nobody acts."""
    if by is None:
        return
    row = {
        "at": at,
        "user": by.user[:64],
        "key_id": by.key_id,
        "action": action,
        "subject": subject[:SUBJECT_LENGTH],
        "project_id": project_id[:64],
        "outcome": outcome,
        "detail": detail[:DETAIL_LENGTH],
    }
    connection.execute(_APPEND, row)


async def change(  # noqa: PLR0913 - one for each column
    database: Database,
    work: Callable[[Connection], T],
    at: float,
    action: str,
    subject: str,
    *,
    project_id: str = "",
    outcome: str = "done",
    detail: str = "",
) -> T:
    """Do *work* and write its line, or neither."""
    by = actor()

    def write(connection: Connection) -> T:
        made = work(connection)
        append(connection, by, at, action, subject, project_id=project_id, outcome=outcome, detail=detail)
        return made

    return await database.write(write)


def seal_batch(connection: Connection, cut: ChainHead | None, *, whole: bool) -> int:
    """Tie the oldest lines that are not in the chain yet to its end; return how many.

    Transactions commit in another order than they took their ``seq``, so a line's place in the chain is its ``number``,
    given here. One process does this at a time, and a number is unique: the chain cannot fork. Only the newest lines are
    looked at unless *whole*: none commits so late, but one that did is found then.
    """
    if connection.dialect.name == "postgresql":
        connection.execute(sa.select(sa.func.pg_advisory_xact_lock(_CHAIN_LOCK)))
    number, previous = tip(connection, cut)
    unsealed = sa.select(LOG).where(~sa.exists().where(CHAIN.c.seq == LOG.c.seq))
    if not whole:
        newest = connection.scalar(sa.select(sa.func.max(CHAIN.c.seq))) or 0
        unsealed = unsealed.where(LOG.c.seq > newest - LATE_LINES)
    sealed: list[dict[str, object]] = []
    for row in connection.execute(unsealed.order_by(LOG.c.seq).limit(SEALED_AT_ONCE)).all():
        number += 1
        hashed = link(previous, digest_of({name: getattr(row, name) for name in AUDITED}))
        sealed.append({"number": number, "seq": row.seq, "previous": previous, "hash": hashed})
        previous = hashed
    if sealed:
        connection.execute(CHAIN.insert(), sealed)
    return len(sealed)


def tip(connection: Connection, cut: ChainHead | None) -> tuple[int, str]:
    """Return the number and hash of the last line in the chain; of the *cut* where there is none after it."""
    last = sa.select(CHAIN.c.number, CHAIN.c.hash).order_by(CHAIN.c.number.desc()).limit(1)
    row = connection.execute(last).first()
    if row is not None:
        return row.number, row.hash
    return (0, GENESIS) if cut is None else (cut.lines, cut.hash)


def hash_at(connection: Connection, number: int) -> str:
    """Return the hash of one line of the chain, computed from what the line says now; empty where it is gone."""
    line = sa.select(LOG, CHAIN.c.previous, CHAIN.c.hash).join(CHAIN, CHAIN.c.seq == LOG.c.seq)
    row = connection.execute(line.where(CHAIN.c.number == number)).first()
    return (
        "" if row is None else link(row.previous, digest_of({name: getattr(row, name) for name in AUDITED}))
    )


def cut_before(connection: Connection, before: float, most: int | None = None) -> tuple[int, str] | None:
    """Return the last of the oldest lines that are all from before a moment, or beyond the *most* that stay; None: none.

    The newest line stays, so that the chain has an end.
    """
    number = sa.select(CHAIN.c.number).join(LOG, CHAIN.c.seq == LOG.c.seq)
    kept = number.where(LOG.c.at >= before).order_by(CHAIN.c.number).limit(1)
    last = tip(connection, None)[0]
    first_kept = connection.scalar(kept) or last
    if most is not None:
        first_kept = max(first_kept, last - max(1, most) + 1)
    found = connection.scalar(sa.select(sa.func.max(CHAIN.c.number)).where(CHAIN.c.number < first_kept))
    return None if found is None else (found, hash_at(connection, found))


def remove_through(connection: Connection, number: int) -> None:
    """Remove the lines of the chain up to *number*; the database lets only those go that a signed cut covers."""
    gone = sa.select(CHAIN.c.seq).where(CHAIN.c.number <= number)
    connection.execute(LOG.delete().where(LOG.c.seq.in_(gone)))
    connection.execute(CHAIN.delete().where(CHAIN.c.number <= number))


def nothing(_: Connection) -> None:
    """Change nothing: for a line that tells of what is done elsewhere."""


def newest_time(connection: Connection) -> float:
    """Return the newest moment that was written down, as an event or in this log; 0 where there is none."""
    tables = (outbox.EVENTS, LOG)
    newest = [sa.select(table.c.at).order_by(table.c.seq.desc()).limit(1) for table in tables]
    return max(connection.scalar(query) or 0.0 for query in newest)
