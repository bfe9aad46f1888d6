"""Which column means what: recognised by name, its unit by suffix, and said aloud."""

import difflib
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from yunhe.kernel.errors import FieldProblem, InvalidInputError


class ColumnRole(StrEnum):
    """What a column can be to us."""

    INSTANCE = "instance"
    TIME = "time"
    CPU_USED = "cpu_used"
    CPU_ALLOCATED = "cpu_allocated"
    CPU_CLOCK = "cpu_clock"
    """The clock of all its cores together: what usage in MHz is a part of."""
    MEMORY_USED = "memory_used"
    MEMORY_ALLOCATED = "memory_allocated"
    DISK = "disk"
    NETWORK = "network"
    AUTOSCALED = "autoscaled"


NAMES: Mapping[ColumnRole, tuple[str, ...]] = {
    ColumnRole.INSTANCE: (
        "instance",
        "instance_id",
        "vm",
        "vm_id",
        "vmid",
        "id",
        "job",
        "pod",
        "container",
        "name",
        "host_name",
    ),
    ColumnRole.TIME: ("time", "ts", "timestamp", "date", "datetime", "step", "slot"),
    ColumnRole.CPU_USED: (
        "cpu_used",
        "cpu_usage",
        "cpu_avg",
        "avg_cpu",
        "cpu",
        "cpu_util",
        "cpu_utilization",
        "cpu_utilisation",
        "cpuutilization",
    ),
    ColumnRole.CPU_ALLOCATED: (
        "cpu_allocated",
        "cpu_alloc",
        "cpu_request",
        "cores",
        "cpu_cores",
        "vcpus",
        "vcpu",
        "cpu_count",
        "cpus",
        "cpu_limit",
        "cpu_capacity",
        "cpu_cap",
        "cpu_capacity_provisioned",
    ),
    ColumnRole.CPU_CLOCK: ("cpu_clock",),
    ColumnRole.MEMORY_USED: (
        "memory_used",
        "mem_used",
        "memory_usage",
        "mem_usage",
        "mem",
        "memory",
        "mem_util",
    ),
    ColumnRole.MEMORY_ALLOCATED: (
        "memory_allocated",
        "mem_alloc",
        "mem_request",
        "memory_request",
        "mem_limit",
        "memory_limit",
        "mem_cap",
        "mem_capacity",
        "memory_capacity",
        "memory_capacity_provisioned",
    ),
    ColumnRole.DISK: (
        "disk",
        "disk_r",
        "disk_w",
        "disk_read",
        "disk_write",
        "disk_read_throughput",
        "disk_write_throughput",
    ),
    ColumnRole.NETWORK: (
        "network",
        "net",
        "net_rx",
        "net_tx",
        "network_in",
        "network_out",
        "network_received_throughput",
        "network_transmitted_throughput",
    ),
    ColumnRole.AUTOSCALED: ("autoscaled", "hpa"),
}
"""Recognised names, without their unit, the surest first; upper case, spaces and dashes do not matter."""

SUMMED = frozenset({ColumnRole.DISK, ColumnRole.NETWORK})
"""Roles that several columns may share: reads and writes, in and out."""

_CPU: Mapping[str, str] = {
    "cores": "cores",
    "millis": "millicores",
    "milli": "millicores",
    "millicores": "millicores",
    "m": "millicores",
    "mhz": "MHz",
    "ghz": "GHz",
}
_SHARES: Mapping[str, str] = {"pct": "percent", "percent": "percent", "share": "share"}
_SIZES: Mapping[str, str] = {
    "bytes": "bytes",
    "b": "bytes",
    "kb": "KiB",
    "kib": "KiB",
    "mb": "MiB",
    "mib": "MiB",
    "gb": "GiB",
    "gib": "GiB",
}
_RATES: Mapping[str, str] = {
    "kbs": "KiB/s",
    "kb_s": "KiB/s",
    "kibs": "KiB/s",
    "kib_s": "KiB/s",
    "mbs": "MiB/s",
    "mb_s": "MiB/s",
    "mib_s": "MiB/s",
}
UNITS: Mapping[ColumnRole, Mapping[str, str]] = {
    ColumnRole.TIME: {"s": "s", "ms": "ms", "us": "us", "ns": "ns"},
    ColumnRole.CPU_USED: {**_CPU, **_SHARES, "core_pct": "percent of a core"},
    ColumnRole.CPU_ALLOCATED: _CPU,
    ColumnRole.CPU_CLOCK: {"mhz": "MHz", "ghz": "GHz"},
    ColumnRole.MEMORY_USED: {**_SIZES, **_SHARES},
    ColumnRole.MEMORY_ALLOCATED: _SIZES,
    ColumnRole.DISK: _RATES,
    ColumnRole.NETWORK: _RATES,
}
"""End of a column's name → unit, for each role that has one: ``cpu_mb`` is no CPU column."""

