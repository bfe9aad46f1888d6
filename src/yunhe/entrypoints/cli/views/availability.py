"""How the answers of ``yunhe availability`` look on a terminal and as JSON."""

import sys
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from typing import Any

import msgspec
from rich.progress import Progress
from rich.table import Table

from yunhe.availability.explanation import PlanExplanation
from yunhe.availability.model import Model, Service
from yunhe.availability.percent import show_percent
from yunhe.availability.planner import FrontierPoint, Infeasible, Planned
from yunhe.availability.pricing import Point, Pricing
from yunhe.availability.published import paper
from yunhe.availability.published import reproduction as paper_results
from yunhe.availability.remedies import ModelChange
from yunhe.availability.simulation import Simulation
from yunhe.entrypoints.cli.terminal.screen import out
from yunhe.entrypoints.cli.views.availability_plot import plot_frontier
from yunhe.kernel.units import show_duration

MAX_ROWS = 30
FLAGS = {
    "replicas": "--replicas {}",
    "mixed": "--mixed",
    "max_replicas": "--max-replicas {}",
    "common_cause": "--common-cause {}",
    "failover": "--failover {}",
    "switchover": "--switchover {}",
    "availability": "-a {} (every sub-module at least)",
    "zones": "--zones {} (every zone at least)",
}


def say(line: str) -> None:
    """Print a line, however long; only a terminal may break it."""
    out(markup=True).print(line, soft_wrap=True)


def show_target(percent: float) -> str:
    """Return a target as it was given."""
    return f"{percent:.12g} %"


def counted(number: int, thing: str) -> str:
    """Return a number with its noun: 1 service, 24 services."""
    return f"{number:,} {thing}{'' if number == 1 else 's'}"


def builtins(value: object) -> Any:
    """Return plain lists, dicts and numbers."""
    return msgspec.to_builtins(value)


def write_json(value: object) -> None:
    """Print JSON that a person can read too."""
    sys.stdout.write(msgspec.json.format(msgspec.json.encode(value), indent=2).decode() + "\n")


def assumed(model: Model) -> dict[str, Any]:
    """Return what a figure rests on, in percent."""
    values = sorted({sub.availability for module in model.modules for sub in module.submodules})
    return {
        "modules": len(model.modules),
        "sub_modules": model.submodule_count,
        "sub_module_percent": {"lowest": 100 * values[0], "highest": 100 * values[-1]},
        "replicas": model.replicas,
        "shared": [
            {"name": each.name, "availability_percent": 100 * each.availability, "instances": each.instances}
            for each in model.shared
        ],
        "zones_percent": {zone.name: 100 * zone.availability for zone in model.assumptions.zones},
        "common_cause_percent": 100 * model.assumptions.common_cause,
        "failover_percent": 100 * model.assumptions.failover,
        "switchover_s": model.assumptions.switchover_s,
        "repair_s": model.assumptions.repair_s,
    }


@contextmanager
def working(label: str) -> Generator[None]:
    """Show on a terminal that something is being worked out."""
    if not out().is_terminal:
        yield
        return
    with out().status(label):
        yield


@contextmanager
def progress(label: str) -> Generator[Callable[[float], None]]:
    """Show a bar on a terminal, nothing elsewhere."""
    if not out().is_terminal:
        yield lambda _share: None
        return
    with Progress(console=out(), transient=True) as bar:
        task = bar.add_task(label, total=1.0)
        yield lambda share: bar.update(task, completed=share)


# --- plan ----------------------------------------------------------------------------------------------


def show_plan(model: Model, outcome: Planned | Infeasible, pricing: Pricing, elapsed_s: float) -> None:
    """Print a plan, or that there is none and the nearest that there is."""
    say(_headline(outcome, pricing, elapsed_s))
    if isinstance(outcome, Infeasible):
        _show_infeasible(outcome)
    else:
        out(markup=True).print(_services_table(outcome.services))
    _show_around(outcome)
    show_assumptions(model)
    if isinstance(outcome, Planned):
        say(" next     yunhe availability explain …   why · simulate …   try it · frontier …   all of them")


