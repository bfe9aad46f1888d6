"""``yunhe stop``: ask jobs to end."""

from collections.abc import Sequence
from fnmatch import fnmatchcase
from typing import Annotated

import typer

from yunhe.entrypoints.cli.session.completing import job_names
from yunhe.entrypoints.cli.session.connection import connected, find_job
from yunhe.entrypoints.cli.session.context import current_context
from yunhe.entrypoints.cli.terminal.follow import await_end
from yunhe.entrypoints.cli.terminal.screen import (
    Format,
    OutputOption,
    PlainApp,
    ProjectOption,
    YesOption,
    confirm,
    err,
    print_json,
    spinner,
)
from yunhe.entrypoints.client import Client
from yunhe.kernel.errors import InvalidInputError
from yunhe.kernel.units import show_duration
from yunhe.scheduling.orchestration.jobs.model import Job
from yunhe.scheduling.orchestration.jobs.states import FINAL, JobState

app = PlainApp()
NAMED = 5
"""So many jobs are named in the question; of more, how many they are."""
_PATTERN = "*?["


@app.command()
def stop(
    jobs: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="JOB…", help="IDs, ends of IDs, names, or patterns: 'train-*'.", autocompletion=job_names
        ),
    ] = None,
    *,
    every: Annotated[
        bool, typer.Option("--all", help="All jobs of the project that have not ended.")
    ] = False,
    wait: Annotated[bool, typer.Option(help="Wait until they have ended.")] = True,
    project: ProjectOption = "",
    yes: YesOption = False,
    output: OutputOption = Format.TABLE,
) -> None:
    """Stop jobs. Their programs get SIGTERM, and are forced to end when the task's grace is over.

    What they write in the grace is kept, in the log and in the outputs. A job that has ended stays as it is.

    A pattern is of names, and takes those that have not ended.

    Examples:
      yunhe stop train
      yunhe stop -y job_06d1t8k2m4 job_06d1t8k2m5
      yunhe stop 'sweep-*'
      yunhe stop --all
    """
    if every == bool(jobs):
        raise InvalidInputError(
            "Both jobs and --all were given." if every else "No job was given.",
            remedy="Name jobs, or patterns in quotes ('train-*'), or give --all alone.",
        )
    context = current_context(project)
    with connected(context) as client:
        found = _chosen(client, jobs or ["*"], context.project)
        running = [job for job in found if job.state not in FINAL]
        if running and not confirm(_question(running), yes=yes):
            raise typer.Abort
        stopped: list[Job] = [client.stop(job.id) for job in found]
        if wait:
            graces = [job.grace_s for job in running]
            told = f"   they have up to {show_duration(max(graces))} to save their work" if graces else ""
            with spinner(f"stopping{told}"):
                stopped = [await_end(client, job.id) for job in stopped]
    if output is Format.JSON:
        print_json(stopped)
        return
    for job in stopped:
        err().print(f"{job.name} ({job.id}) {job.state}")
    if not stopped:
        err().print(
            f"No job of project {context.project} that has not ended is called so; nothing was stopped."
        )


def _chosen(client: Client, called: Sequence[str], project: str) -> list[Job]:
    """Return the jobs that are meant, none of them twice."""
    patterns = [one for one in called if any(sign in one for sign in _PATTERN)]
    chosen = [find_job(client, one) for one in called if one not in patterns]
    if patterns:
        active = tuple(state for state in JobState if state not in FINAL)
        chosen += [
            job
            for job in client.jobs(project=project, states=active)
            if any(fnmatchcase(job.name, pattern) for pattern in patterns)
        ]
    return list({job.id: job for job in chosen}.values())


def _question(running: Sequence[Job]) -> str:
    names = ", ".join(f"{job.name} ({job.id})" for job in running[:NAMED])
    more = len(running) - NAMED
    return f"Stop {names}{f' and {more} more' if more > 0 else ''}?"
