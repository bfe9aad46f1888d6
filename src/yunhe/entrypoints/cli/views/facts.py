"""What is known of a pool, as people read it: each fact with its source and age."""

from datetime import UTC, datetime
from typing import Any

from rich.console import Group, RenderableType
from rich.text import Text

from yunhe.control.pools.model import FactList, KnownFact
from yunhe.entrypoints.cli.terminal.screen import table
from yunhe.kernel.units import show_duration

NO_FACTS = "facts: nobody has said how fast, how clean or how reliable this pool is. See yunhe pool set."


def facts_table(known: FactList, *, nodes: int = 0) -> RenderableType:
    """Return the facts of a pool and of its first *nodes*; one that decisions do not know any more says so."""
    names = list(dict.fromkeys(fact.node for fact in known.facts if fact.node))
    shown = {"", *names[:nodes]}
    rows = [
        [
            f"{fact.node}: {fact.name}" if fact.node else fact.name,
            _shown(fact),
            fact.source,
            show_duration(fact.age_s),
            _note(fact),
        ]
        for fact in known.facts
        if fact.node in shown
    ]
    if not rows:
        return Text(NO_FACTS)
    parts: list[RenderableType] = [
        table(["FACT", "VALUE", "SOURCE", "AGE", "NOTE"], rows, flexible=(0, 1, 4), expendable=(4,))
    ]
    if nodes and len(names) > nodes:
        parts.append(Text(f"and of {len(names) - nodes} more nodes: --output json"))
    return Group(*parts)


def _note(fact: KnownFact) -> str:
    old = "" if fact.known else f"too old, unknown to decisions from {show_duration(fact.bound_s)} on"
    return "; ".join(filter(None, (old, fact.problem)))


def _shown(fact: KnownFact) -> str:
    match fact.name:
        case "cpu_flags":
            return f"{len(fact.value.split())} flags"
        case "booted_at":
            return _time(fact.value)
        case "carbon":
            begins = fact.value.get("starts_at")
            return _in_a_line({**fact.value, "starts_at": _time(begins)} if begins else fact.value)
        case _:
            return _in_a_line(fact.value)


def _time(seconds: float) -> str:
    return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%d %H:%M} UTC"


def _in_a_line(value: Any) -> str:
    match value:
        case dict():
            return ", ".join(f"{key}={_in_a_line(inner)}" for key, inner in value.items()) or "none"
        case list() if len(value) > 3 and isinstance(value[0], float):
            return f"{min(value):g} to {max(value):g} over {len(value)} h"
        case list():
            return " ".join(_in_a_line(inner) for inner in value) or "none"
        case float():
            return f"{value:g}"
        case _:
            return str(value)
