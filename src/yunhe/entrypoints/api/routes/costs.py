"""What was used and is owed, and the ledger it comes from."""

from collections.abc import AsyncGenerator, AsyncIterator
from enum import StrEnum
from typing import Annotated

import msgspec
from litestar import Router, get
from litestar.params import FromQuery, QueryParameter
from litestar.types import ASGIApp

from yunhe.entrypoints.api.caller import ApiRequest, TheCaller
from yunhe.entrypoints.api.streams import StreamAnswer, begun
from yunhe.kernel.chains import ChainHead
from yunhe.kernel.ids import ProjectId
from yunhe.trading.trades.model import CostQuery, CostReport, LedgerLine

_LINES_AT_ONCE = 256


class CostBy(StrEnum):
    """What costs are summed by."""

    JOB = "job"
    PROJECT = "project"
    POOL = "pool"


@get("/cost")
async def cost(  # noqa: PLR0913 - one for each parameter of the query
    *,
    caller: TheCaller,
    by: FromQuery[CostBy] = CostBy.JOB,
    project: FromQuery[str] = "",
    job: FromQuery[str] = "",
    since: FromQuery[float | None] = None,
    until: FromQuery[float | None] = None,
    cursor: FromQuery[str | None] = None,
    limit: Annotated[int, QueryParameter(ge=1, le=1000)] = 100,
) -> CostReport:
    """Show what was used and is owed by job, project or pool, between two moments (seconds since the epoch).

    The amounts of the report are of all its lines, ``count`` of them; go on with ``cursor`` = the page's ``next_cursor``.
    """
    found = await caller.job(job) if job else None
    return await caller.platform.trades.costs(
        CostQuery(
            by=by.value,
            projects=await caller.projects(project)
            if found is None
            else (ProjectId(project) or found.project_id,),
            job_id=found.id if found else None,
            since=since,
            until=until,
            cursor=cursor,
            limit=limit,
        )
    )


@get("/ledger", media_type="application/x-ndjson")
async def ledger(caller: TheCaller, request: ApiRequest, project: FromQuery[str] = "") -> ASGIApp:
    """Export the ledger, one entry a line; entries of projects the caller may not see come masked, hashes intact."""
    entries = await begun(caller.platform.trades.export(await caller.projects(project)))
    return StreamAnswer(_lines(entries), "application/x-ndjson", request.app.state.stopping)


@get("/ledger/head")
async def ledger_head(caller: TheCaller) -> ChainHead:
    """Show the signed head of the ledger; who keeps it notices when a line before it is changed or cut off."""
    return await caller.platform.notary.head("ledger")


async def _lines(entries: AsyncIterator[LedgerLine]) -> AsyncGenerator[bytes, None]:
    lines: list[bytes] = []
    async for entry in entries:
        lines.append(msgspec.json.encode(entry) + b"\n")
        if len(lines) == _LINES_AT_ONCE:
            yield b"".join(lines)
            lines.clear()
    if lines:
        yield b"".join(lines)


router = Router("/", route_handlers=[cost, ledger, ledger_head], tags=["costs"])