CLOCKS = frozenset({"MHz", "GHz"})


@dataclass(frozen=True, slots=True)
class ColumnMeaning:
    """One column, understood; an empty unit is decided from the values."""

    column: str
    role: ColumnRole
    unit: str = ""
    guessed: bool = False
    """Whether neither the name nor the cells nor the user said the unit."""


@dataclass(frozen=True, slots=True)
class Understanding:
    """What the columns are, and which of them nothing is made of."""

    meanings: tuple[ColumnMeaning, ...]
    ignored: tuple[str, ...]


def plain(name: str) -> str:
    """Return *name* in lower case with underscores and ``%`` spelt out, as names are compared."""
    return re.sub(r"[^a-z0-9]+", "_", name.strip().lower().replace("%", " pct ")).strip("_")


def understand(columns: Sequence[str], overrides: Iterable[ColumnMeaning] = ()) -> Understanding:
    """Return what each recognised column means; *overrides* win over the names.

    Where several columns could have one role, the one of the surest name has it and the others are ignored.
    Raises InvalidInputError that lists every missing column at once.
    """
    given = tuple(overrides)
    _check_overrides(given, columns)
    found = {meaning.column: meaning for meaning in given}
    taken = {meaning.role for meaning in given} - SUMMED
    recognised = [_recognise(column) for column in columns if column not in found]
    for _, meaning in sorted((one for one in recognised if one), key=lambda one: one[0]):
        if meaning.role not in taken:
            found[meaning.column] = meaning
            taken |= {meaning.role} - SUMMED
    _drop_unneeded_clock(found)
    missing = [
        role for role in (ColumnRole.INSTANCE, ColumnRole.TIME, ColumnRole.CPU_USED) if role not in taken
    ]
    if missing:
        raise _missing(missing, columns)
    return Understanding(
        tuple(found[column] for column in columns if column in found),
        tuple(column for column in columns if column not in found),
    )


def parse_override(text: str) -> ColumnMeaning:
    """Read ``cpu_used=my column`` or ``memory_used=rss:bytes``."""
    role, separator, rest = text.partition("=")
    if not separator or role not in set(ColumnRole) or not rest.partition(":")[0]:
        raise InvalidInputError(
            f"{text!r} does not say which column is what.",
            remedy=f"Write ROLE=COLUMN or ROLE=COLUMN:UNIT; roles are {', '.join(ColumnRole)}.",
        )
    column, colon, unit = rest.rpartition(":")
    if not colon:
        return ColumnMeaning(rest, ColumnRole(role))
    units = UNITS.get(ColumnRole(role), {})
    if plain(unit) not in units:
        raise InvalidInputError(
            f"{unit!r} is not a unit of {role}.",
            remedy=f"Use one of {', '.join(units)}." if units else f"{role} has no unit: leave it out.",
        )
    return ColumnMeaning(column, ColumnRole(role), units[plain(unit)])


def recognised_role(column: str) -> ColumnRole | None:
    """Return the role that a column's name says, or None."""
    found = _recognise(column)
    return found[1].role if found else None


def _recognise(column: str) -> tuple[int, ColumnMeaning] | None:
    """Return what a column's name says, and how unsure that is.

    A name known as it stands comes before one with a unit at its end: ``cpu_cores`` are cores given, not CPU
    used in cores. Usage by the clock comes last, as it is only as good as what it is compared with.
    """
    name = plain(column)
    for role, names in NAMES.items():
        if name in names:
            return names.index(name), ColumnMeaning(column, role)
    for role, units in UNITS.items():
        for suffix, unit in units.items():
            base = name.removesuffix(f"_{suffix}")
            if base in NAMES[role]:
                clock = role is ColumnRole.CPU_ALLOCATED and unit in CLOCKS
                rank = NAMES[role].index(base) + (100 if unit in CLOCKS else 0)
                return rank, ColumnMeaning(column, ColumnRole.CPU_CLOCK if clock else role, unit)
    return None


def _drop_unneeded_clock(found: dict[str, ColumnMeaning]) -> None:
    """Forget the clock where usage is not in MHz: nothing is then made of it."""
    if not any(one.role is ColumnRole.CPU_USED and one.unit in CLOCKS for one in found.values()):
        for column in [column for column, one in found.items() if one.role is ColumnRole.CPU_CLOCK]:
            del found[column]


def _check_overrides(overrides: Sequence[ColumnMeaning], columns: Sequence[str]) -> None:
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


def _missing(roles: Sequence[ColumnRole], columns: Sequence[str]) -> InvalidInputError:
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
