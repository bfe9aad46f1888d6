"""``yunhe stop``: ask jobs to end."""

from typing import Annotated

import typer

from yunhe.entrypoints.cli.session.connection import connected, find_job
from yunhe.entrypoints.cli.terminal.follow import await_end
from yunhe.entrypoints.cli.terminal.screen import (
    Format,
    OutputOption,
    PlainApp,
    YesOption,
    confirm,
    err,
    print_json,
    spinner,
)
from yunhe.kernel.units import show_duration
from yunhe.scheduling.orchestration.jobs.model import Job
from yunhe.scheduling.orchestration.jobs.states import FINAL

app = PlainApp()


@app.command()
def stop(
    jobs: Annotated[list[str], typer.Argument(metavar="JOB…", help="IDs, ends of IDs, or names.")],
    *,
    wait: Annotated[bool, typer.Option(help="Wait until they have ended.")] = True,
    yes: YesOption = False,
    output: OutputOption = Format.TABLE,
) -> None:
    """Stop jobs. Their programs get SIGTERM, and are forced to end when the task's grace is over.

    What they write in the grace is kept, in the log and in the outputs. A job that has ended stays as it is.

    Examples:
      yunhe stop train
      yunhe stop -y job_06d1t8k2m4 job_06d1t8k2m5
    """
    with connected() as client:
        found = [find_job(client, called) for called in jobs]
        running = [job for job in found if job.state not in FINAL]
        names = ", ".join(f"{job.name} ({job.id})" for job in running)
        if running and not confirm(f"Stop {names}?", yes=yes):
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
