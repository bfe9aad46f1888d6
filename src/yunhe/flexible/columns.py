"""Which column means what: recognised by name, its unit by suffix, and said aloud."""

import difflib
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from yunhe.kernel.errors import FieldProblem, InvalidInputError


class Role(StrEnum):
    """What a column can be to us."""

    INSTANCE = "instance"
    TIME = "time"
    CPU_USED = "cpu_used"
    CPU_ALLOCATED = "cpu_allocated"
    MEMORY_USED = "memory_used"
    MEMORY_ALLOCATED = "memory_allocated"
    DISK = "disk"
    NETWORK = "network"
    AUTOSCALED = "autoscaled"


NAMES: Mapping[Role, tuple[str, ...]] = {
    Role.INSTANCE: (
        "instance",
        "vm",
        "vm_id",
        "id",
        "instance_id",
        "job",
        "pod",
        "container",
        "name",
        "host_name",
    ),
    Role.TIME: ("time", "ts", "timestamp", "date", "datetime", "step", "slot"),
    Role.CPU_USED: (
        "cpu_used",
        "cpu_usage",
        "cpu_avg",
        "cpu",
        "cpu_util",
        "cpu_utilization",
        "cpu_utilisation",
    ),
    Role.CPU_ALLOCATED: (
        "cpu_allocated",
        "cpu_alloc",
        "cpu_request",
        "cores",
        "vcpus",
        "vcpu",
        "cpu_count",
        "cpus",
    ),
    Role.MEMORY_USED: ("memory_used", "mem_used", "memory_usage", "mem_usage", "mem", "memory", "mem_util"),
    Role.MEMORY_ALLOCATED: (
        "memory_allocated",
        "mem_alloc",
        "mem_request",
        "memory_request",
        "mem_cap",
        "mem_capacity",
    ),
    Role.DISK: ("disk", "disk_r", "disk_w", "disk_read", "disk_write"),
    Role.NETWORK: ("network", "net", "net_rx", "net_tx", "network_in", "network_out"),
    Role.AUTOSCALED: ("autoscaled", "hpa"),
}
"""Recognised names, without their unit; upper case, spaces and dashes do not matter."""

SUMMED = frozenset({Role.DISK, Role.NETWORK})
"""Roles that several columns may share: reads and writes, in and out."""

UNITS: Mapping[str, str] = {
    "cores": "cores",
    "millis": "millicores",
    "millicores": "millicores",
    "m": "millicores",
    "pct": "percent",
    "percent": "percent",
    "bytes": "bytes",
    "b": "bytes",
    "kb": "KiB",
    "kib": "KiB",
    "mb": "MiB",
    "mib": "MiB",
    "gb": "GiB",
    "gib": "GiB",
    "kbs": "KiB/s",
    "kibs": "KiB/s",
    "mbs": "MiB/s",
    "s": "s",
    "ms": "ms",
}
"""Suffix of a column's name → unit."""


@dataclass(frozen=True, slots=True)
class Meaning:
    """One column, understood; an empty unit is decided from the values."""

    column: str
    role: Role
    unit: str = ""


def plain(name: str) -> str:
    """Return *name* in lower case with underscores, as names are compared."""
    return re.sub(r"[^a-z0-9]+", "_", name.strip().lower()).strip("_")


def understand(columns: Sequence[str], overrides: Iterable[Meaning] = ()) -> tuple[Meaning, ...]:
    """Return what each recognised column means; *overrides* win over the names.

    Raises InvalidInputError that lists every missing column at once.
    """
    given = tuple(overrides)
    _check_overrides(given, columns)
    found = {meaning.column: meaning for meaning in given}
    taken = {meaning.role for meaning in given} - SUMMED
    for column in columns:
        meaning = _recognise(column)
        if column not in found and meaning is not None and meaning.role not in taken:
            found[column] = meaning
            if meaning.role not in SUMMED:
                taken.add(meaning.role)
    missing = [role for role in (Role.INSTANCE, Role.TIME, Role.CPU_USED) if role not in taken]
    if missing:
        raise _missing(missing, columns)
    return tuple(found.values())


def parse_override(text: str) -> Meaning:
    """Read ``cpu_used=my column`` or ``memory_used=rss:bytes``."""
    role, separator, rest = text.partition("=")
    column, _, unit = rest.partition(":")
    if not separator or role not in set(Role) or not column:
        raise InvalidInputError(
            f"{text!r} does not say which column is what.",
            remedy=f"Write ROLE=COLUMN or ROLE=COLUMN:UNIT; roles are {', '.join(Role)}.",
        )
    if unit and plain(unit) not in UNITS:
        raise InvalidInputError(f"{unit!r} is not a unit.", remedy=f"Use one of {', '.join(UNITS)}.")
    return Meaning(column, Role(role), UNITS[plain(unit)] if unit else "")


def _recognise(column: str) -> Meaning | None:
    name = plain(column)
    for role, names in NAMES.items():
        if name in names:
            return Meaning(column, role)
        for known in names:
            suffix = name.removeprefix(known + "_")
            if suffix != name and suffix in UNITS:
                return Meaning(column, role, UNITS[suffix])
    return None


def _check_overrides(overrides: Sequence[Meaning], columns: Sequence[str]) -> None:
    unknown = [meaning for meaning in overrides if meaning.column not in columns]
    if unknown:
        raise InvalidInputError(
            "Some named columns are not in the file.",
            remedy=f"The file has {', '.join(columns)}.",
            fields=tuple(
                FieldProblem(
                    meaning.role, "no such column", meaning.column, _nearest(meaning.column, columns)
                )
                for meaning in unknown
            ),
        )


def _missing(roles: Sequence[Role], columns: Sequence[str]) -> InvalidInputError:
    return InvalidInputError(
        f"{len(roles)} of the columns needed are not there; the file has {', '.join(columns)}.",
        remedy="Say which column it is: --column "
        + " --column ".join(f"{role}=COLUMN" for role in roles)
        + f". Known names: {'; '.join(f'{role}: ' + ', '.join(NAMES[role]) for role in roles)}.",
        fields=tuple(
            FieldProblem(role, "no column of a known name", did_you_mean=_nearest(role, columns))
            for role in roles
        ),
    )


def _nearest(name: str, columns: Sequence[str]) -> str | None:
    by_plain = {plain(column): column for column in columns}
    close = difflib.get_close_matches(plain(name), by_plain, n=1, cutoff=0.6)
    return by_plain[close[0]] if close else None
