"""A document as SkyPilot's users write it → a document of ours, with a note for each field that was given.

What is ours stays as it is. The result is a plain document: whoever reads tasks judges it like any other.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import cast

from yunhe.kernel.errors import FieldProblem
from yunhe.trading.demand.reader import NAME, Document, Schema
from yunhe.trading.demand.schema import task_schema
from yunhe.trading.demand.skypilot.cases import (
    FILE_HEADER,
    REPLICA_POLICY,
    SERVICE_FIELDS,
    WORKER_FIELDS,
    Effect,
)
from yunhe.trading.demand.skypilot.files import translated_mounts, translated_volumes, translated_workdir
from yunhe.trading.demand.skypilot.notes import FieldNote, FieldNotes, filled, shown
from yunhe.trading.demand.skypilot.resources import translated_resources


@dataclass(frozen=True, kw_only=True)
class Translation:
    """A document of ours, what became of each field, and what could not be read."""

    document: Document
    notes: tuple[FieldNote, ...]
    problems: tuple[FieldProblem, ...]


def translated(document: Document) -> Translation:
    """Return *document* in our words."""
    notes = FieldNotes()
    reading = _Reading(notes, _environment(document))
    for field, value in document.items():
        if value is None:
            continue
        read = _READERS.get(field)
        if read is None:
            reading.own(field, value)
        else:
            read(reading, filled(value, reading.envs) if field in _FILLED else value)
    out = reading.finished(document)
    given = document.get("planned_only")
    earlier = cast("Document", given) if isinstance(given, dict) else {}
    held = {**earlier, **notes.planned_only}
    if held:
        out["planned_only"] = held
    return Translation(document=out, notes=tuple(notes.notes), problems=tuple(notes.problems))


def tasks_of_file(documents: list[Document]) -> tuple[list[Document], tuple[FieldNote, ...]]:
    """Return the tasks of a file of one or several documents, and what its header says; each knows what it is part of."""
    if len(documents) == 1:
        return documents, ()
    notes = FieldNotes()
    header = documents[0] if set(documents[0]) <= set(FILE_HEADER) else {}
    tasks = documents[1:] if header else documents
    for field, value in header.items():
        notes.tell("documents.header", field, value)
    if len(tasks) == 1:
        return [{**{k: v for k, v in header.items() if k == "name"}, **tasks[0]}], tuple(notes.notes)
    case = "documents.group" if header.get("execution") == "parallel" else "documents"
    notes.say(case, "(file)", len(tasks))
    return [{**task, "planned_only": notes.planned_only} for task in tasks], tuple(notes.notes)


def _environment(document: Document) -> dict[str, str]:
    envs = document.get("envs")
    entries = cast("dict[object, object]", envs) if isinstance(envs, dict) else {}
    return {str(name): str(value) for name, value in entries.items() if value is not None}


class _Reading:
    """One document on its way."""

    def __init__(self, notes: FieldNotes, envs: dict[str, str]) -> None:
        self.notes = notes
        self.envs = envs
        self.out: Document = {}
        self.of_task: Document = {}
        self.clone = ""

    def own(self, field: str, value: object) -> None:
        """Keep a field that is ours, or nobody's: the reader of tasks says which."""
        self.out[field] = value
        schema = _SCHEMA.get(field)
        if schema is not None and field != "planned_only":
            says = str(schema.get("description", "")).partition(". ")[0].rstrip(".")
            note = FieldNote(field=field, value=shown(value), effect=Effect.HONOURED, says=says)
            self.notes.notes.append(note)

    def finished(self, document: Document) -> Document:
        """Return the document with what belongs together put together."""
        for field, value in self.of_task.items():
            self.out.setdefault(field, value)
        has_setup = isinstance(document.get("setup"), str) or "pool" in document
        if document.get("run") is None and has_setup:
            self.notes.say("run.missing", "run", "")
            self.out["run"] = "true"
        if "service" in self.out and self.out.get("num_nodes", 1) != 1:
            service = cast("Document", self.out.pop("service"))
            self.notes.notes = [note for note in self.notes.notes if note.field != "service"]
            self.notes.say("service.gang", "service", f"{service['replicas']}")
        scripts = f"{self.out.get('setup', '')}\n{self.out.get('run', '')}"
        if "SKYPILOT_" in scripts:
            self._as_one_node()
        first = self.clone
        if "sky_workdir" in scripts:
            self.notes.say("sky_workdir", "run, setup", "~/sky_workdir")
            first += "[ -e ~/sky_workdir ] || ln -s . ~/sky_workdir\n"
        if first:
            self.out["setup"] = first + str(self.out.get("setup", ""))
        return self.out

    def _as_one_node(self) -> None:
        """Set the variables by which a script knows its cluster."""
        resources = cast("Document", self.out.get("resources", {}))
        asked = (
            str(resources.get("accelerators") or "") if isinstance(resources.get("accelerators"), str) else ""
        )
        count = (asked.partition(":")[2].rstrip("+") or "1") if asked else "0"
        known = {
            "SKYPILOT_NODE_RANK": "0",
            "SKYPILOT_NUM_NODES": "1",
            "SKYPILOT_NODE_IPS": "127.0.0.1",
            "SKYPILOT_NUM_GPUS_PER_NODE": count,
        }
        self.notes.say("variables", "run, setup", "$SKYPILOT_…")
        self.out["envs"] = {**known, **cast("Document", self.out.get("envs", {}))}

    def script(self, field: str, value: object) -> None:
        """Keep a script."""
        self.notes.say(field, field, f"{len(str(value).splitlines())} lines")
        self.out[field] = value

    def name(self, value: object) -> None:
        """Keep a name as it can be written here."""
        text = str(value)
        slug = re.sub(r"[^a-z0-9._-]+", "-", text.lower()).strip("-._")[:64]
        if isinstance(value, str) and text and not NAME.fullmatch(text) and NAME.fullmatch(slug):
            self.notes.say("name.changed", "name", slug)
            self.out["name"] = slug
            return
        self.notes.say("name", "name", value)
        self.out["name"] = value

    def workdir(self, value: object) -> None:
        """Keep a directory, or clone a repository."""
        self.clone = translated_workdir(self.notes, value, self.out)

    def nodes(self, value: object) -> None:
        """Keep how many nodes there shall be."""
        if value == 1:
            self.notes.say("num_nodes.one", "num_nodes", value)
        else:
            self.notes.tell("num_nodes", "num_nodes", value)
        self.out["num_nodes"] = value

    def resources(self, value: object) -> None:
        """Read what it needs."""
        self.out["resources"], self.of_task = translated_resources(self.notes, value)

    def environment(self, value: object) -> None:
        """Keep variables; one without a value has to be given before it can run."""
        kept: Document = {}
        for name, entry in self.notes.mapping("envs", value).items():
            path = f"envs.{name}"
            if entry is None:
                self.notes.say("envs.missing", path, "")
                continue
            self.notes.say("envs.flag" if isinstance(entry, bool) else "envs", path, entry)
            kept[name] = str(entry) if isinstance(entry, bool) else entry
        self.out["envs"] = {**kept, **cast("Document", self.out.get("envs", {}))}

    def secrets(self, value: object) -> None:
        """Name secrets; values that stand in the file are never taken along."""
        names: list[object] = []
        if isinstance(value, list):
            names = cast("list[object]", value)
            for name in names:
                self.notes.say("secrets.named", f"secrets.{name}", "", name=name)
        else:
            for name, secret in self.notes.mapping("secrets", value).items():
                case = "named" if secret is None else "empty" if secret == "" else "value"
                self.notes.say(f"secrets.{case}", f"secrets.{name}", "", name=name)
                if case == "empty":
                    self.out["envs"] = {**cast("Document", self.out.get("envs", {})), name: ""}
                else:
                    names.append(name)
        already = cast("list[object]", self.out.get("secrets", []))
        self.out["secrets"] = [*already, *(name for name in names if name not in already)]

    def managed_secrets(self, value: object) -> None:
        """Name secrets of SkyPilot's server."""
        names: list[object] = []
        for entry in cast("list[object]", value) if isinstance(value, list) else [value]:
            if isinstance(entry, str):
                self.notes.say("managed_secrets", f"managed_secrets.{entry}", "", name=entry)
                names.append(entry)
            else:
                self.notes.say("managed_secrets.mounted", "managed_secrets", entry)
        already = cast("list[object]", self.out.get("secrets", []))
        self.out["secrets"] = [*already, *(name for name in names if name not in already)]

    def mounts(self, value: object) -> None:
        """Keep local files, and hold the rest back."""
        self.out["file_mounts"] = translated_mounts(self.notes, value)

    def volumes(self, value: object) -> None:
        """Hold volumes back."""
        translated_volumes(self.notes, value)

    def outputs(self, value: object) -> None:
        """Tell our list of what is kept from SkyPilot's estimates."""
        if isinstance(value, dict):
            self.notes.say("outputs.estimate", "outputs", value)
        else:
            self.own("outputs", value)

    def api_access(self, value: object) -> None:
        """Hold back access to the platform."""
        case = "api_server_access" if value else "api_server_access.false"
        self.notes.say(case, "api_server_access", value)

    def held(self, field: str, value: object) -> None:
        """Say what the table says of a field."""
        self.notes.say(field, field, value)

    def service(self, value: object) -> None:
        """Read how many replicas there are to plan for."""
        entries = self.notes.mapping("service", value, SERVICE_FIELDS)
        policy = self.notes.mapping(
            "service.replica_policy", entries.get("replica_policy") or {}, REPLICA_POLICY
        )
        replicas = entries.get("replicas") or policy.get("min_replicas") or 1
        self.notes.tell("service", "service", f"{replicas} replicas")
        for field, entry in entries.items():
            if field == "replicas":
                self.notes.tell("service.replicas", "service.replicas", entry)
            elif field == "replica_policy":
                for name, amount in policy.items():
                    path = f"service.replica_policy.{name}"
                    case = "service.replica_policy" if name == "min_replicas" else "service.other"
                    self.notes.tell(case, path, amount)
            else:
                self.notes.tell("service.other", f"service.{field}", entry)
        self.out["service"] = {"replicas": replicas}

    def pool(self, value: object) -> None:
        """Read a pool of workers: replicas that run jobs."""
        if isinstance(value, str):
            self.own("pool", value)
            return
        entries = self.notes.mapping("pool", value, WORKER_FIELDS)
        workers = entries.get("workers") or entries.get("min_workers") or 1
        self.notes.say("pool", "pool", f"{workers} workers")
        self.notes.planned_only.pop("pool")  # told once, as the service that it is planned as
        self.out["service"] = {"replicas": workers}

    def config(self, value: object) -> None:
        """Read configuration of SkyPilot's own, key by key."""
        for path, entry in _leaves("config", self.notes.mapping("config", value)):
            case = "config.timeout" if path.endswith(".provision_timeout") else "config.options"
            self.notes.say(case, path, entry)


