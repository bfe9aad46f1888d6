"""How ``resources`` is read, of a task, of each alternative and of each component."""

import re
from typing import Any, cast

from yunhe.trading.demand import amounts
from yunhe.trading.demand.model import ResourceSpec
from yunhe.trading.demand.placement_fields import PLACEMENT_FIELDS
from yunhe.trading.demand.planned import RESOURCE_FIELDS
from yunhe.trading.demand.reader import NAME, Reader, Readers

MOST_ALTERNATIVES = 32
INFRA = re.compile(r"\*|[A-Za-z0-9*][A-Za-z0-9_*-]{0,63}(/[^\s/,]{1,253}){0,6}")


def resources(reader: Reader, field: str, value: object) -> ResourceSpec:
    """Read what a task needs, with its alternatives."""
    read = reader.fields(f"{field}.", reader.mapping(field, value), _RESOURCE_READERS, RESOURCE_FIELDS)
    if read.get("any_of") and read.get("ordered"):
        reader.note(field, "has both any_of and ordered; keep one")
    if read.get("use_spot") is False:
        del read["use_spot"]  # as when it is not said
    return ResourceSpec(**cast("dict[str, Any]", read))


def _alternatives(reader: Reader, field: str, value: object) -> tuple[ResourceSpec, ...]:
    if not isinstance(value, list | tuple) or not 0 < len(cast("list[object]", value)) <= MOST_ALTERNATIVES:
        reader.note(field, f"must be a list of 1 to {MOST_ALTERNATIVES} alternatives", value)
        return ()
    alternatives: list[ResourceSpec] = []
    for index, entry in enumerate(cast("list[object]", value)):
        path = f"{field}[{index}]"
        read = reader.fields(f"{path}.", reader.mapping(path, entry), _CHOICE_READERS, RESOURCE_FIELDS)
        alternatives.append(ResourceSpec(**cast("dict[str, Any]", read)))
    return tuple(alternatives)


def _cpus(reader: Reader, field: str, value: object) -> str | float | None:
    return reader.amount(field, value, amounts.cpu_millis)


def _memory(reader: Reader, field: str, value: object) -> str | float | None:
    return reader.amount(field, value, amounts.memory_mib)


def _accelerators(reader: Reader, field: str, value: object) -> str | dict[str, float] | None:
    if isinstance(value, list | tuple | set):
        reader.note(field, "names one kind; for one kind or another list them under any_of or ordered", value)
        return None
    if isinstance(value, dict):
        counts: dict[str, float] = {}
        for kind, count in reader.mapping(field, value).items():
            if isinstance(count, bool) or not isinstance(count, int | float):
                meant = f"accelerators: {kind}" if count is None and ":" in kind else None
                reader.note(f"{field}.{kind}", "must be a count, such as 2 or 0.5", count, meant=meant)
                return None
            counts[kind] = count
        return _judged(reader, field, counts)
    text = reader.text(field, value)
    return _judged(reader, field, text) if text or isinstance(value, str) else None


def _judged(reader: Reader, field: str, asked: str | dict[str, float]) -> str | dict[str, float] | None:
    try:
        amounts.accelerators(asked)
    except ValueError as error:
        reader.note(field, str(error), asked)
        return None
    return asked


def _pool(reader: Reader, field: str, value: object) -> str:
    pool = reader.text(field, value)
    if pool and not NAME.fullmatch(pool):
        reader.note(field, "is not a name a pool can have; list them with `yunhe pool ls`", pool)
    return pool


def _infra(reader: Reader, field: str, value: object) -> str:
    infra = reader.text(field, value)
    if isinstance(value, str) and not INFRA.fullmatch(infra):
        reader.note(field, "must be like aws, aws/us-east-1, */cn-north, k8s/CONTEXT or *", infra)
    return infra


PLAIN_READERS: Readers = {
    "cpus": _cpus,
    "memory": _memory,
    "disk_size": _memory,
    "accelerators": _accelerators,
    "pool": _pool,
    "infra": _infra,
    "where": PLACEMENT_FIELDS["where"].read,
}
"""The fields that one alternative, or one component, may have."""
_CHOICE_READERS: Readers = {**PLAIN_READERS, "use_spot": Reader.flag}
_RESOURCE_READERS: Readers = {
    **_CHOICE_READERS,
    "any_of": _alternatives,
    "ordered": _alternatives,
}
