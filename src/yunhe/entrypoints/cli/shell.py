"""How a command line becomes a call: one command is imported, and what goes wrong is said with its remedy."""

import importlib
import os
import sys
from collections.abc import Mapping
from difflib import get_close_matches
from typing import Any, Protocol

import typer
from typer.core import TyperGroup

from yunhe.entrypoints.cli.problems import show_problem, wants_json
from yunhe.kernel.errors import InvalidInputError, YunheError

INTERRUPTED = 130


class Verbatim(list[str]):
    """What followed ``--`` on the command line; the parser itself does not tell."""


class Entry(Protocol):
    """Where a command lives and what one line says of it."""

    @property
    def module(self) -> str: ...  # noqa: D102 - said by the class
    @property
    def help(self) -> str: ...  # noqa: D102 - said by the class
    @property
    def given(self) -> tuple[str, ...]: ...  # noqa: D102 - said by the class


def run(commands: Mapping[str, Entry], arguments: list[str]) -> int:
    """Run *arguments* and return the exit code; what we refuse on purpose is told without a traceback."""
    as_json = wants_json(arguments)
    entry = commands.get(arguments[0]) if arguments else None
    if entry is not None and entry.given:
        arguments = [entry.module, *entry.given, *arguments[1:]]
    verbatim = arguments[arguments.index("--") + 1 :] if "--" in arguments else []
    try:
        outcome = group(commands).main(
            arguments, prog_name="yunhe", standalone_mode=False, obj=Verbatim(verbatim)
        )
    except YunheError as error:
        show_problem(error, as_json=as_json)
        return 1
    except typer.TyperException as error:
        show_problem(_usage_problem(error, commands), as_json=as_json)
        return error.exit_code
    except typer.Abort:
        sys.stderr.write("\nNothing was done.\n")
        return INTERRUPTED
    except BrokenPipeError:  # the reader of our output left, as `head` does
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    return outcome if isinstance(outcome, int) else 0


def group(commands: Mapping[str, Entry]) -> Any:
    """Return the whole command line, nothing of it imported yet."""

    class LazyCommands(TyperGroup):
        """A group that knows its commands by name and imports one when asked."""

        listing = False

        def shell_complete(self, ctx: Any, incomplete: str) -> Any:
            self.listing = True
            return super().shell_complete(ctx, incomplete)

        def list_commands(self, ctx: Any) -> list[str]:
            return list(commands)

        def get_command(self, ctx: Any, cmd_name: str) -> Any:
            entry = commands.get(cmd_name)
            if entry is None:
                return None
            if self.listing:
                return _named(cmd_name, entry)
            module = importlib.import_module(f"yunhe.entrypoints.cli.{entry.module}")
            command = typer.main.get_command(module.app)
            command.name = cmd_name
            return command

    app = typer.Typer(cls=LazyCommands, rich_markup_mode=None)

    @app.callback()
    def yunhe() -> None:
        """Yunhe joins scattered computing into one."""

    return typer.main.get_command(app)


def _named(name: str, entry: Entry) -> Any:
    """Return a command that has only its name and help, for a list of completions."""
    stub = typer.Typer(add_completion=False, rich_markup_mode=None)
    stub.command(name=name, help=entry.help)(lambda: None)
    return typer.main.get_command(stub)


def _usage_problem(error: typer.TyperException, commands: Mapping[str, Entry]) -> InvalidInputError:
    """Return what the parser refused in our own form."""
    context: Any = getattr(error, "ctx", None)
    path = context.command_path if context else "yunhe"
    message = error.format_message().strip()
    if message.startswith("No such command") and path == "yunhe":
        word = message.split("'")[1]
        close = get_close_matches(word, list(commands), n=1)
        meant = f"Did you mean `yunhe {close[0]}`? " if close else ""
        return InvalidInputError(
            f"There is no command {word!r}.", remedy=f"{meant}`yunhe --help` lists them."
        )
    return InvalidInputError(message, remedy=f"`{path} --help` shows how it is called.")
