"""What is kept of jobs and for how long: their output within quotas, and the rows of those that ended long ago."""

from typing import NamedTuple

import msgspec
import sqlalchemy as sa

from yunhe.control.pools.model import LogMark
from yunhe.kernel.ids import AllocationId, JobId, new_id
from yunhe.kernel.quotas import NO_LIMIT, QuotaName
from yunhe.scheduling.orchestration.jobs.events import ALLOCATION_METERED, AllocationMetered
from yunhe.scheduling.orchestration.jobs.store import AllocationState, LeasedJob, update_guarded
from yunhe.scheduling.orchestration.jobs.tables import ALLOCATIONS, JOBS, LOGS, PRUNED, ROUNDS, WAITS
from yunhe.scheduling.orchestration.log_pieces import packed, within
from yunhe.storage import outbox
from yunhe.storage.blobs import drop
from yunhe.storage.database import Connection, insert_if_missing
from yunhe.storage.quotas import QuotaBook, refund

PIECE_COUNTS_BYTES = 256
"""A piece of output counts for no less: its row takes room too."""
REASONS_KEPT_S = 3600.0
_WEIGHT = sa.case((LOGS.c.size_bytes < PIECE_COUNTS_BYTES, PIECE_COUNTS_BYTES), else_=LOGS.c.size_bytes)
UNBILLED = 10_000
"""While so many readings wait to be billed, no job is removed."""


def append_log(
    connection: Connection,
    held: LeasedJob,
    start: int,
    data: bytes,
    quotas: QuotaBook,
    marks: tuple[LogMark, ...] = (),
) -> None:
    """Keep a piece of output that begins at byte *start*; guarded, so that two holders never interleave.

    Of one attempt the newest output stays, as much as its project's quota says. What is over the quota of all logs is not
    kept, and the attempt says so.
    """
    end, project_id = start + len(data), held.order.demand.project_id
    update_guarded(connection, held, log_bytes=end)
    limits = quotas.limits(connection, project_id)
    if limits.job_log_bytes != NO_LIMIT:
        data = data[max(0, len(data) - limits.job_log_bytes) :]
        _make_room(connection, held, limits.job_log_bytes - len(data))
    weight = max(len(data), PIECE_COUNTS_BYTES)
    if not quotas.charge_if_room(connection, project_id, QuotaName.LOG_BYTES, weight):
        lost = f"Project {project_id} keeps as many bytes of logs as its quota allows (log_bytes: {limits.log_bytes})."
        update_guarded(connection, held, log_lost=lost)
        return
    connection.execute(
        LOGS.insert().values(
            allocation_id=held.allocation_id,
            start=end - len(data),
            size_bytes=len(data),
            data=packed(data, within(marks, end - len(data), end)),
        )
    )


def _make_room(connection: Connection, held: LeasedJob, most: int) -> None:
    """Drop the oldest pieces of an attempt's output until what is left is no more than *most* bytes."""
    mine = LOGS.c.allocation_id == held.allocation_id
    if held.log_bytes <= most:
        return
    pieces = sa.select(LOGS.c.start, LOGS.c.size_bytes).where(mine).order_by(LOGS.c.start.desc())
    kept, first = 0, None
    for piece in connection.execute(pieces):
        kept += piece.size_bytes
        if kept > most:
            break
        first = piece.start
    else:
        return
    old = mine if first is None else mine & (LOGS.c.start < first)
    _drop_log(connection, held.order.demand.project_id, old)


def _drop_log(connection: Connection, project_id: str, which: sa.ColumnElement[bool]) -> None:
    weight = connection.scalar(sa.select(sa.func.sum(_WEIGHT)).where(which)) or 0
    connection.execute(LOGS.delete().where(which))
    refund(connection, project_id, QuotaName.LOG_BYTES, int(weight))


def kept_log(connection: Connection, held: LeasedJob) -> tuple[int, str]:
    """Return how much output of the newest attempt is kept, and why some is not, where that is known."""
    kept = sa.select(sa.func.sum(LOGS.c.size_bytes)).where(LOGS.c.allocation_id == held.allocation_id)
    lost = sa.select(ALLOCATIONS.c.log_lost).where(ALLOCATIONS.c.id == held.allocation_id)
    return int(connection.scalar(kept) or 0), connection.scalar(lost) or ""


