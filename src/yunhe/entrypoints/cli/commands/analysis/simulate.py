"""``yunhe simulate``: what would happen, and what another policy would have done."""

from collections.abc import Callable, Generator
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.text import Text

from yunhe.entrypoints.cli.session.connection import connected
from yunhe.entrypoints.cli.session.context import current_context
from yunhe.entrypoints.cli.terminal.screen import (
    Format,
    OutputOption,
    PlainApp,
    err,
    out,
    print_json,
    span,
    spinner,
    table,
)
from yunhe.entrypoints.client import Client
from yunhe.kernel.errors import InvalidInputError, NotFoundError
from yunhe.kernel.ids import PoolId
from yunhe.kernel.money import Prices, Tier
from yunhe.scheduling.decision.model import Policy
from yunhe.scheduling.orchestration.jobs.states import FINAL
from yunhe.simulator.model import SimulationReport

if TYPE_CHECKING:
    from yunhe.scheduling.perception.snapshot import Snapshot
    from yunhe.simulator.recorded import Past

app = PlainApp()

MOST_JOBS = 100_000
BARS = " ▁▂▃▄▅▆▇█"
ASCII_BARS = " .:-=+*#@"


@app.command()
def simulate(  # noqa: PLR0913 - one option each
    workload: Annotated[
        Path | None, typer.Argument(metavar="[FILE]", help="A trace or a log of tasks; none: generated.")
    ] = None,
    *,
    recorded: Annotated[
        bool, typer.Option("--recorded", help="The jobs that ran on the platform in use, over its pools.")
    ] = False,
    kind: Annotated[
        str,
        typer.Option("--kind", "-k", help="log, openb, swf, philly, wfcommons or virne: the form of FILE."),
    ] = "log",
    world: Annotated[
        Path | None, typer.Option("--world", "-w", help="Folder of snapshot files; none: made up.")
    ] = None,
    pools: Annotated[int, typer.Option(min=1, help="Pools of a made-up world.")] = 10,
    nodes: Annotated[int, typer.Option(min=1, help="Nodes of a made-up world.")] = 1000,
    tasks: Annotated[
        int | None,
        typer.Option(min=1, help="How many tasks to generate, or to take of FILE or the newest jobs."),
    ] = None,
    rate: Annotated[float, typer.Option(min=0.001, help="Generated tasks per second.")] = 10.0,
    policy: Annotated[
        list[Policy] | None, typer.Option("--policy", "-p", help="May be repeated: policies side by side.")
    ] = None,
    fail: Annotated[
        list[str] | None, typer.Option(metavar="POOL@AT+FOR", help="A pool that fails: pool-000@600+300.")
    ] = None,
    seed: Annotated[int, typer.Option(help="For what is drawn by chance.")] = 0,
    output: OutputOption = Format.TABLE,
) -> None:
    """Play a workload through the scheduling core, without a platform and faster than time.

    Examples:
      yunhe simulate --tasks 20000 --pools 10 --nodes 500
      yunhe simulate jobs.jsonl --world my-pools -p cheapest -p fastest
      yunhe simulate trace.swf --kind swf --fail pool-003@3600+1800
      yunhe simulate geant.tar.gz --kind virne
      yunhe simulate --recorded -p balanced -p cheapest
    """
    if kind == "virne":
        _play_graphs(workload, seed, output)
        return
    with spinner("loading the simulator"):
        from yunhe.simulator import workloads  # noqa: PLC0415 - heavy
        from yunhe.simulator.model import PROMPT  # noqa: PLC0415 - heavy
        from yunhe.simulator.run import failure_of  # noqa: PLC0415 - heavy
        from yunhe.simulator.run import simulate as play  # noqa: PLC0415 - heavy
        from yunhe.simulator.worlds import made_up, read_world  # noqa: PLC0415 - heavy

    reports: list[SimulationReport] = []
    platform = PROMPT
    if recorded:
        past, snapshot = _recorded(tasks, workload, world)
        wanted, platform = past.workload, past.platform
        reports.append(past.was)
    else:
        snapshot = made_up(pools, nodes, seed) if world is None else read_world(world)
        wanted = (
            workloads.generated(tasks or 10_000, rate, seed)
            if workload is None
            else workloads.read(workload, kind, limit=tasks, seed=seed)
        )
    failures = [failure_of(text, snapshot) for text in fail or ()]
    for one in policy or ([None] if recorded else [Policy.BALANCED]):
        with _told(f"{wanted.name} · {one or 'as asked'}", len(wanted.tasks)) as progress:
            reports.append(
                play(wanted, snapshot, one, platform=platform, failures=failures, progress=progress)
            )
    if output is Format.JSON:
        print_json(reports)
    else:
        own = recorded or workload is not None, recorded or world is not None
        _show(reports, snapshot, *("" if known else "made-up " for known in own))


