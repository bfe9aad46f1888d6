"""The terminal: tables that fit, a spinner and colours only where somebody looks, JSON where nobody does."""

import os
import sys
from collections.abc import Generator, Iterable, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any
from urllib.parse import parse_qs, urlsplit

import msgspec
import typer
from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment
from rich.text import Text
from typer.core import TyperCommand

from yunhe.entrypoints.cli.terminal.clean import clean, clean_json
from yunhe.entrypoints.cli.terminal.tables import FittingTable
from yunhe.kernel.errors import FieldProblem, InvalidInputError
from yunhe.kernel.resources import Resources
from yunhe.kernel.units import show_cpu, show_memory
from yunhe.runtime.settings import LogLevel

PIPE_WIDTH = 160  # nobody looks: let nothing be cut off that fits a wide terminal
SYMBOLS = {"CNY": "¥", "USD": "$", "EUR": "€", "GBP": "£"}


class Format(StrEnum):
    """How a read is printed."""

    TABLE = "table"
    JSON = "json"


OutputOption = Annotated[Format, typer.Option("--output", "-o", help="table, or json for programs.")]
ProjectOption = Annotated[str, typer.Option("--project", "-p", help="Another project than the one in use.")]
LogLevelOption = Annotated[
    LogLevel, typer.Option(envvar="YUNHE_LOG_LEVEL", help="From which level on the server logs.")
]
HomeOption = Annotated[
    Path | None,
    typer.Option(metavar="FOLDER", help="Where the platform's data lives; ~/.yunhe when not said."),
]
YesOption = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")]


def _job_names(incomplete: str) -> list[str]:
    """Return jobs that the shell may complete to; what asks the platform is imported only when a key is pressed."""
    from yunhe.entrypoints.cli.session.completing import job_names  # noqa: PLC0415 - as said above

    return job_names(incomplete)


JobArgument = Annotated[
    str,
    typer.Argument(
        metavar="JOB",
        help="A job's ID, the end of one, or the name of the newest so called.",
        autocompletion=_job_names,
    ),
]


class PlainCommand(TyperCommand):
    """A command whose help is plain text, with its examples kept line by line."""

    def __init__(self, name: str | None, **options: Any) -> None:
        text: str | None = options.get("help")
        if text:
            options["help"] = text.replace("\nExamples:\n", "\n\b\nExamples:\n")  # \b: do not rewrap
        super().__init__(name, **options)


class PlainApp(typer.Typer):
    """A command or group whose help is plain text, as in the reference."""

    def __init__(self, **options: Any) -> None:
        super().__init__(add_completion=False, rich_markup_mode=None, **options)

    def command(self, name: str | None = None, **options: Any) -> Any:
        """Register a command."""
        return super().command(name, cls=PlainCommand, **options)


class CleanConsole(Console):
    """A console that draws its own colours and passes on no control character of what it is given."""

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        """Return the segments of *renderable*, cleaned; what goes had no width, so that tables keep their shape."""
        for segment in super().render(renderable, options):
            yield segment if segment.control else Segment(clean(segment.text), segment.style)


def out(*, markup: bool = False) -> Console:
    """Return standard output; *markup* only where nothing but our own words is printed."""
    return _console(sys.stdout.isatty(), stderr=False, markup=markup)


def err() -> Console:
    """Return standard error: what is said beside the answer."""
    return _console(sys.stderr.isatty(), stderr=True)


def _console(on_terminal: bool, *, stderr: bool, markup: bool = False) -> Console:  # noqa: FBT001 - the one thing it depends on
    """Return a console; whoever sets ``NO_COLOR`` gets plain text, without bold or dim either."""
    return CleanConsole(
        stderr=stderr,
        markup=markup,
        highlight=False,
        emoji=False,  # what people call their jobs is shown as they wrote it
        soft_wrap=False,
        width=None if on_terminal else PIPE_WIDTH,
        color_system=None if os.environ.get("NO_COLOR") else "auto",
    )


def refuse_visible_password(context: typer.Context) -> None:
    """Refuse a database URL with a password on the command line, where every user of the machine can read it."""
    source, url = context.get_parameter_source("database"), urlsplit(context.params["database"])
    visible = source is not None and source.name == "COMMANDLINE"
    if visible and (url.password or "password" in parse_qs(url.query)):
        raise InvalidInputError(
            "A password on the command line can be read by every user of this machine.",
            remedy="Put the URL into the environment (YUNHE_DATABASE), or the password into ~/.pgpass.",
            fields=(FieldProblem("--database", "has a password"),),
        )


