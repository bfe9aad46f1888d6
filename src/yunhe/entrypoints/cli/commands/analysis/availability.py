"""``yunhe availability``: plan, frontier, table, simulate, explain. Needs no server."""

import functools
import inspect
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, is_dataclass
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, get_type_hints

import typer

from yunhe.entrypoints.cli.terminal.screen import Format, OutputOption, PlainApp
from yunhe.kernel.errors import FieldProblem, InvalidInputError
from yunhe.kernel.units import parse_duration_s

if TYPE_CHECKING:
    from yunhe.availability.model import Assumptions, Model, Module, SharedDependency, Zone
    from yunhe.availability.planner import Infeasible, Planned
    from yunhe.availability.pricing import Pricing

DEFAULT_AVAILABILITY = 0.99
DEFAULT_SHARED = ("database=0.999x2",)
INFEASIBLE_EXIT_CODE = 3
ALL_POINTS = 2_000_000
SHOWN_POINTS = 400

app = PlainApp(no_args_is_help=True, help="Plan how few services meet an availability target, exactly.")


class PaperPart(StrEnum):
    """A part of the paper's evaluation."""

    TABLE_1 = "table1"
    FIGURE_8 = "figure8"
    FIGURE_9 = "figure9"
    FIGURE_10 = "figure10"
    MIXED = "mixed"


@dataclass(frozen=True)
class ModelOptions:
    """What is planned: flags win over the file, the file over the platform's own modules."""

    model: Annotated[
        Path | None,
        typer.Option(
            "--model", "-f", help="A YAML model. Default: the platform's own 10 modules.", show_default=False
        ),
    ] = None
    availability: Annotated[
        list[str] | None,
        typer.Option(
            "--availability",
            "-a",
            help="Of one instance of every sub-module, or NAME=… for a module or sub-module. Cloud services promise"
            " 0.99 to 0.999. [default: 0.99]",
            show_default=False,
        ),
    ] = None
    replicas: Annotated[
        int | None,
        typer.Option(
            "--replicas",
            "-k",
            help="Instances of every service, the primary included. [default: 3]",
            show_default=False,
        ),
    ] = None
    shared: Annotated[
        list[str] | None,
        typer.Option(
            "--shared",
            help="NAME=AVAILABILITYxINSTANCES of what everything stands on, or none. [default: database=0.999x2]",
            show_default=False,
        ),
    ] = None
    zones: Annotated[
        str | None,
        typer.Option(
            "--zones",
            help="0.999x3, or bj=0.999,tj=0.999,sh=0.9995; replicas are spread over them.",
            show_default=False,
        ),
    ] = None
    common_cause: Annotated[
        str | None,
        typer.Option(
            "--common-cause",
            help="Share of failures that strike all replicas at once, as 0.05.",
            show_default=False,
        ),
    ] = None
    failover: Annotated[
        str | None,
        typer.Option(
            "--failover", help="How often the switch to a backup works, as 0.99.", show_default=False
        ),
    ] = None
    switchover: Annotated[
        str | None,
        typer.Option("--switchover", help="How long that switch takes, as 30s.", show_default=False),
    ] = None
    repair: Annotated[
        str | None,
        typer.Option(
            "--repair", help="How long a repair takes on average. [default: 1h]", show_default=False
        ),
    ] = None


@dataclass(frozen=True)
class PricingOptions:
    """What is spent as little of as possible."""

    mixed: Annotated[
        bool, typer.Option("--mixed", help="Give each service as many replicas as it needs, at least cost.")
    ] = False
    max_replicas: Annotated[int, typer.Option(help="With --mixed: the most replicas of a service.")] = 8
    service_cost: Annotated[int, typer.Option(help="What a service costs (people), a whole number.")] = 0
    instance_cost: Annotated[int, typer.Option(help="What an instance costs (devices), a whole number.")] = 1


Target = Annotated[
    str | None, typer.Option("--target", "-t", help="As 99.99 (percent) or 0.9999.", show_default=False)
]


