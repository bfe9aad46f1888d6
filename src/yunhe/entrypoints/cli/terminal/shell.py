"""How a command line becomes a call: one command is imported, and what goes wrong is said with its remedy."""

import gc
import importlib
import io
import os
import sys
from collections.abc import Mapping
from typing import Any, Protocol

import typer
from typer.core import TyperGroup

from yunhe.entrypoints.cli.terminal.problems import local_problem, show_problem, unforeseen, wants_json
from yunhe.kernel.errors import InvalidInputError, YunheError

INTERRUPTED = 130
ELSEWHERE_CALLED = {
    "bill": "cost",
    "cancel": "stop",
    "jobs": "ps",
    "kill": "stop",
    "launch": "run",
    "list": "ps",
    "ls": "ps",
    "queue": "ps",
    "port-forward": "forward",
    "start": "up",
    "status": "ps",
    "submit": "run",
    "version": "--version",
    "whoami": "config show",
}
"""What other tools call our commands."""


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
    _print_what_the_terminal_can()
    entry = commands.get(arguments[0]) if arguments else None
    if entry is not None and entry.given:
        arguments = [arguments[0], *entry.given, *arguments[1:]]
    verbatim = arguments[arguments.index("--") + 1 :] if "--" in arguments else []
    try:
        outcome = group(commands).main(
            arguments, prog_name="yunhe", standalone_mode=False, obj=Verbatim(verbatim)
        )
    except YunheError as error:
        show_problem(error, as_json=as_json)
        return 1
    except typer.TyperException as error:
        show_problem(_usage_problem(error, arguments), as_json=as_json)
        return error.exit_code
    except typer.Abort:
        sys.stderr.write("\nNothing was done.\n")
        return INTERRUPTED
    except BrokenPipeError:  # the reader of our output left, as `head` does
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except OSError as error:
        show_problem(local_problem(error), as_json=as_json)
        return 1
    except Exception as error:  # noqa: BLE001 - the last resort: a line for people, the traceback in a file
        show_problem(unforeseen(error), as_json=as_json)
        return 1
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
            module = importlib.import_module(f"yunhe.entrypoints.cli.commands.{entry.module}")
            _collect_garbage_from_here()
            command = typer.main.get_command(module.app)
            command.name = cmd_name
            return command

    app = typer.Typer(cls=LazyCommands, rich_markup_mode=None)

    @app.callback()
    def yunhe() -> None:
        """Yunhe joins scattered computing into one."""

    return typer.main.get_command(app)


def _collect_garbage_from_here() -> None:
    """Enable collection where it waited for the imports; what they made is there for good, and is not looked at again."""
    if not gc.isenabled():
        gc.freeze()
        gc.enable()


def _named(name: str, entry: Entry) -> Any:
    """Return a command that has only its name and help, for a list of completions."""
    stub = typer.Typer(add_completion=False, rich_markup_mode=None)
    stub.command(name=name, help=entry.help)(lambda: None)
    return typer.main.get_command(stub)


def _print_what_the_terminal_can() -> None:
    """Let a terminal that knows no UTF-8 show a question mark where it cannot show more."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")


def _usage_problem(error: typer.TyperException, arguments: list[str]) -> InvalidInputError:
    """Return what the parser refused in our own form."""
    context: Any = getattr(error, "ctx", None)
    path = context.command_path if context else "yunhe"
    message = error.format_message().strip().replace("Value error, ", "")
    if message.startswith("Usage: "):  # a group was called alone: its help is the message
        names = ", ".join(context.command.list_commands(context))
        return InvalidInputError(
            f"`{path}` needs one of: {names}.", remedy=f"`{path} --help` says what each does."
        )
    if message.startswith("No such command"):
        return _unknown_command(message.split("'")[1], path, context.command.list_commands(context))
    remedy = f"`{path} --help` shows how it is called."
    if path in ("yunhe run", "yunhe plan") and "--" not in arguments and message.startswith("No such option"):
        remedy += " To run a command, put -- before it: yunhe run -- COMMAND."
    return InvalidInputError(message, remedy=remedy)


def _unknown_command(word: str, path: str, known: list[str]) -> InvalidInputError:
    """Return that *path* has no command *word*, and which was probably meant."""
    if path == "yunhe" and word in ELSEWHERE_CALLED:
        close = [ELSEWHERE_CALLED[word]]
    else:
        from difflib import get_close_matches  # noqa: PLC0415 - only for who has mistyped

        begun = [name for name in known if name.startswith(word)]
        close = begun or get_close_matches(word, known, n=1)
    meant = f"Did you mean `{path} {close[0]}`? " if close else ""
    name = word if path == "yunhe" else f"{path} {word}"
    return InvalidInputError(f"There is no command {name!r}.", remedy=f"{meant}`{path} --help` lists them.")
