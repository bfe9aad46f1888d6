"""Reading and writing jobs and allocations; rows never leave this file but as values."""

import hashlib
from collections.abc import Iterable
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any, NamedTuple

import msgspec
import sqlalchemy as sa

from yunhe.control.pools.model import LogChunk, Meters
from yunhe.kernel.errors import GoneError, NotFoundError
from yunhe.kernel.ids import AllocationId, BlobId, JobId, NodeId, PoolId, ProjectId
from yunhe.kernel.resources import Resources
from yunhe.scheduling.decision.model import Demand
from yunhe.scheduling.orchestration.jobs.events import (
    ALLOCATION_METERED,
    JOB_ASKED,
    JOB_CHANGED,
    AllocationMetered,
    JobChanged,
)
from yunhe.scheduling.orchestration.jobs.model import Attempt, Job, JobFilter, JobOrder, JobPage
from yunhe.scheduling.orchestration.jobs.states import FINAL, JobState, follow
from yunhe.scheduling.orchestration.jobs.tables import ALLOCATIONS, JOBS, LOGS, NODES, PRUNED, WAITS
from yunhe.scheduling.orchestration.log_pieces import unpacked, within
from yunhe.storage import audit, leases, outbox
from yunhe.storage.database import AnyRow, Connection, insert_missing
from yunhe.storage.resealing import SealedColumn
from yunhe.storage.vault import Vault, secret_place

STOPPED_ON_REQUEST = "stopped on request"

_ORDER = msgspec.json.Decoder(JobOrder)
_RESOURCES = msgspec.json.Decoder(Resources)
_METERS = msgspec.json.Decoder(Meters)
_POOLS = msgspec.json.Decoder(tuple[PoolId, ...])


Groups = dict[NodeId, tuple[str, ...]]
"""Node → the groups of which members run there, each as often as it has members."""


class AllocationState(StrEnum):
    """How far an allocation has come between us and its pool."""

    INTENDED = "intended"
    """Written down; the pool may or may not have heard."""
    LAUNCHED = "launched"
    ENDED = "ended"
    """Over, and everything we want of it is home; the pool may still keep its directory."""
    RELEASED = "released"


HOLDING = (AllocationState.INTENDED, AllocationState.LAUNCHED)


class LeasedJob(msgspec.Struct, frozen=True, kw_only=True):
    """A job whose lease this process holds, with its current allocation."""

    job_id: JobId
    token: int
    state: JobState
    order: JobOrder
    retries_left: int
    stop_requested: bool
    resize_to: Resources | None
    allocation_id: AllocationId
    number: int
    """Which attempt of the job it is, from 1."""
    launched: bool
    pool_id: PoolId
    node_id: NodeId
    resources: Resources
    submitted_at: float
    """When its job was ordered."""
    started_at: float | None
    ending: str
    exit_code: int | None
    detail: str
    meters: Meters
    log_bytes: int
    outputs_blob: BlobId | None
    due_at: float
    """Not to be finished before."""


def _renew_order(vault: Vault, row: AnyRow) -> bytes:
    """Return a job's order with its secrets sealed anew; without them once the job is over."""
    if b'"sealed_secrets"' not in row.job_order:
        return row.job_order
    order = _ORDER.decode(row.job_order)
    project_id, kept = order.demand.project_id, {} if JobState(row.state) in FINAL else order.sealed_secrets
    new = {name: vault.renew(sealed, *secret_place(project_id, name)) for name, sealed in kept.items()}
    if new == order.sealed_secrets:
        return row.job_order
    return msgspec.json.encode(msgspec.structs.replace(order, sealed_secrets=new))


SEALED = SealedColumn("job", JOBS, "job_order", _renew_order, ("state",))


def shape_of(demand: Demand) -> str:
    """Return a key that is the same for demands that only differ in whose job it is."""
    plain = msgspec.structs.replace(demand, job_id=JobId(""))
    return hashlib.blake2b(msgspec.json.encode(plain), digest_size=16).hexdigest()