def _leaves(path: str, entries: Document, depth: int = 2) -> list[tuple[str, object]]:
    """Return the keys of a configuration, two levels down and where a level has only options, all of them."""
    found: list[tuple[str, object]] = []
    for key, entry in entries.items():
        if isinstance(entry, dict) and entry and depth > 0:
            found += _leaves(f"{path}.{key}", cast("Document", entry), depth - 1)
        else:
            found.append((f"{path}.{key}", entry))
    return found


def _field(read: Callable[[_Reading, str, object], None], field: str) -> Callable[[_Reading, object], None]:
    return lambda reading, value: read(reading, field, value)


_READERS: dict[str, Callable[[_Reading, object], None]] = {
    "name": _Reading.name,
    "run": _field(_Reading.script, "run"),
    "setup": _field(_Reading.script, "setup"),
    "workdir": _Reading.workdir,
    "num_nodes": _Reading.nodes,
    "resources": _Reading.resources,
    "envs": _Reading.environment,
    "secrets": _Reading.secrets,
    "managed_secrets": _Reading.managed_secrets,
    "file_mounts": _Reading.mounts,
    "volumes": _Reading.volumes,
    "outputs": _Reading.outputs,
    "api_server_access": _Reading.api_access,
    "service": _Reading.service,
    "pool": _Reading.pool,
    "config": _Reading.config,
    **{
        field: _field(_Reading.held, field)
        for field in (
            "inputs",
            "event_callback",
            "file_mounts_mapping",
            "_metadata",
            "volume_mounts",
            "experimental",
        )
    },
}
_FILLED = ("file_mounts", "workdir", "volumes", "service", "resources", "pool")
_SCHEMA: dict[str, Schema] = cast("dict[str, Schema]", task_schema()["properties"])
