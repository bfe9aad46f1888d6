"""What operators say of pools: checked, and merged with what is known."""

import math
from typing import Any
from urllib.parse import urlsplit

import msgspec

from yunhe.control.pools.model import Fact, FactChanges, FactSource
from yunhe.kernel.carbon import LARGEST_G_PER_KWH, LONGEST_H, CarbonSeries
from yunhe.kernel.errors import FieldProblem, InvalidInputError
from yunhe.kernel.validation import nearest

LONGEST_TEXT = 253

FACTS = tuple(name for name in FactChanges.__struct_fields__ if name != "unset")
_RANGES: dict[str, tuple[float, float]] = {
    "speed": (1e-6, 1e6),
    "watts_idle": (0, 1e6),
    "watts_full": (0, 1e6),
    "pue": (1, 100),
    "energy_price_micros_per_kwh": (0, 1e12),
    "reliability": (0, 1),
    "wait_s": (0, 1e7),
}


def check_changes(changes: FactChanges, known: FactChanges) -> None:
    """Refuse facts that cannot be so, also together with what is *known* already; name every one."""
    problems = [
        FieldProblem(name, f"must be from {low:g} to {high:g}", f"{value:g}")
        for name, (low, high) in _RANGES.items()
        if (value := getattr(changes, name)) is not None and not low <= value <= high
    ]
    idle = known.watts_idle if changes.watts_idle is None else changes.watts_idle
    full = known.watts_full if changes.watts_full is None else changes.watts_full
    if idle is not None and full is not None and idle > full:
        problems.append(
            FieldProblem("watts_idle", f"must be at most watts_full, which is {full:g}", f"{idle:g}")
        )
    problems += _carbon_problems(changes.carbon) + _text_problems(changes) + _unset_problems(changes.unset)
    if problems:
        raise InvalidInputError(
            "The pool's facts cannot be so.",
            remedy="Fix what is listed; see yunhe pool set --help.",
            fields=tuple(problems),
        )


def _carbon_problems(carbon: CarbonSeries | None) -> list[FieldProblem]:
    if carbon is None:
        return []
    problems = [
        FieldProblem(f"carbon.g_per_kwh[{hour}]", f"must be from 0 to {LARGEST_G_PER_KWH:g}", f"{grams:g}")
        for hour, grams in enumerate(carbon.g_per_kwh)
        if not 0 <= grams <= LARGEST_G_PER_KWH
    ]
    if not carbon.g_per_kwh and not carbon.feed:
        problems.append(FieldProblem("carbon", "has neither values nor a feed"))
    if len(carbon.g_per_kwh) > LONGEST_H:
        problems.append(FieldProblem("carbon.g_per_kwh", f"must have at most {LONGEST_H} hours"))
    if not math.isfinite(carbon.starts_at):
        problems.append(FieldProblem("carbon.starts_at", "must be a time", str(carbon.starts_at)))
    address = urlsplit(carbon.feed)
    if carbon.feed and (address.scheme not in {"http", "https"} or not address.hostname):
        problems.append(FieldProblem("carbon.feed", "must be an http or https address", carbon.feed[:80]))
    if address.password is not None:
        problems.append(FieldProblem("carbon.feed", "must not hold a password"))
    return problems


def _text_problems(changes: FactChanges) -> list[FieldProblem]:
    texts = [("site", changes.site or ""), ("place.region", changes.place.region if changes.place else "")]
    texts += [
        (f"labels.{key}", text) for key, value in (changes.labels or {}).items() for text in (key, value)
    ]
    texts += [(f"taints[{index}]", taint) for index, taint in enumerate(changes.taints or ())]
    problems = [
        FieldProblem(field, f"must have at most {LONGEST_TEXT} characters, all printable", text[:60])
        for field, text in texts
        if len(text) > LONGEST_TEXT or not text.isprintable()
    ]
    empty = [field for field, text in texts if field.startswith("taints") and not text.partition("=")[0]]
    problems += [FieldProblem(field, "must be key or key=value") for field in empty]
    if changes.place is not None and changes.place.problem:
        problems.append(FieldProblem("place", changes.place.problem))
    return problems + [
        FieldProblem("labels", "needs names, each without = or !", key[:60])
        for key in changes.labels or ()
        if not key or not {"=", "!"}.isdisjoint(key)
    ]


def _unset_problems(names: tuple[str, ...]) -> list[FieldProblem]:
    return [
        FieldProblem("unset", "is not a fact", name, nearest(name, list(FACTS)))
        for name in names
        if name not in FACTS and not name.startswith("labels.")
    ]


def merge(known: dict[str, Fact], changes: FactChanges, now: float) -> dict[str, Fact]:
    """Return every fact of a pool after *changes* were told at *now*."""
    told: dict[str, Any] = msgspec.to_builtins(
        msgspec.structs.replace(changes, unset=(), labels=_merged_labels(known, changes))
    )
    kept = {name: fact for name, fact in known.items() if name not in changes.unset}
    fresh = {name: Fact(value=value, source=FactSource.TOLD, at=now) for name, value in told.items()}
    return {**kept, **fresh}


def _merged_labels(known: dict[str, Fact], changes: FactChanges) -> dict[str, str] | None:
    gone = {name.removeprefix("labels.") for name in changes.unset if name.startswith("labels.")}
    if changes.labels is None and not gone:
        return None
    had: dict[str, str] = {}
    if "labels" in known and "labels" not in changes.unset:
        had = known["labels"].value
    return {key: value for key, value in {**had, **(changes.labels or {})}.items() if key not in gone}
