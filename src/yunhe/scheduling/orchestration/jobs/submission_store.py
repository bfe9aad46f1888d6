"""Which jobs an idempotency key stands for; written in the transaction that makes the jobs."""

import msgspec
import sqlalchemy as sa
from sqlalchemy.engine import Connection

from yunhe.kernel.errors import ConflictError
from yunhe.kernel.ids import JobId
from yunhe.scheduling.orchestration.jobs.model import SubmissionKey
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


def first_answer(connection: Connection, key: SubmissionKey, job_ids: list[JobId], now: float) -> list[JobId]:
    """Return the job IDs that *key* stands for: *job_ids* the first time, what was kept every other time."""
    is_first = insert_if_missing(
        connection,
        SUBMISSIONS,
        user_id=key.user_id,
        key=key.key,
        body_digest=key.body_digest,
        job_ids=msgspec.json.encode(job_ids),
        at=now,
    )
    return job_ids if is_first else kept_answer(connection, key)


def kept_answer(connection: Connection, key: SubmissionKey) -> list[JobId]:
    """Return the job IDs that *key* stands for, none if it is new; refuse it if it stood for another body."""
    mine = (SUBMISSIONS.c.user_id == key.user_id) & (SUBMISSIONS.c.key == key.key)
    row = connection.execute(sa.select(SUBMISSIONS).where(mine)).first()
    if row is None:
        return []
    if row.body_digest != key.body_digest:
        raise ConflictError(
            f"The idempotency key {key.key!r} was used for a different submission.",
            remedy="Use a new key for a new submission; repeat the same body to repeat a call.",
        )
    return msgspec.json.decode(row.job_ids, type=list[JobId])


def forget_before(connection: Connection, at: float) -> None:
    """Drop keys older than *at*."""
    connection.execute(SUBMISSIONS.delete().where(SUBMISSIONS.c.at < at))