def _spread_out(command: Callable[..., None]) -> Callable[..., None]:
    """Let a command take dataclasses of options; each of their fields becomes one option."""
    hints = get_type_hints(command, include_extras=True)
    groups = {name: kind for name, kind in hints.items() if isinstance(kind, type) and is_dataclass(kind)}
    parameters: list[inspect.Parameter] = []
    for name, parameter in inspect.signature(command).parameters.items():
        if name not in groups:
            parameters.append(parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY, annotation=hints[name]))
            continue
        field_hints = get_type_hints(groups[name], include_extras=True)
        parameters.extend(
            inspect.Parameter(
                field.name,
                inspect.Parameter.KEYWORD_ONLY,
                default=field.default,
                annotation=field_hints[field.name],
            )
            for field in fields(groups[name])
        )

    @functools.wraps(command)
    def run(**given: Any) -> None:
        for name, kind in groups.items():
            given[name] = kind(**{field.name: given.pop(field.name) for field in fields(kind)})
        command(**given)

    run.__signature__ = inspect.Signature(parameters)  # pyright: ignore[reportAttributeAccessIssue]
    run.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return run


# --- commands ------------------------------------------------------------------------------------------


@app.command()
@_spread_out
def plan(
    of: ModelOptions, prices: PricingOptions, target: Target = None, output: OutputOption = Format.TABLE
) -> None:
    r"""Find the fewest services (or, with --mixed, the least cost) that meet a target.

    Exits with 3 when no plan can, and says what would make it feasible. A model file looks like
    {availability: 0.99, modules: {web: \[login, shop], store: 3}, shared: {database: 0.999}}.

    yunhe availability plan --target 99.99

    yunhe availability plan -t 99.99 -a 0.995 -a trade=0.98 --zones 0.999x3 --failover 0.99

    yunhe availability plan -t 99.99 --mixed --service-cost 2 --instance-cost 1
    """
    from yunhe.entrypoints.cli.views import availability as views  # noqa: PLC0415 - heavy

    model, wanted = _read(of, target)
    pricing = _pricing(prices)
    started = time.perf_counter()
    outcome = _make_plan(model, wanted, pricing)
    elapsed_s = time.perf_counter() - started
    if output is Format.JSON:
        views.write_json({**views.builtins(outcome), "model": views.assumed(model), "elapsed_s": elapsed_s})
    else:
        views.show_plan(model, outcome, pricing, elapsed_s)
    if outcome.__struct_config__.tag == "infeasible":
        raise typer.Exit(INFEASIBLE_EXIT_CODE)


@app.command()
@_spread_out
def frontier(
    of: ModelOptions,
    prices: PricingOptions,
    target: Target = None,
    points: Annotated[int | None, typer.Option(min=2, help="At most so many points. [default: all]")] = None,
    output: OutputOption = Format.TABLE,
) -> None:
    """Show the best availability for every number of services (or every cost), and plot it.

    With --mixed and --target: also services against instances, where both are scarce.

    yunhe availability frontier -a 0.99

    yunhe availability frontier -a 0.95 --mixed --target 99.9
    """
    from yunhe.availability.planner import frontier_points, trade_off  # noqa: PLC0415 - heavy
    from yunhe.entrypoints.cli.views import availability as views  # noqa: PLC0415 - heavy

    file = _read_file(of)
    wanted = _target(target, file[1])
    model, pricing = _model(of, file[0]), _pricing(prices)
    most = points or (ALL_POINTS if output is Format.JSON else SHOWN_POINTS)
    with views.working("planning"):
        found = frontier_points(model, pricing, most)
        both = trade_off(model, wanted, pricing) if pricing.mixed and wanted is not None else []
    if output is Format.JSON:
        views.write_json(
            {
                "points": views.builtins(found),
                "trade_off": views.builtins(both),
                "model": views.assumed(model),
            }
        )
    else:
        views.show_frontier(model, found, both, wanted, pricing)


@app.command()
def table(
    only: Annotated[
        list[PaperPart] | None,
        typer.Option("--only", help="Just this part; may be repeated.", show_default=False),
    ] = None,
    output: OutputOption = Format.TABLE,
) -> None:
    """Recompute the paper's Table 1 and Figures 8, 9 and 10, and mark where it differs and why.

    yunhe availability table

    yunhe availability table --only table1 --output json
    """
    from yunhe.entrypoints.cli.views import availability as views  # noqa: PLC0415 - heavy

    parts = [part.value for part in (only or list(PaperPart))]
    content = views.reproduction(parts)
    if output is Format.JSON:
        views.write_json(views.builtins(content))
    else:
        views.show_reproduction(content)


