"""``yunhe flex``: what is given out, what is used, and what it could be. Needs a server only for its own record."""

import re
import sys
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from yunhe.entrypoints.cli.commands.pools.prices import parse_prices
from yunhe.entrypoints.cli.terminal.screen import PlainApp, err, print_json
from yunhe.kernel.errors import FieldProblem, InvalidInputError, NotFoundError
from yunhe.kernel.money import Prices, Tier
from yunhe.kernel.units import parse_duration_s, parse_memory_mib

if TYPE_CHECKING:
    from yunhe.flexible.assessment.comparison import HostShape
    from yunhe.flexible.reading.rows import TraceReading
    from yunhe.flexible.reading.tables import Table

DEFAULT_REPORT = Path("flex-report.html")

app = PlainApp(no_args_is_help=True, help="Flexible computing: oversubscription and right-sizing from usage.")


class Output(StrEnum):
    """How an answer is printed."""

    TABLE = "table"
    JSON = "json"
    CSV = "csv"


FileArgument = Annotated[
    Path | None,
    typer.Argument(
        metavar="FILE",
        help="Usage samples: CSV, CSV.gz or Parquet with columns for instance, time and CPU used.",
        show_default=False,
    ),
]
DemoOption = Annotated[bool, typer.Option("--demo", help="Use a made-up cluster of 160 instances, 3 weeks.")]
RecordedOption = Annotated[
    bool, typer.Option("--recorded", help="What the jobs of the platform in use have used, minute by minute.")
]
ColumnOption = Annotated[
    list[str] | None,
    typer.Option("--column", help="ROLE=COLUMN or ROLE=COLUMN:UNIT, where a name is not recognised."),
]
CoresOption = Annotated[
    float | None,
    typer.Option("--assume-cores", min=0.01, help="Cores of each instance of which the file does not say."),
]
RepairOption = Annotated[bool, typer.Option("--repair", help="Leave bad rows out and list them.")]
PriceOption = Annotated[
    str,
    typer.Option(
        "--price", help="Prices, e.g. cpu=0.10/h,mem=0.012/h.", show_default="cpu=0.10/h,mem=0.012/h"
    ),
]
FlexOutput = Annotated[Output, typer.Option("--output", "-o", help="table, json, or csv.")]


@dataclass(frozen=True, slots=True)
class UsageInput:
    """Where usage comes from, and how it is to be read."""

    file: Path | None
    demo: bool
    recorded: bool
    columns: tuple[str, ...]
    assume_cores: float | None
    repair: bool


@app.command()
def assess(  # noqa: PLR0913 - each is an option
    file: FileArgument = None,
    *,
    demo: DemoOption = False,
    recorded: RecordedOption = False,
    hosts: Annotated[
        str,
        typer.Option(
            help="COUNTxCORES or COUNTxCORESxMEMORY, e.g. 40x64 or 40x64x512GB.", show_default=False
        ),
    ] = "",
    stated: Annotated[str, typer.Option(help="How often a host may be overloaded, e.g. 1%.")] = "1%",
    report: Annotated[Path, typer.Option(help="Where to write the HTML report.")] = DEFAULT_REPORT,
    no_report: Annotated[bool, typer.Option("--no-report", help="Write no report.")] = False,
    cap: Annotated[
        float | None,
        typer.Option(min=1.0, help="vCPU for each core of a host, at most, in flexible placement."),
    ] = None,
    window: Annotated[
        str,
        typer.Option(
            help="How far back to look, e.g. 3d or 6h.", show_default="7d, or 4h of a trace of hours"
        ),
    ] = "",
    column: ColumnOption = None,
    assume_cores: CoresOption = None,
    repair: RepairOption = False,
    price: PriceOption = "",
    seed: Annotated[int, typer.Option(min=0, help="Order in which instances arrive.")] = 1,
    output: FlexOutput = Output.TABLE,
) -> None:
    """Say what fixed 1x, 2x, 3x and flexible placement would give on the same hosts.

    The trace is walked through as it happened: each placement uses only what was known before it, and the
    overload printed is what then really occurred.

    Examples:
      yunhe flex assess --demo
      yunhe flex assess usage.csv --hosts 40x64
      yunhe flex assess usage.parquet --hosts 40x64x512GB --stated 0.5% --report pool.html
      yunhe flex assess usage.csv --hosts 40x64 --cap 4 --window 14d
      yunhe flex assess --recorded
      yunhe flex assess odd.csv --column instance=guest --column cpu_used=load:percent --assume-cores 4
    """
    from yunhe.entrypoints.cli.views import flex as flex_show  # noqa: PLC0415 - heavy
    from yunhe.entrypoints.cli.views.flex_report import write_report  # noqa: PLC0415 - heavy
    from yunhe.flexible.assessment.comparison import AssessmentRequest  # noqa: PLC0415 - heavy
    from yunhe.flexible.assessment.comparison import assess as walk  # noqa: PLC0415 - heavy
    from yunhe.flexible.sizing.rightsizing import Guards  # noqa: PLC0415 - heavy
    from yunhe.flexible.sizing.rightsizing import recommend as size_all  # noqa: PLC0415 - heavy

    shape, share, prices = _hosts(hosts), _share(stated), _prices(price)
    window_s = _duration(window, "--window 7d") if window else None
    if not no_report and not report.absolute().parent.is_dir():
        raise NotFoundError(
            f"There is no folder {report.parent}.", remedy="Make it, or give another --report."
        )
    reading = _read(UsageInput(file, demo, recorded, tuple(column or ()), assume_cores, repair))
    with flex_show.progress("walking through the trace") as tell:
        found = walk(AssessmentRequest(reading.trace, shape, share, prices, seed, cap, window_s), tell)
    advice = size_all(reading.trace, Tier.HIGH, Guards(autoscaled=reading.autoscaled), prices)
    if not no_report:
        write_report(report, found, reading, advice, prices)
    if output is Output.JSON:
        print_json(
            {
                **flex_show.as_read(reading),
                "assessment": found,
                "recommendations": advice,
                "savings": flex_show.savings(advice, prices),
            }
        )
    elif output is Output.CSV:
        flex_show.write_policies_csv(sys.stdout, found)
    else:
        flex_show.show_assessment(found, reading, advice, prices, asked_for_hosts=shape is not None)
    if not no_report:
        err().print(f"report written to {report}", soft_wrap=True)


