"""Where and when a task may run: each field with how it is read, its schema, and what it asks of a decision."""

import re
from collections.abc import Callable
from typing import Any, NamedTuple, cast

from yunhe.kernel.documents import kind_of
from yunhe.kernel.money import MICROS
from yunhe.scheduling.decision.model import Affinity, Domain, Spread
from yunhe.trading.demand import amounts
from yunhe.trading.demand.model import AffinitySpec, Task
from yunhe.trading.demand.reader import NAME, Reader, Readers, Schema

MOST_BUDGET = 1e9
ARCHITECTURES: dict[str, tuple[str, ...]] = {
    "amd64": ("x86_64", "x86-64", "x64"),
    "arm64": ("aarch64", "armv8"),
    "loong64": ("loongarch64",),
    "ppc64le": (),
    "riscv64": (),
    "s390x": (),
}
"""Instruction sets by the names that container images use, and what else they are called."""
TAKEN_BACK = ("interruptible", "spot")
"""Taints of capacity that may be taken back: what is ``interruptible`` tolerates them."""

_REGION = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_LABEL = re.compile(r"[A-Za-z0-9][A-Za-z0-9._/-]{0,252}!?=[^\s=]{0,252}")
_TAINT = re.compile(r"\*|[A-Za-z0-9][A-Za-z0-9._/-]{0,252}(=[^\s=]{0,252})?")
_DOMAINS = [str(domain) for domain in Domain]

_Demanded = dict[str, object]


class PlacementField(NamedTuple):
    """One field: its reader, its schema, and the fields of a demand that a value makes when submitted at a time."""

    read: Callable[[Reader, str, object], object]
    schema: Schema
    demand: Callable[[Any, float], _Demanded]


def demanded(task: Task, now: float) -> dict[str, Any]:
    """Return what the placement fields of a task ask of a decision, when it is submitted at *now*."""
    found: dict[str, Any] = {}
    for name, field in PLACEMENT_FIELDS.items():
        value = getattr(task, name)
        if name == "interruptible":
            alternatives = task.resources.any_of or task.resources.ordered
            value = value or bool(task.resources.use_spot and not alternatives)
        if value is None or value is False or value == ():
            continue
        for wanted, asked in field.demand(value, now).items():
            found[wanted] = (*found.get(wanted, ()), *asked) if isinstance(asked, tuple) else asked
    return found


# --- how each is read


def _words(pattern: re.Pattern[str], how: str) -> Callable[[Reader, str, object], tuple[str, ...]]:
    """Return a reader of one word or a list of words, each of which *pattern* allows."""

    def read(reader: Reader, field: str, value: object) -> tuple[str, ...]:
        words = reader.texts(field, [value] if isinstance(value, str) else value)
        for index, word in enumerate(words):
            if not pattern.fullmatch(word):
                reader.note(f"{field}[{index}]" if isinstance(value, list | tuple) else field, how, word)
        return words

    return read


def _where(reader: Reader, field: str, value: object) -> tuple[str, ...]:
    if isinstance(value, dict):
        value = [f"{key}={wanted}" for key, wanted in reader.mapping(field, value).items()]
    return _words(_LABEL, "must be key=value, or key!=value to forbid one")(reader, field, value)


def _architectures(reader: Reader, field: str, value: object) -> tuple[str, ...]:
    names = {other: name for name, others in ARCHITECTURES.items() for other in (name, *others)}
    words = reader.texts(field, [value] if isinstance(value, str) else value)
    for word in words:
        if word.lower() not in names:
            meant = reader.meant(word, list(names))
            reader.note(field, f"must be among {', '.join(ARCHITECTURES)}", word, meant=meant)
    return tuple(dict.fromkeys(names.get(word.lower(), word) for word in words))


def _domain(reader: Reader, field: str, value: object) -> Domain:
    return reader.choice(field, value, Domain, Domain.NODE)


_AFFINITY_READERS: Readers = {"group": Reader.name, "over": _domain}


def _affinities(reader: Reader, field: str, value: object) -> tuple[AffinitySpec, ...]:
    entries = cast("list[object]", value) if isinstance(value, list | tuple) else [value]
    return tuple(
        _affinity(reader, f"{field}[{index}]" if isinstance(value, list | tuple) else field, entry)
        for index, entry in enumerate(entries)
    )


