"""What is planned: modules in series, their sub-modules, and what is assumed about how they fail."""

import math
from collections.abc import Iterator, Mapping, Sequence

import msgspec

from yunhe.kernel.errors import FieldProblem, InvalidInputError
from yunhe.kernel.validation import nearest

MAX_REPLICAS = 64
MAX_ZONES = 8


class SubModule(msgspec.Struct, frozen=True):
    """The smallest part that can be packaged alone; ``availability`` is that of one instance of it."""

    name: str
    availability: float


class Module(msgspec.Struct, frozen=True):
    """Sub-modules that may share a service. The platform is up only while every module is."""

    name: str
    submodules: tuple[SubModule, ...]


class SharedDependency(msgspec.Struct, frozen=True, omit_defaults=True):
    """What every service stands on, the database for one: in series with the whole platform, counted once."""

    name: str
    availability: float
    instances: int = 1
    needs: tuple[str, ...] = ()


class Zone(msgspec.Struct, frozen=True):
    """A place that fails as a whole and takes every instance in it down."""

    name: str
    availability: float


class Assumptions(msgspec.Struct, frozen=True, omit_defaults=True):
    """How failures hang together. The defaults are the paper's: independent, and failover always works.

    ``common_cause`` is the share of an instance's downtime that strikes all replicas of its service at
    once; ``failover`` the probability that the switch to a backup works; ``switchover_s`` how long it
    takes; ``repair_s`` how long one repair takes on average. Replica *i* of every service and shared
    dependency lies in zone *i* modulo the number of zones, the primary in the first.
    """

    common_cause: float = 0.0
    failover: float = 1.0
    switchover_s: float = 0.0
    repair_s: float = 3600.0
    zones: tuple[Zone, ...] = ()

    @property
    def effective_failover(self) -> float:
        """The share of a primary's downtime that backups cover: failovers that work, once they are done."""
        return self.failover * math.exp(-self.switchover_s / self.repair_s)


class Model(msgspec.Struct, frozen=True):
    """A platform to plan for. One that makes no sense cannot be built: every problem is named at once."""

    modules: tuple[Module, ...]
    shared: tuple[SharedDependency, ...] = ()
    replicas: int = 3
    assumptions: Assumptions = Assumptions()

    def __post_init__(self) -> None:
        problems = tuple(_problems(self))
        if problems:
            raise InvalidInputError(
                "This availability model cannot be planned.",
                remedy="Fix what is named above; nothing was computed.",
                fields=problems,
            )

    @property
    def submodule_count(self) -> int:
        """How many sub-modules there are in all."""
        return sum(len(module.submodules) for module in self.modules)


class Service(msgspec.Struct, frozen=True):
    """Sub-modules packaged and replicated together: one of them down takes the instance down."""

    module: str
    submodules: tuple[str, ...]
    replicas: int


def uniform_model(
    modules: Mapping[str, Sequence[str]],
    availability: float,
    replicas: int = 3,
    shared: tuple[SharedDependency, ...] = (),
    assumptions: Assumptions | None = None,
) -> Model:
    """Return a model in which every sub-module has the same availability."""
    same = tuple(
        Module(name, tuple(SubModule(submodule, availability) for submodule in submodules))
        for name, submodules in modules.items()
    )
    return Model(same, shared, replicas, assumptions or Assumptions())


def _problems(model: Model) -> Iterator[FieldProblem]:
    yield from _module_problems(model.modules)
    yield from _shared_problems(model.shared)
    yield from _assumption_problems(model.assumptions)
    yield from _count_problems("replicas", model.replicas)


def _module_problems(modules: tuple[Module, ...]) -> Iterator[FieldProblem]:
    if not modules:
        yield FieldProblem("modules", "there must be at least one")
    yield from _repeated("modules", [module.name for module in modules])
    for module in modules:
        field = f"modules.{module.name}"
        if not module.submodules:
            yield FieldProblem(field, "must have at least one sub-module")
        yield from _repeated(field, [submodule.name for submodule in module.submodules])
        for submodule in module.submodules:
            if not 0 < submodule.availability < 1:
                yield availability_problem(f"{field}.{submodule.name}", submodule.availability)