@app.command()
def recommend(  # noqa: PLR0913 - each is an option
    file: FileArgument = None,
    *,
    demo: DemoOption = False,
    recorded: RecordedOption = False,
    tier: Annotated[Tier, typer.Option(help="high, medium or low.")] = Tier.HIGH,
    cpu_only: Annotated[bool, typer.Option("--cpu-only", help="Leave memory as it is.")] = False,
    least_history: Annotated[str, typer.Option(help="Shrink nothing seen for less.")] = "7d",
    top: Annotated[int, typer.Option(min=1, help="Rows to show in a table.")] = 20,
    column: ColumnOption = None,
    assume_cores: CoresOption = None,
    repair: RepairOption = False,
    price: PriceOption = "",
    output: FlexOutput = Output.TABLE,
) -> None:
    """Say what each instance should be, in any ratio of CPU to memory, and what that saves.

    Examples:
      yunhe flex recommend usage.csv
      yunhe flex recommend usage.csv --tier medium --cpu-only --output csv > sizes.csv
    """
    from yunhe.entrypoints.cli.views import flex as flex_show  # noqa: PLC0415 - heavy
    from yunhe.flexible.sizing.rightsizing import Guards  # noqa: PLC0415 - heavy
    from yunhe.flexible.sizing.rightsizing import recommend as size_all  # noqa: PLC0415 - heavy

    prices, least_s = _prices(price), _duration(least_history, "--least-history 7d")
    reading = _read(UsageInput(file, demo, recorded, tuple(column or ()), assume_cores, repair))
    guards = Guards(least_history_s=least_s, autoscaled=reading.autoscaled, cpu_only=cpu_only)
    advice = size_all(reading.trace, tier, guards, prices)
    if output is Output.JSON:
        print_json(
            {
                **flex_show.as_read(reading),
                "recommendations": advice,
                "savings": flex_show.savings(advice, prices),
            }
        )
    elif output is Output.CSV:
        flex_show.write_advice_csv(sys.stdout, advice)
    else:
        flex_show.show_advice(advice, reading, prices, top)


