"""From what was typed to tasks: files or a command, with the options over them, judged before anything is sent."""

import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple, cast

import msgspec

from yunhe.kernel.errors import FieldProblem, InvalidInputError
from yunhe.trading.demand.model import Task
from yunhe.trading.demand.parse import Document, parse_task, read_documents
from yunhe.trading.demand.skypilot.cases import CASES
from yunhe.trading.demand.skypilot.notes import FieldNote
from yunhe.trading.demand.skypilot.translate import tasks_of_file, translated


@dataclass(frozen=True, kw_only=True)
class Overrides:
    """What options say over a task's file; empty means not said."""

    name: str = ""
    cpus: str = ""
    memory: str = ""
    gpus: str = ""
    image: str = ""
    pool: str = ""
    infra: str = ""
    envs: Sequence[str] = ()
    secrets: Sequence[str] = ()
    tier: str = ""
    policy: str = ""
    near: str = ""
    retries: int | None = None
    timeout: str = ""
    fields: Mapping[str, object] = field(default_factory=dict[str, object])
    """Fields of the task by name; see ``task_options``."""


class GivenTask(NamedTuple):
    """A task, and what became of each field that its file has."""

    task: Task
    notes: tuple[FieldNote, ...] = ()


def tasks_from(
    files: Sequence[str],
    command: Sequence[str],
    overrides: Overrides,
    *,
    plan: bool = False,
    sent: bool = True,
) -> list[GivenTask]:
    """Return the tasks to run, or only to *plan*; what is to be *sent* must be here. Every problem is told at once."""
    if bool(files) == bool(command):
        raise InvalidInputError(
            "Nothing to run was given." if not files else "Both files and a command were given.",
            remedy="Give task files, or one command after --: yunhe run hello.yaml · yunhe run -- echo hello",
        )
    documents = [one for path in files for one in _documents_of(path)]
    documents = documents or [("", _document_for(command), ())]
    tasks: list[GivenTask] = []
    problems: list[FieldProblem] = []
    several = len({path for path, _, _ in documents}) > 1
    for path, document, of_file in documents:
        try:
            given = _given(document, overrides, plan=plan)
            if sent or not plan:
                check_sources(given.task)
            else:
                given = _with_missing_sources(given)
            tasks.append(given._replace(notes=(*of_file, *given.notes)))
        except InvalidInputError as error:
            placed = [_placed_in(f"{path}: " if several else "", problem) for problem in error.fields]
            problems += [problem for problem in placed if problem not in problems]
    if problems:
        subject = documents[0][0] or "The task" if not several else "The tasks"
        count = f"{len(problems)} problem{'s' * (len(problems) > 1)}"
        raise InvalidInputError(
            f"{subject} {'have' if several else 'has'} {count}; nothing was submitted.",
            remedy="Every field is described by `yunhe run --schema` and in docs/reference/task.md.",
            fields=tuple(problems),
        )
    return tasks


def _given(document: Document, overrides: Overrides, *, plan: bool) -> GivenTask:
    """Return the task of a document in our words or SkyPilot's, with the options over it."""
    envs = {**_mapping(document.get("envs")), **_pairs(overrides.envs)}
    translation = translated({**document, "envs": envs} if envs else document)
    changed = overridden(translation.document, overrides)
    held = _still_held(_mapping(changed.get("planned_only")), overrides)
    changed = (
        {**changed, "planned_only": held}
        if held
        else {k: v for k, v in changed.items() if k != "planned_only"}
    )
    try:
        task = parse_task(changed, plan=plan)
    except InvalidInputError as error:
        fields = (*translation.problems, *error.fields)
        raise InvalidInputError(error.problem, remedy=error.remedy, fields=fields) from None
    if translation.problems:
        raise InvalidInputError("The task has problems.", fields=translation.problems)
    return GivenTask(task, translation.notes)


def _still_held(held: Document, overrides: Overrides) -> Document:
    """Return what cannot be run yet, less what an option takes the place of."""
    lifted = {f"secrets.{name}" for name in overrides.secrets}
    lifted |= {"resources.image_id"} if overrides.image else set()
    return {field: why for field, why in held.items() if field not in lifted}


def _with_missing_sources(given: GivenTask) -> GivenTask:
    """Return a task that is only planned, with what is not here to be sent held back."""
    missing = {
        problem.field: f"{problem.field.partition('.')[0]}.missing" for problem in missing_sources(given.task)
    }
    if not missing:
        return given
    notes = [
        replace(note, effect=CASES[case].effect, says=CASES[case].says, case=case)
        if (case := missing.get(note.field))
        else note
        for note in given.notes
    ]
    held = {**given.task.planned_only, **{field: CASES[case].says for field, case in missing.items()}}
    return GivenTask(msgspec.structs.replace(given.task, planned_only=held), tuple(notes))


def _placed_in(where: str, problem: FieldProblem) -> FieldProblem:
    return FieldProblem(f"{where}{problem.field}", problem.problem, problem.value, problem.did_you_mean)


def _documents_of(path: str) -> list[tuple[str, Document, tuple[FieldNote, ...]]]:
    """Return the tasks of a file, each with the file's path and what its header says."""
    try:
        text = Path(path).read_bytes()
    except OSError as error:
        raise InvalidInputError(
            f"{path} cannot be read: {error.strerror}.",
            remedy="Give the path of a task file; `yunhe run -- COMMAND` runs a command.",
        ) from error
    try:
        tasks, notes = tasks_of_file(read_documents(text))
        return [(path, {"name": _slug(Path(path).stem), **task}, notes) for task in tasks]
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
    if overrides.secrets:
        named = document.get("secrets")
        already = cast("list[object]", named) if isinstance(named, list) else []
        changed["secrets"] = [*already, *(name for name in overrides.secrets if name not in already)]
    resources = {
        "cpus": overrides.cpus,
        "memory": overrides.memory,
        "pool": overrides.pool,
        "infra": overrides.infra,
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
    if not kind:
        raise InvalidInputError(
            "It is not said which kind of accelerator.",
            remedy=f"Name it: --gpus A100:{gpus}. `yunhe pool show POOL` lists what a pool has.",
            fields=(
                FieldProblem(
                    "--gpus",
                    "says how many and not of which kind, and the file names no one kind",
                    gpus,
                    f"A100:{gpus}",
                ),
            ),
        )
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
    problems = missing_sources(task)
    if problems:
        raise InvalidInputError("What the task sends is not here.", fields=tuple(problems))


def missing_sources(task: Task) -> list[FieldProblem]:
    """Return what a task would send and is not here, field by field."""
    problems: list[FieldProblem] = []
    if task.workdir is not None and not local(task.workdir).is_dir():
        problems.append(FieldProblem("workdir", "is not a directory here", task.workdir))
    for target, source in task.file_mounts.items():
        if not local(source).exists():
            problems.append(FieldProblem(f"file_mounts.{target}", "there is no such file here", source))
    return problems


def local(path: str) -> Path:
    """Return a path of this machine; relative ones count from where the command is called."""
    return Path(path).expanduser()