def _affinity(reader: Reader, field: str, value: object) -> AffinitySpec:
    if isinstance(value, str):
        group, _, over = value.partition("@")
        value = {"group": group, **({"over": over} if over else {})}
    read = reader.fields(f"{field}.", reader.mapping(field, value), _AFFINITY_READERS, {})
    if not read.get("group") and isinstance(value, dict):
        reader.note(f"{field}.group", "is missing: beside which group?")
    return AffinitySpec(**cast("dict[str, Any]", {"group": "", **read}))


def _groups(reader: Reader, field: str, value: object) -> tuple[str, ...]:
    words = reader.texts(field, [value] if isinstance(value, str) else value)
    if not all(words):
        reader.note(field, "has a group without a name")
    return tuple(reader.name(field, word) or "" for word in words)


def _at_most(reader: Reader, field: str, value: object) -> int:
    if isinstance(value, int) and not isinstance(value, bool) and 1 <= value <= 1000:
        return value
    reader.note(field, "must be a whole number from 1 to 1000", value)
    return 1


def _spread(reader: Reader, field: str, value: object) -> Spread:
    value = {"over": value} if isinstance(value, str) else value
    read = reader.fields(
        f"{field}.", reader.mapping(field, value), {"over": _domain, "at_most": _at_most}, {}
    )
    return Spread(**cast("dict[str, Any]", read))


def _moment(reader: Reader, field: str, value: object) -> str | float | None:
    if type(value).__name__ == "datetime":  # what YAML makes of a time without quotes
        value = str(value)
    return reader.amount(field, value, amounts.moment)


def _duration(reader: Reader, field: str, value: object) -> str | float | None:
    return reader.amount(field, value, amounts.duration_s)


def _latency(reader: Reader, field: str, value: object) -> str | None:
    read = reader.amount(field, value, amounts.latency_ms)
    return None if read is None else str(read)


def _number(least: float, most: float, *, above: bool = False) -> Callable[[Reader, str, object], float]:
    """Return a reader of a number between two others; *above* the least, where that is not allowed itself."""

    def read(reader: Reader, field: str, value: object) -> float:
        if isinstance(value, bool) or not isinstance(value, int | float):
            reader.note(field, f"must be a number, not {kind_of(value)}", value)
        elif not least <= value <= most or (above and value == least):
            reader.note(field, f"must be {'more than' if above else 'from'} {least:g} to {most:g}", value)
        else:
            return float(value)
        return most

    return read


# --- what a value asks of a decision


def _same(name: str) -> Callable[[Any, float], _Demanded]:
    return lambda value, _now: {name: value}


def _as(name: str, exact: Callable[[Any], float]) -> Callable[[Any, float], _Demanded]:
    return lambda value, _now: {name: exact(value)}


def _micros(value: float) -> int:
    return round(value * MICROS)


def _group_rule(*, apart: bool) -> Callable[[tuple[AffinitySpec, ...], float], _Demanded]:
    return lambda said, _now: {"affinity": tuple(Affinity(one.group, one.over, apart) for one in said)}


def _at(name: str) -> Callable[[Any, float], _Demanded]:
    return lambda value, now: {name: amounts.moment(value, now)}


def _interruptible(value: bool, _now: float) -> _Demanded:  # noqa: FBT001 - a value of the table
    return {"interruptible": value, "tolerations": TAKEN_BACK}


# --- their schemas


def _one_or_many(description: str, examples: list[object], items: Schema | None = None) -> Schema:
    one = items or {"type": "string"}
    kinds = one["type"] if isinstance(one["type"], list) else [one["type"]]
    return {
        **{key: value for key, value in one.items() if key != "type"},
        "type": [*kinds, "array"],
        "items": one,
        "description": description,
        "examples": examples,
    }


_MOMENT = "A duration from submission (`2h`) or a time with its zone (`2026-12-01T08:00:00+08:00`)."
_AFFINITY: Schema = {
    "type": ["string", "object"],
    "properties": {
        "group": {"type": "string", "pattern": f"^{NAME.pattern}$"},
        "over": {"type": ["string", "null"], "enum": [*_DOMAINS, None]},
    },
    "additionalProperties": False,
    "required": ["group"],
}

