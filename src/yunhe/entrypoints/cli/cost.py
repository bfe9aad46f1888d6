"""``yunhe cost``: what was used and is owed."""

import time
from enum import StrEnum
from typing import Annotated

import typer

from yunhe.entrypoints.cli.connection import connected, find_job
from yunhe.entrypoints.cli.context import current_context
from yunhe.entrypoints.cli.screen import Format, OutputOption, PlainApp, ProjectOption, err, out, print_json
from yunhe.entrypoints.cli.show_costs import costs_table
from yunhe.kernel.errors import FieldProblem, InvalidInputError
from yunhe.kernel.units import parse_duration_s

app = PlainApp()


class By(StrEnum):
    """What costs are added up over."""

    JOB = "job"
    PROJECT = "project"
    POOL = "pool"


@app.command()
def cost(
    job: Annotated[str, typer.Argument(metavar="[JOB]", help="Only this job.")] = "",
    *,
    by: Annotated[By, typer.Option(help="Add up by job, project or pool.")] = By.JOB,
    last: Annotated[str, typer.Option(help="Only the last so long: 24h, 30d.")] = "",
    every_project: Annotated[bool, typer.Option("--every-project", help="All you may see.")] = False,
    project: ProjectOption = "",
    output: OutputOption = Format.TABLE,
) -> None:
    """Show what was used and is owed: metered use, priced; beside it what the reservation would have cost.

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
        report = client.cost(by=by.value, project=only, job=job_id, since=since)
        pools = client.pools() if by is By.POOL else ()
    if output is Format.JSON:
        print_json(report)
    elif report.lines:
        out().print(costs_table(report, {pool.id: pool.spec.name for pool in pools}))
    else:
        err().print("Nothing has been metered there yet.")


def _seconds(text: str) -> float:
    try:
        return parse_duration_s(text)
    except ValueError as error:
        raise InvalidInputError(
            "Nothing was asked.", fields=(FieldProblem("--last", str(error), text),)
        ) from None
