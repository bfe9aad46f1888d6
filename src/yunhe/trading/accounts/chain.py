"""The hash chain of the audit log, and how anyone checks an export of it."""

from collections.abc import Iterable

import msgspec

from yunhe.kernel.chains import AUDITED, GENESIS, ChainHead, digest_of, link
from yunhe.trading.accounts.model import AuditLine


class AuditVerdict(msgspec.Struct, frozen=True, kw_only=True):
    """What checking an audit log found; ``problem`` is empty when every line holds."""

    lines: int
    removed: int = 0
    """How many of the oldest lines had been removed, as a signed cut says."""
    last_hash: str
    problem: str = ""


def verify(
    lines: Iterable[AuditLine], *, cut: ChainHead | None = None, head: ChainHead | None = None
) -> AuditVerdict:
    """Check every line: numbers without gaps from the first or the *cut* on, hashes that chain, and the signed *head*."""
    removed, previous = (0, GENESIS) if cut is None else (cut.lines, cut.hash)
    number, problem = removed, ""
    for line in lines:
        problem = _problem(line, previous, number + 1)
        if problem:
            break
        number, previous = line.number, line.hash
        if head is not None and head.lines == number and head.hash != previous:
            problem = f"line {number} is not the one that the signed head names"
            break
    if not problem and head is not None and head.lines > number:
        problem = (
            f"it ends at line {number}, and had {head.lines} when its head was signed: lines were cut off"
        )
    return AuditVerdict(lines=number - removed, removed=removed, last_hash=previous, problem=problem)


def _problem(line: AuditLine, previous: str, expected: int) -> str:
    if line.number != expected:
        return f"line {expected} is missing: found {line.number} in its place"
    if line.previous != previous:
        return f"line {line.number} does not follow the line before it"
    if link(previous, digest_of({name: getattr(line, name) for name in AUDITED})) != line.hash:
        return f"line {line.number} was changed after it was written"
    return ""
