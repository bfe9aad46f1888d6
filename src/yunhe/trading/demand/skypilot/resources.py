"""SkyPilot's ``resources`` → ours: what each alternative asks for, and what belongs to the task."""

import re
from collections.abc import Callable
from typing import Any, cast

from yunhe.trading.demand import amounts
from yunhe.trading.demand.parse import MOST_PORTS
from yunhe.trading.demand.reader import Document
from yunhe.trading.demand.skypilot.cases import KINDS
from yunhe.trading.demand.skypilot.notes import FieldNotes

LEAST_PRIORITY, MOST_PRIORITY = -1000, 1000
_KINDS = {kind.lower(): kind for kind in KINDS}
_RATIO = re.compile(r"(\d+(?:\.\d+)?)x")
_WORD = re.compile(r"[^\s=/,]{1,200}")
_MACHINE = re.compile(r"(ami-|skypilot:|projects/|ocid1\.|[^:/]+:[^:/]+:[^:/]+:[^:/]+$|/|[0-9a-f-]{36}$)")
_TIME = re.compile(r"\d+(m|h|d|w|s)?")
_STRATEGIES = ("failover", "eager_next_region", "eager_failover", "none")
_ALTERNATIVE = ("cpus", "memory", "disk_size", "accelerators", "pool", "infra", "where", "use_spot")


def translated_resources(notes: FieldNotes, value: object) -> tuple[Document, Document]:
    """Return our resources, and the fields of the task that SkyPilot has among its resources."""
    entries = notes.mapping("resources", value)
    reader = ResourceTranslation(notes)
    common = reader.choice("resources", entries)
    choices: list[Document] = []
    order = "ordered" if entries.get("ordered") else "any_of"
    if isinstance(entries.get(order), list):
        notes.say(f"resources.{order}", f"resources.{order}", f"{len(entries[order])} alternatives")  # type: ignore[arg-type]
        for index, entry in enumerate(cast("list[object]", entries[order])):
            path = f"resources.{order}[{index}]"
            one = reader.choice(path, notes.mapping(path, entry))
            choices += [_merged_place(common, each) for each in _spread_out(one)]
    elif entries.get(order) is not None:
        common[order] = entries[order]
    if entries.get("any_of") and entries.get("ordered"):
        notes.refuse("resources", "has both any_of and ordered; keep one")
    kinds = cast("list[str]", common.pop("kinds", []))
    in_order = bool(common.pop("in_order", False)) or order == "ordered"
    if kinds and not choices:
        choices = [{"accelerators": kind} for kind in kinds]
    elif kinds:
        choices = [
            {**one, "accelerators": kind}
            for one in choices
            for kind in ([one["accelerators"]] if "accelerators" in one else kinds)
        ]
    regions = cast("list[str]", reader.task.pop("regions", []))
    if regions:
        choices = [
            {**one, "infra": _place({**common, **one}.get("infra"), region)}
            for one in choices or [{}]
            for region in regions
        ]
    plain = {field: entry for field, entry in common.items() if field not in {"any_of", "ordered"}}
    if choices:
        return {**plain, "ordered" if in_order else "any_of": choices}, reader.task
    return common, reader.task


def _spread_out(choice: Document) -> list[Document]:
    """Return one alternative for each kind of accelerator of a choice."""
    kinds = cast("list[str]", choice.pop("kinds", []))
    choice.pop("in_order", None)
    return [{**choice, "accelerators": kind} for kind in kinds] or [choice]


def _place(infra: object, region: str) -> str:
    cloud, _, rest = str(infra or "*").partition("/")
    zone = rest.partition("/")[2]
    return "/".join([cloud, region, *([zone] if zone else [])])


def _merged_place(common: Document, choice: Document) -> Document:
    """Return *choice* with labels of its own beside those that are common."""
    both = [*(_listed(common.get("where")) or []), *(_listed(choice.get("where")) or [])]
    return {**choice, "where": both} if _listed(choice.get("where")) else choice