def insert_jobs(
    connection: Connection, orders: Iterable[JobOrder], now: float, by: audit.Actor | None = None
) -> tuple[Job, ...]:
    """Write new jobs and return them; those whose ID is known already are returned as they are."""
    wanted = {order.demand.job_id: order for order in orders}
    rows = [_new_row(order, now) for order in wanted.values()]
    new = insert_missing(connection, JOBS, rows)
    facts: dict[str, JobChanged] = {
        row["id"]: JobChanged(
            job_id=row["id"],
            project_id=row["project_id"],
            state=JobState.PENDING,
            shape="" if row["due_at"] > now else row["shape"],  # who is held is looked up when it is due
        )
        for row in rows
        if row["id"] in new
    }
    if facts:
        outbox.append_many(connection, JOB_CHANGED, now, facts)
        _tell_held(connection, [row for row in rows if row["id"] in new and row["due_at"] > now])
        _audit(connection, [wanted[JobId(job_id)] for job_id in facts], now, by)
    known = [job_id for job_id in wanted if job_id not in new]
    before = {job.id: job for job in read_many(connection, known)} if known else {}
    return tuple(before.get(job_id) or _new_job(order, now) for job_id, order in wanted.items())


def _tell_held(connection: Connection, rows: list[dict[str, Any]]) -> None:
    """Write why jobs wait that are held until a time; once they are due, the placer says what else they wait for."""
    held = {
        row["shape"]: {
            "shape": row["shape"],
            "reason": f"held until {datetime.fromtimestamp(row['due_at'], UTC):%Y-%m-%d %H:%M:%S} UTC (start_after)",
            "at": row["due_at"],
        }
        for row in rows
    }
    if held:
        insert_missing(connection, WAITS, list(held.values()))


def _audit(connection: Connection, orders: list[JobOrder], now: float, by: audit.Actor | None) -> None:
    """Write a line for each project that jobs were submitted to."""
    for project_id in dict.fromkeys(order.demand.project_id for order in orders):
        ids = [order.demand.job_id for order in orders if order.demand.project_id == project_id]
        subject = ids[0] if len(ids) == 1 else f"{len(ids)} jobs"
        detail = "" if len(ids) == 1 else f"{ids[0]} … {ids[-1]}"
        audit.append(connection, by, now, "job submit", subject, project_id=project_id, detail=detail)


def _new_job(order: JobOrder, now: float) -> Job:
    """Return a job as it is when it was just accepted."""
    return Job(
        id=order.demand.job_id,
        name=order.name,
        project_id=order.demand.project_id,
        submitted_by=order.submitted_by,
        state=JobState.PENDING,
        submitted_at=now,
        demand=order.demand,
        retries=order.retries,
        grace_s=order.grace_s,
        ports=order.ports,
    )


def _new_row(order: JobOrder, now: float) -> dict[str, Any]:
    return {
        "id": order.demand.job_id,
        "project_id": order.demand.project_id,
        "name": order.name,
        "submitted_by": order.submitted_by,
        "state": follow(None, JobState.PENDING).value,
        "submitted_at": now,
        "job_order": msgspec.json.encode(order),
        "shape": shape_of(order.demand),
        "due_at": order.demand.not_before or 0.0,
        "retries_left": order.retries,
    }


def change(connection: Connection, held: LeasedJob, state: JobState, now: float, **values: Any) -> None:
    """Move a held job to *state*, guarded by its lease, and tell of it; a job to be stopped never waits again."""
    leases.apply(connection, JOBS, held.job_id, held.token, state=follow(held.state, state).value, **values)
    if state is JobState.PENDING and _is_to_stop(connection, held.job_id):
        state = follow(state, JobState.STOPPED)
        ended = {"reason": STOPPED_ON_REQUEST, "ended_at": now}
        leases.apply(
            connection, JOBS, held.job_id, held.token, state=follow(JobState.PENDING, state).value, **ended
        )
    tell(connection, held.job_id, held.order.demand.project_id, state, now)


def _is_to_stop(connection: Connection, job_id: JobId) -> bool:
    """Return whether somebody asked a job to end; exact once this transaction has changed its row."""
    return bool(connection.scalar(sa.select(JOBS.c.stop_requested).where(JOBS.c.id == job_id)))