def _headline(outcome: Planned | Infeasible, pricing: Pricing, elapsed_s: float) -> str:
    took = f"{elapsed_s * 1000:.0f} ms" if elapsed_s < 1 else f"{elapsed_s:.1f} s"
    target = show_target(outcome.target_percent)
    if isinstance(outcome, Infeasible):
        sure = "" if outcome.proven else " was found (the bound leaves it open)"
        return f"[bold red]✗ infeasible:[/] no plan{sure} reaches {target}   [dim]{took}[/]"
    point = outcome.point
    what = f"{counted(point.services, 'service')}, {counted(point.instances, 'instance')}"
    if pricing.mixed:
        what += f", cost {point.cost:,} = {pricing.service_cost}·services + {pricing.instance_cost}·instances"
    unit = "cost" if pricing.mixed else "services"
    least = (
        outcome.least_possible_cost
        if pricing.mixed
        else outcome.least_possible_cost // pricing.unit(outcome.services[0].replicas)
    )
    proof = "proven minimal" if outcome.proven else f"at least {least:,} {unit} are needed"
    return f"[bold green]✔ {what}[/] reach {show_percent(point.unavailability)}, target {target}\n   [dim]{_down(point)} · {proof} · {took}[/]"


def _down(point: Point) -> str:
    return f"{show_duration(point.downtime_s_per_year)} down a year"


def _services_table(services: Sequence[Service]) -> Table:
    table = Table(box=None, pad_edge=True, header_style="bold")
    for name, justify in (
        ("MODULE", "left"),
        ("SERVICES", "right"),
        ("REPLICAS", "right"),
        ("PACKAGED AS", "left"),
    ):
        table.add_column(name, justify=justify, overflow="fold")  # pyright: ignore[reportArgumentType]
    by_module: dict[str, list[Service]] = {}
    for service in services:
        by_module.setdefault(service.module, []).append(service)
    for module, own in list(by_module.items())[:MAX_ROWS]:
        replicas = "·".join(
            str(count) for count in sorted({service.replicas for service in own}, reverse=True)
        )
        table.add_row(module, f"{len(own):,}", replicas, _packaged(own))
    if len(by_module) > MAX_ROWS:
        table.add_row(f"… {len(by_module) - MAX_ROWS:,} more", "", "", "--output json lists all")
    return table


def _packaged(services: Sequence[Service]) -> str:
    if sum(len(service.submodules) for service in services) <= 12:
        return "  |  ".join(" + ".join(service.submodules) for service in services)
    sizes = sorted((len(service.submodules) for service in services), reverse=True)
    shown = " | ".join(str(size) for size in sizes[:12])
    return f"{shown}{' | …' if len(sizes) > 12 else ''} sub-modules"


def _show_infeasible(outcome: Infeasible) -> None:
    point = outcome.point
    say(
        f"   nearest  {show_percent(point.unavailability)} with {counted(point.services, 'service')},"
        f" {counted(point.instances, 'instance')}   [dim]{_down(point)}[/]"
    )
    if outcome.ceiling_percent < outcome.target_percent:
        ceiling = show_percent(1 - outcome.ceiling_percent / 100)
        say(f"   ceiling  {ceiling}: what zones and shared dependencies leave if services never failed")
    if not outcome.remedies:
        say("   no change of one kind makes it feasible, nor several together: the target is out of reach")
        return
    one = len(outcome.remedies) == 1
    say("   this makes it feasible:" if one else "   any one of these makes it feasible:")
    table = Table(box=None, pad_edge=True, header_style="bold")
    for name in ("CHANGE", "SERVICES", "INSTANCES", "REACHES"):
        table.add_column(name, justify="left" if name == "CHANGE" else "right")
    for remedy in outcome.remedies:
        change = " and ".join(_as_flag(change) for change in remedy.changes)
        table.add_row(
            change,
            f"{remedy.point.services:,}",
            f"{remedy.point.instances:,}",
            show_percent(remedy.point.unavailability),
        )
    out(markup=True).print(table)


def _as_flag(change: ModelChange) -> str:
    if change.field in FLAGS:
        return FLAGS[change.field].format(change.value)
    _, name, _ = change.field.split(".")
    return f"--shared {name}=…x{change.value}"


