"""The hash chain of the ledger: how a line is sealed to the one before it, and how anyone checks it."""

from collections.abc import Iterable

import msgspec

from yunhe.kernel import chains
from yunhe.kernel.chains import GENESIS, ChainHead, link
from yunhe.trading.trades.model import LedgerEntry, LedgerLine, MaskedEntry
from yunhe.trading.trades.price import amount_micros


class Verdict(msgspec.Struct, frozen=True, kw_only=True):
    """What checking a ledger found; ``problem`` is empty when every line holds."""

    lines: int
    masked: int
    amount_micros: int
    """The sum of the lines that are not masked."""
    unpriced: int = 0
    """How many lines are from before lines carried their prices: their amounts cannot be computed again."""
    last_hash: str
    problem: str = ""

    @property
    def ok(self) -> bool:
        """Whether every line holds."""
        return not self.problem


def digest_of(entry: LedgerEntry) -> str:
    """Return the hash of what a line says."""
    content = msgspec.to_builtins(msgspec.structs.replace(entry, digest="", previous="", hash=""))
    return chains.digest_of(content)


def sealed(entry: LedgerEntry, previous: str) -> LedgerEntry:
    """Return *entry* chained to the line before it."""
    digest = digest_of(entry)
    return msgspec.structs.replace(entry, digest=digest, previous=previous, hash=link(previous, digest))


def masked(entry: LedgerEntry) -> MaskedEntry:
    """Return a line with nothing left of what it says."""
    return MaskedEntry(seq=entry.seq, digest=entry.digest, previous=entry.previous, hash=entry.hash)


def verify(lines: Iterable[LedgerLine], head: ChainHead | None = None) -> Verdict:
    """Check every line from the first: numbers without gaps, hashes that chain, amounts that are use times price.

    With a *head*, the line that it names must be there and have its hash: nothing before it was changed or cut off.
    """
    previous, count, hidden, unpriced, total, problem = GENESIS, 0, 0, 0, 0, ""
    for line in lines:
        problem = _problem(line, previous, count + 1)
        if problem:
            break
        previous = line.hash
        count += 1
        if head is not None and head.lines == count and head.hash != previous:
            problem = f"line {count} is not the one that the signed head names"
            break
        if isinstance(line, LedgerEntry):
            total += line.amount_micros
            unpriced += line.prices is msgspec.UNSET
        else:
            hidden += 1
    if not problem and head is not None and head.lines > count:
        problem = f"it has {count} lines, and had {head.lines} when its head was signed: lines were cut off"
    return Verdict(
        lines=count,
        masked=hidden,
        amount_micros=total,
        unpriced=unpriced,
        last_hash=previous,
        problem=problem,
    )


def _problem(line: LedgerLine, previous: str, expected: int) -> str:
    if line.seq != expected:
        return f"line {expected} is missing: found {line.seq} in its place"
    if line.previous != previous:
        return f"line {line.seq} does not follow the line before it"
    if link(line.previous, line.digest) != line.hash:
        return f"the hash of line {line.seq} is wrong"
    if isinstance(line, LedgerEntry):
        if digest_of(line) != line.digest:
            return f"line {line.seq} was changed after it was written"
        if line.amount_micros < 0:
            return f"line {line.seq} has a negative amount"
        if not _adds_up(line):
            return f"the amounts of line {line.seq} are not what it says was used, at the prices it says"
    return ""


def _adds_up(line: LedgerEntry) -> bool:
    if isinstance(line.prices, msgspec.UnsetType):
        return True  # from before lines carried their prices: the chain is all that vouches for it
    computed = amount_micros(line.used, line.prices), amount_micros(line.reserved, line.prices)
    return computed == (line.amount_micros, line.reserved_micros)