def lock_job(connection: Connection, job_id: JobId) -> None:
    """Let nobody else change a job until this transaction ends."""
    connection.execute(sa.select(JOBS.c.id).where(JOBS.c.id == job_id).with_for_update())


def request_stop(connection: Connection, job: Job, now: float) -> None:
    """Note that a job shall end, and tell of it; one that still waits for room ends at once."""
    ended = connection.execute(
        JOBS.update()
        .where(JOBS.c.id == job.id, JOBS.c.state == JobState.PENDING)
        .values(
            state=follow(JobState.PENDING, JobState.STOPPED).value,
            reason=STOPPED_ON_REQUEST,
            ended_at=now,
            stop_requested=True,
        )
    )
    if ended.rowcount:
        tell(connection, job.id, job.project_id, JobState.STOPPED, now)
    else:
        connection.execute(JOBS.update().where(JOBS.c.id == job.id).values(stop_requested=True))
        outbox.append(connection, JOB_ASKED, job.id, now, {"stop": True})


def request_resize(connection: Connection, job_id: JobId, target: Resources) -> bool:
    """Note that a running job shall have *target*; return whether it still runs."""
    ordered = connection.execute(
        JOBS.update()
        .where(JOBS.c.id == job_id, JOBS.c.state == JobState.RUNNING)
        .values(resize_to=msgspec.json.encode(target), resize_problem="")
    )
    return ordered.rowcount == 1


def resize_state(connection: Connection, job_id: JobId) -> tuple[bool, str]:
    """Return whether a resize is still to be carried out, and why the last one failed."""
    row = connection.execute(
        sa.select(JOBS.c.resize_to, JOBS.c.resize_problem).where(JOBS.c.id == job_id)
    ).one()
    return row.resize_to is not None, row.resize_problem


def lock_nodes(connection: Connection, nodes: Iterable[NodeId]) -> None:
    """Let no other process give out room on these nodes until this transaction ends."""
    ids = sorted(nodes)
    insert_missing(connection, NODES, [{"id": node} for node in ids])
    connection.execute(
        sa.select(NODES.c.id).where(NODES.c.id.in_(ids)).order_by(NODES.c.id).with_for_update()
    )


def change_row(connection: Connection, held: LeasedJob, **values: Any) -> None:
    """Change a held job's row but for its state; raise ``FencedError`` when the lease has passed on."""
    leases.apply(connection, JOBS, held.job_id, held.token, **values)


def tell(connection: Connection, job_id: JobId, project_id: ProjectId, state: JobState, now: float) -> None:
    """Append the fact that a job changed."""
    fact = JobChanged(job_id=job_id, project_id=project_id, state=state)
    outbox.append(connection, JOB_CHANGED, job_id, now, fact)


class Commitments(NamedTuple):
    """What allocations that are not over hold of each node."""

    promised: dict[NodeId, Resources]
    groups: Groups
    newest: int
    """The last event that this takes account of."""


def known(connection: Connection) -> Commitments:
    """Return what is promised on each node, and which groups have a member there."""
    return Commitments(promised(connection), running_groups(connection), outbox.newest(connection))


def running_groups(connection: Connection) -> Groups:
    """Return the groups of each member on each node, one as often as it has members; nodes without any are left out."""
    query = sa.select(ALLOCATIONS.c.node_id, ALLOCATIONS.c.group_names).where(
        ALLOCATIONS.c.state.in_(HOLDING), ALLOCATIONS.c.group_names != ""
    )
    found: dict[NodeId, list[str]] = {}
    for row in connection.execute(query):
        found.setdefault(NodeId(row.node_id), []).extend(row.group_names.split(","))
    return {node: tuple(sorted(groups)) for node, groups in found.items()}


def count_by_state(connection: Connection) -> dict[str, float]:
    """Return how many jobs are in each state."""
    counted = sa.select(JOBS.c.state, sa.func.count().label("jobs")).group_by(JOBS.c.state)
    found = {row.state: row.jobs for row in connection.execute(counted)}
    return {state.value: found.get(state, 0) for state in JobState}


