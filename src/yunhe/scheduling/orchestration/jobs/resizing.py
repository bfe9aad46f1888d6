"""Changing a running job's size: room first, then the pool, then the books."""

import msgspec

from yunhe.control.pools.interface import Pools
from yunhe.kernel.errors import (
    ConflictError,
    DatabaseUnavailableError,
    FencedError,
    PoolUnreachableError,
    YunheError,
)
from yunhe.kernel.ids import JobId, NodeId, ProjectId
from yunhe.kernel.resources import Resources
from yunhe.kernel.units import show_cpu, show_memory
from yunhe.observability.failpoints import failpoint
from yunhe.scheduling.orchestration.jobs import store
from yunhe.scheduling.orchestration.jobs.events import JOB_ASKED
from yunhe.scheduling.orchestration.jobs.states import JobState
from yunhe.storage import outbox
from yunhe.storage.database import Connection, Database


def intend(
    connection: Connection, job_id: JobId, wanted: Resources, totals: dict[NodeId, Resources], now: float
) -> ProjectId:
    """Write down that a job shall have *wanted*, and hold the room for it; zero in a dimension keeps it.

    Return the job's project.
    """
    job = store.read_job(connection, job_id)
    if job.state is not JobState.RUNNING:
        raise ConflictError(
            f"Job {job_id} is {job.state}; only a running job can be resized.",
            remedy="Change resources in the task and run it again.",
        )
    attempt = job.attempts[-1]
    target = Resources(
        cpu_millis=wanted.cpu_millis or attempt.resources.cpu_millis,
        memory_mib=wanted.memory_mib or attempt.resources.memory_mib,
        disk_mib=attempt.resources.disk_mib,
        accelerators=attempt.resources.accelerators,
    )
    held = _larger(target, attempt.resources)
    store.lock_nodes(connection, [attempt.node_id])
    others = store.promised(connection, [attempt.node_id])[attempt.node_id]
    total = totals.get(attempt.node_id, Resources())
    grown = attempt.resources.shortfall(held)
    short = total.shortfall(others.plus(grown))
    if short.cpu_millis or short.memory_mib:
        cores = [f"{show_cpu(short.cpu_millis)} cores"] if short.cpu_millis else []
        memory = [show_memory(short.memory_mib)] if short.memory_mib else []
        node = attempt.node_id.rpartition("/")[2]
        raise ConflictError(
            f"Node {node} has no room for that: it lacks {' and '.join(cores + memory)}.",
            remedy="Ask for less, or stop something there.",
        )
    if not store.request_resize(connection, job_id, target):
        raise ConflictError(
            f"Job {job_id} has just ended.", remedy="Change resources in the task and run it again."
        )
    store.update_allocation(connection, attempt.allocation_id, held=msgspec.json.encode(held))
    outbox.append(connection, JOB_ASKED, job_id, now, {"resize": True})
    return job.project_id


async def carry_out(database: Database, pools: Pools, held: store.LeasedJob, now: float) -> None:
    """Have the pool change the limits, and write what came of it."""
    target = held.resize_to
    if target is None:
        return
    failpoint("resize-before-call")
    try:
        await pools.resize(held.pool_id, held.allocation_id, held.token, target)
        failpoint("resize-after-call")
    except (FencedError, PoolUnreachableError, DatabaseUnavailableError):
        raise
    except YunheError as error:
        problem = str(error)
        await database.write(lambda c: _apply(c, held, held.resources, now, problem=problem))
        return
    await database.write(lambda c: _apply(c, held, target, now, problem=""))


def _apply(
    connection: Connection, held: store.LeasedJob, resources: Resources, now: float, *, problem: str
) -> None:
    # The reading closes the stretch at the old size, so that the reservation is billed at what it was.
    store.meter(connection, held, store.read_meters(connection, held.allocation_id), now, final=False)
    encoded = msgspec.json.encode(resources)
    store.update_allocation(connection, held.allocation_id, resources=encoded, held=encoded)
    store.change_row(connection, held, resize_to=None, resize_problem=problem)
    store.tell(connection, held.job_id, held.order.demand.project_id, JobState.RUNNING, now)


def _larger(a: Resources, b: Resources) -> Resources:
    return Resources(
        cpu_millis=max(a.cpu_millis, b.cpu_millis),
        memory_mib=max(a.memory_mib, b.memory_mib),
        disk_mib=max(a.disk_mib, b.disk_mib),
        accelerators=a.accelerators,
    )
