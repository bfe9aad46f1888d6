"""``yunhe ps``: the jobs."""

import time
from collections.abc import Callable
from itertools import islice
from typing import Annotated

import typer
from rich.live import Live

from yunhe.entrypoints.cli.session.connection import connected
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
from yunhe.entrypoints.cli.views.jobs import jobs_table
from yunhe.kernel.errors import InvalidInputError
from yunhe.scheduling.orchestration.jobs.model import Job
from yunhe.scheduling.orchestration.jobs.states import FINAL, JobState

app = PlainApp()

WATCH_EVERY_S = 2.0
ACTIVE = tuple(state for state in JobState if state not in FINAL)


@app.command()
def ps(  # noqa: PLR0913 - one for each option
    *,
    show_all: Annotated[bool, typer.Option("--all", "-a", help="Also jobs that have ended.")] = False,
    state: Annotated[
        list[JobState] | None, typer.Option(help="Only jobs in this state; may be repeated.")
    ] = None,
    name: Annotated[str, typer.Option(help="Only jobs of this name.")] = "",
    limit: Annotated[int, typer.Option("--limit", "-n", min=1, max=10_000, help="At most so many.")] = 50,
    watch: Annotated[
        bool, typer.Option("--watch", "-w", help="Show it anew every two seconds, until Ctrl-C.")
    ] = False,
    project: ProjectOption = "",
    output: OutputOption = Format.TABLE,
) -> None:
    """List jobs, newest first: those that have not ended, or all with --all.

    Examples:
      yunhe ps
      yunhe ps --all --name train -n 5
      yunhe ps --state failed --output json
      yunhe ps --watch
    """
    context = current_context(project)
    states = tuple(state or ()) or (() if show_all or name else ACTIVE)
    with connected(context) as client:

        def listed() -> list[Job]:
            return list(islice(client.jobs(project=context.project, states=states, name=name), limit))

        if watch:
            _watch(listed, output)
            return
        jobs = listed()
    if output is Format.JSON:
        print_json(jobs)
    elif jobs:
        out().print(jobs_table(jobs, now=time.time()))
    else:
        hint = "" if show_all or state or name else " `yunhe ps --all` shows those that have ended."
        err().print(f"No jobs in project {context.project}.{hint}")


def _watch(listed: Callable[[], list[Job]], output: Format) -> None:
    """Show the list anew until somebody interrupts; where no terminal is, one list after another."""
    if output is Format.JSON:
        raise InvalidInputError(
            "--watch draws a table; it has no JSON.", remedy="Follow the API's events, or call ps again."
        )
    screen = out()
    try:
        with Live(console=screen, auto_refresh=False, transient=False) as live:
            while True:
                drawn = jobs_table(listed(), now=time.time())
                live.update(drawn, refresh=True)
                if not screen.is_terminal:
                    screen.print(drawn)
                time.sleep(WATCH_EVERY_S)
    except KeyboardInterrupt:
        return
