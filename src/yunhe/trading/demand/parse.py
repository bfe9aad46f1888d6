"""YAML or a plain document → a Task, with everything that is wrong said at once.

One path for every door: a file, an API body and a Task that came over the wire are all read as plain documents,
field by field. A reader that finds a fault notes it and returns a harmless value, so that the others still speak.
"""

import difflib
import re
import reprlib
from collections.abc import Callable, Hashable
from enum import StrEnum
from typing import Any, TypeVar, cast

import msgspec
import yaml

from yunhe.kernel.errors import FieldProblem, InvalidInputError
from yunhe.kernel.money import Tier
from yunhe.kernel.places import Level, parse_place
from yunhe.scheduling.orchestration.model import Policy
from yunhe.trading.demand import amounts
from yunhe.trading.demand.model import SCORE_TERMS, ResourceSpec, Task
from yunhe.trading.demand.planned import ALIASES, RESOURCE_FIELDS, TASK_FIELDS, Planned

NAME = re.compile(r"[a-z0-9][a-z0-9._-]{0,63}")
ENV_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,254}")
IMAGE = re.compile(r"[A-Za-z0-9](?!.*//)[A-Za-z0-9./:@_-]{0,999}")
SCRIPT_LIMIT_BYTES = 256 * 1024
DOCUMENT_LIMIT_BYTES = 1024 * 1024
ENV_VALUE_LIMIT_BYTES = 128 * 1024
MOST_ENTRIES = 1000
MOST_ALTERNATIVES = 32
MOST_RETRIES = 100

Document = dict[str, object]
_Choice = TypeVar("_Choice", bound=StrEnum)


def read_yaml(text: str | bytes) -> Document:
    """Return the mapping a YAML text holds, or refuse what is not one mapping."""
    if len(text) > DOCUMENT_LIMIT_BYTES:
        raise InvalidInputError(
            f"A task may be {DOCUMENT_LIMIT_BYTES // 1024} KiB of YAML; this is {len(text) // 1024} KiB.",
            remedy="Move data to files and send them with file_mounts.",
        )
    try:
        documents = list(yaml.load_all(text, Loader=_StrictLoader))
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise InvalidInputError(
            f"This is not YAML that can be read: {_one_line(error)}", remedy="Mend it, then run it again."
        ) from error
    if len(documents) != 1 or not isinstance(documents[0], dict):
        found = "nothing" if not documents or documents[0] is None else _kind(documents[0])
        problem = (
            f"A file holds one task; this one holds {len(documents)}."
            if len(documents) > 1
            else f"A task is a mapping of fields; this is {found}."
        )
        raise InvalidInputError(
            problem,
            remedy="Begin with `run: |` and the script; one file per task, as many files as you like.",
        )
    return cast("Document", documents[0])


def parse_yaml(text: str | bytes) -> Task:
    """Return the task a YAML text describes, or raise with every problem it has."""
    return parse_task(read_yaml(text))


def parse_task(document: object) -> Task:
    """Return the task a plain document describes, or raise ``InvalidInputError`` with every problem it has."""
    reader = _Reader()
    known = reader.fields("", reader.mapping("task", document), _TASK_READERS, TASK_FIELDS)
    if "run" not in known and isinstance(document, dict):
        reader.note("run", "is missing: what should run?")
    _check_together(reader, known)
    if reader.problems:
        count = len(reader.problems)
        raise InvalidInputError(
            f"The task has {count} problem{'s' * (count > 1)}.",
            remedy="Every field is described in docs/reference/task.md and by `yunhe run --schema`.",
            fields=tuple(reader.problems),
        )
    return Task(**cast("dict[str, Any]", known))


def check_task(task: Task) -> Task:
    """Return *task* unchanged if all of it holds; a Task that came over the wire has only its types checked."""
    parse_task(msgspec.to_builtins(task))
    return task


def did_you_mean(word: str, known: list[str]) -> str | None:
    """Return the known word that *word* was probably meant to be."""
    alias = ALIASES.get(word.lower())
    if alias in known:
        return alias
    close = difflib.get_close_matches(word.lower(), known, n=1, cutoff=0.6)
    return close[0] if close else None