PLACEMENT_FIELDS: dict[str, PlacementField] = {
    "residency": PlacementField(
        _words(_REGION, "must be a region such as cn-north, or cn for all that begin with cn-"),
        _one_or_many(
            "Regions that the work may not leave; `cn` covers `cn-north`. Anywhere when not said.",
            ["cn", ["cn-north", "eu"]],
        ),
        _same("residency"),
    ),
    "where": PlacementField(
        _where,
        {
            **_one_or_many(
                "Labels that the pool or the node must have: `key=value`, or `key!=value` to forbid one.",
                [["disk=ssd", "zone!=b"], {"disk": "ssd"}],
            ),
            "type": ["string", "array", "object"],
        },
        _same("where"),
    ),
    "tolerations": PlacementField(
        _words(_TAINT, "must be key, key=value, or * for every taint"),
        _one_or_many(
            "Taints of pools and nodes that it may run in spite of: `key=value`, `key` (any value), `*` (all).",
            [["maintenance", "gpu=only"]],
        ),
        _same("tolerations"),
    ),
    "architecture": PlacementField(
        _architectures,
        _one_or_many(
            f"Instruction sets that it runs on: {', '.join(f'`{name}`' for name in ARCHITECTURES)} (also as `x86_64`, `aarch64`). Any when not said.",
            ["arm64", ["amd64", "arm64"]],
        ),
        _same("isa"),
    ),
    "groups": PlacementField(
        _groups,
        _one_or_many("Groups that its jobs belong to: what `affinity` of others goes by.", [["web"]]),
        _same("groups"),
    ),
    "affinity": PlacementField(
        _affinities,
        _one_or_many(
            "Only where a job of a group runs: `GROUP` or `GROUP@DOMAIN`, or `{group, over}`; over `node` (when not said), `pool` or `region`.",
            ["db@pool", [{"group": "db", "over": "node"}]],
            _AFFINITY,
        ),
        _group_rule(apart=False),
    ),
    "anti_affinity": PlacementField(
        _affinities,
        _one_or_many(
            "Only where no job of a group runs; written like `affinity`. Its own group keeps its jobs apart.",
            ["web", [{"group": "web", "over": "pool"}]],
            _AFFINITY,
        ),
        _group_rule(apart=True),
    ),
    "spread": PlacementField(
        _spread,
        {
            "type": ["string", "object"],
            "properties": {
                "over": {"type": ["string", "null"], "enum": [*_DOMAINS, None]},
                "at_most": {"type": ["integer", "null"], "minimum": 1, "maximum": 1000},
            },
            "additionalProperties": False,
            "description": "At most so many of its members (`num_nodes`, `service`), or of the jobs of its `groups`, in one `node`, `pool` or `region`; one when not said.",
            "examples": ["region", {"over": "pool", "at_most": 2}],
        },
        _same("spread"),
    ),
    "duration": PlacementField(
        _duration,
        {
            "type": ["string", "number"],
            "description": "How long it is expected to run on a machine of speed 1; an hour is assumed when not said.",
            "examples": ["90m"],
        },
        _as("run_s", amounts.duration_s),
    ),
    "deadline": PlacementField(
        _moment,
        {
            "type": ["string", "number"],
            "description": f"Only where it is expected to be done by then. {_MOMENT}",
            "examples": ["2h", "2026-12-01T08:00:00+08:00"],
        },
        _at("deadline_at"),
    ),
    "start_after": PlacementField(
        _moment,
        {
            "type": ["string", "number"],
            "description": f"It is held until then. {_MOMENT}",
            "examples": ["30m", "2026-12-01T22:00:00Z"],
        },
        _at("not_before"),
    ),
    "budget_per_hour": PlacementField(
        _number(0.0, MOST_BUDGET),
        {
            "type": "number",
            "minimum": 0,
            "maximum": MOST_BUDGET,
            "description": "The most that an hour of its resources may cost, in the currency; a pool without prices is refused.",
            "examples": [0.5],
        },
        _as("budget_per_hour_micros", _micros),
    ),
    "reliability": PlacementField(
        _number(0.0, 1.0, above=True),
        {
            "type": "number",
            "exclusiveMinimum": 0,
            "maximum": 1,
            "description": "The least probability of running to its end (`duration`, else an hour) without a failure of the pool.",
            "examples": [0.99],
        },
        _same("reliability_min"),
    ),
    "interruptible": PlacementField(
        Reader.flag,
        {
            "type": "boolean",
            "description": f"May run on capacity that can be taken back, at its price: taints {', '.join(f'`{taint}`' for taint in TAKEN_BACK)} are tolerated; spot nodes of clouds carry the second. SkyPilot's `resources.use_spot` is the same.",
            "examples": [True],
        },
        _interruptible,
    ),
    "max_latency": PlacementField(
        _latency,
        {
            "type": "string",
            "description": "The longest way to `near` and back: `20ms`. Estimated from the places until it is measured; a pool without a place is refused.",
            "examples": ["20ms"],
        },
        _as("max_latency_ms", amounts.latency_ms),
    ),
}