@app.command()
def explain(  # noqa: PLR0913 - each is an option
    instance: Annotated[str, typer.Argument(metavar="INSTANCE", help="Its name in the file.")],
    file: FileArgument = None,
    *,
    demo: DemoOption = False,
    recorded: RecordedOption = False,
    tier: Annotated[Tier, typer.Option(help="high, medium or low.")] = Tier.HIGH,
    column: ColumnOption = None,
    assume_cores: CoresOption = None,
    repair: RepairOption = False,
    price: PriceOption = "",
    output: FlexOutput = Output.TABLE,
) -> None:
    """Say what is known of one instance, what it should be and why, and what is reserved for it.

    Examples:
      yunhe flex explain web-061 --demo
      yunhe flex explain vm-42 usage.parquet --tier medium
    """
    from yunhe.entrypoints.cli.views import flex as flex_show  # noqa: PLC0415 - heavy
    from yunhe.flexible.sizing.explanation import explain_instance  # noqa: PLC0415 - heavy

    prices = _prices(price)
    reading = _read(UsageInput(file, demo, recorded, tuple(column or ()), assume_cores, repair))
    found = explain_instance(reading.trace, instance, tier, prices, reading.autoscaled)
    if output is Output.JSON:
        print_json(found)
    elif output is Output.CSV:
        flex_show.write_explanation_csv(sys.stdout, found)
    else:
        flex_show.show_explanation(found)


def _read(source: UsageInput) -> "TraceReading":
    from yunhe.flexible.reading.columns import parse_override  # noqa: PLC0415 - heavy
    from yunhe.flexible.reading.rows import TraceReading, read_trace  # noqa: PLC0415 - heavy
    from yunhe.flexible.reading.tables import read_table  # noqa: PLC0415 - heavy
    from yunhe.flexible.synthetic import Cluster, synthetic_trace  # noqa: PLC0415 - heavy

    asked = [source.file is not None, source.demo, source.recorded].count(True)
    if asked != 1:
        raise InvalidInputError(
            "Give one of a file, --demo and --recorded." if asked else "There is nothing to read.",
            remedy="yunhe flex assess usage.csv, or yunhe flex assess --demo to see it work.",
        )
    if source.demo:
        return TraceReading(synthetic_trace(Cluster()), (), ("a made-up cluster, the same every time",))
    overrides = [parse_override(text) for text in source.columns]
    table = _recorded() if source.file is None else read_table(source.file)
    return read_trace(table, overrides, assume_cores=source.assume_cores, repair=source.repair)


def _recorded() -> "Table":
    from yunhe.entrypoints.cli.commands.analysis.flex_recorded import recorded_usage  # noqa: PLC0415 - only with a server
    from yunhe.entrypoints.cli.session.connection import connected  # noqa: PLC0415 - only with a server
    from yunhe.entrypoints.cli.session.context import current_context  # noqa: PLC0415 - only with a server
    from yunhe.entrypoints.cli.views import flex as flex_show  # noqa: PLC0415 - heavy

    context = current_context()
    with connected(context) as client, flex_show.progress("reading what jobs used") as tell:
        return recorded_usage(client, context.project, tell)


def _duration(text: str, example: str) -> int:
    try:
        return int(parse_duration_s(text))
    except ValueError as error:
        raise InvalidInputError(str(error), remedy=f"For example {example}.") from None


def _hosts(text: str) -> "HostShape | None":
    from yunhe.flexible.assessment.comparison import HostShape  # noqa: PLC0415 - heavy

    if not text:
        return None
    match = re.fullmatch(r"(\d+)[x×](\d+(?:\.\d+)?)(?:[x×](.+))?", text.strip().lower())
    try:
        memory = float(parse_memory_mib(match[3])) if match and match[3] else 0.0
    except ValueError:
        match, memory = None, 0.0
    if match is None or int(match[1]) < 1 or float(match[2]) <= 0:
        raise InvalidInputError(
            "The hosts cannot be read.",
            remedy="Write COUNTxCORES or COUNTxCORESxMEMORY, e.g. --hosts 40x64 or --hosts 40x64x512GB.",
            fields=(FieldProblem("--hosts", "is not a number of hosts and their cores", text),),
        )
    return HostShape(int(match[1]), float(match[2]), memory)


def _share(text: str) -> float:
    stripped = text.strip()
    try:
        share = float(stripped.removesuffix("%")) / 100 if stripped.endswith("%") else float(stripped)
    except ValueError:
        share = -1.0
    if not 0 < share < 0.5:
        raise InvalidInputError(
            "The stated probability cannot be used.",
            remedy="Write a percentage above 0 and below 50, e.g. --stated 1% or --stated 0.01.",
            fields=(FieldProblem("--stated", "is not a probability between 0 and 50 %", text),),
        )
    return share


def _prices(text: str) -> Prices:
    from yunhe.flexible.sizing.rightsizing import PRICE_BOOK  # noqa: PLC0415 - heavy

    return parse_prices(text) if text else PRICE_BOOK
