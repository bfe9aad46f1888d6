"""YAML or a plain document → a Task, with everything that is wrong said at once.

A task is read once where it comes in, by the CLI from a file and by the API from a body, field by field; from there
on it is a value that holds. A reader that finds a fault notes it and returns a harmless value, so that the others
still speak.
"""

import re
from typing import Any, cast

from yunhe.kernel.confinement import NETWORKS, RUNTIMES, is_block
from yunhe.kernel.documents import kind_of
from yunhe.kernel.errors import FieldProblem, InvalidInputError
from yunhe.kernel.money import Tier
from yunhe.kernel.places import Level, parse_place
from yunhe.kernel.validation import how_many, most
from yunhe.scheduling.decision.model import Policy, ScoreTerm
from yunhe.trading.demand import amounts
from yunhe.trading.demand.model import SCORE_TERMS, Task
from yunhe.trading.demand.part_fields import (
    check_parts,
    components,
    links,
    members,
    objective,
    planned_only,
    service,
)
from yunhe.trading.demand.placement_fields import PLACEMENT_FIELDS
from yunhe.trading.demand.planned import PLAN_ONLY, TASK_FIELDS
from yunhe.trading.demand.python_fields import check_python, python
from yunhe.trading.demand.reader import (
    Document,
    Reader,
    Readers,
    read_documents,
    read_yaml,
)
from yunhe.trading.demand.resource_fields import resources

__all__ = ["Document", "not_runnable", "parse_task", "parse_yaml", "read_documents", "read_yaml"]

ENV_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,254}")
IMAGE = re.compile(r"[A-Za-z0-9](?!.*//)[A-Za-z0-9./:@_-]{0,999}")
SCRIPT_LIMIT_BYTES = 256 * 1024
ENV_VALUE_LIMIT_BYTES = 128 * 1024
MOST_RETRIES = 100
MOST_PORTS = 1024
MOST_PRIORITY = 1000
LONGEST_REASON = 500


def parse_yaml(text: str | bytes, *, plan: bool = False) -> Task:
    """Return the task a YAML text describes, or raise with every problem it has."""
    return parse_task(read_yaml(text), plan=plan)


def parse_task(document: object, *, plan: bool = False) -> Task:
    """Return the task a plain document describes, or raise ``InvalidInputError`` with every problem it has.

    To *plan* a task more is accepted than to run it: what can be decided and explained, and not yet carried out.
    """
    reader = Reader()
    known = reader.fields("", reader.mapping("task", document), _TASK_READERS, TASK_FIELDS)
    if "run" not in known and isinstance(document, dict):
        reader.note("run", "is missing: what should run?")
    _check_together(reader, known)
    check_parts(reader, known, plan=plan)
    for name, why in () if plan else cast("dict[str, str]", known.get("planned_only", {})).items():
        reader.note(name, why)
    if reader.problems:
        found = tuple(reader.problems)
        raise InvalidInputError(
            f"The task has {how_many(found)} problem{'s' * (len(found) > 1)}.",
            remedy="Every field is described in docs/reference/task.md and by `yunhe run --schema`.",
            fields=most(found),
        )
    return Task(**cast("dict[str, Any]", known))


def not_runnable(task: Task) -> tuple[FieldProblem, ...]:
    """Return what a task that may be planned says that cannot be run yet, field by field."""
    parts = [name for name, field in PLAN_ONLY.items() if getattr(task, name) != field.neutral]
    return (
        *(FieldProblem(name, planned_only(name)) for name in parts),
        *(FieldProblem(name, why) for name, why in task.planned_only.items()),
    )


def _script(reader: Reader, field: str, value: object) -> str:
    script = reader.text(field, value)
    size = len(script.encode(errors="replace"))
    if size > SCRIPT_LIMIT_BYTES:
        reader.note(
            field, f"is {size // 1024} KiB; at most {SCRIPT_LIMIT_BYTES // 1024} KiB, the rest as a file"
        )
    if "\0" in script:
        reader.note(field, "must not contain NUL")
    return script


def _run(reader: Reader, field: str, value: object) -> str:
    script = _script(reader, field, value)
    if isinstance(value, str) and not script.strip():
        reader.note(field, "is empty: what should run?")
    return script


def _image(reader: Reader, field: str, value: object) -> str:
    image = reader.text(field, value)
    if image and not IMAGE.fullmatch(image.removeprefix("docker:")):
        reader.note(
            field,
            "must be the name of a container image: python:3.12, registry.example.org/team/app:1",
            image,
        )
    return image


def _network(reader: Reader, field: str, value: object) -> str:
    network = reader.text(field, value)
    if network not in NETWORKS:
        reader.note(field, "must be none or host; left out, the task has a network of its own", network)
    return network


