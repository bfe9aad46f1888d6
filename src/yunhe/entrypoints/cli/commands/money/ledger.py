"""``yunhe ledger``: the record of what was owed, and the proof that nobody changed it."""

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import msgspec
import typer

from yunhe.entrypoints.cli.terminal.screen import Format, OutputOption, PlainApp, err, print_json
from yunhe.kernel.errors import InvalidInputError
from yunhe.kernel.money import show_money
from yunhe.trading.trades.chain import verify as verify_chain
from yunhe.trading.trades.model import LedgerLine

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

    count, last_hash = 0, ""
    with connected() as client:
        target = sys.stdout.buffer if file is None else file.open("wb")
        try:
            for line in client.ledger(project=project):
                target.write(msgspec.json.encode(line) + b"\n")
                count, last_hash = count + 1, line.hash
        finally:
            target.flush()
            if file is not None:
                target.close()
    if file is not None:
        err().print(f"✓ {count} lines in {file}   check   yunhe ledger verify {file} --head {last_hash}")


@app.command()
def verify(
    file: Annotated[str, typer.Argument(metavar="FILE", help="An export; - is standard input.")],
    *,
    head: Annotated[
        str, typer.Option(metavar="HASH", help="The hash that the last line must have: nothing was cut off.")
    ] = "",
    output: OutputOption = Format.TABLE,
) -> None:
    """Check an export without any server: every line follows the one before it, says what it said, and adds up.

    A chain cannot tell that lines were cut off its end. Whoever exports it sees the hash of its last line (`yunhe ledger
    export FILE`), and --head holds the export to it.

    Examples:
      yunhe ledger verify ledger.ndjson
      yunhe ledger verify ledger.ndjson --head 5f0c…
    """
    verdict = verify_chain(_lines(file))
    if verdict.ok and not verdict.lines:
        verdict = msgspec.structs.replace(
            verdict, problem="it has no line; it was cut short, or nothing was owed yet"
        )
    elif verdict.ok and head and verdict.last_hash != head.lower():
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
        if not head:
            err().print("  Lines cut off the end would not show: compare the hash, or give it with --head.")
    if not verdict.ok:
        raise InvalidInputError(
            f"The ledger does not hold: {verdict.problem}.",
            remedy="Do not trust this export; ask its owner for another and compare the hashes.",
        )


def _lines(file: str) -> Iterator[LedgerLine]:
    decoder: msgspec.json.Decoder[LedgerLine] = msgspec.json.Decoder(LedgerLine)
    for number, line in enumerate(_read(file), 1):
        try:
            yield decoder.decode(line)
        except msgspec.MsgspecError as error:
            raise InvalidInputError(
                f"Line {number} of {file} is not a line of a ledger: {error}.",
                remedy="Export it again; the file may be cut short or changed.",
            ) from error


def _read(file: str) -> Iterator[bytes]:
    if file == "-":
        yield from sys.stdin.buffer
        return
    try:
        with Path(file).open("rb") as source:
            yield from source
    except OSError as error:
        raise InvalidInputError(
            f"{file} cannot be read: {error.strerror}.", remedy="Write one with `yunhe ledger export FILE`."
        ) from error
