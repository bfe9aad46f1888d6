"""``yunhe ssh``: a shell in a running job, called as ssh is."""

import sys
from typing import Annotated

import typer

from yunhe.entrypoints.cli.commands.jobs.exec import run_beside
from yunhe.entrypoints.cli.terminal.screen import JobArgument, PlainApp

app = PlainApp()
_SHELL = "if command -v bash > /dev/null; then exec bash; else exec sh; fi"


@app.command(context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False})
def ssh(
    job: JobArgument,
    command: Annotated[
        list[str] | None, typer.Argument(metavar="[COMMAND]", help="What to run; a shell when not said.")
    ] = None,
    *,
    terminal: Annotated[bool, typer.Option("--tty", "-t", help="Give a command a terminal.")] = False,
) -> None:
    """Open a shell in a running job: as its user, in its directory, within its limits.

    It is `yunhe exec`, called as ssh is: a shell has a terminal; a command has none unless -t is given, is read by
    sh in the job, and has our standard input. The exit code is the command's. Nothing listens for it in the job, so
    that tools which take another program than ssh work through it.

    Examples:
      yunhe ssh train
      yunhe ssh train 'tail -n 5 *.log | sort'
      yunhe ssh -t train htop
      rsync -a -e 'yunhe ssh' train:checkpoints/ checkpoints/
    """
    words = list(command or ())
    if words[:1] == ["--"]:
        del words[0]
    script = " ".join(words) or _SHELL
    shell = not words and sys.stdin.isatty()
    raise typer.Exit(run_beside(job, ("sh", "-c", script), interactive=True, terminal=terminal or shell))
