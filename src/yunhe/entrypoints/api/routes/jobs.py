"""Jobs: submit, list, look at, stop, resize."""

from typing import Annotated

from litestar import Router, get, post
from litestar.params import FromPath, FromQuery, HeaderParameter, JSONBody, QueryParameter

from yunhe.entrypoints.api.bodies import BATCH_LIMIT_BYTES
from yunhe.entrypoints.api.caller import Caller, TheCaller
from yunhe.entrypoints.wire import Batch, Jobs, Usage
from yunhe.kernel.errors import FieldProblem, InvalidInputError
from yunhe.kernel.resources import Resources
from yunhe.scheduling.decision.model import NodeAnswers
from yunhe.scheduling.orchestration.jobs.model import Explanation, Job, JobFilter, JobPage
from yunhe.scheduling.orchestration.jobs.states import JobState
from yunhe.trading.accounts.model import Action
from yunhe.trading.applications.model import Submission

IdempotencyKey = Annotated[str, HeaderParameter(name="Idempotency-Key", max_length=200)]
States = Annotated[list[JobState] | None, QueryParameter(name="state")]
PageSize = Annotated[int, QueryParameter(ge=1, le=500)]


@post("/jobs")
async def submit(data: JSONBody[Submission], caller: TheCaller, idempotency_key: IdempotencyKey = "") -> Job:
    """Submit a task; the same ``Idempotency-Key`` with the same body returns the first answer."""
    (job,) = await _submit(caller, (data,), idempotency_key)
    return job


@post("/jobs/batch", request_max_body_size=BATCH_LIMIT_BYTES)
async def submit_batch(
    data: JSONBody[Batch], caller: TheCaller, idempotency_key: IdempotencyKey = ""
) -> Jobs:
    """Submit many tasks in one transaction: all are accepted, or none."""
    if not data.submissions:
        raise InvalidInputError(
            "The batch is empty.",
            remedy="Put at least one submission in it.",
            fields=(FieldProblem("submissions", "has no items"),),
        )
    return Jobs(await _submit(caller, data.submissions, idempotency_key))


async def _submit(caller: Caller, submissions: tuple[Submission, ...], key: str) -> tuple[Job, ...]:
    await caller.authorize_each(Action.RUN, submissions, "submit")
    return await caller.platform.applications.submit(caller.who, submissions, idempotency_key=key)


@get("/jobs")
async def jobs(  # noqa: PLR0913 - one for each parameter of the query
    *,
    caller: TheCaller,
    project: FromQuery[str] = "",
    states: States = None,
    name: FromQuery[str] = "",
    pool: FromQuery[str] = "",
    cursor: FromQuery[str | None] = None,
    limit: PageSize = 50,
) -> JobPage:
    """List jobs, newest first; go on with ``cursor`` = the page's ``next_cursor``."""
    return await caller.platform.orchestration.jobs(
        JobFilter(
            projects=await caller.projects(project),
            states=tuple(states or ()),
            name=name,
            pool_id=(await caller.platform.pools.pool(pool)).id if pool else None,
            cursor=cursor,
            limit=limit,
        )
    )


@get("/jobs/{job_id:str}")
async def job(job_id: FromPath[str], caller: TheCaller) -> Job:
    """Show one job."""
    return await caller.job(job_id)


@post("/jobs/{job_id:str}/stop", status_code=200)
async def stop(job_id: FromPath[str], caller: TheCaller) -> Job:
    """Ask a job to end; one that has ended stays as it is."""
    found = await caller.job(job_id, Action.RUN)
    return await caller.platform.orchestration.stop(found.id)


@post("/jobs/{job_id:str}/resize", status_code=200)
async def resize(job_id: FromPath[str], data: JSONBody[Resources], caller: TheCaller) -> Job:
    """Change a running job's limits in place; what is zero or absent stays as it is."""
    found = await caller.job(job_id, Action.RUN)
    return await caller.platform.orchestration.resize(found.id, data)


@get("/jobs/{job_id:str}/explain")
async def explain(job_id: FromPath[str], caller: TheCaller) -> Explanation:
    """Say why a job is where it is, or why it waits."""
    found = await caller.job(job_id)
    return await caller.platform.orchestration.explain(found.id)


@get("/jobs/{job_id:str}/nodes")
async def nodes(job_id: FromPath[str], caller: TheCaller, node: FromQuery[str] = "") -> NodeAnswers:
    """Say how many nodes of each pool would refuse a job now, by rule, and what one ``node`` says."""
    found = await caller.job(job_id)
    return await caller.platform.orchestration.ask_nodes(found.id, node)


@get("/jobs/{job_id:str}/usage")
async def usage(job_id: FromPath[str], caller: TheCaller) -> Usage:
    """Show what a job used, minute by minute, over all its attempts."""
    found = await caller.job(job_id)
    minutes = [
        minute
        for attempt in found.attempts
        for minute in await caller.platform.perception.usage(attempt.allocation_id)
    ]
    return Usage(tuple(minutes))


router = Router(
    "/",
    route_handlers=[submit, submit_batch, jobs, job, stop, resize, explain, nodes, usage],
    tags=["jobs"],
)
