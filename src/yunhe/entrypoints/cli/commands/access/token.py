"""``yunhe token``: API keys."""

import sys
import time
from typing import Annotated

import typer

from yunhe.entrypoints.cli.session.connection import connected
from yunhe.entrypoints.cli.terminal.screen import (
    Format,
    OutputOption,
    PlainApp,
    YesOption,
    confirm,
    err,
    local_time,
    out,
    print_json,
    table,
)
from yunhe.kernel.errors import FieldProblem, InvalidInputError
from yunhe.trading.accounts.model import Key
from yunhe.trading.demand.amounts import duration_s

app = PlainApp(no_args_is_help=True, help="API keys: make, list, revoke.")


@app.command()
def create(
    name: Annotated[str, typer.Argument(metavar="NAME", help="What the key is for.")],
    *,
    user: Annotated[str, typer.Option(help="For another user (admins only).")] = "",
    expires: Annotated[str, typer.Option(help="Ends after so long: 12h, 30d.")] = "",
    output: OutputOption = Format.TABLE,
) -> None:
    """Make a key. It is printed this once and kept only as a hash.

    Examples:
      yunhe token create laptop --expires 30d
      yunhe token create ci --user builder
    """
    try:
        seconds = duration_s(expires) if expires else None
    except ValueError as error:
        field = FieldProblem("--expires", str(error), expires)
        raise InvalidInputError("No key was made.", fields=(field,)) from None
    with connected() as client:
        made = client.create_key(name, user=user, expires_in_s=seconds)
    if output is Format.JSON:
        print_json(made)
        return
    sys.stdout.write(made.text + "\n")
    err().print("It is shown this once.   use it   yunhe login URL", style="dim")


@app.command()
def ls(*, output: OutputOption = Format.TABLE) -> None:
    """List keys: never the keys themselves."""
    with connected() as client:
        mine, keys = client.me().key_id, client.keys()
    if output is Format.JSON:
        print_json(keys)
        return
    now = time.time()
    rows = [
        [
            "*" if key.id == mine else "",
            key.id,
            key.name,
            key.user,
            _standing(key, now),
            local_time(key.created_at, now=now),
            local_time(key.last_used_at, now=now),
        ]
        for key in keys
    ]
    out().print(table(["", "KEY", "NAME", "OWNER", "STATE", "MADE", "LAST USED"], rows, flexible=(2,)))


def _standing(key: Key, now: float) -> str:
    if key.revoked_at is not None:
        return "revoked"
    if key.expires_at is None:
        return "valid"
    return "expired" if key.expires_at <= now else f"until {local_time(key.expires_at, now=now)}"


@app.command()
def revoke(
    key: Annotated[str, typer.Argument(metavar="KEY", help="A key's ID from `yunhe token ls`.")],
    *,
    yes: YesOption = False,
    output: OutputOption = Format.TABLE,
) -> None:
    """End a key at once."""
    with connected() as client:
        own = " It is the one you are using." if client.me().key_id == key else ""
        if not confirm(f"End key {key}?{own}", yes=yes):
            raise typer.Abort
        ended = client.revoke_key(key)
    if output is Format.JSON:
        print_json(ended)
    else:
        err().print(f"✓ {ended.name} ({ended.id}) has ended")
