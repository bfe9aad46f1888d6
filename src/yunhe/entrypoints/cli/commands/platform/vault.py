"""``yunhe vault``: the key that seals the secrets."""

from pathlib import Path
from typing import Annotated

import anyio
import typer

from yunhe.entrypoints.cli.terminal.screen import (
    Format,
    OutputOption,
    PlainApp,
    err,
    print_json,
    refuse_visible_password,
)
from yunhe.kernel.clock import system_clock
from yunhe.kernel.errors import FieldProblem, InvalidInputError, NotFoundError
from yunhe.runtime.rotation import RotationStep, Rotator, VaultRotation
from yunhe.runtime.settings import Settings, default_home
from yunhe.storage.database import Database
from yunhe.storage.private_files import private_home

app = PlainApp(no_args_is_help=True, help="The key that seals secrets: rotate it.")


@app.callback()
def group() -> None:
    """The key that seals secrets: rotate it."""


@app.command()
def rotate(
    context: typer.Context,
    *,
    until: Annotated[
        RotationStep | None,
        typer.Option(help="Stop there, for servers with homes of their own; to the end when not said."),
    ] = None,
    one_home: Annotated[
        bool, typer.Option("--one-home", help="All servers of this PostgreSQL use this home.")
    ] = False,
    home: Annotated[Path | None, typer.Option(help="The server's home; ~/.yunhe when not said.")] = None,
    database: Annotated[
        str,
        typer.Option(envvar="YUNHE_DATABASE", help="As the server's; SQLite below the home when not said."),
    ] = "",
    output: OutputOption = Format.TABLE,
) -> None:
    """Replace the vault's key and seal everything anew. Servers may run; killed, it goes on when repeated.

    Run it where the server's home is, as its user. Servers take up the new key by themselves.

    Examples:
      yunhe vault rotate
      yunhe vault rotate --until prepared --database postgresql://yunhe@db/yunhe
    """
    refuse_visible_password(context)
    settings = Settings(home=(home or default_home()).resolve(), database_url=database)
    key = settings.home / "vault.key"
    url = settings.resolved_database_url()
    if not key.exists() or (url.startswith("sqlite") and not (settings.home / "yunhe.db").exists()):
        raise NotFoundError(
            f"No platform lives in {settings.home}.",
            remedy="Give the server's --home and --database, and run it as the server's user.",
        )
    begun = any((settings.home / f"vault.key{end}").exists() for end in (".next", ".old"))
    if not url.startswith("sqlite") and until is None and not one_home and not begun:
        raise InvalidInputError(
            "Servers with other homes could not open what is sealed with the new key.",
            remedy="Begin with --until prepared and copy vault.key.next to each home; or say --one-home.",
            fields=(FieldProblem("--until", "is not said"),),
        )
    private_home(settings.home)
    done = anyio.run(_rotate, key, url, until or RotationStep.DONE)
    if output is Format.JSON:
        print_json(done)
    elif done.reached is RotationStep.PREPARED:
        err().print(
            f"✓ prepared   copy {key}.next to the home of each other server, then --until switched there"
        )
    elif done.reached is RotationStep.SWITCHED:
        err().print(f"✓ key {done.key} seals   when it does in every home   yunhe vault rotate")
    else:
        count = sum(done.resealed.values())
        err().print(
            f"✓ key {done.key} seals, {count} sealed anew, the old key is gone   keep a copy of {key}"
        )


async def _rotate(key: Path, url: str, until: RotationStep) -> VaultRotation:
    database = Database(url)
    try:
        rotator = Rotator(key, database, system_clock, say=lambda line: err().print(f"· {line}"))
        return await rotator.rotate(until)
    finally:
        database.close()
