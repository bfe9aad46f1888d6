"""Reading pending jobs for the placer, and writing what it decides, many at a time."""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import NamedTuple

import msgspec
import sqlalchemy as sa

from yunhe.control.pools.model import Meters
from yunhe.kernel.ids import AllocationId, JobId, ProjectId, new_id
from yunhe.kernel.quotas import NO_LIMIT, QuotaName
from yunhe.scheduling.decision.model import Demand, Placed
from yunhe.scheduling.orchestration.jobs.events import JOB_CHANGED, JobChanged, Placing
from yunhe.scheduling.orchestration.jobs.states import FINAL, JobState, follow
from yunhe.scheduling.orchestration.jobs.store import AllocationState, tell
from yunhe.scheduling.orchestration.jobs.tables import ALLOCATIONS, JOBS, ROUNDS, WAITS
from yunhe.scheduling.orchestration.placing.rounds import RecordedDecision, RoundRow
from yunhe.storage import outbox
from yunhe.storage.database import AnyRow, Connection, insert_missing
from yunhe.storage.quotas import QuotaBook, lock_projects

PLACED = tuple(state for state in JobState if state not in FINAL and state is not JobState.PENDING)
ROUNDS_KEPT_S = 30 * 86400.0
NO_METERS = msgspec.json.encode(Meters())

_PLACE_OF_JOB = (JOBS.c.id, JOBS.c.shape, JOBS.c.due_at)
_START = (
    JOBS.update()
    .where(
        JOBS.c.id == sa.bindparam("job_id"),
        JOBS.c.state == JobState.PENDING.value,
        JOBS.c.lease_token == sa.bindparam("token_read"),
    )
    .values(
        state=sa.bindparam("state_followed"),
        reason="",
        attempts=sa.bindparam("number"),
        allocation_id=sa.bindparam("allocation"),
        decision=sa.bindparam("decided"),
        decided_at=sa.bindparam("now"),
        lease_owner=sa.bindparam("owner"),
        lease_until=sa.bindparam("until"),
        lease_token=sa.bindparam("token"),
    )
)


class PlacedJob(NamedTuple):
    """A pending job's row, its demand, what was decided for it, and how many of its batch came before it."""

    row: AnyRow
    demand: Demand
    decision: Placed
    turn: int


class LeaseTerms(NamedTuple):
    """Who takes jobs, when, and until when they are theirs."""

    owner: str
    now: float
    until: float


class RunningQuotas(NamedTuple):
    """How many more jobs projects may run."""

    limits: dict[str, int]
    """Of projects that have one of their own."""
    default: int
    running: dict[str, int]

    def limit(self, project_id: str) -> int:
        """Return how many jobs a project may run at once; -1: any number."""
        return self.limits.get(project_id, self.default)

    def room(self, project_id: str) -> int | None:
        """Return how many more jobs a project may run; None: any number."""
        limit = self.limit(project_id)
        return None if limit == NO_LIMIT else max(0, limit - self.running.get(project_id, 0))


def running_quotas(connection: Connection, quotas: QuotaBook) -> RunningQuotas:
    """Return how many jobs projects run, where that is limited."""
    limits, default = quotas.limited(connection, QuotaName.RUNNING), quotas.defaults.running
    running: dict[str, int] = {}
    if default != NO_LIMIT or any(limit != NO_LIMIT for limit in limits.values()):
        counted = sa.select(JOBS.c.project_id, sa.func.count().label("jobs")).where(JOBS.c.state.in_(PLACED))
        rows = connection.execute(counted.group_by(JOBS.c.project_id))
        running = {row.project_id: row.jobs for row in rows}
    return RunningQuotas(limits, default, running)


def within_quotas(connection: Connection, quotas: QuotaBook, choices: list[PlacedJob]) -> list[PlacedJob]:
    """Return those of *choices* that their projects may run; nobody else places jobs of these until the transaction ends."""
    limits = running_quotas(connection, quotas)
    projects = {choice.row.project_id for choice in choices}
    limited = [one for one in projects if limits.limit(one) != NO_LIMIT]
    if not limited:
        return choices
    lock_projects(connection, limited)
    limits = running_quotas(connection, quotas)
    taken: dict[str, int] = {}
    kept: list[PlacedJob] = []
    for choice in choices:
        project_id = choice.row.project_id
        room = limits.room(project_id)
        if room is None or taken.get(project_id, 0) < room:
            taken[project_id] = taken.get(project_id, 0) + 1
            kept.append(choice)
    return kept


def pending_after(connection: Connection, after: str, limit: int) -> list[AnyRow]:
    """Return ID, shape and due time of pending jobs beyond the ID *after*, in order."""
    query = sa.select(*_PLACE_OF_JOB).where(JOBS.c.state == JobState.PENDING, JOBS.c.id > after)
    return list(connection.execute(query.order_by(JOBS.c.id).limit(limit)))


def still_pending(connection: Connection, ids: Sequence[JobId]) -> list[AnyRow]:
    """Return ID, shape and due time of those of *ids* that are pending."""
    return list(
        connection.execute(
            sa.select(*_PLACE_OF_JOB).where(JOBS.c.id.in_(ids), JOBS.c.state == JobState.PENDING)
        )
    )


def pending_rows(connection: Connection, ids: Sequence[JobId]) -> list[AnyRow]:
    """Return what is needed to decide for those of *ids* that are pending, in order."""
    columns = (*_PLACE_OF_JOB, JOBS.c.project_id, JOBS.c.job_order, JOBS.c.avoid_pools)
    query = sa.select(*columns, JOBS.c.attempts, JOBS.c.lease_token)
    query = query.where(JOBS.c.id.in_(ids), JOBS.c.state == JobState.PENDING)
    return list(connection.execute(query.order_by(JOBS.c.id)))


