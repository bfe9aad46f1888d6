"""How the fields that are planned only are read: nodes, replicas, and components with what flows between them."""

from collections.abc import Callable
from typing import Any, TypeVar, cast

from yunhe.scheduling.decision.model import GraphObjective
from yunhe.trading.demand import amounts
from yunhe.trading.demand.model import ComponentSpec, LinkSpec, ResourceSpec, ServiceSpec
from yunhe.trading.demand.planned import CHOICE_FIELDS, PLAN_ONLY, SERVICE_FIELDS
from yunhe.trading.demand.reader import Reader, Readers
from yunhe.trading.demand.resource_fields import PLAIN_READERS

MOST_MEMBERS = 1000
MOST_COMPONENTS = 32
MOST_LINKS = 128
OBJECTIVE_PARTS = GraphObjective.__struct_fields__

_Item = TypeVar("_Item")


def members(reader: Reader, field: str, value: object) -> int:
    """Read how many nodes or replicas there shall be."""
    if isinstance(value, int) and not isinstance(value, bool) and 1 <= value <= MOST_MEMBERS:
        return value
    reader.note(field, f"must be a whole number from 1 to {MOST_MEMBERS}", value)
    return 1


def service(reader: Reader, field: str, value: object) -> ServiceSpec:
    """Read a service: how many replicas of it."""
    read = reader.fields(f"{field}.", reader.mapping(field, value), {"replicas": members}, SERVICE_FIELDS)
    return ServiceSpec(**cast("dict[str, Any]", read))


def components(reader: Reader, field: str, value: object) -> tuple[ComponentSpec, ...]:
    """Read the components of an app."""
    return _items(reader, field, value, MOST_COMPONENTS, _component)


def links(reader: Reader, field: str, value: object) -> tuple[LinkSpec, ...]:
    """Read what flows between components."""
    return _items(reader, field, value, MOST_LINKS, _link)


def objective(reader: Reader, field: str, value: object) -> GraphObjective:
    """Read what the placement of a graph is to be good at; a part that is not named does not count."""
    parts: dict[str, float] = {}
    for name, weight in reader.mapping(field, value).items():
        path = f"{field}.{name}"
        if name not in OBJECTIVE_PARTS:
            meant = reader.meant(name, list(OBJECTIVE_PARTS))
            reader.note(path, f"is not part of the value ({', '.join(OBJECTIVE_PARTS)})", meant=meant)
        elif isinstance(weight, bool) or not isinstance(weight, int | float) or not 0 <= weight <= 1e6:
            reader.note(path, "must be a number from 0 to 1000000", weight)
        else:
            parts[name] = float(weight)
    if isinstance(value, dict) and not any(parts.values()):
        reader.note(field, f"counts nothing: give one of {', '.join(OBJECTIVE_PARTS)} a number above 0")
    return GraphObjective(**parts)


def planned_only(field: str) -> str:
    """Say that a field cannot be run, and what to write instead."""
    return f"is planned only: yunhe plan decides and explains it; to run it, {PLAN_ONLY[field].instead}"


def check_parts(reader: Reader, known: dict[str, object], *, plan: bool) -> None:
    """Note what the fields of parts do not agree on, and, where the task is to *run*, that they are planned only."""
    said = [name for name in PLAN_ONLY if known.get(name, PLAN_ONLY[name].neutral) != PLAN_ONLY[name].neutral]
    for name in () if plan else said:
        reader.note(name, planned_only(name))
    ways = [name for name in said if name != "links"]
    if len(ways) > 1:
        reader.note(ways[1], f"does not go with {ways[0]}; keep one")
    _check_links(reader, known)
    if known.get("objective") is not None and not known.get("components"):
        reader.note("objective", "counts only for components, and there are none")
    common = cast("ResourceSpec", known.get("resources", ResourceSpec()))
    if "components" in known and (common.any_of or common.ordered):
        reader.note(
            "resources", "has alternatives, which components cannot have; give each its own resources"
        )


def _check_links(reader: Reader, known: dict[str, object]) -> None:
    parts = cast("tuple[ComponentSpec, ...]", known.get("components", ()))
    names = [part.name for part in parts]
    for name in sorted({name for name in names if name and names.count(name) > 1}):
        reader.note("components", "have this name twice", name)
    for number, link in enumerate(cast("tuple[LinkSpec, ...]", known.get("links", ()))):
        for end, name in (("from", link.source), ("to", link.target)):
            if name and name not in names:
                reader.note(
                    f"links[{number}].{end}", "names no component", name, meant=reader.meant(name, names)
                )
        if link.source and link.source == link.target:
            reader.note(f"links[{number}]", "leads back to where it begins", link.source)


def _items(
    reader: Reader, field: str, value: object, most: int, read: Callable[[Reader, str, object], _Item]
) -> tuple[_Item, ...]:
    if not isinstance(value, list | tuple) or len(cast("list[object]", value)) > most:
        reader.note(field, f"must be a list of at most {most}", value)
        return ()
    return tuple(read(reader, f"{field}[{i}]", item) for i, item in enumerate(cast("list[object]", value)))


def _component(reader: Reader, field: str, value: object) -> ComponentSpec:
    read = reader.fields(f"{field}.", reader.mapping(field, value), _COMPONENT_READERS, {})
    if not read.get("name") and isinstance(value, dict):
        reader.note(f"{field}.name", "is missing: what is this component called?")
    return ComponentSpec(**cast("dict[str, Any]", {"name": "", **read}))


def _link(reader: Reader, field: str, value: object) -> LinkSpec:
    read = reader.fields(f"{field}.", reader.mapping(field, value), _LINK_READERS, {})
    for end in ("from", "to") if isinstance(value, dict) else ():
        if not read.get(end):
            reader.note(f"{field}.{end}", "is missing: which component?")
    ends = {"source": read.pop("from", ""), "target": read.pop("to", "")}
    return LinkSpec(**cast("dict[str, Any]", {**ends, **read}))


def _resources(reader: Reader, field: str, value: object) -> ResourceSpec:
    read = reader.fields(f"{field}.", reader.mapping(field, value), PLAIN_READERS, CHOICE_FIELDS)
    return ResourceSpec(**cast("dict[str, Any]", read))


def _bandwidth(reader: Reader, field: str, value: object) -> str | float | None:
    return reader.amount(field, value, amounts.bandwidth_mbps)


def _latency(reader: Reader, field: str, value: object) -> str | None:
    read = reader.amount(field, value, amounts.latency_ms)
    return None if read is None else str(read)


_COMPONENT_READERS: Readers = {"name": Reader.name, "resources": _resources}
_LINK_READERS: Readers = {
    "from": Reader.name,
    "to": Reader.name,
    "bandwidth": _bandwidth,
    "latency": _latency,
    "same_node": Reader.flag,
}
