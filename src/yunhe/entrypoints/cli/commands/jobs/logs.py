"""``yunhe logs``: what a job printed."""

import sys
from typing import Annotated

import typer

from yunhe.entrypoints.cli.session.connection import connected, find_job
from yunhe.entrypoints.cli.terminal.screen import JobArgument, PlainApp, err

app = PlainApp()


@app.command()
def logs(
    job: JobArgument,
    *,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Go on until the job ends.")] = False,
    attempt: Annotated[int, typer.Option(min=0, help="Only this attempt; 0 is all of them.")] = 0,
) -> None:
    """Show a job's output; it stays readable after its pool is gone.

    With -f it goes on until the job ends, through lost connections; Ctrl-C leaves the job running.

    Examples:
      yunhe logs train
      yunhe logs -f job_06d1t8k2m4
    """
    with connected() as client:
        found = find_job(client, job)
        try:
            for piece in client.logs(found.id, attempt=attempt, follow=follow):
                sys.stdout.buffer.write(piece.data)
                sys.stdout.buffer.flush()
        except KeyboardInterrupt:
            err().print(f"\nThe job goes on.   stop it   yunhe stop {found.id}")
            raise typer.Exit(130) from None
        for one in client.job(found.id).attempts:
            if one.log_lost and attempt in (0, one.number):
                err().print(f"✗ some output of attempt {one.number} is not here: {one.log_lost}")
