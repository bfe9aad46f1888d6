"""``yunhe audit``: who did, or was refused, what and when."""

import time
from itertools import islice
from typing import Annotated

import typer
from rich.text import Text

from yunhe.entrypoints.cli.session.connection import connected
from yunhe.entrypoints.cli.terminal.screen import (
    Format,
    OutputOption,
    PlainApp,
    local_time,
    out,
    print_json,
    table,
)

app = PlainApp()


@app.command()
def audit(
    *,
    limit: Annotated[int, typer.Option("--limit", "-n", min=1, max=10_000, help="At most so many.")] = 50,
    denied: Annotated[bool, typer.Option("--denied", help="Only what was refused.")] = False,
    output: OutputOption = Format.TABLE,
) -> None:
    """Show the audit log, newest first.

    Examples:
      yunhe audit -n 10
      yunhe audit --denied --output json
    """
    with connected() as client:
        wanted = (entry for entry in client.audit() if not denied or entry.outcome == "denied")
        entries = list(islice(wanted, limit))
    if output is Format.JSON:
        print_json(entries)
        return
    now = time.time()
    rows = [
        [
            local_time(entry.at, now=now),
            entry.user,
            entry.action,
            Text(entry.outcome, style="red" if entry.outcome == "denied" else ""),
            entry.project_id or "–",
            f"{entry.subject} {entry.detail}".strip(),
        ]
        for entry in entries
    ]
    out().print(table(["WHEN", "WHO", "WHAT", "OUTCOME", "PROJECT", "ON"], rows))
