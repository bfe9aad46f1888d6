"""``yunhe login``: use a platform at an address."""

import sys
from pathlib import Path
from typing import Annotated
from urllib.parse import urlsplit

import typer

from yunhe.entrypoints.cli.session.connection import connected, refuse_clear
from yunhe.entrypoints.cli.session.context import Context, load_config, save_config
from yunhe.entrypoints.cli.terminal.screen import PlainApp, err
from yunhe.kernel.errors import InvalidInputError, NotFoundError

app = PlainApp()


@app.command()
def login(
    url: Annotated[str, typer.Argument(metavar="URL", help="https://yunhe.example.org:8600")],
    *,
    name: Annotated[str, typer.Option(help="What to call it here; the host when not said.")] = "",
    project: Annotated[str, typer.Option("--project", "-p", help="The project to work in.")] = "default",
    ca_file: Annotated[Path | None, typer.Option(help="A certificate authority to trust.")] = None,
) -> None:
    """Use a platform: asks for a key (or reads it from standard input), tries it, and keeps it for this user.

    Examples:
      yunhe login https://yunhe.example.org:8600
      yunhe login http://127.0.0.1:8600 --name lab < key.txt
    """
    address = urlsplit(url)
    if address.scheme not in {"http", "https"} or not address.hostname:
        raise InvalidInputError(f"{url!r} is not an address.", remedy="Write it like https://host:8600.")
    refuse_clear(url)
    if ca_file is not None and not ca_file.is_file():
        raise InvalidInputError(f"{ca_file} is not a file.", remedy="Give the authority's certificate (PEM).")
    key: str = typer.prompt("Key", hide_input=True, err=True) if sys.stdin.isatty() else sys.stdin.readline()
    if not key.strip():
        raise InvalidInputError(
            "No key was given.",
            remedy="Type it, or pipe it in; an admin makes one with `yunhe token create`.",
        )
    context = Context(
        url=url.rstrip("/"),
        key=key.strip(),
        project=project,
        ca_file=str(ca_file.resolve()) if ca_file else "",
    )
    with connected(context) as client:
        who = client.me()
        known = [str(each.id) for each in client.projects()]
    if project not in known:
        raise NotFoundError(
            f"There is no project {project!r} that {who.name} may see.",
            remedy=f"Give one with --project: {', '.join(known) or 'none yet; ask an admin to add you'}.",
        )
    path = save_config(load_config().holding(name or address.hostname, context))
    err().print(f"✓ {who.name} at {context.url}, project {project}; kept in {path}")