def _egress(reader: Reader, field: str, value: object) -> tuple[str, ...]:
    blocks = reader.texts(field, value)
    for number, block in enumerate(blocks):
        if not is_block(block):
            reader.note(f"{field}[{number}]", "must be a block such as 192.0.2.0/24 or 192.0.2.7:443", block)
    return blocks


def _flag(reader: Reader, field: str, value: object) -> bool:
    if not isinstance(value, bool):
        reader.note(field, "must be true or false", value)
    return value is True


def _runtime(reader: Reader, field: str, value: object) -> str:
    runtime = reader.text(field, value)
    if runtime not in RUNTIMES:
        reader.note(field, "must be sandboxed; left out, the task runs as its pool runs tasks", runtime)
    return runtime


def _workdir(reader: Reader, field: str, value: object) -> str | None:
    return _local_path(reader, field, value) or None


def _local_path(reader: Reader, field: str, value: object) -> str:
    if isinstance(value, dict):
        reader.note(field, "must be a local path; stores and repositories are not supported yet", value)
        return ""
    path = reader.text(field, value)
    if "://" in path:
        reader.note(field, "must be a local path: fetch addresses inside setup or run", path)
    elif isinstance(value, str) and (not path or "\0" in path):
        reader.note(field, "must be a local path", path)
    return path


def _envs(reader: Reader, field: str, value: object) -> dict[str, str]:
    envs: dict[str, str] = {}
    for name, entry in reader.mapping(field, value).items():
        path = f"{field}.{name}"
        if not ENV_NAME.fullmatch(name):
            reader.note(path, "is not a name a variable can have (letters, digits, _; not a digit first)")
        elif isinstance(entry, bool):
            reader.note(path, "is true or false; put the word you want in quotes", entry)
        elif entry is None:
            reader.note(path, f"has no value; give it here or with --env {name}=…")
        elif not isinstance(entry, str | int | float):
            reader.note(path, f"must be text or a number, not {kind_of(entry)}", entry)
        elif len(str(entry).encode(errors="replace")) > ENV_VALUE_LIMIT_BYTES or "\0" in str(entry):
            reader.note(path, f"must be at most {ENV_VALUE_LIMIT_BYTES // 1024} KiB without NUL; send a file")
        else:
            envs[name] = str(entry)
    return envs


def _secrets(reader: Reader, field: str, value: object) -> tuple[str, ...]:
    if isinstance(value, dict):
        reader.note(field, "lists names only; set each value with `yunhe secret set NAME`")
        return ()
    names = reader.texts(field, value)
    for index, name in enumerate(names):
        if name and not ENV_NAME.fullmatch(name):
            reader.note(f"{field}[{index}]", "is not a name a secret can have (letters, digits, _)", name)
    return names


def _file_mounts(reader: Reader, field: str, value: object) -> dict[str, str]:
    mounts: dict[str, str] = {}
    taken: dict[str, str] = {}
    for target, source in reader.mapping(field, value).items():
        path = f"{field}.{target}"
        mounts[target] = _local_path(reader, path, source)
        inner = _inner(reader, path, target)
        if inner in taken:
            reader.note(path, f"is the same place as {taken[inner]!r}")
        elif inner:
            taken[inner] = target
    return mounts


def _outputs(reader: Reader, field: str, value: object) -> tuple[str, ...]:
    patterns = reader.texts(field, value)
    for index, pattern in enumerate(patterns):
        _inner(reader, f"{field}[{index}]", pattern)
    return patterns


def _inner(reader: Reader, field: str, text: str) -> str:
    try:
        return amounts.inner_path(text)
    except ValueError as error:
        stripped = text.lstrip("/")
        meant = stripped if text.startswith("/") and stripped and ".." not in stripped else None
        reader.note(field, str(error), text, meant=meant)
        return ""


def _retries(reader: Reader, field: str, value: object) -> int:
    if isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= MOST_RETRIES:
        return value
    reader.note(field, f"must be a whole number from 0 to {MOST_RETRIES}", value)
    return 0


def _priority(reader: Reader, field: str, value: object) -> int:
    if isinstance(value, int) and not isinstance(value, bool) and abs(value) <= MOST_PRIORITY:
        return value
    reader.note(field, f"must be a whole number from {-MOST_PRIORITY} to {MOST_PRIORITY}", value)
    return 0


def _planned_only(reader: Reader, field: str, value: object) -> dict[str, str]:
    reasons: dict[str, str] = {}
    for name, why in reader.mapping(field, value).items():
        if not isinstance(why, str) or not 0 < len(why) <= LONGEST_REASON or len(name) > LONGEST_REASON:
            reader.note(
                f"{field}.{name[:60]}", f"must be a reason of at most {LONGEST_REASON} characters", why
            )
        else:
            reasons[name] = why
    return reasons


def _timeout(reader: Reader, field: str, value: object) -> str | float | None:
    return reader.amount(field, value, amounts.duration_s)


