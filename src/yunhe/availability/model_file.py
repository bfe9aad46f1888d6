"""Reading a model from YAML: every problem is named by its field, with what was probably meant."""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, TypeVar

from yunhe.availability.model import (
    Assumptions,
    Model,
    Module,
    SharedDependency,
    SubModule,
    Zone,
    availability_problem,
    unknown_name,
)
from yunhe.availability.percent import parse_availability, parse_target
from yunhe.kernel.documents import ProblemReader, load_yaml
from yunhe.kernel.errors import InvalidInputError
from yunhe.kernel.units import parse_duration_s

FIELDS = (
    "modules",
    "availability",
    "replicas",
    "target",
    "shared",
    "zones",
    "common_cause",
    "failover",
    "switchover",
    "repair",
)
SHARED_FIELDS = ("availability", "instances", "needs")
MAX_SUBMODULES = 5_000_000

T = TypeVar("T")


class ModelFile(NamedTuple):
    """A model, and the target it names, if it does."""

    model: Model
    target: float | None


def parse_model(text: str) -> ModelFile:
    """Return the model a file describes; raise with all its problems when it does not describe one."""
    return _ModelReader(_load(text)).read()


def _load(text: str) -> dict[str, Any]:
    try:
        documents = load_yaml(text)
    except ValueError as error:
        raise InvalidInputError(
            f"The model is not YAML: {error}",
            remedy="Fix that line; a model starts like `modules: {web: [login, shop], store: 3}`.",
        ) from None
    content = documents[0] if len(documents) == 1 else None
    if not isinstance(content, dict):
        raise InvalidInputError(
            "The model must be one mapping with at least `modules`.",
            remedy="Start it like `modules: {web: [login, shop], store: 3}`.",
        )
    return {str(key): value for key, value in content.items()}


class _ModelReader(ProblemReader):
    """Reads field by field and gathers what is wrong."""

    def __init__(self, content: Mapping[str, Any]) -> None:
        super().__init__()
        self._content = content

    def read(self) -> ModelFile:
        for field in self._content:
            if field not in FIELDS:
                self.problems.append(unknown_name(field, field, FIELDS))
        default = self._value("availability", parse_availability, None)
        if default is not None and not 0 < default < 1:
            self.problems.append(availability_problem("availability", default))
            default = 0.5  # never planned with: the problem is raised
        modules = self._modules(default)
        shared = tuple(self._shared(str(name), given) for name, given in self._mapping("shared").items())
        replicas = self._value("replicas", _whole, 3)
        target = self._value("target", parse_target, None)
        assumptions = self._assumptions()
        noted = {problem.field for problem in self.problems}
        try:
            model = Model(modules, shared, replicas, assumptions)
        except InvalidInputError as error:
            self.problems += [problem for problem in error.fields if problem.field not in noted]
        else:
            if not self.problems:
                return ModelFile(model, target)
        raise InvalidInputError(
            "This model cannot be read.",
            remedy="Fix what is named above; nothing was computed.",
            fields=tuple(self.problems),
        )

    def _value(self, field: str, parse: Callable[[Any], T], default: T) -> T:
        return self.parsed(field, self._content[field], parse, default) if field in self._content else default

    def _mapping(self, field: str) -> Mapping[object, Any]:
        given = self._content.get(field, {})
        if not isinstance(given, dict):
            self.note(field, "must be a mapping of names", given)
            return {}
        return given

    def _modules(self, default: float | None) -> tuple[Module, ...]:
        if "modules" not in self._content:
            self.note("modules", "must be given: what the platform consists of")
        return tuple(
            Module(str(name), self._submodules(f"modules.{name}", given, default))
            for name, given in self._mapping("modules").items()
        )

    def _submodules(self, field: str, given: object, default: float | None) -> tuple[SubModule, ...]:
        if isinstance(given, int) and not isinstance(given, bool):
            if not 0 < given <= MAX_SUBMODULES:
                problem = f"must be 1 to {MAX_SUBMODULES:,} sub-modules"
                self.note(field, problem, given)
                return ()
            name = field.removeprefix("modules.")
            return self._named(field, {f"{name}-{number}": None for number in range(1, given + 1)}, default)
        if isinstance(given, list):
            repeated = len({str(name) for name in given}) != len(given)
            if repeated:
                self.note(field, "a sub-module is named twice", given)
            return self._named(field, {str(name): None for name in given}, default)
        if isinstance(given, dict):
            return self._named(field, {str(name): value for name, value in given.items()}, default)
        problem = "must be a list of sub-modules, a mapping of them to availabilities, or how many there are"
        self.note(field, problem, given)
        return ()

    def _named(self, field: str, given: Mapping[str, object], default: float | None) -> tuple[SubModule, ...]:
        if default is None and any(value is None for value in given.values()):
            problem = "has sub-modules without an availability: give each one, or `availability` for all"
            self.note(field, problem)
        fallback = 0.5 if default is None else default  # never planned with: the problem above is raised
        return tuple(
            SubModule(
                name,
                fallback
                if value is None
                else self.parsed(f"{field}.{name}", value, parse_availability, fallback),
            )
            for name, value in given.items()
        )

    def _shared(self, name: str, given: object) -> SharedDependency:
        field = f"shared.{name}"
        if not isinstance(given, dict):
            return SharedDependency(name, self.parsed(field, given, parse_availability, 0.5))
        parts: dict[str, Any] = {str(key): value for key, value in given.items()}
        for key in parts:
            if key not in SHARED_FIELDS:
                self.problems.append(unknown_name(f"{field}.{key}", key, SHARED_FIELDS))
        if "availability" not in parts:
            self.note(f"{field}.availability", "must be given")
        return SharedDependency(
            name,
            self.parsed(f"{field}.availability", parts.get("availability", 0.5), parse_availability, 0.5),
            self.parsed(f"{field}.instances", parts.get("instances", 1), _whole, 1),
            self.parsed(f"{field}.needs", parts.get("needs", []), _names, ()),
        )

    def _assumptions(self) -> Assumptions:
        zones = tuple(
            Zone(str(name), self.parsed(f"zones.{name}", given, parse_availability, 0.5))
            for name, given in self._mapping("zones").items()
        )
        return Assumptions(
            common_cause=self._value("common_cause", parse_availability, 0.0),
            failover=self._value("failover", parse_availability, 1.0),
            switchover_s=self._value("switchover", parse_duration_s, 0.0),
            repair_s=self._value("repair", parse_duration_s, 3600.0),
            zones=zones,
        )


def _whole(given: object) -> int:
    if isinstance(given, bool) or not isinstance(given, int):
        raise ValueError(f"{given!r} is not a whole number")  # noqa: TRY004 - the user's mistake, not ours
    return given


def _names(given: object) -> tuple[str, ...]:
    if isinstance(given, str):
        return (given,)
    if not isinstance(given, list):
        raise ValueError(f"{given!r} is not a list of names")  # noqa: TRY004 - the user's mistake, not ours
    return tuple(str(name) for name in given)
