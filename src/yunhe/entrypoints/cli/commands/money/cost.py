"""``yunhe cost``: what was used and is owed."""

import time
from enum import StrEnum
from itertools import islice
from typing import Annotated, Any

import msgspec
import typer

from yunhe.entrypoints.cli.session.connection import RECENT, connected, find_job
from yunhe.entrypoints.cli.session.context import current_context
from yunhe.entrypoints.cli.terminal.screen import (
    Format,
    OutputOption,
    PlainApp,
    ProjectOption,
    err,
    out,
    print_json,
)
from yunhe.entrypoints.cli.views.costs import costs_table
from yunhe.entrypoints.client import Client
from yunhe.kernel.errors import FieldProblem, InvalidInputError
from yunhe.kernel.ids import JobId
from yunhe.kernel.units import parse_duration_s
from yunhe.trading.trades.model import CostReport

app = PlainApp()
MOST = 10_000
PAGE = 1000
"""As many lines as the API tells at once."""
ID_END = 8
"""So many letters of an ID tell jobs of one name apart, and every command takes them."""


class By(StrEnum):
    """What costs are added up over."""

    JOB = "job"
    PROJECT = "project"
    POOL = "pool"


@app.command()
def cost(  # noqa: PLR0913 - one for each option
    job: Annotated[str, typer.Argument(metavar="[JOB]", help="Only this job.")] = "",
    *,
    by: Annotated[By, typer.Option(help="Add up by job, project or pool.")] = By.JOB,
    last: Annotated[str, typer.Option(help="Only the last so long: 24h, 30d.")] = "",
    limit: Annotated[
        int, typer.Option("--limit", "-n", min=1, max=MOST, help="At most so many lines.")
    ] = 100,
    every_project: Annotated[bool, typer.Option("--every-project", help="All you may see.")] = False,
    project: ProjectOption = "",
    output: OutputOption = Format.TABLE,
) -> None:
    """Show what was used and is owed: metered use, priced; beside it what the reservation would have cost.

    Those billed last come first, at most --limit of them; the total is of all.

    Examples:
      yunhe cost
      yunhe cost --by pool --last 24h
      yunhe cost train --output json
    """
    since = None if not last else time.time() - _seconds(last)
    context = current_context(project)
    everywhere = every_project or (by is By.PROJECT and not project)
    with connected(context) as client:
        job_id = find_job(client, job).id if job else ""
        only = "" if job_id or everywhere else context.project
        report = _report(client, limit, by=by.value, project=only, job=job_id, since=since)
        names = _names(client, by, job_id, only) if output is Format.TABLE else {}
    if output is Format.JSON:
        print_json(report)
    elif report.lines:
        out().print(costs_table(report, names))
        if len(report.lines) < report.count:
            shown = f"{len(report.lines)} of {report.count} {by}s, those billed last; the total is of all."
            err().print(f"{shown}   more   --limit {min(report.count, MOST)}")
    else:
        err().print("Nothing has been metered there yet.")


def _report(client: Client, limit: int, **which: Any) -> CostReport:
    """Return the costs asked for with the first *limit* lines, however many pages that takes."""
    report = client.cost(limit=min(limit, PAGE), **which)
    lines = [*report.lines]
    while report.next_cursor is not None and len(lines) < limit:
        page = min(limit - len(lines), PAGE)
        report = client.cost(limit=page, cursor=report.next_cursor, **which)
        lines += report.lines
    return msgspec.structs.replace(report, lines=tuple(lines))


def _names(client: Client, by: By, job_id: str, project: str) -> dict[str, str]:
    """Return what people call the pools, or the newest jobs with the end of each ID."""
    if by is By.POOL:
        return {pool.id: pool.spec.name for pool in client.pools()}
    if by is By.PROJECT:
        return {}
    jobs = [client.job(JobId(job_id))] if job_id else islice(client.jobs(project=project), RECENT)
    return {job.id: f"{job.name} {job.id[-ID_END:]}" for job in jobs}


def _seconds(text: str) -> float:
    if text.strip().isdecimal():
        raise InvalidInputError(
            "Nothing was asked.",
            fields=(FieldProblem("--last", "has no unit", text, f"{text.strip()}h"),),
        )
    try:
        return parse_duration_s(text)
    except ValueError as error:
        raise InvalidInputError(
            "Nothing was asked.", fields=(FieldProblem("--last", str(error), text),)
        ) from None