@app.command()
@_spread_out
def simulate(
    of: ModelOptions,
    prices: PricingOptions,
    target: Target = None,
    years: Annotated[float, typer.Option(help="How long to let the platform run.")] = 200.0,
    seed: Annotated[int, typer.Option(min=0, help="The same seed gives the same failures.")] = 1,
    output: OutputOption = Format.TABLE,
) -> None:
    """Let every part of a plan fail and be repaired for years, and compare with the formulas.

    yunhe availability simulate --target 99.9 --repair 30m --switchover 20s --years 500
    """
    from yunhe.availability import simulation  # noqa: PLC0415 - heavy
    from yunhe.entrypoints.cli.views import availability as views  # noqa: PLC0415 - heavy

    model, wanted = _read(of, target)
    outcome = _make_plan(model, wanted, _pricing(prices))
    with views.progress("simulating") as report:
        result = simulation.simulate(model, outcome.services, years, seed, report)
    if output is Format.JSON:
        views.write_json(
            {**views.builtins(result), "point": views.builtins(outcome.point), "model": views.assumed(model)}
        )
    else:
        views.show_simulation(model, outcome, result)


@app.command()
@_spread_out
def explain(
    of: ModelOptions, prices: PricingOptions, target: Target = None, output: OutputOption = Format.TABLE
) -> None:
    """Say why a plan is as it is: what is scarce, where downtime comes from, what it rests on.

    yunhe availability explain --target 99.99 -a 0.995
    """
    from yunhe.availability import explanation  # noqa: PLC0415 - heavy
    from yunhe.entrypoints.cli.views import availability as views  # noqa: PLC0415 - heavy

    model, wanted = _read(of, target)
    pricing = _pricing(prices)
    outcome = _make_plan(model, wanted, pricing)
    result = explanation.explain(model, outcome.services, wanted, pricing)
    if output is Format.JSON:
        views.write_json(
            {
                **views.builtins(result),
                "outcome": outcome.__struct_config__.tag,
                "model": views.assumed(model),
            }
        )
    else:
        views.show_explanation(model, outcome, result)


# --- from flags to a model -----------------------------------------------------------------------------


def platform_modules() -> dict[str, tuple[str, ...]]:
    """Return the platform's own modules and their sub-modules."""
    from yunhe.runtime.modules import MODULES  # noqa: PLC0415 - heavy

    return {module.name: tuple(sub.name for sub in module.submodules) for module in MODULES}


def _make_plan(model: "Model", target: float, pricing: "Pricing") -> "Planned | Infeasible":
    from yunhe.availability.planner import make_plan  # noqa: PLC0415 - heavy
    from yunhe.entrypoints.cli.views.availability import working  # noqa: PLC0415 - heavy

    with working("planning"):
        return make_plan(model, target, pricing)


def _read(of: ModelOptions, target: str | None) -> tuple["Model", float]:
    from_file, file_target = _read_file(of)
    wanted = _target(target, file_target)
    if wanted is None:
        raise InvalidInputError(
            "No target is given.", remedy="Say what availability is wanted: --target 99.99", fields=()
        )
    return _model(of, from_file), wanted


def _target(given: str | None, from_file: float | None) -> float | None:
    from yunhe.availability.percent import parse_target  # noqa: PLC0415 - with the engine

    return from_file if given is None else _flag("--target", given, parse_target)


def _pricing(prices: PricingOptions) -> "Pricing":
    from yunhe.availability.pricing import Pricing  # noqa: PLC0415 - heavy

    return Pricing(prices.mixed, prices.max_replicas, prices.service_cost, prices.instance_cost)


def _read_file(of: ModelOptions) -> tuple["Model | None", float | None]:
    from yunhe.availability.model_file import parse_model  # noqa: PLC0415 - heavy

    if of.model is None:
        return None, None
    try:
        text = of.model.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidInputError(
            f"The model {of.model} cannot be read: {error}.", remedy="Give --model a YAML file that exists."
        ) from None
    return parse_model(text)


def _model(of: ModelOptions, from_file: "Model | None") -> "Model":
    from msgspec.structs import replace  # noqa: PLC0415 - with the engine

    from yunhe.availability.model import uniform_model  # noqa: PLC0415 - heavy

    if from_file is None:
        base = uniform_model(platform_modules(), DEFAULT_AVAILABILITY, shared=_shared(DEFAULT_SHARED))
    else:
        base = from_file
    return replace(
        base,
        modules=_with_availabilities(base.modules, of.availability or ()),
        shared=base.shared if of.shared is None else _shared(of.shared),
        replicas=base.replicas if of.replicas is None else of.replicas,
        assumptions=_assumptions(of, base.assumptions),
    )