def somebody_looks() -> bool:
    """Return whether a person is at both ends of the terminal."""
    return sys.stdin.isatty() and sys.stderr.isatty()


def print_json(value: object) -> None:
    """Write *value* as the API would."""
    sys.stdout.write(clean_json(msgspec.json.format(msgspec.json.encode(value))) + "\n")


def table(
    headings: Sequence[str],
    rows: Iterable[Sequence[str | Text]],
    *,
    flexible: Sequence[int] = (-1,),
    cut: Sequence[int] = (),
    expendable: Sequence[int] = (),
) -> FittingTable:
    """Return a table that fits.

    *flexible* columns (by default the last) give way onto more lines and those to *cut* lose their end; where even that
    is too wide, the *expendable* are left out, the first of them first.
    """
    return FittingTable(headings, tuple(rows), flexible=flexible, cut=cut, expendable=expendable)


def hints(commands: Mapping[str, str]) -> Text:
    """Return what one may want to do next: a word and a command on each line."""
    width = max(cell_len(word) for word in commands)
    lines = [f"  {word:<{width}}   {command}" for word, command in commands.items()]
    return Text("\n".join(lines), style="dim")


@contextmanager
def spinner(label: str) -> Generator["Spinner"]:
    """Show *label* turning while the block works; on no terminal, nothing."""
    console = err()
    if not console.is_terminal:
        yield Spinner(None, console)
        return
    with console.status(Text(label), spinner="dots") as status:
        yield Spinner(status, console)


class Spinner:
    """What turns while somebody waits."""

    def __init__(self, status: Any, console: Console) -> None:
        self._status = status
        self._console = console

    def say(self, label: str) -> None:
        """Change what it says."""
        if self._status is not None:
            self._status.update(Text(label))

    def print(self, line: Text) -> None:
        """Print *line* where it turns, and let it turn below.

        It stands still meanwhile: a frame that another thread draws at that moment would stay before the line.
        """
        if self._status is not None:
            self._status.stop()
        self._console.print(line)
        if self._status is not None:
            self._status.start()


def confirm(question: str, *, yes: bool) -> bool:
    """Return whether to go on; nobody there to ask, or ``-y``, means yes."""
    if yes or not somebody_looks():
        return True
    return typer.confirm(clean(question), default=True, err=True)


def local_time(at_s: float | None, *, now: float) -> str:
    """Return a time in the user's zone: the clock today, the date before."""
    if at_s is None:
        return "–"
    then, today = datetime.fromtimestamp(at_s).astimezone(), datetime.fromtimestamp(now).astimezone()
    return then.strftime("%H:%M:%S") if then.date() == today.date() else then.strftime("%Y-%m-%d %H:%M")


def span(seconds: float | None) -> str:
    """Return a duration as short as a column wants it: ``0.8s``, ``4m12s``, ``3h05m``, ``2d4h``."""
    if seconds is None:
        return "–"
    if seconds < 60:
        return f"{seconds:.1f}s"
    minutes, rest = divmod(int(seconds), 60)
    if minutes < 60:
        return f"{minutes}m{rest:02d}s"
    hours, minutes = divmod(minutes, 60)
    return f"{hours}h{minutes:02d}m" if hours < 48 else f"{hours // 24}d{hours % 24}h"


def amount(resources: Resources) -> str:
    """Return an amount of resources in a few letters: ``2 cores 4 GiB A100×2``."""
    cores = show_cpu(resources.cpu_millis)
    parts = [f"{cores} core{'s' * (cores != '1')}", show_memory(resources.memory_mib)]
    parts += [f"{a.kind}×{a.milli / 1000:g}" for a in resources.accelerators]
    return "  ".join(parts)


def bytes_text(count: int | None) -> str:
    """Return bytes in the unit a person would choose; None is unmetered, not zero."""
    if count is None:
        return "unmetered"
    size = float(count)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if size < 1024:
            return f"{size:.3g} {unit}"
        size /= 1024
    return f"{size:.3g} TiB"


def symbol(currency: str) -> str:
    """Return the sign of a currency, or its code."""
    return SYMBOLS.get(currency, f"{currency} ")