def meter(connection: Connection, held: LeasedJob, meters: Meters, now: float, *, final: bool) -> None:
    """Append a meter reading: what is billed."""
    demand = held.order.demand
    fact = AllocationMetered(
        allocation_id=held.allocation_id,
        job_id=held.job_id,
        project_id=demand.project_id,
        pool_id=held.pool_id,
        tier=demand.tier,
        resources=held.resources,
        meters=meters,
        started_at=held.started_at,
        final=final,
    )
    outbox.append(connection, ALLOCATION_METERED, held.allocation_id, now, fact)


def update_allocation(connection: Connection, allocation_id: AllocationId, **values: Any) -> None:
    """Change an allocation's row; only in a transaction that also checks the lease of its job."""
    connection.execute(ALLOCATIONS.update().where(ALLOCATIONS.c.id == allocation_id).values(**values))


def read_meters(connection: Connection, allocation_id: AllocationId) -> Meters:
    """Return the last counters that were kept of an allocation."""
    query = sa.select(ALLOCATIONS.c.meters).where(ALLOCATIONS.c.id == allocation_id)
    return _METERS.decode(connection.execute(query).scalar_one())


def read_held(connection: Connection, job_id: JobId, token: int) -> LeasedJob | None:
    """Return a job if the lease with *token* still stands."""
    row = connection.execute(
        sa.select(
            JOBS,
            *(column.label(f"a_{column.name}") for column in ALLOCATIONS.c if column.name != "job_id"),
        )
        .join(ALLOCATIONS, ALLOCATIONS.c.id == JOBS.c.allocation_id, isouter=True)
        .where(JOBS.c.id == job_id, JOBS.c.lease_token == token)
    ).first()
    if row is None or row.allocation_id is None:
        return None
    return LeasedJob(
        job_id=job_id,
        token=token,
        state=JobState(row.state),
        order=_ORDER.decode(row.job_order),
        retries_left=row.retries_left,
        stop_requested=row.stop_requested,
        resize_to=None if row.resize_to is None else _RESOURCES.decode(row.resize_to),
        allocation_id=AllocationId(row.allocation_id),
        number=row.a_number,
        launched=row.a_state != AllocationState.INTENDED,
        pool_id=PoolId(row.a_pool_id),
        node_id=NodeId(row.a_node_id),
        resources=_RESOURCES.decode(row.a_resources),
        submitted_at=row.submitted_at,
        started_at=row.a_started_at,
        ending=row.a_ending,
        exit_code=row.a_exit_code,
        detail=row.a_detail,
        meters=_METERS.decode(row.a_meters),
        log_bytes=row.a_log_bytes,
        outputs_blob=row.outputs_blob,
        due_at=row.due_at,
    )


def pools_of_attempts(connection: Connection, job_id: JobId, ending: str) -> list[PoolId]:
    """Return the pool of every attempt of a job that came to this end."""
    query = sa.select(ALLOCATIONS.c.pool_id).where(
        ALLOCATIONS.c.job_id == job_id, ALLOCATIONS.c.ending == ending
    )
    return [PoolId(pool_id) for pool_id in connection.scalars(query)]


def promised(connection: Connection, nodes: Iterable[NodeId] | None = None) -> dict[NodeId, Resources]:
    """Return what the allocations that are not over hold, by node."""
    query = sa.select(ALLOCATIONS.c.node_id, ALLOCATIONS.c.held).where(ALLOCATIONS.c.state.in_(HOLDING))
    if nodes is not None:
        query = query.where(ALLOCATIONS.c.node_id.in_(list(nodes)))
    total: dict[NodeId, Resources] = {}
    for row in connection.execute(query):
        node = NodeId(row.node_id)
        held = _RESOURCES.decode(row.held)
        total[node] = total[node].plus(held) if node in total else held
    return total


def wait_reasons(connection: Connection, shapes: Iterable[str]) -> dict[str, str]:
    """Return why jobs of each shape wait, as last written."""
    rows = connection.execute(sa.select(WAITS).where(WAITS.c.shape.in_(list(shapes))))
    return {row.shape: row.reason for row in rows}


