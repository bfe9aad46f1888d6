"""The audit log: who did, or was refused, what and when; a change and its line are one transaction.

Who acts is known at the door and needed where the change is written, several calls below; it travels as context, so that
no verb in between has to pass it on. A loop of the platform's own acts for nobody and leaves no line.
"""

from collections.abc import Callable
from contextvars import ContextVar
from dataclasses import dataclass

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from yunhe.storage import outbox
from yunhe.storage.database import Database, T, metadata

SUBJECT_LENGTH = 200

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
    connection.execute(
        LOG.insert().values(
            at=at,
            user=by.user,
            key_id=by.key_id,
            action=action,
            subject=subject[:SUBJECT_LENGTH],
            project_id=project_id,
            outcome=outcome,
            detail=detail,
        )
    )


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


def nothing(_: Connection) -> None:
    """Change nothing: for a line that tells of what is done elsewhere."""


def newest_time(connection: Connection) -> float:
    """Return the newest moment that was written down, as an event or in this log; 0 where there is none."""
    tables = (outbox.EVENTS, LOG)
    newest = [sa.select(table.c.at).order_by(table.c.seq.desc()).limit(1) for table in tables]
    return max(connection.scalar(query) or 0.0 for query in newest)
