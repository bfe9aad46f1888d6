"""What Slurm's programs print, as values."""

from __future__ import annotations

import re
from typing import Any, Iterator, NamedTuple

PREFIX = "yunhe-"
"""Every job of ours is called this and its allocation's ID."""

QUEUE_FORMAT = "%i|%j|%T|%N|%r"
_ENDLESS = ("UNLIMITED", "INFINITE", "NONE", "Partition_Limit", "N/A", "")
_FIELD = re.compile(r"(?:^|\s)([A-Za-z][A-Za-z0-9:/_]*)=")
_UNITS_MIB = {"K": 1 / 1024, "M": 1, "G": 1024, "T": 1024 * 1024}


class SlurmJob(NamedTuple):
    """A row of squeue."""

    number: str
    allocation_id: str
    state: str
    nodes: str
    reason: str


def jobs(text: str) -> Iterator[SlurmJob]:
    """Yield our jobs among what ``squeue --format=QUEUE_FORMAT`` prints."""
    for line in text.splitlines():
        fields = line.strip().split("|", 4)
        if len(fields) == 5 and fields[1].startswith(PREFIX):
            number, name, state, nodes, reason = fields
            yield SlurmJob(number, name[len(PREFIX) :], state, nodes, "" if reason == "None" else reason)


def records(text: str) -> Iterator[dict[str, str]]:
    """Yield each line of ``scontrol show … --oneliner`` as its fields; a value may hold spaces and equals signs."""
    for line in text.splitlines():
        marks = list(_FIELD.finditer(line))
        if marks:
            ends = [mark.start() for mark in marks[1:]] + [len(line)]
            pairs = zip(marks, ends)  # noqa: B905 - Python 3.8
            yield {mark[1]: line[mark.end() : end].strip() for mark, end in pairs}


def settings(text: str) -> dict[str, str]:
    """Return ``scontrol show config`` as names and values."""
    pairs = (line.partition("=") for line in text.splitlines() if " = " in line)
    return {name.strip(): value.strip() for name, _, value in pairs}


def minutes(text: str) -> int | None:
    """Return a time limit in minutes, rounded down; None where there is none."""
    if text in _ENDLESS:
        return None
    days, _, clock = text.rpartition("-")
    parts = [int(part) for part in clock.split(":")]
    if days:
        hours, rest = parts[0], [*parts[1:], 0][:1]
        return int(days) * 1440 + hours * 60 + rest[0]
    if len(parts) == 3:
        return parts[0] * 60 + parts[1]
    return parts[0]


def whole(text: str) -> int:
    """Return a number that may be absent, fractional or followed by a unit of memory (then in MiB)."""
    found = re.match(r"\s*(\d+(?:\.\d+)?)\s*([KMGT]?)", text)
    return int(float(found[1]) * _UNITS_MIB.get(found[2], 1)) if found else 0


def amounts(text: str) -> dict[str, int]:
    """Return a list of trackable resources, ``cpu=4,mem=4000M,gres/gpu:a100=2``, as numbers (memory in MiB)."""
    pairs = (part.partition("=") for part in text.split(",") if "=" in part)
    return {name: whole(value) for name, _, value in pairs}


def accelerators(text: str) -> list[dict[str, Any]]:
    """Return a node's generic resources that are accelerators: ``gpu:a100:4(S:0-1),craynetwork:1``.

    The count of a kind that Slurm gives no type is kept under ``gpu``.
    """
    found: dict[str, int] = {}
    for part in re.sub(r"\([^)]*\)", "", text).split(","):
        fields = part.split(":")
        if fields[0] != "gpu":
            continue
        count = fields[-1] if fields[-1].isdigit() else "1"
        kind = ":".join(fields[1 : -1 if fields[-1].isdigit() else None]) or "gpu"
        found[kind] = found.get(kind, 0) + int(count)
    return [{"kind": kind, "milli": count * 1000} for kind, count in sorted(found.items()) if count]
