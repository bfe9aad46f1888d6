"""``yunhe token``: API keys."""

import sys
import time
from typing import Annotated

import typer

from yunhe.entrypoints.cli.session.connection import connected
from yunhe.entrypoints.cli.session.context import replace_key
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
from yunhe.kernel.ids import ProjectId
from yunhe.trading.accounts.model import Action, Key, KeyScope, Role
from yunhe.trading.demand.amounts import duration_s

app = PlainApp(no_args_is_help=True, help="API keys: make, list, rotate, revoke.")
ExpiresOption = Annotated[str, typer.Option(help="Ends after so long: 12h, 30d.")]


@app.command()
def create(  # noqa: PLR0913 - each is an option
    name: Annotated[str, typer.Argument(metavar="NAME", help="What the key is for.")],
    *,
    user: Annotated[str, typer.Option(help="For another user (admins only).")] = "",
    expires: ExpiresOption = "",
    project: Annotated[str, typer.Option("--project", "-p", help="Good in this project only.")] = "",
    role: Annotated[Role | None, typer.Option(help="Good for this role at most.")] = None,
    action: Annotated[
        list[Action] | None, typer.Option(help="Good for this only; may be given several times.")
    ] = None,
    plugin: Annotated[str, typer.Option(help="Good for registering this plugin only (admins only).")] = "",
    output: OutputOption = Format.TABLE,
) -> None:
    """Make a key. It is printed this once and kept only as a hash.

    It ends when the key that it is made with ends, and is never good for more than that one.

    Examples:
      yunhe token create laptop --expires 30d
      yunhe token create ci --user builder --project vision --role member
      yunhe token create dashboard --action see
      yunhe token create torque-site --plugin torque
    """
    scope = KeyScope(project_id=ProjectId(project), role=role, actions=tuple(action or ()), plugin=plugin)
    with connected() as client:
        made = client.create_key(name, user=user, expires_in_s=_seconds("--expires", expires), scope=scope)
    if output is Format.JSON:
        print_json(made)
        return
    sys.stdout.write(made.text + "\n")
    err().print("It is shown this once.   use it   yunhe login URL", style="dim")


def _seconds(option: str, text: str) -> float | None:
    try:
        return duration_s(text) if text else None
    except ValueError as error:
        raise InvalidInputError(
            "No key was made.", fields=(FieldProblem(option, str(error), text),)
        ) from None


@app.command()
def rotate(
    key: Annotated[
        str, typer.Argument(metavar="[KEY]", help="A key's ID from `yunhe token ls`; the one in use else.")
    ] = "",
    *,
    overlap: Annotated[str, typer.Option(help="How much longer the old text is good: 0s to 7d.")] = "1h",
    expires: ExpiresOption = "",
    output: OutputOption = Format.TABLE,
) -> None:
    """Give a key another text, while the old one stays good for a while: nobody has to stop.

    The key in use is replaced in the configuration too. Another key is rotated with the key that it was made with, and
    its new text is printed this once. Keys made with it stay.

    Examples:
      yunhe token rotate
      yunhe token rotate key_1m7ks6r9vgskapw8qvk --overlap 24h
    """
    with connected() as client:
        own = client.me().key_id
        made = client.rotate_key(
            key or own,
            overlap_s=_seconds("--overlap", overlap) or 0.0,
            expires_in_s=_seconds("--expires", expires),
        )
    kept = made.key.id == own and replace_key(made.text)
    if output is Format.JSON:
        print_json(made)
        return
    if not kept:
        sys.stdout.write(made.text + "\n")
    where = "its new text is in the configuration" if kept else "its new text is shown this once"
    until = local_time(made.key.overlap_until, now=time.time())
    err().print(f"✓ {made.key.name} ({made.key.id}) is rotated; {where}; the old one is good until {until}")


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
            _scope_text(key.scope),
            _standing(key, now),
            local_time(key.created_at, now=now),
            local_time(key.last_used_at, now=now),
        ]
        for key in keys
    ]
    out().print(
        table(["", "KEY", "NAME", "OWNER", "SCOPE", "STATE", "MADE", "LAST USED"], rows, flexible=(2, 4))
    )


def _scope_text(scope: KeyScope) -> str:
    """Return what a key is good for in a few words."""
    if scope.plugin:
        return f"plugin {scope.plugin}"
    parts = [scope.project_id, scope.role or "", *scope.actions]
    return " ".join(part for part in parts if part) or "all"


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
    keep_children: Annotated[
        bool, typer.Option("--keep-children", help="Keys made with it go on, as if made with yours (admins).")
    ] = False,
    yes: YesOption = False,
    output: OutputOption = Format.TABLE,
) -> None:
    """End a key at once, and every key that was made with it."""
    with connected() as client:
        own = " It is the one you are using." if client.me().key_id == key else ""
        if not confirm(f"End key {key}?{own}", yes=yes):
            raise typer.Abort
        ended = client.revoke_key(key, keep_children=keep_children)
    if output is Format.JSON:
        print_json(ended)
    else:
        err().print(f"✓ {ended.name} ({ended.id}) has ended")