class _StrictLoader(yaml.SafeLoader):
    """Plain data only, and a key given twice is refused: one of the two would be lost in silence."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:  # noqa: FBT001, FBT002 - the parent's signature
        seen: set[str] = set()
        for key, _ in node.value:
            if key.tag != "tag:yaml.org,2002:merge" and isinstance(key, yaml.ScalarNode):
                if key.value in seen:
                    raise yaml.constructor.ConstructorError(
                        None, None, f"the key {key.value!r} is given twice", key.start_mark
                    )
                seen.add(key.value)
        return super().construct_mapping(node, deep)


class _Reader:
    """Reads values and notes what is wrong with them."""

    def __init__(self) -> None:
        self.problems: list[FieldProblem] = []

    def note(self, field: str, problem: str, value: object = ..., *, meant: str | None = None) -> None:
        shown = None if value is ... else _shown(value)
        self.problems.append(FieldProblem(field, problem, shown, meant))

    def mapping(self, field: str, value: object) -> Document:
        if isinstance(value, dict):
            entries = cast("dict[object, object]", value)
            for key in [key for key in entries if not isinstance(key, str)]:
                self.note(field, "has a key that is not text; put it in quotes", key)
            if len(entries) > MOST_ENTRIES:
                self.note(field, f"has {len(entries)} entries; at most {MOST_ENTRIES} are allowed")
                return {}
            return {key: entry for key, entry in entries.items() if isinstance(key, str)}
        self.note(field, f"must be a mapping, not {_kind(value)}", value)
        return {}

    def fields(
        self, prefix: str, entries: Document, readers: "_Readers", planned: dict[str, Planned]
    ) -> dict[str, object]:
        """Read each entry by its reader; what is planned or unknown is noted."""
        read: dict[str, object] = {}
        for key, value in entries.items():
            path = f"{prefix}{key}"
            if key in planned:
                if value != planned[key].neutral and value is not None:
                    self.note(path, f"is not supported yet: {planned[key].instead}", value)
            elif key not in readers:
                meant = did_you_mean(key, list(readers))
                self.note(path, "is not a field of a task", meant=meant)
            elif value is not None:
                read[key] = readers[key](self, path, value)
        return read

    def text(self, field: str, value: object) -> str:
        if isinstance(value, str):
            return value
        self.note(field, f"must be text, not {_kind(value)}", value)
        return ""

    def texts(self, field: str, value: object) -> tuple[str, ...]:
        if not isinstance(value, list | tuple):
            self.note(field, f"must be a list, not {_kind(value)}", value)
            return ()
        entries = cast("list[object]", value)
        if len(entries) > MOST_ENTRIES:
            self.note(field, f"has {len(entries)} entries; at most {MOST_ENTRIES} are allowed")
            return ()
        texts = tuple(self.text(f"{field}[{index}]", entry) for index, entry in enumerate(entries))
        for text in sorted({text for text in texts if text and texts.count(text) > 1}):
            self.note(field, "names this twice", text)
        return texts

    def amount(self, field: str, value: object, judge: Callable[[str | float], object]) -> str | float | None:
        if isinstance(value, bool) or not isinstance(value, str | int | float):
            self.note(field, f"must be a number or text, not {_kind(value)}", value)
            return None
        try:
            judge(value)
        except ValueError as error:
            self.note(field, str(error), value)
            return None
        return value

    def choice(self, field: str, value: object, choices: type[_Choice], default: _Choice) -> _Choice:
        words = [str(choice) for choice in choices]
        if isinstance(value, str) and value in words:
            return choices(value)
        meant = did_you_mean(value, words) if isinstance(value, str) else None
        self.note(field, f"must be one of {', '.join(words)}", value, meant=meant)
        return default


_Readers = dict[str, Callable[[_Reader, str, object], object]]


def _name(reader: _Reader, field: str, value: object) -> str:
    name = reader.text(field, value)
    if name and not NAME.fullmatch(name):
        slug = re.sub(r"[^a-z0-9._-]+", "-", name.lower()).strip("-._")[:64]
        reader.note(
            field,
            "must be at most 64 of a-z, 0-9, '-', '_' and '.', beginning with a letter or digit",
            name,
            meant=slug if NAME.fullmatch(slug) else None,
        )
    return name


def _script(reader: _Reader, field: str, value: object) -> str:
    script = reader.text(field, value)
    size = len(script.encode(errors="replace"))
    if size > SCRIPT_LIMIT_BYTES:
        reader.note(
            field, f"is {size // 1024} KiB; at most {SCRIPT_LIMIT_BYTES // 1024} KiB, the rest as a file"
        )
    if "\0" in script:
        reader.note(field, "must not contain NUL")
    return script


def _run(reader: _Reader, field: str, value: object) -> str:
    script = _script(reader, field, value)
    if isinstance(value, str) and not script.strip():
        reader.note(field, "is empty: what should run?")
    return script


def _image(reader: _Reader, field: str, value: object) -> str:
    image = reader.text(field, value)
    if image and not IMAGE.fullmatch(image.removeprefix("docker:")):
        reader.note(
            field,
            "must be the name of a container image: python:3.12, registry.example.org/team/app:1",
            image,
        )
    return image


def _workdir(reader: _Reader, field: str, value: object) -> str | None:
    return _local_path(reader, field, value) or None


def _local_path(reader: _Reader, field: str, value: object) -> str:
    if isinstance(value, dict):
        reader.note(field, "must be a local path; stores and repositories are not supported yet", value)
        return ""
    path = reader.text(field, value)
    if "://" in path:
        reader.note(field, "must be a local path: fetch addresses inside setup or run", path)
    elif isinstance(value, str) and (not path or "\0" in path):
        reader.note(field, "must be a local path", path)
    return path


def _envs(reader: _Reader, field: str, value: object) -> dict[str, str]:
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
            reader.note(path, f"must be text or a number, not {_kind(entry)}", entry)
        elif len(str(entry).encode(errors="replace")) > ENV_VALUE_LIMIT_BYTES or "\0" in str(entry):
            reader.note(path, f"must be at most {ENV_VALUE_LIMIT_BYTES // 1024} KiB without NUL; send a file")
        else:
            envs[name] = str(entry)
    return envs


def _secrets(reader: _Reader, field: str, value: object) -> tuple[str, ...]:
    if isinstance(value, dict):
        reader.note(field, "lists names only; set each value with `yunhe secret set NAME`")
        return ()
    names = reader.texts(field, value)
    for index, name in enumerate(names):
        if name and not ENV_NAME.fullmatch(name):
            reader.note(f"{field}[{index}]", "is not a name a secret can have (letters, digits, _)", name)
    return names


def _file_mounts(reader: _Reader, field: str, value: object) -> dict[str, str]:
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


def _outputs(reader: _Reader, field: str, value: object) -> tuple[str, ...]:
    patterns = reader.texts(field, value)
    for index, pattern in enumerate(patterns):
        _inner(reader, f"{field}[{index}]", pattern)
    return patterns


def _inner(reader: _Reader, field: str, text: str) -> str:
    try:
        return amounts.inner_path(text)
    except ValueError as error:
        stripped = text.lstrip("/")
        meant = stripped if text.startswith("/") and stripped and ".." not in stripped else None
        reader.note(field, str(error), text, meant=meant)
        return ""


def _retries(reader: _Reader, field: str, value: object) -> int:
    if isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= MOST_RETRIES:
        return value
    reader.note(field, f"must be a whole number from 0 to {MOST_RETRIES}", value)
    return 0


def _timeout(reader: _Reader, field: str, value: object) -> str | float | None:
    return reader.amount(field, value, amounts.duration_s)


def _near(reader: _Reader, field: str, value: object) -> str | None:
    place = reader.text(field, value)
    try:
        parse_place(place)
    except ValueError as error:
        reader.note(field, str(error), place)
    if value == "":
        reader.note(field, "must name a place: cn-north, cn-north@39.9,116.4 or @39.9,116.4")
    return place


def _level(reader: _Reader, field: str, value: object) -> Level:
    return reader.choice(field, value, Level, Level.CENTRAL)


def _tier(reader: _Reader, field: str, value: object) -> Tier:
    return reader.choice(field, value, Tier, Tier.HIGH)


def _policy(reader: _Reader, field: str, value: object) -> Policy:
    return reader.choice(field, value, Policy, Policy.BALANCED)


def _weights(reader: _Reader, field: str, value: object) -> dict[str, float]:
    weights: dict[str, float] = {}
    for term, weight in reader.mapping(field, value).items():
        path = f"{field}.{term}"
        if term not in SCORE_TERMS:
            meant = did_you_mean(term, list(SCORE_TERMS))
            reader.note(path, f"is not a term of the score ({', '.join(SCORE_TERMS)})", meant=meant)
        elif isinstance(weight, bool) or not isinstance(weight, int | float) or not 0 <= weight <= 1e6:
            reader.note(path, "must be a number from 0 to 1000000", weight)
        else:
            weights[term] = float(weight)
    return weights


def _resources(reader: _Reader, field: str, value: object) -> ResourceSpec:
    read = reader.fields(f"{field}.", reader.mapping(field, value), _RESOURCE_READERS, RESOURCE_FIELDS)
    if read.get("any_of") and read.get("ordered"):
        reader.note(field, "has both any_of and ordered; keep one")
    return ResourceSpec(**cast("dict[str, Any]", read))


def _alternatives(reader: _Reader, field: str, value: object) -> tuple[ResourceSpec, ...]:
    if not isinstance(value, list | tuple) or not 0 < len(cast("list[object]", value)) <= MOST_ALTERNATIVES:
        reader.note(field, f"must be a list of 1 to {MOST_ALTERNATIVES} alternatives", value)
        return ()
    alternatives: list[ResourceSpec] = []
    for index, entry in enumerate(cast("list[object]", value)):
        path = f"{field}[{index}]"
        read = reader.fields(f"{path}.", reader.mapping(path, entry), _PLAIN_READERS, RESOURCE_FIELDS)
        alternatives.append(ResourceSpec(**cast("dict[str, Any]", read)))
    return tuple(alternatives)


def _cpus(reader: _Reader, field: str, value: object) -> str | float | None:
    return reader.amount(field, value, amounts.cpu_millis)


def _memory(reader: _Reader, field: str, value: object) -> str | float | None:
    return reader.amount(field, value, amounts.memory_mib)


def _accelerators(reader: _Reader, field: str, value: object) -> str | dict[str, float] | None:
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


def _judged(reader: _Reader, field: str, asked: str | dict[str, float]) -> str | dict[str, float] | None:
    try:
        amounts.accelerators(asked)
    except ValueError as error:
        reader.note(field, str(error), asked)
        return None
    return asked


def _pool(reader: _Reader, field: str, value: object) -> str:
    pool = reader.text(field, value)
    if pool and not NAME.fullmatch(pool):
        reader.note(field, "is not a name a pool can have; list them with `yunhe pool ls`", pool)
    return pool


_PLAIN_READERS: _Readers = {
    "cpus": _cpus,
    "memory": _memory,
    "disk_size": _memory,
    "accelerators": _accelerators,
    "pool": _pool,
}
_RESOURCE_READERS: _Readers = {**_PLAIN_READERS, "any_of": _alternatives, "ordered": _alternatives}
_TASK_READERS: _Readers = {
    "name": _name,
    "resources": _resources,
    "image": _image,
    "workdir": _workdir,
    "envs": _envs,
    "secrets": _secrets,
    "file_mounts": _file_mounts,
    "outputs": _outputs,
    "setup": _script,
    "run": _run,
    "retries": _retries,
    "timeout": _timeout,
    "near": _near,
    "level": _level,
    "tier": _tier,
    "policy": _policy,
    "weights": _weights,
}


def _check_together(reader: _Reader, known: dict[str, object]) -> None:
    """Note what no field alone can know."""
    envs = cast("dict[str, str]", known.get("envs", {}))
    for name in cast("tuple[str, ...]", known.get("secrets", ())):
        if name in envs:
            reader.note("secrets", f"names {name!r}, which envs sets too; keep one")
    weights = cast("dict[str, float]", known.get("weights", {}))
    policy = known.get("policy", Policy.BALANCED)
    if weights and policy is not Policy.BALANCED:
        reader.note("weights", f"count only under policy balanced, and this is {policy}")
    if len(weights) == len(SCORE_TERMS) and not any(weights.values()):
        reader.note("weights", "are all zero: one must count")
    if policy is Policy.NEAREST and "near" not in known:
        reader.note("near", "is needed under policy nearest: near what?")


def _shown(value: object) -> str:
    """Return a short form of *value*, however large: it came from outside."""
    short = reprlib.Repr()
    short.maxlevel, short.maxdict, short.maxlist, short.maxstring = 2, 4, 4, 60
    return short.repr(value)


def _kind(value: object) -> str:
    words: dict[type, str] = {
        bool: "true or false",
        dict: "a mapping",
        float: "a number",
        int: "a number",
        list: "a list",
        str: "text",
        tuple: "a list",
        type(None): "nothing",
    }
    return words.get(type(value), f"a {type(value).__name__}")


def _one_line(error: Exception) -> str:
    if isinstance(error, RecursionError):
        return "it is nested too deeply"
    if isinstance(error, yaml.MarkedYAMLError) and error.problem_mark is not None:
        mark = error.problem_mark
        return f"line {mark.line + 1}, column {mark.column + 1}: {error.problem or error.context}."
    return " ".join(str(error).split())[:300]
