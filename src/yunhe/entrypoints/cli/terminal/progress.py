"""How far something has come, in bytes, where somebody looks."""

from collections.abc import Callable, Generator
from contextlib import contextmanager

from rich.text import Text

from yunhe.entrypoints.cli.terminal.screen import err

Advance = Callable[[int], None]


@contextmanager
def byte_bar(verb: str, name: str, total_bytes: int) -> Generator[Advance]:
    """Show a bar for *total_bytes* and yield what moves it on; on no terminal, or for nothing, there is none.

    Of a name that would leave no room for the figures, the end is shown.
    """
    console = err()
    if not console.is_terminal or not total_bytes:
        yield lambda _: None
        return
    from rich.progress import (  # noqa: PLC0415 - slow to load, and only for terminals
        BarColumn,
        DownloadColumn,
        Progress,
        TextColumn,
        TimeRemainingColumn,
        TransferSpeedColumn,
    )

    columns = (DownloadColumn(binary_units=True), TransferSpeedColumn(), TimeRemainingColumn())
    with Progress(
        TextColumn("{task.fields[label]}"), BarColumn(), *columns, console=console, transient=True
    ) as bar:
        room = max(8, console.width // 3 - len(verb))
        shown = name if len(name) <= room else f"…{name[1 - room :]}"
        task = bar.add_task("", total=total_bytes, label=Text(f"{verb} {shown}"))
        yield lambda count: bar.advance(task, count)
