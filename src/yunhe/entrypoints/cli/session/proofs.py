"""Exports and signed heads as files: read, written and checked without a server."""

import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TypeVar

import msgspec

from yunhe.entrypoints.cli.terminal.screen import err, print_json
from yunhe.kernel.chains import ChainHead
from yunhe.kernel.errors import InvalidInputError

T = TypeVar("T")


def write_lines(file: Path | None, lines: Iterable[msgspec.Struct]) -> list[msgspec.Struct]:
    """Write one JSON value a line to *file* or standard output; return the last, if there was one."""
    last: list[msgspec.Struct] = []
    target = sys.stdout.buffer if file is None else file.open("wb")
    try:
        for line in lines:
            target.write(msgspec.json.encode(line) + b"\n")
            last = [line]
    finally:
        target.flush()
        if file is not None:
            target.close()
    return last


def read_lines(file: str, kind: type[T], what: str) -> Iterator[T]:
    """Yield the lines of an export."""
    decoder = msgspec.json.Decoder(kind)
    for number, line in enumerate(_read(file, what), 1):
        try:
            yield decoder.decode(line)
        except msgspec.MsgspecError as error:
            raise InvalidInputError(
                f"Line {number} of {file} is not a line of {what}: {error}.",
                remedy="Export it again; the file may be cut short or changed.",
            ) from error


def _read(file: str, what: str) -> Iterator[bytes]:
    if file == "-":
        yield from sys.stdin.buffer
        return
    try:
        with Path(file).open("rb") as source:
            yield from source
    except OSError as error:
        raise InvalidInputError(
            f"{file} cannot be read: {error.strerror}.", remedy=f"Write one by exporting {what}."
        ) from error


def signed_head(text: str, chain: str, key: str) -> ChainHead | None:
    """Return the signed head that *text* names, a file, once its signature is checked; None: it is no file, but a hash."""
    if not Path(text).is_file():
        return None
    from yunhe.storage.signing import check_head  # noqa: PLC0415 - only for who checks signatures

    try:
        head = msgspec.json.decode(Path(text).read_bytes(), type=ChainHead)
    except msgspec.MsgspecError as error:
        raise InvalidInputError(f"{text} is not a signed head: {error}.") from error
    wrong = check_head(head, key) or (
        "" if head.chain == chain else f"it is of the {head.chain}, not the {chain}"
    )
    if wrong:
        raise InvalidInputError(
            f"The head in {text} does not hold: {wrong}.",
            remedy="Do not trust it; ask for another and compare.",
        )
    return head


def show_head(head: ChainHead, file: Path | None) -> None:
    """Write a head to *file*, or show it."""
    if file is None:
        print_json(head)
        return
    file.write_bytes(msgspec.json.encode(head) + b"\n")
    err().print(f"✓ {head.lines} lines, signed by {head.key}; kept in {file}")


def tell_signer(head: ChainHead, key: str) -> None:
    """Say who signed a head where nobody said who should have."""
    if not key:
        err().print(f"  signed by   {head.key}; compare it with what you know, or give it with --key.")