def _show_around(outcome: Planned | Infeasible) -> None:
    bounds = outcome.bounds
    for name, point in (("unsplit", bounds.unsplit), ("full", bounds.fully_split)):
        verdict = "meets it" if point.availability_percent >= outcome.target_percent else "misses it"
        say(
            f" {name:8} {counted(point.services, 'service')}, {counted(point.instances, 'instance')}"
            f" reach {show_percent(point.unavailability)}, which {verdict}"
        )
    if bounds.across_modules_services is not None:
        say(
            f" bound    {counted(bounds.across_modules_services, 'service')} could do if modules were mixed"
            " [dim](gives up cohesion; not a plan)[/]"
        )


def show_assumptions(model: Model) -> None:
    """Print what every figure above rests on."""
    given = assumed(model)
    low, high = given["sub_module_percent"]["lowest"], given["sub_module_percent"]["highest"]
    spread = f"{low:.6g} %" if low == high else f"{low:.6g} to {high:.6g} %"
    parts = [
        f"{model.submodule_count:,} sub-modules at {spread}",
        f"repair {show_duration(model.assumptions.repair_s)}",
    ]
    parts += [
        f"{each.name} {100 * each.availability:.6g} % × {each.instances} in series" for each in model.shared
    ]
    if not model.shared:
        parts.append("nothing shared (no database)")
    assumptions = model.assumptions
    zones = ", ".join(f"{zone.name} {100 * zone.availability:.6g} %" for zone in assumptions.zones)
    parts.append(f"zones {zones}" if zones else "no zone ever fails")
    parts.append(
        f"{100 * assumptions.common_cause:g} % common cause"
        if assumptions.common_cause
        else "failures independent"
    )
    works = (
        f"failover works {100 * assumptions.failover:.6g} %"
        if assumptions.failover < 1
        else "failover always works"
    )
    parts.append(
        works
        + (f" after {show_duration(assumptions.switchover_s)}" if assumptions.switchover_s else " at once")
    )
    say(f" assumes  [dim]{' · '.join(parts)}[/]")


# --- frontier ------------------------------------------------------------------------------------------


def show_frontier(
    model: Model,
    points: Sequence[FrontierPoint],
    both: Sequence[Point],
    target: float | None,
    pricing: Pricing,
) -> None:
    """Print the frontier as a table and a plot."""
    axis = "cost" if pricing.mixed else "services"
    table = Table(box=None, pad_edge=True, header_style="bold")
    for name in ("SERVICES", "INSTANCES", "COST", "REACHES", "DOWN A YEAR", "AT MOST"):
        table.add_column(name, justify="right")
    for point in _thinned(points, target):
        is_met = target is not None and point.availability_percent >= 100 * target
        table.add_row(
            f"{point.services:,}",
            f"{point.instances:,}",
            f"{point.cost:,}",
            show_percent(point.unavailability),
            show_duration(point.unavailability * 365.25 * 86400),
            "exact"
            if point.bound_percent <= point.availability_percent
            else show_percent(1 - point.bound_percent / 100),
            style="green" if is_met else "",
        )
    out(markup=True).print(table)
    series = [(point.cost if pricing.mixed else point.services, point.unavailability) for point in points]
    out().print(plot_frontier(series, axis, target))
    if both:
        say(f" services against instances, for {show_target(100 * (target or 0.0))}")
        for point in both:
            say(
                f"   {point.services:>6,} services  {point.instances:>6,} instances  {show_percent(point.unavailability)}"
            )
    show_assumptions(model)