def _shared_problems(shared: tuple[SharedDependency, ...]) -> Iterator[FieldProblem]:
    yield from _repeated("shared", [dependency.name for dependency in shared])
    names = [dependency.name for dependency in shared]
    for dependency in shared:
        field = f"shared.{dependency.name}"
        if not 0 < dependency.availability < 1:
            yield availability_problem(f"{field}.availability", dependency.availability)
        yield from _count_problems(f"{field}.instances", dependency.instances)
        for need in dependency.needs:
            if need not in names:
                yield unknown_name(f"{field}.needs", need, names)
    needs = {dependency.name: dependency.needs for dependency in shared}
    circle = find_circle(needs)
    if circle:
        yield FieldProblem(f"shared.{circle[0]}.needs", f"goes in a circle: {' → '.join(circle)}")


def _assumption_problems(assumptions: Assumptions) -> Iterator[FieldProblem]:
    for field in ("common_cause", "failover"):
        share: float = getattr(assumptions, field)
        if not 0 <= share <= 1:
            yield FieldProblem(field, "must lie between 0 and 1", f"{share:g}")
    if not 0 <= assumptions.switchover_s < math.inf:
        yield FieldProblem("switchover", "must not be negative", f"{assumptions.switchover_s:g}")
    if not 0 < assumptions.repair_s < math.inf:
        yield FieldProblem("repair", "must take some time", f"{assumptions.repair_s:g}")
    yield from _repeated("zones", [zone.name for zone in assumptions.zones])
    if len(assumptions.zones) > MAX_ZONES:
        yield FieldProblem("zones", f"at most {MAX_ZONES} can be told apart", str(len(assumptions.zones)))
    for zone in assumptions.zones:
        if not 0 < zone.availability < 1:
            yield availability_problem(f"zones.{zone.name}", zone.availability)


def availability_problem(field: str, value: float) -> FieldProblem:
    """Say that this cannot be an availability, and what was probably meant."""
    likely = f"{value:g}%" if 50 <= value < 100 else None
    return FieldProblem(field, "must lie between 0 and 1, both excluded", f"{value:g}", likely)


def _count_problems(field: str, value: int) -> Iterator[FieldProblem]:
    if not 1 <= value <= MAX_REPLICAS:
        yield FieldProblem(field, f"must be 1 to {MAX_REPLICAS}, the primary included", str(value))


def _repeated(field: str, names: list[str]) -> Iterator[FieldProblem]:
    if len(set(names)) == len(names):
        return
    seen: set[str] = set()
    for name in names:
        if name in seen:
            yield FieldProblem(field, "this name is given twice", name)
        seen.add(name)


def unknown_name(field: str, name: str, known: Sequence[str]) -> FieldProblem:
    """Say that *name* is not known, and what was probably meant."""
    problem = f"is not known; known: {', '.join(known[:12])}{' …' if len(known) > 12 else ''}"
    return FieldProblem(field, problem, name, nearest(name, list(known)))


def find_circle(needs: Mapping[str, Sequence[str]]) -> tuple[str, ...]:
    """Return the names along one circle, the first repeated at the end; empty when there is none."""
    finished: set[str] = set()
    for start in needs:
        path: list[str] = []
        stack: list[tuple[str, Iterator[str]]] = []
        name: str | None = start
        while name is not None or stack:
            if name is not None and name in path:
                return (*path[path.index(name) :], name)
            if name is not None and name not in finished:
                path.append(name)
                stack.append((name, iter(needs.get(name, ()))))
            name = next(stack[-1][1], None) if stack else None
            if name is None and stack:
                finished.add(stack.pop()[0])
                path.pop()
    return ()
