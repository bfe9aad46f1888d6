"""``yunhe ledger``: the record of what was owed, and the proof that nobody changed it."""

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import msgspec
import typer

from yunhe.entrypoints.cli.session.proofs import (
    read_lines,
    show_head,
    signed_head,
    tell_signer,
    write_lines,
)
from yunhe.entrypoints.cli.terminal.screen import Format, OutputOption, PlainApp, err, print_json
from yunhe.kernel.errors import InvalidInputError
from yunhe.kernel.money import show_money
from yunhe.trading.trades.chain import verify as verify_chain
from yunhe.trading.trades.model import LedgerEntry, LedgerLine, MaskedEntry

app = PlainApp(no_args_is_help=True, help="The ledger: export it; verify an export without a server.")


@app.command()
def export(
    file: Annotated[
        Path | None, typer.Argument(metavar="[FILE]", help="Where to; standard output else.")
    ] = None,
    *,
    project: Annotated[str, typer.Option("--project", "-p", help="Only this project's lines in clear.")] = "",
) -> None:
    """Write the ledger as one JSON line per entry. Lines of projects you may not see are masked; the chain holds.

    Examples:
      yunhe ledger export ledger.ndjson
      yunhe ledger export | yunhe ledger verify -
    """
    from yunhe.entrypoints.cli.session.connection import connected  # noqa: PLC0415 - verify needs no client

    with connected() as client:
        last = write_lines(file, client.ledger(project=project))
    if file is not None:
        told = [(line.seq, line.hash) for line in last if isinstance(line, LedgerEntry | MaskedEntry)]
        count, last_hash = told[0] if told else (0, "")
        err().print(f"✓ {count} lines in {file}   check   yunhe ledger verify {file} --head {last_hash}")


@app.command()
def head(
    file: Annotated[Path | None, typer.Argument(metavar="[FILE]", help="Where to; shown else.")] = None,
) -> None:
    """Keep the signed head of the ledger: with it you notice, for ever, if a line of today is changed or cut off.

    Examples:
      yunhe ledger head ledger.head
    """
    from yunhe.entrypoints.cli.session.connection import connected  # noqa: PLC0415 - verify needs no client

    with connected() as client:
        show_head(client.chain_head("ledger"), file)


@app.command()
def verify(
    file: Annotated[str, typer.Argument(metavar="FILE", help="An export; - is standard input.")],
    *,
    head: Annotated[
        str, typer.Option(metavar="HEAD", help="A signed head in a file, or the hash of the last line.")
    ] = "",
    key: Annotated[str, typer.Option(help="The public key that must have signed the head.")] = "",
    output: OutputOption = Format.TABLE,
) -> None:
    """Check an export without any server: every line follows the one before it, says what it said, and adds up.

    A chain cannot tell that lines were cut off its end, and who owns the database could write another. A signed head (`yunhe
    ledger head FILE`, from this platform or from anybody who kept one) holds the export to what it was; without one, the hash
    of its last line does.

    Examples:
      yunhe ledger verify ledger.ndjson --head ledger.head
      yunhe ledger verify ledger.ndjson --head 5f0c…
    """
    signed = signed_head(head, "ledger", key)
    lines: Iterator[LedgerLine] = read_lines(file, LedgerLine, "the ledger")  # pyright: ignore[reportArgumentType]
    verdict = verify_chain(lines, signed)
    if verdict.ok and not verdict.lines:
        verdict = msgspec.structs.replace(
            verdict, problem="it has no line; it was cut short, or nothing was owed yet"
        )
    elif verdict.ok and head and signed is None and verdict.last_hash != head.lower():
        problem = f"it ends in {verdict.last_hash}, not in the hash given: it was cut short or is another"
        verdict = msgspec.structs.replace(verdict, problem=problem)
    if output is Format.JSON:
        print_json(verdict)
    elif verdict.ok:
        notes = f", {verdict.masked} of them masked" if verdict.masked else ""
        notes += f", {verdict.unpriced} without their prices" if verdict.unpriced else ""
        amount = show_money(verdict.amount_micros)
        err().print(f"✓ {verdict.lines} lines hold{notes}; {amount} in all")
        err().print(f"  last hash   {verdict.last_hash}")
        if signed is not None:
            tell_signer(signed, key)
        if not head:
            err().print("  Lines cut off the end would not show: compare the hash, or give it with --head.")
    if not verdict.ok:
        raise InvalidInputError(
            f"The ledger does not hold: {verdict.problem}.",
            remedy="Do not trust this export; ask its owner for another and compare the hashes.",
        )