def forget_logs(connection: Connection, after: str, before: float, limit: int) -> str:
    """Drop the output of jobs that ended before a moment, of some allocations beyond *after*; return the last, empty: no more.

    The attempts say so from then on.
    """
    made_before = new_id("alloc", before)  # who ended before then was made before then
    query = sa.select(LOGS.c.allocation_id).where(
        LOGS.c.allocation_id > after, LOGS.c.allocation_id < made_before
    )
    ids = list(connection.scalars(query.distinct().order_by(LOGS.c.allocation_id).limit(limit)))
    old = (
        sa.select(ALLOCATIONS.c.id, JOBS.c.project_id)
        .join(JOBS, JOBS.c.id == ALLOCATIONS.c.job_id)
        .where(ALLOCATIONS.c.id.in_(ids), JOBS.c.ended_at < before)
    )
    for row in list(connection.execute(old)):
        _drop_log(connection, row.project_id, LOGS.c.allocation_id == row.id)
        told = {"log_lost": "It was removed some days after the job ended, as all logs are."}
        connection.execute(ALLOCATIONS.update().where(ALLOCATIONS.c.id == row.id).values(told))
    return ids[-1] if len(ids) == limit else ""


class PruneBounds(NamedTuple):
    """Which jobs go: those that ended before a moment, and of each project the oldest beyond the most that are kept."""

    before: float
    most: int
    at_once: int


def projects_with_jobs(connection: Connection) -> list[str]:
    """Return the projects that have jobs, one look into the index for each."""
    found: list[str] = []
    following = sa.select(sa.func.min(JOBS.c.project_id))
    while (project_id := connection.scalar(following)) is not None:
        found.append(project_id)
        following = sa.select(sa.func.min(JOBS.c.project_id)).where(JOBS.c.project_id > project_id)
    return found


def prune_jobs(connection: Connection, project_id: str, bounds: PruneBounds) -> list[AllocationId] | None:
    """Remove some jobs that ended long ago, with output, outputs and allocations; None: there are none left to remove.

    A job stays while a pool has something of it, and while use of it is not billed.
    """
    ended = (JOBS.c.project_id == project_id) & JOBS.c.ended_at.is_not(None)
    newest = sa.select(JOBS.c.ended_at).where(ended).order_by(JOBS.c.ended_at.desc())
    beyond = connection.scalar(newest.offset(bounds.most).limit(1)) or 0.0
    held = sa.exists().where(
        ALLOCATIONS.c.job_id == JOBS.c.id, ALLOCATIONS.c.state != AllocationState.RELEASED
    )
    unbilled = _unbilled(connection)
    if len(unbilled) >= UNBILLED:
        return None
    old = sa.or_(JOBS.c.ended_at < bounds.before, JOBS.c.ended_at <= beyond)
    query = sa.select(JOBS.c.id, JOBS.c.outputs_blob).where(
        ended, old, ~held, JOBS.c.id.not_in(set(unbilled))
    )
    rows = list(connection.execute(query.order_by(JOBS.c.ended_at).limit(bounds.at_once)))
    if not rows:
        return None
    return _remove(connection, project_id, {JobId(row.id): row.outputs_blob for row in rows})


def _unbilled(connection: Connection) -> list[JobId]:
    """Return the job of each reading of meters that waits to be billed."""
    behind = outbox.read(connection, (ALLOCATION_METERED,), outbox.dealt_with(connection), UNBILLED)
    return [msgspec.json.decode(event.body, type=AllocationMetered).job_id for event in behind]


def _remove(connection: Connection, project_id: str, jobs: dict[JobId, str | None]) -> list[AllocationId]:
    mine = ALLOCATIONS.c.job_id.in_(list(jobs))
    gone = [AllocationId(one) for one in connection.scalars(sa.select(ALLOCATIONS.c.id).where(mine))]
    _drop_log(connection, project_id, LOGS.c.allocation_id.in_(gone))
    for blob_id in filter(None, jobs.values()):
        drop(connection, blob_id)
    connection.execute(ALLOCATIONS.delete().where(mine))
    connection.execute(JOBS.delete().where(JOBS.c.id.in_(list(jobs))))
    _note_pruned(connection, max(jobs))
    return gone


def _note_pruned(connection: Connection, job_id: JobId) -> None:
    if not insert_if_missing(connection, PRUNED, id=1, job_id=job_id):
        connection.execute(PRUNED.update().where(PRUNED.c.job_id < job_id).values(job_id=job_id))


def forget_wait_reasons(connection: Connection, now: float) -> None:
    """Drop why jobs of a shape wait where none of that shape does."""
    waiting = sa.select(JOBS.c.shape).where(JOBS.c.ended_at.is_(None))
    old = (WAITS.c.at < now - REASONS_KEPT_S) | (WAITS.c.at > now)
    connection.execute(WAITS.delete().where(old, WAITS.c.shape.not_in(waiting)))


def forget_rounds(connection: Connection, most: int) -> None:
    """Drop the oldest of what decisions were made on, beyond the *most* rows that are kept; whole chains."""
    newest = sa.select(ROUNDS.c.chain).order_by(ROUNDS.c.chain.desc(), ROUNDS.c.number.desc())
    chain = connection.scalar(newest.offset(most).limit(1))
    if chain is not None:
        connection.execute(ROUNDS.delete().where(ROUNDS.c.chain <= chain))
