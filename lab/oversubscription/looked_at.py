"""What the numbers of the default method were chosen on, so that no such window is ever reported."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import msgspec

from lab.oversubscription.datasets import DataSet
from yunhe.flexible.overload.margin import Tuning

FILE = Path(__file__).with_name("looked_at.json")


class Part(msgspec.Struct, frozen=True):
    """The part of one set that was looked at."""

    traces: str
    """The fingerprint of the whole set: other instances or times under the same name were not looked at."""
    until_s: int


class LookedAt(msgspec.Struct, frozen=True):
    """The numbers that were chosen, and on what."""

    chosen: Tuning
    sets: dict[str, Part]


def looked_at() -> LookedAt:
    """Return the record of the last choice."""
    return msgspec.json.decode(FILE.read_bytes(), type=LookedAt)


def write(record: LookedAt) -> None:
    """Keep the record of a choice."""
    FILE.write_bytes(msgspec.json.format(msgspec.json.encode(record), indent=2) + b"\n")


def without_looked_at(sets: Sequence[DataSet]) -> list[DataSet]:
    """Return the sets, each knowing from when on its windows may be reported."""
    parts = looked_at().sets
    return [
        replace(data, tuned_until_s=part.until_s)
        if (part := parts.get(data.name)) and part.traces == data.fingerprint()
        else data
        for data in sets
    ]
