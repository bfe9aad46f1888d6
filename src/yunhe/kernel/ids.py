"""Identifiers: a prefix that tells the kind, then time-ordered random letters."""

import secrets
from typing import NewType

JobId = NewType("JobId", str)
AllocationId = NewType("AllocationId", str)
PoolId = NewType("PoolId", str)
NodeId = NewType("NodeId", str)
ProjectId = NewType("ProjectId", str)
UserId = NewType("UserId", str)
BlobId = NewType("BlobId", str)

_ALPHABET = "0123456789abcdefghjkmnpqrstvwxyz"
_PAIRS = [first + second for first in _ALPHABET for second in _ALPHABET]


def new_id(prefix: str, at_s: float) -> str:
    """Return a new identifier such as ``job_06d1t8k2m4…`` that sorts by the time it was made."""
    number = (int(at_s * 1000) << 50) | secrets.randbits(50)
    pairs = [_PAIRS[number >> shift & 1023] for shift in range(90, -1, -10)]
    return f"{prefix}_{''.join(pairs)[1:]}"


def made_at_s(identifier: str) -> float:
    """Return when an identifier was made, to the millisecond."""
    number = 0
    for letter in identifier.rpartition("_")[2]:
        number = number * 32 + _ALPHABET.index(letter)
    return (number >> 50) / 1000