def start(
    connection: Connection, choices: list[PlacedJob], terms: LeaseTerms, knew: int, at: RoundRow
) -> list[PlacedJob]:
    """Give jobs that are still pending as they were read an allocation each, tell of it, and return them."""
    ids = {choice.row.id: AllocationId(new_id("alloc", terms.now)) for choice in choices}
    if ids:
        started = connection.execute(_START, [_job(choice, terms, at, ids) for choice in choices]).rowcount
        if started != len(choices):
            query = sa.select(JOBS.c.id).where(JOBS.c.allocation_id.in_(list(ids.values())))
            ours = set(connection.scalars(query))
            choices = [choice for choice in choices if choice.row.id in ours]
    if choices:
        connection.execute(ALLOCATIONS.insert(), [_allocation(choice, ids) for choice in choices])
        facts = {choice.row.id: _fact(choice, knew) for choice in choices}
        outbox.append_many(connection, JOB_CHANGED, terms.now, facts)
    return choices


def _job(
    choice: PlacedJob, terms: LeaseTerms, at: RoundRow, ids: Mapping[str, AllocationId]
) -> dict[str, str | float | bytes]:
    recorded = RecordedDecision(decision=choice.decision, chain=at.chain, number=at.number, turn=choice.turn)
    return {
        "job_id": choice.row.id,
        "state_followed": follow(JobState.PENDING, JobState.STARTING).value,
        "number": choice.row.attempts + 1,
        "allocation": ids[choice.row.id],
        "decided": msgspec.json.encode(recorded),
        "now": terms.now,
        "owner": terms.owner,
        "until": terms.until,
        "token": choice.row.lease_token + 1,
        "token_read": choice.row.lease_token,
    }


def _allocation(choice: PlacedJob, ids: Mapping[str, AllocationId]) -> dict[str, str | int | bytes]:
    goes = choice.decision.assignments[0]
    resources = msgspec.json.encode(goes.resources)
    return {
        "id": ids[choice.row.id],
        "job_id": choice.row.id,
        "number": choice.row.attempts + 1,
        "pool_id": goes.pool_id,
        "pool_name": choice.decision.candidates[0].pool_name,
        "node_id": goes.node_id,
        "state": AllocationState.INTENDED.value,
        "resources": resources,
        "group_names": ",".join(choice.demand.groups),
        "held": resources,
        "meters": NO_METERS,
    }


def _fact(choice: PlacedJob, knew: int) -> JobChanged:
    goes = choice.decision.assignments[0]
    return JobChanged(
        job_id=JobId(choice.row.id),
        project_id=ProjectId(choice.row.project_id),
        state=JobState.STARTING,
        placing=Placing(pool_id=goes.pool_id, node_id=goes.node_id, knew=knew),
    )


def end_overdue(
    connection: Connection, ids: Sequence[JobId], shape: str, deadline_at: float, now: float
) -> None:
    """End those of *ids*, all of one shape, that are still pending as failed, since their deadline has passed."""
    waited = connection.scalar(sa.select(WAITS.c.reason).where(WAITS.c.shape == shape))
    reason = f"its deadline passed at {datetime.fromtimestamp(deadline_at, UTC):%Y-%m-%d %H:%M:%S} UTC"
    reason += f" while it waited: {waited}" if waited else " before a pool could take it"
    query = sa.select(JOBS.c.id, JOBS.c.project_id).where(JOBS.c.id.in_(ids))
    for row in list(connection.execute(query)):
        ended = connection.execute(
            JOBS.update()
            .where(JOBS.c.id == row.id, JOBS.c.state == JobState.PENDING.value)
            .values(state=follow(JobState.PENDING, JobState.FAILED).value, reason=reason, ended_at=now)
        )
        if ended.rowcount:
            tell(connection, JobId(row.id), ProjectId(row.project_id), JobState.FAILED, now)


def write_wait_reasons(connection: Connection, reasons: dict[str, str], now: float) -> None:
    """Write why jobs of each shape wait."""
    connection.execute(WAITS.delete().where(WAITS.c.shape.in_(list(reasons))))
    rows = [{"shape": shape, "reason": reason, "at": now} for shape, reason in reasons.items()]
    insert_missing(connection, WAITS, rows)


def forget_wait_reasons(connection: Connection, before: float) -> None:
    """Drop what was written before that time: nobody waits for it any more."""
    connection.execute(WAITS.delete().where(WAITS.c.at < before))


def write_round(connection: Connection, row: RoundRow, now: float) -> None:
    """Keep a row; at the beginning of a chain, forget chains that are too old."""
    connection.execute(ROUNDS.insert().values(row._asdict()))
    if row.number == 0:
        connection.execute(ROUNDS.delete().where(ROUNDS.c.chain < new_id("round", now - ROUNDS_KEPT_S)))


def read_rounds(connection: Connection, of: RecordedDecision) -> list[RoundRow]:
    """Return the rows that lead to a decision; none where they are not kept any more."""
    query = sa.select(ROUNDS).where(ROUNDS.c.chain == of.chain, ROUNDS.c.number <= of.number)
    rows = [RoundRow(*row) for row in connection.execute(query.order_by(ROUNDS.c.number))]
    return rows if len(rows) == of.number + 1 else []
