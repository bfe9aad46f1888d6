"""``yunhe explain``: why here, or why not yet."""

import time
from typing import Annotated

import typer

from yunhe.entrypoints.cli.connection import connected, find_job_id, pools_by_id
from yunhe.entrypoints.cli.screen import Format, JobArgument, OutputOption, PlainApp, out, print_json
from yunhe.entrypoints.cli.show_jobs import explanation_page

app = PlainApp()


@app.command()
def explain(
    job: JobArgument,
    *,
    show_all: Annotated[bool, typer.Option("--all", "-a", help="Every pool, where there are many.")] = False,
    output: OutputOption = Format.TABLE,
) -> None:
    """Say why a job is where it is, or why it waits and what would start it.

    Examples:
      yunhe explain train
      yunhe explain train --all
      yunhe explain job_06d1t8k2m4 --output json
    """
    with connected() as client:
        explanation = client.explain(find_job_id(client, job))
        if output is Format.JSON:
            print_json(explanation)
        else:
            pools = pools_by_id(client)
            out().print(explanation_page(explanation, pools, now=time.time(), every=show_all))
