"""``yunhe secret``: values a project's jobs may find in their environment, and nobody may read back."""

import sys
import time
from typing import Annotated

import typer

from yunhe.entrypoints.cli.session.connection import connected
from yunhe.entrypoints.cli.session.context import current_context
from yunhe.entrypoints.cli.terminal.screen import (
    Format,
    OutputOption,
    PlainApp,
    ProjectOption,
    YesOption,
    confirm,
    err,
    local_time,
    out,
    print_json,
    table,
)
from yunhe.kernel.errors import InvalidInputError

app = PlainApp(no_args_is_help=True, help="A project's secrets: set, list, forget.")
NameArgument = Annotated[str, typer.Argument(metavar="NAME", help="The variable's name in the job.")]


@app.command("set")
def set_(name: NameArgument, *, project: ProjectOption = "", output: OutputOption = Format.TABLE) -> None:
    """Keep a secret, encrypted. The value is asked for or read from standard input, never an argument.

    Examples:
      yunhe secret set HF_TOKEN
      printf %s "$TOKEN" | yunhe secret set HF_TOKEN
    """
    if sys.stdin.isatty():
        value: str = typer.prompt("Value", hide_input=True, err=True)
    else:
        value = sys.stdin.read().removesuffix("\n")
    if not value:
        raise InvalidInputError("The value is empty; nothing was kept.", remedy="Type it, or pipe it in.")
    context = current_context(project)
    with connected(context) as client:
        kept = client.set_secret(context.project, name, value)
    if output is Format.JSON:
        print_json(kept)
    else:
        err().print(f"✓ {name} kept for project {context.project}   use it   secrets: [{name}]")


@app.command()
def ls(*, project: ProjectOption = "", output: OutputOption = Format.TABLE) -> None:
    """List the names of a project's secrets; values are never shown."""
    context = current_context(project)
    with connected(context) as client:
        found = client.secrets(context.project)
    if output is Format.JSON:
        print_json(found)
        return
    now = time.time()
    rows = [[secret.name, local_time(secret.updated_at, now=now), secret.updated_by] for secret in found]
    out().print(table(["SECRET", "SET", "BY"], rows))


@app.command()
def rm(name: NameArgument, *, project: ProjectOption = "", yes: YesOption = False) -> None:
    """Forget a secret."""
    context = current_context(project)
    if not confirm(f"Forget {name} of project {context.project}?", yes=yes):
        raise typer.Abort
    with connected(context) as client:
        client.delete_secret(context.project, name)
    err().print(f"✓ {name} is forgotten")