def read_decision(connection: Connection, job_id: JobId) -> tuple[AnyRow, Demand]:
    """Return the row of a job with its decision, when it was made, and the demand it was made for."""
    row = connection.execute(
        sa.select(JOBS.c.decision, JOBS.c.decided_at, JOBS.c.job_order, JOBS.c.avoid_pools).where(
            JOBS.c.id == job_id
        )
    ).one()
    return row, pending_order(row)


def pending_order(row: AnyRow) -> Demand:
    """Return the demand of a pending job's row, less the pools where it just failed."""
    demand = _ORDER.decode(row.job_order).demand
    avoid = _POOLS.decode(row.avoid_pools)
    return msgspec.structs.replace(demand, avoid_pools=avoid) if avoid else demand


def read_job(connection: Connection, job_id: JobId, among: tuple[ProjectId, ...] | None = None) -> Job:
    """Return one job with its attempts; one of another project than *among* is looked for as one that is not there."""
    query = sa.select(JOBS).where(JOBS.c.id == job_id)
    row = connection.execute(query if among is None else query.where(JOBS.c.project_id.in_(among))).first()
    if row is None:
        raise _missing(connection, job_id)
    return _to_jobs(connection, [row])[0]


def _missing(connection: Connection, job_id: JobId) -> NotFoundError:
    """Say that there is no such job: none ever, or none any more."""
    if job_id.startswith("job_") and job_id <= (connection.scalar(sa.select(PRUNED.c.job_id)) or ""):
        return GoneError(
            f"There is no job {job_id} any more: jobs of its age that ended have been removed, with logs and outputs.",
            remedy="What it cost stays: yunhe cost JOB. Jobs that are kept: yunhe ps --all.",
        )
    return NotFoundError(f"There is no job {job_id}.", remedy="List them: yunhe ps --all.")


def read_many(connection: Connection, ids: list[JobId]) -> tuple[Job, ...]:
    """Return jobs in the order of *ids*."""
    rows = {row.id: row for row in connection.execute(sa.select(JOBS).where(JOBS.c.id.in_(ids)))}
    return tuple(_to_jobs(connection, [rows[job_id] for job_id in ids]))


def read_jobs(connection: Connection, which: JobFilter) -> JobPage:
    """Return a page of jobs, newest first."""
    query = sa.select(JOBS).order_by(JOBS.c.id.desc()).limit(which.limit + 1)
    if which.projects is not None:
        query = query.where(JOBS.c.project_id.in_(which.projects))
    if which.ids:
        query = query.where(JOBS.c.id.in_(which.ids))
    if which.states:
        query = query.where(JOBS.c.state.in_(which.states))
    if which.name:
        query = query.where(JOBS.c.name == which.name)
    if which.pool_id is not None:
        here = sa.select(ALLOCATIONS.c.job_id).where(ALLOCATIONS.c.pool_id == which.pool_id)
        query = query.where(JOBS.c.id.in_(here))
    if which.cursor is not None:
        query = query.where(JOBS.c.id < which.cursor)
    rows = list(connection.execute(query))
    jobs = tuple(_to_jobs(connection, rows[: which.limit]))
    return JobPage(jobs=jobs, next_cursor=jobs[-1].id if len(rows) > which.limit else None)


def read_placed(connection: Connection, pool_id: PoolId) -> list[Job]:
    """Return the jobs whose present attempt is on a pool and has not ended there."""
    open_states = (JobState.STARTING, JobState.RUNNING, JobState.STOPPING)
    here = sa.select(ALLOCATIONS.c.job_id).where(ALLOCATIONS.c.pool_id == pool_id)
    query = sa.select(JOBS).where(JOBS.c.id.in_(here), JOBS.c.state.in_(open_states))
    jobs = _to_jobs(connection, list(connection.execute(query)))
    return [job for job in jobs if job.attempts and job.attempts[-1].pool_id == pool_id]