def _listed(where: object) -> list[object] | None:
    """Return labels as a list, however they were written; None where they are none."""
    if isinstance(where, dict):
        return [f"{key}={value}" for key, value in cast("dict[object, object]", where).items()]
    if isinstance(where, str):
        return [where]
    return cast("list[object]", where) if isinstance(where, list) else None


class ResourceTranslation:
    """Reads resources field by field; what belongs to the task is gathered beside."""

    def __init__(self, notes: FieldNotes) -> None:
        self.notes = notes
        self.task: Document = {}

    def choice(self, path: str, entries: Document) -> Document:
        """Return one alternative, or what is common to all, in our words."""
        out: Document = {}
        for key, value in entries.items():
            if key in {"any_of", "ordered"} and path == "resources":
                continue
            if value is None:
                continue
            read = _READERS.get(key)
            if key.startswith("_"):
                self.notes.say("resources._", f"{path}.{key}", value)
            elif read is None:
                out[key] = value  # one of ours, or nobody's: the reader of tasks says which
            else:
                read(self, f"{path}.{key}", value, out)
        parts = [entries.get(part) for part in ("cloud", "region", "zone")]
        if any(parts):
            if entries.get("infra"):
                self.notes.refuse(f"{path}.infra", "says where beside cloud, region and zone; keep one")
            out["infra"] = "/".join(str(part or "*") for part in parts).rstrip("/*") or "*"
        self._ratio(path, out)
        asked, where = cast("list[str]", out.pop("asked", [])), out.get("where", [])
        if asked and _listed(where) is not None:
            out["where"] = [*(_listed(where) or []), *asked]
        return out

    def of_task(self, path: str, field: str, value: object) -> bool:
        """Take *value* for the task; two alternatives that differ are held back."""
        if field in self.task and self.task[field] != value:
            self.notes.say("resources.any_of.differs", path, value)
            return False
        self.task[field] = value
        return True

    def _ratio(self, path: str, out: Document) -> None:
        found = _RATIO.fullmatch(str(out.get("memory", "")))
        cores = re.fullmatch(r"(\d+(?:\.\d+)?)\+?", str(out.get("cpus", "1")))
        if found and cores:
            gib = float(found[1]) * float(cores[1])
            self.notes.say("resources.memory.ratio", f"{path}.memory", f"{gib:g}")
            out["memory"] = gib

    # --- the fields

    def copied(self, path: str, value: object, out: Document, field: str = "") -> None:
        """Keep a field that is the same here."""
        key = path.rpartition(".")[2]
        if key == "memory" and _RATIO.fullmatch(str(value)):
            out[key] = value
            return
        self.notes.say(f"resources.{key}", path, value)
        out[field or key] = value

    def accelerators(self, path: str, value: object, out: Document) -> None:
        """Read one kind, a set of kinds or a list of them."""
        key = path.rpartition(".")[2]
        kinds: list[str] = []
        if isinstance(value, list):
            kinds = [_kind(str(entry)) for entry in cast("list[object]", value)]
        elif isinstance(value, dict):
            counts = cast("dict[object, object]", value)
            kinds = [
                _kind(str(kind) if count is None else f"{kind}:{count}") for kind, count in counts.items()
            ]
        if isinstance(value, str) and value.startswith("{") and value.endswith("}"):
            kinds = [_kind(entry.strip(" '\"")) for entry in value.strip("{}").split(",")]
        if len(kinds) > 1:
            out["kinds"], out["in_order"] = kinds, isinstance(value, list)
            case = "list" if isinstance(value, list) else "set"
            self.notes.say(f"resources.accelerators.{case}", path, value)
            return
        self.notes.say(f"resources.{key}", path, value)
        out["accelerators"] = kinds[0] if kinds else _kind(value) if isinstance(value, str) else value

    def infra(self, path: str, value: object, out: Document) -> None:
        """Keep where it may run."""
        if not isinstance(value, str):
            self.notes.refuse(path, "must be text such as aws/us-east-1, k8s/CONTEXT or *", value)
            return
        self.notes.say("resources.infra", path, value)
        out["infra"] = value

    def place_part(self, path: str, value: object, _out: Document) -> None:
        """Note a part of ``infra`` by its older name."""
        if not isinstance(value, str) or not _WORD.fullmatch(value):
            self.notes.refuse(path, "must be a name such as us-east-1", value)
            return
        self.notes.say(f"resources.{path.rpartition('.')[2]}", path, value)

    def labelled(self, path: str, value: object, out: Document) -> None:
        """Ask for nodes with a label."""
        key = path.rpartition(".")[2]
        if not isinstance(value, str) or not _WORD.fullmatch(value):
            self.notes.refuse(path, "must be a name", value)
            return
        self.notes.say(f"resources.{key}", path, value)
        out["asked"] = [*cast("list[str]", out.get("asked", [])), f"{key}={value}"]

    def disk_tier(self, path: str, value: object, out: Document) -> None:
        """Ask for fast disks where the field does."""
        tiers = ("low", "medium", "high", "ultra", "best", "none")
        if str(value).lower() not in tiers:
            self.notes.refuse(path, f"must be one of {', '.join(tiers)}", value)
        elif str(value).lower() in {"high", "ultra"}:
            self.labelled(path, str(value).lower(), out)
        else:
            self.notes.say("resources.disk_tier.any", path, value)

    def network_tier(self, path: str, value: object, _out: Document) -> None:
        """Note a tier of networks."""
        if str(value).lower() not in {"standard", "best", "none"}:
            self.notes.refuse(path, "must be standard or best", value)
        else:
            self.notes.say("resources.network_tier", path, value)

    def use_spot(self, path: str, value: object, out: Document) -> None:
        """Keep whether it may run on capacity that can be taken back."""
        self.notes.say("resources.use_spot" if value else "resources.use_spot.false", path, value)
        out["use_spot"] = value

    def image(self, path: str, value: object, _out: Document) -> None:
        """Tell container images from those of machines."""
        if isinstance(value, dict):
            images = {str(region): image for region, image in cast("dict[object, object]", value).items()}
            named = [image for image in images.values() if _is_container(image)]
            if len(set(map(str, images.values()))) == 1 and named:
                self.image(path, named[0], _out)
                return
            self.notes.say("resources.image_id.regions", path, value)
            regions = [region for region in images if region != "None"]
            self.of_task(path, "regions", regions)
        elif not isinstance(value, str):
            self.notes.refuse(path, "must be text such as docker:python:3.12", value)
        elif not _is_container(value):
            self.notes.say("resources.image_id.machine", path, value)
        elif self.of_task(path, "image", value):
            self.notes.say("resources.image_id", path, value)

    def ports(self, path: str, value: object, _out: Document) -> None:
        """Keep ports for whoever connects to them."""
        entries = cast("list[object]", value) if isinstance(value, list) else [value]
        try:
            ports = sorted({port for entry in entries for port in amounts.ports(entry)})
        except ValueError:
            self.notes.refuse(path, "must be ports such as 8080, 8080-8090 or a list of them", value)
            return
        if len(ports) > MOST_PORTS:
            self.notes.say("resources.ports.many", path, value)
        elif self.of_task(path, "ports", ports):
            self.notes.say("resources.ports", path, value)

    def labels(self, path: str, value: object, _out: Document) -> None:
        """Note labels for machines that nobody makes."""
        self.notes.mapping(path, value)
        self.notes.say("resources.labels", path, value)

    def priority(self, path: str, value: object, _out: Document) -> None:
        """Keep a priority."""
        if (
            isinstance(value, bool)
            or not isinstance(value, int)
            or not LEAST_PRIORITY <= value <= MOST_PRIORITY
        ):
            self.notes.refuse(path, f"must be a whole number from {LEAST_PRIORITY} to {MOST_PRIORITY}", value)
        elif self.of_task(path, "priority", value):
            self.notes.say("resources.priority", path, value)

    def cost(self, path: str, value: object, _out: Document) -> None:
        """Keep the most that an hour may cost."""
        if self.of_task(path, "budget_per_hour", value):
            self.notes.say("resources.max_hourly_cost", path, value)

    def autostop(self, path: str, value: object, _out: Document) -> None:
        """Note when an idle cluster would have been stopped."""
        if isinstance(value, dict):
            known = ("idle_minutes", "down", "wait_for", "hook", "hook_timeout")
            entries = self.notes.mapping(path, value, known)
            if entries.get("hook"):
                self.notes.say("resources.autostop.hook", f"{path}.hook", entries["hook"])
        elif isinstance(value, bool):
            self.notes.say("resources.autostop" if value else "resources.autostop.false", path, value)
            return
        elif not _TIME.fullmatch(str(value)):
            self.notes.refuse(path, "must be true, false, minutes, or a time such as 10m or 2h", value)
            return
        self.notes.say("resources.autostop", path, value)

    def recovery(self, path: str, value: object, _out: Document) -> None:
        """Read what happens after a failure or a loss."""
        entries: Document = {"strategy": value}
        if isinstance(value, dict):
            entries = self.notes.mapping(path, value)
        strategy = str(entries.get("strategy") or "failover").lower()
        if strategy not in _STRATEGIES:
            self.notes.refuse(path, f"must be one of {', '.join(_STRATEGIES)}", entries["strategy"])
            return
        case = "resources.job_recovery.none" if strategy == "none" else "resources.job_recovery"
        older = path.endswith("spot_recovery")
        self.notes.say("resources.spot_recovery" if older else case, path, value)
        for key, entry in entries.items():
            if key == "max_restarts_on_errors":
                if self.of_task(f"{path}.{key}", "retries", entry):
                    self.notes.say("resources.job_recovery.restarts", f"{path}.{key}", entry)
            elif key == "recover_on_exit_codes":
                self.notes.say("resources.job_recovery.codes", f"{path}.{key}", entry)
            elif key != "strategy":
                self.notes.say("resources.job_recovery.other", f"{path}.{key}", entry)

    def held(self, path: str, value: object, _out: Document) -> None:
        """Hold a field back, or refuse it, as the table says."""
        self.notes.say(f"resources.{path.rpartition('.')[2]}", path, value)