def _grace(reader: Reader, field: str, value: object) -> str | float | None:
    return reader.amount(field, value, amounts.grace_s)


def _log_limit(reader: Reader, field: str, value: object) -> str | float | None:
    return reader.amount(field, value, amounts.log_limit_bytes)


def _ports(reader: Reader, field: str, value: object) -> tuple[int, ...]:
    entries = cast("list[object]", value) if isinstance(value, list) else [value]
    found: list[int] = []
    for index, entry in enumerate(entries):
        path = f"{field}[{index}]" if isinstance(value, list) else field
        try:
            more = amounts.ports(entry)
        except ValueError as error:
            reader.note(path, str(error), entry)
            continue
        if set(more) & set(found):
            reader.note(path, "names a port twice; keep one", entry)
        if len(found) + len(more) > MOST_PORTS:
            reader.note(path, f"makes more than {MOST_PORTS} ports; name those that people connect to", entry)
            break
        found += more
    return tuple(found)


def _near(reader: Reader, field: str, value: object) -> str | None:
    place = reader.text(field, value)
    try:
        parse_place(place)
    except ValueError as error:
        reader.note(field, str(error), place)
    if value == "":
        reader.note(field, "must name a place: cn-north, cn-north@39.9,116.4 or @39.9,116.4")
    return place


def _level(reader: Reader, field: str, value: object) -> Level:
    return reader.choice(field, value, Level, Level.CENTRAL)


def _tier(reader: Reader, field: str, value: object) -> Tier:
    return reader.choice(field, value, Tier, Tier.HIGH)


def _policy(reader: Reader, field: str, value: object) -> Policy:
    return reader.choice(field, value, Policy, Policy.BALANCED)


def _weights(reader: Reader, field: str, value: object) -> dict[str, float]:
    weights: dict[str, float] = {}
    for term, weight in reader.mapping(field, value).items():
        path = f"{field}.{term}"
        if term not in SCORE_TERMS:
            meant = reader.meant(term, list(SCORE_TERMS))
            reader.note(path, f"is not a term of the score ({', '.join(SCORE_TERMS)})", meant=meant)
        elif isinstance(weight, bool) or not isinstance(weight, int | float) or not 0 <= weight <= 1e6:
            reader.note(path, "must be a number from 0 to 1000000", weight)
        else:
            weights[term] = float(weight)
    return weights


_TASK_READERS: Readers = {
    "name": Reader.name,
    "resources": resources,
    "image": _image,
    "network": _network,
    "egress": _egress,
    "privileged": _flag,
    "runtime": _runtime,
    "workdir": _workdir,
    "envs": _envs,
    "secrets": _secrets,
    "file_mounts": _file_mounts,
    "outputs": _outputs,
    "python": python,
    "setup": _script,
    "run": _run,
    "retries": _retries,
    "priority": _priority,
    "planned_only": _planned_only,
    "timeout": _timeout,
    "grace": _grace,
    "log_limit": _log_limit,
    "separate_stderr": _flag,
    "ports": _ports,
    "near": _near,
    "level": _level,
    "tier": _tier,
    "policy": _policy,
    "weights": _weights,
    **{name: field.read for name, field in PLACEMENT_FIELDS.items()},
    "num_nodes": members,
    "service": service,
    "components": components,
    "links": links,
    "objective": objective,
}


def _check_together(reader: Reader, known: dict[str, object]) -> None:
    """Note what no field alone can know."""
    envs = cast("dict[str, str]", known.get("envs", {}))
    for name in cast("tuple[str, ...]", known.get("secrets", ())):
        if name in envs:
            reader.note("secrets", f"names {name!r}, which envs sets too; keep one")
    for field in ("image", "privileged"):
        if known.get("runtime") and known.get(field):
            reader.note("runtime", f"is sandboxed, which a task with {field} cannot be; keep one")
    check_python(reader, known)
    weights = cast("dict[str, float]", known.get("weights", {}))
    policy = known.get("policy", Policy.BALANCED)
    if weights and policy is not Policy.BALANCED:
        reader.note("weights", f"count only under policy balanced, and this is {policy}")
    if not any(weights.get(term, 0.0 if term is ScoreTerm.RISK else 1.0) for term in SCORE_TERMS):
        reader.note("weights", "are all zero: one must count")
    if policy in {Policy.NEAREST, Policy.LOWEST_LATENCY} and "near" not in known:
        reader.note("near", f"is needed under policy {policy}: near what?")
    if "max_latency" in known and "near" not in known:
        reader.note("near", "is needed with max_latency: the latency to what?")
    alone = known.get("num_nodes", 1) == 1 and "service" not in known
    if "spread" in known and alone and not known.get("groups"):
        reader.note("spread", "needs several members (num_nodes, service) or groups whose jobs it counts")
