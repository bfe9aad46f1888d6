"""The ``yunhe`` command: a table of commands, each imported only when it is used."""

import importlib
import sys
from typing import Any, NamedTuple

import typer
from typer.core import TyperGroup

from yunhe.kernel.errors import YunheError


class Command(NamedTuple):
    """Where a command lives and what one line says of it."""

    module: str
    help: str


COMMANDS: dict[str, Command] = {
    "availability": Command("availability", "Plan how few services meet an availability target, exactly."),
}
"""Name → module below ``yunhe.entrypoints.cli`` whose ``app`` is the command or group."""


class LazyCommands(TyperGroup):
    """A group that knows its commands by name and imports one when asked."""

    def list_commands(self, ctx: Any) -> list[str]:  # noqa: D102 - as documented by the parent
        return list(COMMANDS)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:  # noqa: D102 - as documented by the parent
        entry = COMMANDS.get(cmd_name)
        if entry is None:
            return None
        module = importlib.import_module(f"yunhe.entrypoints.cli.{entry.module}")
        command = typer.main.get_command(module.app)
        command.name = cmd_name
        command.help = entry.help
        return command


app = typer.Typer(cls=LazyCommands, no_args_is_help=True, add_completion=False)


@app.callback()
def yunhe() -> None:
    """Yunhe joins scattered computing into one."""


def main() -> None:
    """Run the command line; what we refuse on purpose is printed without a traceback."""
    try:
        app()
    except YunheError as error:
        for line in (f"✗ {error.problem}", *(f"  {field}" for field in error.fields), f"  → {error.remedy}"):
            if line.strip(" →"):
                sys.stderr.write(line + "\n")
        sys.exit(1)
