"""Which jobs an idempotency key stands for; written in the transaction that makes the jobs."""

from collections import Counter

import msgspec
import sqlalchemy as sa
from sqlalchemy.engine import Connection

from yunhe.kernel.errors import ConflictError, GoneError
from yunhe.kernel.ids import JobId
from yunhe.kernel.quotas import NO_LIMIT, QuotaName, refusal
from yunhe.scheduling.orchestration.jobs.model import JobOrder, SubmissionKey
from yunhe.scheduling.orchestration.jobs.states import JobState
from yunhe.scheduling.orchestration.jobs.tables import JOBS
from yunhe.storage.database import insert_if_missing, json_column, metadata
from yunhe.storage.quotas import QuotaBook, lock_projects

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
    """Return the job IDs that *key* stands for, none if it is new.

    Refuse it if it stood for another body, or if the jobs are not kept any more: they must not run again.
    """
    mine = (SUBMISSIONS.c.user_id == key.user_id) & (SUBMISSIONS.c.key == key.key)
    row = connection.execute(sa.select(SUBMISSIONS).where(mine)).first()
    if row is None:
        return []
    if row.body_digest != key.body_digest:
        raise ConflictError(
            f"The idempotency key {key.key!r} was used for a different submission.",
            remedy="Use a new key for a new submission; repeat the same body to repeat a call.",
        )
    kept = msgspec.json.decode(row.job_ids, type=list[JobId])
    there = sa.select(sa.func.count()).select_from(JOBS).where(JOBS.c.id.in_(kept))
    if connection.scalar(there) != len(kept):
        raise GoneError(
            f"The idempotency key {key.key!r} stands for jobs that have ended and were removed since.",
            remedy="Use a new key to run them again.",
        )
    return kept


def forget_before(connection: Connection, at: float, most: int) -> int:
    """Drop keys older than *at*, and the oldest of a user beyond the *most* that are kept; return how many."""
    gone = connection.execute(SUBMISSIONS.delete().where(SUBMISSIONS.c.at < at)).rowcount
    kept = sa.select(SUBMISSIONS.c.user_id).group_by(SUBMISSIONS.c.user_id).having(sa.func.count() > most)
    for user_id in list(connection.scalars(kept)):
        mine = sa.select(SUBMISSIONS.c.at).where(SUBMISSIONS.c.user_id == user_id)
        oldest_kept = connection.scalar(mine.order_by(SUBMISSIONS.c.at.desc()).offset(most - 1).limit(1))
        old = (SUBMISSIONS.c.user_id == user_id) & (SUBMISSIONS.c.at < oldest_kept)
        gone += connection.execute(SUBMISSIONS.delete().where(old)).rowcount
    return gone


def check_queued(connection: Connection, quotas: QuotaBook, orders: tuple[JobOrder, ...]) -> None:
    """Raise ``QuotaExceededError`` when a project would have more jobs queued than it may; exact for any number of servers.

    Nobody else adds jobs to these projects until the transaction ends.
    """
    asked = Counter(order.demand.project_id for order in orders)
    limits = {project_id: quotas.limits(connection, project_id).queued for project_id in asked}
    lock_projects(connection, (one for one, limit in limits.items() if limit != NO_LIMIT))
    for project_id, limit in limits.items():
        used = count_queued(connection, project_id) if limit != NO_LIMIT else 0
        if used + asked[project_id] > limit != NO_LIMIT:
            raise refusal(QuotaName.QUEUED, project_id, used=used, asked=asked[project_id], limit=limit)


def count_queued(connection: Connection, project_id: str) -> int:
    """Return how many jobs of a project wait to be placed."""
    return _count(connection, project_id, JOBS.c.state == JobState.PENDING)


def count_running(connection: Connection, project_id: str) -> int:
    """Return how many jobs of a project are placed and not over."""
    return _count(connection, project_id, JOBS.c.state != JobState.PENDING)


def _count(connection: Connection, project_id: str, which: sa.ColumnElement[bool]) -> int:
    live = (JOBS.c.project_id == project_id) & JOBS.c.ended_at.is_(None)
    return connection.scalar(sa.select(sa.func.count()).select_from(JOBS).where(live, which)) or 0
