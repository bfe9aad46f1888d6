"""``yunhe completion``: the words to come, in your shell."""

import sys
from enum import StrEnum
from typing import Annotated

import typer
from typer.completion import get_completion_script  # pyright: ignore[reportPrivateImportUsage]

from yunhe.entrypoints.cli.terminal.screen import PlainApp

app = PlainApp()


class Shell(StrEnum):
    """The shells we know."""

    BASH = "bash"
    ZSH = "zsh"
    FISH = "fish"


@app.command()
def completion(shell: Annotated[Shell, typer.Argument(metavar="SHELL", help="bash, zsh or fish.")]) -> None:
    """Print the completion script of a shell.

    Examples:
      source <(yunhe completion bash)
      yunhe completion fish > ~/.config/fish/completions/yunhe.fish
    """
    script = get_completion_script(prog_name="yunhe", complete_var="_YUNHE_COMPLETE", shell=shell.value)
    sys.stdout.write(script + "\n")
