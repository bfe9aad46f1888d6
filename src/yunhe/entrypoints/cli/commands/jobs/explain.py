"""``yunhe explain``: why here, or why not yet."""

import time
from typing import Annotated

import typer
from rich.text import Text

from yunhe.entrypoints.cli.session.connection import connected, find_job_id, pools_by_id
from yunhe.entrypoints.cli.terminal.screen import (
    Format,
    JobArgument,
    OutputOption,
    PlainApp,
    out,
    print_json,
    table,
)
from yunhe.entrypoints.cli.views.jobs import explanation_page

app = PlainApp()


@app.command()
def explain(
    job: JobArgument,
    *,
    show_all: Annotated[bool, typer.Option("--all", "-a", help="Every pool, where there are many.")] = False,
    nodes: Annotated[
        bool, typer.Option("--nodes", help="How many nodes of each pool would refuse it now, by rule.")
    ] = False,
    node: Annotated[
        str, typer.Option(metavar="NODE", help="What one node says: its name, or POOL/NODE.")
    ] = "",
    output: OutputOption = Format.TABLE,
) -> None:
    """Say why a job is where it is, or why it waits and what would start it.

    Examples:
      yunhe explain train
      yunhe explain train --all
      yunhe explain train --node lab/gpu-17
      yunhe explain job_06d1t8k2m4 --output json
    """
    if nodes or node:
        _ask_nodes(job, node, output)
        return
    with connected() as client:
        explanation = client.explain(find_job_id(client, job))
        if output is Format.JSON:
            print_json(explanation)
        else:
            pools = pools_by_id(client)
            out().print(explanation_page(explanation, pools, now=time.time(), every=show_all))


def _ask_nodes(job: str, node: str, output: Format) -> None:
    with connected() as client:
        answers = client.ask_nodes(find_job_id(client, job), node)
    if output is Format.JSON:
        print_json(answers)
    elif node:
        refusal = answers.refusal
        said = "could take it now" if refusal is None else f"refuses it: {refusal.detail} ({refusal.rule})"
        out().print(Text(f"{answers.node} {said}"))
    else:
        rows = [
            [pool, rule, f"{count:,}"]
            for pool, rules in sorted(answers.refused.items())
            for rule, count in (rules or {"–": 0}).items()
        ]
        out().print(table(["POOL", "REFUSED BY", "NODES"], rows))
        out().print(Text("what one node says: yunhe explain JOB --node POOL/NODE", style="dim"))
