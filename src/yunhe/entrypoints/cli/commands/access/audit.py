"""``yunhe audit``: who did, or was refused, what and when."""

import time
from itertools import chain, islice
from pathlib import Path
from typing import Annotated

import typer
from rich.text import Text

from yunhe.entrypoints.cli.session.connection import connected
from yunhe.entrypoints.cli.session.proofs import (
    read_lines,
    show_head,
    signed_head,
    tell_signer,
    write_lines,
)
from yunhe.entrypoints.cli.terminal.screen import (
    Format,
    OutputOption,
    PlainApp,
    err,
    local_time,
    out,
    print_json,
    table,
)
from yunhe.kernel.chains import ChainHead
from yunhe.kernel.errors import InvalidInputError
from yunhe.storage.signing import check_head
from yunhe.trading.accounts.chain import verify as verify_chain
from yunhe.trading.accounts.model import AuditLine

app = PlainApp(help="Show the audit log, newest first; export it, verify an export without a server.")


@app.callback(invoke_without_command=True)
def audit(
    context: typer.Context,
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
    if context.invoked_subcommand is not None:
        return
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


@app.command()
def export(
    file: Annotated[
        Path | None, typer.Argument(metavar="[FILE]", help="Where to; standard output else.")
    ] = None,
) -> None:
    """Write the audit log as one JSON line per entry, each tied to the one before it.

    Examples:
      yunhe audit export audit.ndjson
    """
    with connected() as client:
        write_lines(file, client.audit_export())
    if file is not None:
        err().print(f"✓ written to {file}   check   yunhe audit verify {file} --head HEAD")


@app.command()
def head(
    file: Annotated[Path | None, typer.Argument(metavar="[FILE]", help="Where to; shown else.")] = None,
) -> None:
    """Keep the signed head of the audit log: with it you notice if a line of today is changed or cut off.

    Examples:
      yunhe audit head audit.head
    """
    with connected() as client:
        show_head(client.chain_head("audit"), file)


@app.command()
def verify(
    file: Annotated[str, typer.Argument(metavar="FILE", help="An export; - is standard input.")],
    *,
    head: Annotated[str, typer.Option(metavar="HEAD", help="A signed head in a file.")] = "",
    key: Annotated[str, typer.Option(help="The public key that must have signed head and cut.")] = "",
    output: OutputOption = Format.TABLE,
) -> None:
    """Check an export without any server: no line is missing, changed or in another place, and none was cut off.

    Where the oldest lines were removed (retention), the export begins with a signed cut, which is checked too.

    Examples:
      yunhe audit verify audit.ndjson --head audit.head
    """
    signed = signed_head(head, "audit", key) if head else None
    if head and signed is None:
        raise InvalidInputError(f"{head} is not a file.", remedy="Write one with `yunhe audit head FILE`.")
    lines = read_lines(file, AuditLine | ChainHead, "the audit log")  # pyright: ignore[reportArgumentType]
    first = next(lines, None)
    cut = first if isinstance(first, ChainHead) else None
    if cut is not None and (wrong := check_head(cut, key or (signed.key if signed else ""))):
        raise InvalidInputError(f"The cut at the beginning does not hold: {wrong}.")
    rest = [line for line in chain([] if first is None else [first], lines) if isinstance(line, AuditLine)]
    verdict = verify_chain(rest, cut=cut, head=signed)
    if verdict.problem:
        raise InvalidInputError(
            f"The audit log does not hold: {verdict.problem}.",
            remedy="Do not trust this export; ask for another and compare the heads.",
        )
    if output is Format.JSON:
        print_json(verdict)
        return
    removed = f", after {verdict.removed} that were removed" if verdict.removed else ""
    err().print(f"✓ {verdict.lines} lines hold{removed}")
    err().print(f"  last hash   {verdict.last_hash}")
    if signed is not None:
        tell_signer(signed, key)
    else:
        err().print("  Lines cut off the end would not show: give a signed head with --head.")
