"""Table of applications: which answer an idempotency key has had."""

import msgspec
import sqlalchemy as sa
from sqlalchemy.engine import Connection

from yunhe.kernel.errors import ConflictError
from yunhe.kernel.ids import JobId
from yunhe.storage.database import insert_if_missing, json_column, metadata

SUBMISSIONS = sa.Table(
    "application_submission",
    metadata,
    sa.Column("user_id", sa.String(40), primary_key=True),
    sa.Column("key", sa.String(128), primary_key=True),
    sa.Column("body_digest", sa.String(64), nullable=False),
    json_column("job_ids"),
    sa.Column("at", sa.Float, nullable=False),
)


def first_answer(
    connection: Connection, user_id: str, key: str, body_digest: str, answer: tuple[list[JobId], float]
) -> list[JobId]:
    """Return the job IDs this key stands for: *answer* the first time, what was kept every other time."""
    job_ids, now = answer
    insert_if_missing(
        connection,
        SUBMISSIONS,
        user_id=user_id,
        key=key,
        body_digest=body_digest,
        job_ids=msgspec.json.encode(job_ids),
        at=now,
    )
    return kept_answer(connection, user_id, key, body_digest)


def kept_answer(connection: Connection, user_id: str, key: str, body_digest: str) -> list[JobId]:
    """Return the job IDs this key stands for, none if it is new; refuse it if it stood for another body."""
    mine = (SUBMISSIONS.c.user_id == user_id) & (SUBMISSIONS.c.key == key)
    row = connection.execute(sa.select(SUBMISSIONS).where(mine)).first()
    if row is None:
        return []
    if row.body_digest != body_digest:
        raise ConflictError(
            f"The idempotency key {key!r} was used for a different submission.",
            remedy="Use a new key for a new submission; repeat the same body to repeat a call.",
        )
    return msgspec.json.decode(row.job_ids, type=list[JobId])


def forget_before(connection: Connection, at: float) -> None:
    """Drop keys older than *at*."""
    connection.execute(SUBMISSIONS.delete().where(SUBMISSIONS.c.at < at))