def _with_availabilities(modules: tuple["Module", ...], given: Sequence[str]) -> tuple["Module", ...]:
    """Apply every ``0.99``, ``trade=0.95`` and ``trade.market=0.9``, in this order."""
    from yunhe.availability.model import (  # noqa: PLC0415 - heavy
        Module,
        SubModule,
        availability_problem,
        unknown_name,
    )
    from yunhe.availability.percent import parse_availability  # noqa: PLC0415 - heavy

    values = {(module.name, sub.name): sub.availability for module in modules for sub in module.submodules}
    for text in sorted(given, key=lambda each: "=" in each):
        name, equals, number = text.rpartition("=")
        value = _flag("--availability", number, parse_availability)
        if not 0 < value < 1:
            raise _refused(availability_problem("--availability", value))
        hit = [key for key in values if not equals or name in {key[0], key[1], f"{key[0]}.{key[1]}"}]
        if equals and any(key[0] == name for key in hit):
            hit = [key for key in hit if key[0] == name]
        if not hit:
            known = [*(module.name for module in modules), *(sub for _, sub in values)]
            raise _refused(unknown_name("--availability", name, known))
        if equals and len({key[0] for key in hit}) > 1:
            where = ", ".join(f"{module}.{sub}" for module, sub in hit)
            raise _refused(FieldProblem("--availability", f"is in several modules; say which: {where}", name))
        values.update(dict.fromkeys(hit, value))
    return tuple(
        Module(
            module.name,
            tuple(SubModule(sub.name, values[module.name, sub.name]) for sub in module.submodules),
        )
        for module in modules
    )


def _shared(given: Sequence[str]) -> tuple["SharedDependency", ...]:
    from yunhe.availability.model import SharedDependency  # noqa: PLC0415 - heavy

    if list(given) == ["none"]:
        return ()
    parts = [_named_availability("--shared", text) for text in given]
    return tuple(SharedDependency(name, value, count) for name, value, count in parts)


def _zones(given: str) -> tuple["Zone", ...]:
    from yunhe.availability.model import Zone  # noqa: PLC0415 - heavy

    if given == "none":
        return ()
    if "=" not in given:
        _, value, count = _named_availability("--zones", f"zone={given}")
        return tuple(Zone(f"zone-{number}", value) for number in range(1, count + 1))
    parts = [_named_availability("--zones", text.strip()) for text in given.split(",")]
    return tuple(Zone(name, value) for name, value, _ in parts)


def _named_availability(flag: str, text: str) -> tuple[str, float, int]:
    """Read ``database=0.999x2``."""
    from yunhe.availability.percent import parse_availability  # noqa: PLC0415 - heavy

    name, equals, rest = text.partition("=")
    number, times, count = rest.partition("x")
    if not (name and equals and (not times or count.isdecimal())):
        raise _refused(FieldProblem(flag, "is written like database=0.999x2", text))
    return name, _flag(flag, number, parse_availability), int(count) if times else 1


def _assumptions(of: ModelOptions, base: "Assumptions") -> "Assumptions":
    from msgspec.structs import replace  # noqa: PLC0415 - with the engine

    from yunhe.availability.percent import parse_availability  # noqa: PLC0415 - heavy

    given: dict[str, object] = {}
    for field, text, parse in (
        ("common_cause", of.common_cause, parse_availability),
        ("failover", of.failover, parse_availability),
        ("switchover_s", of.switchover, parse_duration_s),
        ("repair_s", of.repair, parse_duration_s),
    ):
        if text is not None:
            given[field] = _flag(f"--{field.removesuffix('_s').replace('_', '-')}", text, parse)
    if of.zones is not None:
        given["zones"] = _zones(of.zones)
    return replace(base, **given)


def _flag(flag: str, text: str, parse: Callable[[str], float]) -> float:
    try:
        return parse(text)
    except ValueError as error:
        raise _refused(FieldProblem(flag, str(error))) from None


def _refused(problem: FieldProblem) -> InvalidInputError:
    return InvalidInputError("This cannot be planned.", remedy="Nothing was computed.", fields=(problem,))
