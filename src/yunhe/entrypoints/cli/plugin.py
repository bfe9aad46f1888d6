"""``yunhe plugin``: the adapters to engines."""

import re
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from yunhe.entrypoints.cli.plugin_skeleton import write_skeleton
from yunhe.entrypoints.cli.screen import PlainApp, hints, out
from yunhe.kernel.errors import FieldProblem, InvalidInputError

app = PlainApp(no_args_is_help=True, help="Make, list, inspect and remove plugins.")
_NAME = re.compile(r"[a-z]([a-z0-9-]{0,38}[a-z0-9])?")


class Language(StrEnum):
    """What a skeleton can be written in."""

    PYTHON = "python"
    GO = "go"


@app.callback()
def plugins() -> None:
    """Make, list, inspect and remove plugins: the adapters to engines."""


@app.command()
def new(
    name: Annotated[str, typer.Argument(metavar="NAME", help="Its name, and the kind of its pools.")],
    *,
    language: Annotated[Language, typer.Option(help="python or go.")] = Language.PYTHON,
    folder: Annotated[Path | None, typer.Option(help="Where to; a new folder NAME when not said.")] = None,
) -> None:
    """Write the skeleton of a plugin: a manifest, an adapter, and a test that already passes.

    Examples:
      yunhe plugin new torque
      yunhe plugin new torque --language go
      yunhe plugin new torque --folder plugins/torque
    """
    if not _NAME.fullmatch(name):
        raise InvalidInputError(
            f"{name!r} cannot be a plugin's name.",
            remedy="Use lower-case letters, digits and dashes, beginning with a letter; at most 40.",
            fields=(FieldProblem("name", "is not a name", name),),
        )
    where = folder or Path(name)
    for path in write_skeleton(name, language.value, where):
        out().print(f"wrote {path}", highlight=False)
    out().print(hints({"Test it": f"cd {where} && pytest test_plugin.py", "Read": f"{where}/README.md"}))