def _kind(text: str) -> str:
    name, colon, count = text.partition(":")
    return f"{_KINDS.get(name.strip().lower(), name.strip())}{colon}{count.strip()}"


def _is_container(image: object) -> bool:
    text = str(image)
    return text.startswith("docker:") or (not _MACHINE.match(text) and ("/" in text or ":" in text))


def _disk(translation: ResourceTranslation, path: str, value: object, out: Document) -> None:
    translation.copied(path, value, out, "disk_size")


_Read = Callable[[ResourceTranslation, str, Any, Document], None]
_READERS: dict[str, _Read] = {
    "cpus": ResourceTranslation.copied,
    "memory": ResourceTranslation.copied,
    "disk_size": ResourceTranslation.copied,
    "ephemeral_storage": _disk,
    "accelerators": ResourceTranslation.accelerators,
    "gpus": ResourceTranslation.accelerators,
    "accelerator_args": ResourceTranslation.held,
    "infra": ResourceTranslation.infra,
    "cloud": ResourceTranslation.place_part,
    "region": ResourceTranslation.place_part,
    "zone": ResourceTranslation.place_part,
    "instance_type": ResourceTranslation.labelled,
    "use_spot": ResourceTranslation.use_spot,
    "disk_tier": ResourceTranslation.disk_tier,
    "network_tier": ResourceTranslation.network_tier,
    "local_disk": ResourceTranslation.held,
    "max_hourly_cost": ResourceTranslation.cost,
    "image_id": ResourceTranslation.image,
    "ports": ResourceTranslation.ports,
    "labels": ResourceTranslation.labels,
    "priority": ResourceTranslation.priority,
    "priority_class": ResourceTranslation.held,
    "autostop": ResourceTranslation.autostop,
    "job_recovery": ResourceTranslation.recovery,
    "spot_recovery": ResourceTranslation.recovery,
    "volumes": ResourceTranslation.held,
}