def _play_graphs(path: Path | None, seed: int, output: Format) -> None:
    """Place a stream of component graphs on the network that comes with it."""
    from yunhe.simulator.graphs import replay  # noqa: PLC0415 - heavy
    from yunhe.simulator.streams import read_stream  # noqa: PLC0415 - heavy

    if path is None:
        raise InvalidInputError("No stream is named.", remedy="Name a folder or a .tar.gz in Virne's form.")
    stream = read_stream(path)
    with _told(stream.name, len(stream.graphs)) as progress:
        found = replay(stream, seed=seed, progress=progress)
    if output is Format.JSON:
        print_json(found)
        return
    nodes, links = len(stream.network.names), len(stream.network.ends)
    out().print(f"{found.requests:,} component graphs, one network of {nodes:,} nodes and {links:,} links")
    out().print(
        table(
            ["ACCEPTED", "SHARE", "REVENUE", "REVENUE/COST", "ms p50", "p99"],
            [
                [
                    f"{found.accepted:,}",
                    f"{100 * found.accepted_share:.1f} %",
                    f"{100 * found.revenue_share:.1f} %",
                    f"{found.revenue_to_cost:.3f}",
                    f"{found.ms_p50:.1f}",
                    f"{found.ms_p99:.1f}",
                ]
            ],
        )
    )


def _recorded(limit: int | None, workload: Path | None, world: Path | None) -> "tuple[Past, Snapshot]":
    """Return the past of the project in use, and the world to play it in: by default its pools as they are now."""
    from yunhe.simulator.recorded import past_of, world_of  # noqa: PLC0415 - heavy
    from yunhe.simulator.worlds import read_world  # noqa: PLC0415 - heavy

    if workload is not None:
        raise InvalidInputError(
            "There are two workloads.", remedy=f"Give {workload} or --recorded, not both."
        )
    context = current_context()
    with connected(context) as client:
        jobs = list(islice(client.jobs(project=context.project, states=tuple(FINAL)), limit or MOST_JOBS))
        pools = client.pools() if world is None else ()
        prices = {pool.id: tiers for pool in pools if (tiers := _prices(client, pool.id)) is not None}
    snapshot = world_of(pools, prices) if world is None else read_world(world)
    return past_of(jobs, float(snapshot.cpu_total_millis.sum()) / 1000), snapshot


def _prices(client: Client, pool_id: PoolId) -> dict[Tier, Prices] | None:
    try:
        return client.prices(pool_id).tiers
    except NotFoundError:
        return None


def _show(reports: "list[SimulationReport]", snapshot: "Snapshot", tasks: str, world: str) -> None:
    console = out()
    console.print(
        f"{reports[0].tasks:,} {tasks}tasks, {len(snapshot.node_ids):,} nodes in {len(snapshot.pools):,} {world}pools"
    )
    # the figures that tell one policy from another stay longest
    console.print(table(_HEADINGS, [_row(report) for report in reports], expendable=(11, 3, 10, 1, 5, 9, 2)))
    bars = BARS if console.encoding.lower().startswith("utf") else ASCII_BARS
    for report in reports:
        console.print(
            Text(f"{report.policy:<15}")
            + Text(_bars(report.utilisation, bars), style="cyan")
            + " cores in use"
        )
    if any(report.never_placed for report in reports):
        console.print("some tasks never found room: they ask for more than any node that they may use has")


_HEADINGS = (
    "POLICY",
    "ENDED",
    "NEVER",
    "RESTARTS",
    "WAIT p50",
    "p95",
    "TURNAROUND",
    "ALL DONE",
    "COST",
    "CO2",
    "USE",
    "TOOK",
)


def _row(report: SimulationReport) -> list[str]:
    use = sum(report.utilisation) / max(len(report.utilisation), 1)
    return [
        report.policy,
        f"{report.ended:,}",
        f"{report.never_placed:,}",
        f"{report.restarts:,}",
        span(report.wait_p50_s),
        span(report.wait_p95_s),
        span(report.turnaround_mean_s),
        span(report.makespan_s),
        "–" if report.cost is None else f"{report.cost:,.2f}",
        "–" if report.carbon_kg is None else f"{report.carbon_kg:,.1f} kg",
        f"{100 * use:.1f} %",
        span(report.simulated_in_s),
    ]


def _bars(shares: tuple[float, ...], bars: str) -> str:
    most = max(shares, default=0.0) or 1.0
    return "".join(bars[round(share / most * (len(bars) - 1))] for share in shares)


@contextmanager
def _told(what: str, total: int) -> Generator[Callable[[int, int], None]]:
    """Show how far *what* is, on a terminal only; the block is given what to tell it with."""
    with Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
        console=err(),
        transient=True,
        disable=not err().is_terminal,
    ) as bar:
        job = bar.add_task(what, total=total)
        yield lambda done, _: bar.update(job, completed=done)
