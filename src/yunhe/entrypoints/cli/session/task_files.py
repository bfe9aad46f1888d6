"""From what was typed to tasks: files or a command, with the options over them, judged before anything is sent."""

import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

from yunhe.kernel.errors import FieldProblem, InvalidInputError
from yunhe.trading.demand.model import Task
from yunhe.trading.demand.parse import Document, parse_task, read_yaml


@dataclass(frozen=True, kw_only=True)
class Overrides:
    """What options say over a task's file; empty means not said."""

    name: str = ""
    cpus: str = ""
    memory: str = ""
    gpus: str = ""
    image: str = ""
    pool: str = ""
    envs: Sequence[str] = ()
    secrets: Sequence[str] = ()
    tier: str = ""
    policy: str = ""
    near: str = ""
    retries: int | None = None
    timeout: str = ""
    fields: Mapping[str, object] = field(default_factory=dict[str, object])
    """Fields of the task by name; see ``task_options``."""


def tasks_from(
    files: Sequence[str], command: Sequence[str], overrides: Overrides, *, plan: bool = False
) -> list[Task]:
    """Return the tasks to run, or only to *plan*; every problem of every file is told at once."""
    if bool(files) == bool(command):
        raise InvalidInputError(
            "Nothing to run was given." if not files else "Both files and a command were given.",
            remedy="Give task files, or one command after --: yunhe run hello.yaml · yunhe run -- echo hello",
        )
    documents = [(path, _document_of(path)) for path in files] or [("", _document_for(command))]
    tasks: list[Task] = []
    problems: list[FieldProblem] = []
    for path, document in documents:
        try:
            task = parse_task(overridden(document, overrides), plan=plan)
            check_sources(task)
            tasks.append(task)
        except InvalidInputError as error:
            where = f"{path}: " if len(documents) > 1 else ""
            problems += [_placed_in(where, problem) for problem in error.fields]
    if problems:
        subject = documents[0][0] or "The task" if len(documents) == 1 else "The tasks"
        count = f"{len(problems)} problem{'s' * (len(problems) > 1)}"
        raise InvalidInputError(
            f"{subject} {'have' if len(documents) > 1 else 'has'} {count}; nothing was submitted.",
            remedy="Every field is described by `yunhe run --schema` and in docs/reference/task.md.",
            fields=tuple(problems),
        )
    return tasks


def _placed_in(where: str, problem: FieldProblem) -> FieldProblem:
    return FieldProblem(f"{where}{problem.field}", problem.problem, problem.value, problem.did_you_mean)


def _document_of(path: str) -> Document:
    try:
        text = Path(path).read_bytes()
    except OSError as error:
        raise InvalidInputError(
            f"{path} cannot be read: {error.strerror}.",
            remedy="Give the path of a task file; `yunhe run -- COMMAND` runs a command.",
        ) from error
    try:
        return {"name": _slug(Path(path).stem), **read_yaml(text)}
    except InvalidInputError as error:
        raise InvalidInputError(f"{path}: {error.problem}", remedy=error.remedy) from error


def _document_for(command: Sequence[str]) -> Document:
    script = command[0] if len(command) == 1 else shlex.join(command)
    words = script.split()
    return {"name": _slug(Path(words[0]).name) if words else "command", "run": script}


def _slug(text: str) -> str:
    return re.sub(r"[^a-z0-9._-]+", "-", text.lower()).strip("-._")[:64] or "task"


def overridden(document: Document, overrides: Overrides) -> Document:
    """Return *document* with what the options say in place of what it said."""
    changed: Document = {**document, **overrides.fields}
    for name in ("name", "image", "tier", "policy", "near", "timeout"):
        if getattr(overrides, name):
            changed[name] = getattr(overrides, name)
    if overrides.retries is not None:
        changed["retries"] = overrides.retries
    if overrides.envs:
        changed["envs"] = {**_mapping(document.get("envs")), **_pairs(overrides.envs)}
    if overrides.secrets:
        named = document.get("secrets")
        already = cast("list[object]", named) if isinstance(named, list) else []
        changed["secrets"] = [*already, *(name for name in overrides.secrets if name not in already)]
    resources = {
        "cpus": overrides.cpus,
        "memory": overrides.memory,
        "pool": overrides.pool,
        "accelerators": _accelerators(document, overrides.gpus),
    }
    wanted = {field: value for field, value in resources.items() if value}
    if wanted:
        changed["resources"] = _with_resources(document.get("resources"), wanted)
    return changed


def _with_resources(said: object, wanted: dict[str, Any]) -> Document:
    """Return resources in which *wanted* holds for every alternative too."""
    resources = {**_mapping(said), **wanted}
    for choices in ("any_of", "ordered"):
        if isinstance(resources.get(choices), list):
            resources[choices] = [
                {field: value for field, value in _mapping(choice).items() if field not in wanted}
                for choice in cast("list[object]", resources[choices])
            ]
    return resources


def _accelerators(document: Document, gpus: str) -> str:
    """Return what ``--gpus`` asks for; a bare count keeps the kind the file names."""
    said = _mapping(document.get("resources")).get("accelerators")
    if not gpus.replace(".", "", 1).isdigit():
        return gpus
    kind = next(iter(_mapping(said)), "") if isinstance(said, dict) else str(said or "").partition(":")[0]
    return f"{kind}:{gpus}"


def _mapping(value: object) -> Document:
    return cast("Document", value) if isinstance(value, dict) else {}


def _pairs(texts: Sequence[str]) -> Document:
    pairs: Document = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals:
            raise InvalidInputError(
                "A variable has no value.",
                fields=(FieldProblem("--env", "must be NAME=value", text, f"{text}=…"),),
            )
        pairs[name] = value
    return pairs


def check_sources(task: Task) -> None:
    """Refuse a task whose local directory or files are not there to be sent."""
    problems: list[FieldProblem] = []
    if task.workdir is not None and not local(task.workdir).is_dir():
        problems.append(FieldProblem("workdir", "is not a directory here", task.workdir))
    for target, source in task.file_mounts.items():
        if not local(source).exists():
            problems.append(FieldProblem(f"file_mounts.{target}", "there is no such file here", source))
    if problems:
        raise InvalidInputError("What the task sends is not here.", fields=tuple(problems))


def local(path: str) -> Path:
    """Return a path of this machine; relative ones count from where the command is called."""
    return Path(path).expanduser()