def _to_jobs(connection: Connection, rows: list[AnyRow]) -> list[Job]:
    attempts: dict[str, list[Attempt]] = {}
    ids = [row.id for row in rows if row.attempts]
    if ids:
        query = sa.select(ALLOCATIONS).where(ALLOCATIONS.c.job_id.in_(ids)).order_by(ALLOCATIONS.c.number)
        for row in connection.execute(query):
            attempts.setdefault(row.job_id, []).append(_to_attempt(row))
    waits = wait_reasons(connection, {row.shape for row in rows if row.state == JobState.PENDING})
    return [_to_job(row, tuple(attempts.get(row.id, ())), waits.get(row.shape, "")) for row in rows]


def _to_job(row: AnyRow, attempts: tuple[Attempt, ...], waits: str) -> Job:
    order = _ORDER.decode(row.job_order)
    return Job(
        id=JobId(row.id),
        name=row.name,
        project_id=ProjectId(row.project_id),
        submitted_by=row.submitted_by,
        state=JobState(row.state),
        reason="; ".join(filter(None, (row.reason, waits if row.state == JobState.PENDING else ""))),
        submitted_at=row.submitted_at,
        started_at=row.started_at,
        order_to_running_s=_order_to_running_s(row, attempts),
        ended_at=row.ended_at,
        exit_code=row.exit_code,
        attempts=attempts,
        demand=order.demand,
        retries=order.retries,
        outputs_blob=None if row.outputs_blob is None else BlobId(row.outputs_blob),
        outputs_lost=attempts[-1].outputs_lost if attempts else "",
        log_bytes=sum(attempt.log_bytes for attempt in attempts),
        stop_requested=row.stop_requested,
        grace_s=order.grace_s,
        ports=order.ports,
        stop_by=_stop_by(row, order, attempts),
    )


def _stop_by(row: AnyRow, order: JobOrder, attempts: tuple[Attempt, ...]) -> float | None:
    """Return when a job that is ending is forced to; a pool keeps the timeout by itself, from the attempt's start."""
    if row.state == JobState.STOPPING:
        return row.due_at or None
    began = attempts[-1].started_at if attempts and row.state == JobState.RUNNING else None
    if began is None or order.timeout_s is None or attempts[-1].ended_at is not None:
        return None
    return began + order.timeout_s + order.grace_s


def _order_to_running_s(row: AnyRow, attempts: tuple[Attempt, ...]) -> float | None:
    ran = [attempt.started_at for attempt in attempts if attempt.started_at is not None]
    return max(0.0, round(min(ran) - row.submitted_at, 3)) if ran else None


def _to_attempt(row: AnyRow) -> Attempt:
    return Attempt(
        allocation_id=AllocationId(row.id),
        number=row.number,
        pool_id=PoolId(row.pool_id),
        pool_name=row.pool_name,
        node_id=NodeId(row.node_id),
        resources=_RESOURCES.decode(row.resources),
        over=row.state in (AllocationState.ENDED, AllocationState.RELEASED),
        started_at=row.started_at,
        ended_at=row.ended_at,
        exit_code=row.exit_code,
        ending=row.ending,
        detail=row.detail,
        meters=_METERS.decode(row.meters),
        log_bytes=row.log_bytes,
        log_lost=row.log_lost,
        outputs_lost=row.outputs_lost,
        clock_off_s=row.clock_off_s,
    )


def update_guarded(connection: Connection, held: LeasedJob, **values: Any) -> None:
    """Change the allocation of a job whose lease still stands."""
    leases.apply(connection, JOBS, held.job_id, held.token, lease_token=held.token)
    update_allocation(connection, held.allocation_id, **values)


def read_log(connection: Connection, allocation_id: AllocationId, offset: int) -> LogChunk | None:
    """Return kept output at or after byte *offset*; None when there is no more."""
    row = connection.execute(
        sa.select(LOGS)
        .where(LOGS.c.allocation_id == allocation_id, LOGS.c.start + LOGS.c.size_bytes > offset)
        .order_by(LOGS.c.start)
        .limit(1)
    ).first()
    if row is None:
        return None
    data, marks = unpacked(row.data)
    start = max(offset, row.start)
    end = row.start + len(data)
    return LogChunk(offset=start, data=data[start - row.start :], marks=within(marks, start, end))