def _thinned(points: Sequence[FrontierPoint], target: float | None) -> list[FrontierPoint]:
    """Return the ends, an even choice between, and the first that meets the target."""
    step = max(1, -(-len(points) // MAX_ROWS))
    chosen = set(range(0, len(points), step)) | {len(points) - 1}
    if target is not None:
        met = [number for number, point in enumerate(points) if point.availability_percent >= 100 * target]
        chosen |= set(met[:1])
    return [points[number] for number in sorted(chosen)]


# --- table ---------------------------------------------------------------------------------------------


def reproduction(parts: Sequence[str]) -> dict[str, Any]:
    """Return the parts of the paper's evaluation asked for, every figure in percent."""
    makers: dict[str, Callable[[], Any]] = {
        "table1": paper_results.table_1,
        "figure8": paper_results.figure_8,
        "figure9": paper_results.figure_9,
        "figure10": paper_results.figure_10,
        "mixed": paper_results.mixed_replicas,
    }
    content: dict[str, Any] = {part: makers[part]() for part in parts}
    if "table1" in content:
        content["fca_clusters"] = paper_results.fca_clusters()
    return content


def show_reproduction(content: dict[str, Any]) -> None:
    """Print the tables and grids, with a mark wherever the paper differs."""
    if "table1" in content:
        _show_table_1(content["table1"], content["fca_clusters"])
    if "figure8" in content:
        _show_figure_8(content["figure8"])
    for part, title, rows in (
        ("figure9", "Figure 9: least services, 2 backups (3 instances)", "requirement_percent"),
        ("figure10", "Figure 10: least services, requirement 99.9 %", "backups"),
    ):
        if part in content:
            _show_counts(content[part], title, rows)
    if "mixed" in content:
        _show_mixed(content["mixed"])


def _show_table_1(rows: Sequence[paper_results.TableRow], clusters: Sequence[Sequence[str]]) -> None:
    table = _grid("Table 1: availability in percent, 3 instances, and how many services", "METHOD")
    notes: list[str] = []
    matching = sum(cell.matches for row in rows for cell in row.cells)
    for row in rows:
        shown = list[str]()
        for cell in row.cells:
            mark = "" if cell.feasible else "*"
            text = f"{cell.computed_percent} {cell.services}{mark}"
            if not cell.matches:
                notes.append(
                    f"✗ {row.name}, a = {cell.submodule_percent:g} %: printed {cell.printed_percent}; {cell.note}."
                )
                text = f"[red]{text} ✗[/]"
            shown.append(text)
        name = row.name if row.name in {"none", "full", "FCA"} else f"≥ {100 * float(row.name):g} %"
        table.add_row(name, *shown)
    out(markup=True).print(table)
    say(
        f" {matching} of {sum(len(row.cells) for row in rows)} cells agree with the paper to the last printed digit"
    )
    for note in notes:
        say(f" {note}")
    say(" * requirement out of reach: the paper prints the full split, which is not a solution")
    sizes = sorted((len(cluster) for cluster in clusters), reverse=True)
    say(f" FCA clusters of sizes {sizes}: {' | '.join(' '.join(cluster) for cluster in clusters)}\n")


def _show_figure_8(splits: Sequence[paper_results.Split]) -> None:
    table = Table(
        title="Figure 8: the trade module at a = 90 %", box=None, header_style="bold", title_justify="left"
    )
    for name in ("PACKAGING", "INSTANCES", "COMPUTED", "PRINTED", ""):
        table.add_column(name, justify="left" if name == "PACKAGING" else "right")
    for split in splits:
        mark = "agrees" if split.matches else "differs"
        table.add_row(
            split.name,
            str(split.instances_each),
            f"{split.computed_percent:.2f} %",
            f"{split.printed_percent:g} %",
            mark,
        )
    out(markup=True).print(table)
    out().print()


def _show_counts(counts: Sequence[paper_results.Count], title: str, by: str) -> None:
    table = _grid(title, "BACKUPS" if by == "backups" else "REQUIREMENT")
    for start in range(0, len(counts), len(paper.AVAILABILITIES)):
        row = counts[start : start + len(paper.AVAILABILITIES)]
        name = str(row[0].backups) if by == "backups" else f"{row[0].requirement_percent:g} %"
        table.add_row(
            name, *(str(count.services) if count.feasible else f"[red]{count.services}*[/]" for count in row)
        )
    out(markup=True).print(table)
    say(" * infeasible: not even the full split reaches it; 24 is not a solution\n")


def _show_mixed(cells: Sequence[paper_results.MixedCell]) -> None:
    table = _grid(
        f"Instances: equal replicas (3 each) → mixed replicas (1 to {paper_results.MIXED_UPTO} each)",
        "REQUIREMENT",
    )
    for start in range(0, len(cells), len(paper.AVAILABILITIES)):
        row = cells[start : start + len(paper.AVAILABILITIES)]
        table.add_row(
            f"{row[0].requirement_percent:g} %",
            *(
                f"{cell.uniform_instances}→{cell.mixed_instances} −{cell.fewer_percent:.0f} %"
                if cell.feasible
                else f"[red]none[/]→{cell.mixed_instances}"
                for cell in row
            ),
        )
    out(markup=True).print(table)
    feasible = [cell for cell in cells if cell.feasible]
    fewer = sum(cell.mixed_instances < cell.uniform_instances for cell in feasible)
    kept = sum(cell.mixed_services == len(paper.MODULES) for cell in cells)
    say(
        f" fewer instances in {fewer} of {len(feasible)} cells that equal replicas can meet; {kept} of {len(cells)} cells need no split at all\n"
    )


def _grid(title: str, corner: str) -> Table:
    table = Table(title=title, box=None, header_style="bold", title_justify="left", padding=(0, 1, 0, 0))
    table.add_column(corner)
    for a in paper.AVAILABILITIES:
        table.add_column(f"a = {100 * float(a):g} %", justify="right")
    return table


# --- simulate and explain ------------------------------------------------------------------------------


def show_simulation(model: Model, outcome: Planned | Infeasible, result: Simulation) -> None:
    """Print what happened beside what was predicted."""
    if isinstance(outcome, Infeasible):
        say("[yellow]The target is infeasible; the nearest plan is simulated.[/]")
    low, high = (show_percent(1 - percent / 100) for percent in result.interval_percent)
    verdict = "[green]inside[/]" if result.agrees else "[red]outside[/]"
    point = outcome.point
    say(
        f" {counted(point.services, 'service')}, {counted(point.instances, 'instance')}, {result.years:g} years, seed {result.seed}"
    )
    say(f" simulated  {show_percent(1 - result.availability_percent / 100)}   95 % between {low} and {high}")
    say(f" predicted  {show_percent(result.predicted_unavailability)}   {verdict} that interval")
    say(
        f" outages    {result.outages:,} ({result.outages_per_year:.2f} a year), mean {show_duration(result.mean_outage_s)},"
        f" longest {show_duration(result.longest_outage_s)}"
    )
    worst = sorted(result.downtime_share_percent.items(), key=lambda item: -item[1])[:5]
    for part, share in worst:
        say(f"   {share:5.1f} %  of downtime in {part[:80]}")
    show_assumptions(model)


def show_explanation(model: Model, outcome: Planned | Infeasible, result: PlanExplanation) -> None:
    """Print why the plan is as it is."""
    target = show_target(result.target_percent)
    verdict = "meets" if isinstance(outcome, Planned) else "is the nearest to, and misses,"
    say(
        f" {counted(result.point.services, 'service')}, {counted(result.point.instances, 'instance')}: {show_percent(result.point.unavailability)}"
        f" {verdict} {target}"
    )
    if result.one_less and isinstance(outcome, Planned):
        less = result.one_less
        say(
            f" why not less   the best at {counted(less.services, 'service')}, {counted(less.instances, 'instance')} reaches"
            f" {show_percent(less.unavailability)}"
        )
    say(" where downtime comes from: what would go if a part never failed")
    for part in result.downtime[:8]:
        say(
            f"   {part.share_percent:5.1f} %  {show_duration(part.downtime_s_per_year):>8} a year  {part.part[:70]}"
        )
    if len(result.downtime) > 8:
        say(f"           {len(result.downtime) - 8:,} more parts below that")
    say(" what more would buy")
    for step in result.next_steps:
        added = f"+{counted(step.added_services, 'service')}, +{counted(step.added_instances, 'instance')}"
        say(f"   {show_percent(step.unavailability):>14}  {added:28} {step.change[:60]}")
    say(" what it rests on: the same services, if")
    for case in result.what_ifs:
        mark = "[green]meets[/] " if case.meets_target else "[red]misses[/]"
        say(f"   {show_percent(case.unavailability):>14}  {mark}  {case.assumption}")
    show_assumptions(model)
