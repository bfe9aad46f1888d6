"""``yunhe plugin``: the adapters to engines."""

import re
import time
from collections.abc import Iterable
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from yunhe.control.plugins.model import Check, Plugin
from yunhe.entrypoints.cli.commands.pools.plugin_skeleton import write_skeleton
from yunhe.entrypoints.cli.session.connection import connected
from yunhe.entrypoints.cli.terminal.screen import (
    Format,
    OutputOption,
    PlainApp,
    YesOption,
    confirm,
    err,
    hints,
    local_time,
    out,
    print_json,
    spinner,
    table,
)
from yunhe.entrypoints.cli.views.plugins import plugin_page, plugins_table
from yunhe.entrypoints.cli.views.pools import check_line
from yunhe.kernel.errors import FieldProblem, InvalidInputError

app = PlainApp(no_args_is_help=True, help="Make, list, inspect, start, upgrade and remove plugins.")
NameArgument = Annotated[str, typer.Argument(metavar="NAME", help="A plugin's name.")]
FolderArgument = Annotated[
    Path, typer.Argument(metavar="DIR", help="Its folder, with a plugin.toml, on the server's machine.")
]
_NAME = re.compile(r"[a-z]([a-z0-9-]{0,38}[a-z0-9])?")


class Language(StrEnum):
    """What a skeleton can be written in."""

    PYTHON = "python"
    GO = "go"


@app.callback()
def plugins() -> None:
    """Make, list, inspect, start, upgrade and remove plugins: the adapters to engines."""


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


@app.command()
def ls(*, output: OutputOption = Format.TABLE) -> None:
    """List plugins: version, vendor, powers, state, and which pools are of their kind."""
    with connected() as client:
        plugins = client.plugins()
    if output is Format.JSON:
        print_json(plugins)
    else:
        out().print(plugins_table(plugins))


@app.command()
def show(name: NameArgument, *, output: OutputOption = Format.TABLE) -> None:
    """Show one plugin: its options, its processes, and how each field maps to its engine's."""
    with connected() as client:
        plugin = client.plugin(name)
    if output is Format.JSON:
        print_json(plugin)
    else:
        out().print(plugin_page(plugin, now=time.time()))


@app.command()
def add(folder: FolderArgument, *, output: OutputOption = Format.TABLE) -> None:
    """Let the platform start a plugin and keep it running; its kind can be used at once.

    Its folder is one that an admin allowed. It runs as a user of its own, within limits.

    Examples:
      yunhe plugin add ./torque
      yunhe plugin add /opt/plugins/torque --output json
    """
    with connected() as client:
        _tell(client.add_plugin(str(folder.absolute())), output)


@app.command()
def allow(folder: FolderArgument, *, output: OutputOption = Format.TABLE) -> None:
    """Let operators start plugins from a folder of the server's machine and those below it. For admins.

    The folder must belong to root or the server's user, and nobody else may write to it.

    Examples:
      yunhe plugin allow /opt/plugins
    """
    with connected() as client:
        allowed = client.allow_plugins(str(folder.absolute()))
    if output is Format.JSON:
        print_json(allowed)
    else:
        err().print(f"✓ plugins may be started from {allowed.directory}")


@app.command()
def disallow(folder: FolderArgument) -> None:
    """Let no plugin be started from a folder any more; those that run go on until they end."""
    with connected() as client:
        client.disallow_plugins(str(folder.absolute()))
    err().print(f"✓ plugins are not started from {folder.absolute()}")


@app.command()
def folders(*, output: OutputOption = Format.TABLE) -> None:
    """List the folders of the server's machine that plugins may be started from."""
    with connected() as client:
        allowed = client.plugin_folders()
    if output is Format.JSON:
        print_json(allowed)
        return
    now = time.time()
    rows = [[one.directory, local_time(one.allowed_at, now=now), one.allowed_by] for one in allowed]
    out().print(table(["FOLDER", "ALLOWED", "BY"], rows, flexible=(0,)))


@app.command()
def upgrade(name: NameArgument, folder: FolderArgument, *, output: OutputOption = Format.TABLE) -> None:
    """Start a plugin's next version; it takes over without a failed call, then the old one leaves.

    Examples:
      yunhe plugin upgrade torque ./torque-2
    """
    with connected() as client:
        _tell(client.add_plugin(str(folder.absolute()), upgrades=name), output)


def _tell(steps: Iterable[Check | Plugin], output: Format) -> None:
    """Print each step as it comes, and at last what serves now."""
    checks: list[Check] = []
    plugin: Plugin | None = None
    with spinner("starting the plugin") as turning:
        for step in steps:
            if isinstance(step, Plugin):
                plugin = step
                continue
            checks.append(step)
            if output is Format.TABLE:
                turning.print(check_line(step))
    if output is Format.JSON:
        print_json({"checks": checks, "plugin": plugin})
    elif plugin is not None:
        err().print(f"{plugin.name} {plugin.version} is {plugin.state}.")
        words = f"yunhe pool add {plugin.name}{' TARGET' if plugin.target else ''}"
        err().print(hints({"use it": words, "look": f"yunhe plugin show {plugin.name}"}))


@app.command()
def rm(
    name: NameArgument,
    *,
    force: Annotated[bool, typer.Option("--force", help="Even while pools use it; they go offline.")] = False,
    yes: YesOption = False,
) -> None:
    """Call a plugin no more and let its processes leave. What runs on its pools goes on."""
    if not confirm(f"Remove plugin {name}?", yes=yes):
        raise typer.Abort
    with connected() as client:
        client.remove_plugin(name, force=force)
    err().print(f"{name} is gone.")
