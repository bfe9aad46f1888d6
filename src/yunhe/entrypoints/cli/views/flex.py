"""The answers of ``yunhe flex`` on a terminal, and as CSV."""

import csv
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from typing import TextIO

from rich.progress import Progress
from rich.text import Text

from yunhe.entrypoints.cli.terminal.screen import err, hints, out, table
from yunhe.flexible.assessment.comparison import Assessment, PolicyResult
from yunhe.flexible.reading.rows import TraceReading
from yunhe.flexible.sizing.explanation import InstanceExplanation
from yunhe.flexible.sizing.rightsizing import InstanceSize, Recommendation, Severity, flavour_waste
from yunhe.kernel.money import MICROS, Prices, show_money
from yunhe.kernel.units import show_cpu, show_duration, show_memory

STYLES = {Severity.CRITICAL: "red", Severity.WARNING: "yellow", Severity.OK: "", Severity.GOOD: "green"}
SHOWN_REPAIRS = 10
HOURS_PER_MONTH = 730
BARS = " ▁▂▃▄▅▆▇█"
DAYS = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")


@contextmanager
def progress(label: str) -> Generator[Callable[[int, int], None]]:
    """Show a bar on a terminal, nothing elsewhere."""
    console = err()
    if not console.is_terminal:
        yield lambda _done, _of: None
        return
    with Progress(console=console, transient=True) as bar:
        task = bar.add_task(label, total=None)
        yield lambda done, of: bar.update(task, completed=done, total=max(done, of))


def percent(share: float, digits: int = 1) -> str:
    """Return a share as a percentage."""
    return f"{100 * share:.{digits}f} %"


def understood(reading: TraceReading) -> list[str]:
    """Return what the columns were taken for, and what is worth knowing about the rows."""
    lines: list[str] = []
    if reading.understood:
        said = ", ".join(
            f"{one.column} = {one.role}{f' ({one.unit})' if one.unit else ''}" for one in reading.understood
        )
        lines.append(f"understood {said}")
    if reading.ignored:
        lines.append(f"not used   {', '.join(reading.ignored)}")
    lines += [f"note  {note}" for note in reading.notes]
    if reading.repaired:
        lines.append(f"{len(reading.repaired):,} rows left out, as --repair asked:")
        for one in reading.repaired[:SHOWN_REPAIRS]:
            lines.append(f"  row {one.row}, {one.column}: {one.problem} (got {one.value})")
        if len(reading.repaired) > SHOWN_REPAIRS:
            lines.append(f"  … and {len(reading.repaired) - SHOWN_REPAIRS:,} more")
    return lines


def as_read(reading: TraceReading) -> dict[str, object]:
    """Return the same for programs."""
    return {
        "understood": reading.understood,
        "ignored": reading.ignored,
        "notes": reading.notes,
        "repaired": reading.repaired,
    }


def savings(advice: Sequence[Recommendation], prices: Prices) -> dict[str, float]:
    """Return what all instances cost an hour as given, tailored and in flavours, for programs."""
    waste = flavour_waste(tuple(advice), prices)
    return {
        "given_micros_per_hour": waste.given_micros_per_hour,
        "tailored_micros_per_hour": waste.tailored_micros_per_hour,
        "flavours_micros_per_hour": waste.flavours_micros_per_hour,
        "saving_micros_per_hour": waste.given_micros_per_hour - waste.tailored_micros_per_hour,
        "flavours_waste": waste.share,
    }


def show_assessment(
    found: Assessment,
    reading: TraceReading,
    advice: Sequence[Recommendation],
    prices: Prices,
    *,
    asked_for_hosts: bool,
) -> None:
    """Print the tables of an assessment."""
    console = out()
    totals = found.totals
    console.print(
        f"{totals.instances} instances, {totals.days:.0f} days, a sample every {show_duration(totals.period_s)}"
        if totals.days >= 2
        else f"{totals.instances} instances, {totals.days * 24:.0f} hours, a sample every "
        f"{show_duration(totals.period_s)}"
    )
    for line in [*understood(reading), *found.notes]:
        console.print(Text(line, style="dim"))
    used = totals.used_cores_mean / totals.requested_cores
    console.print(
        f"given out {totals.requested_cores:,.0f} cores, used {totals.used_cores_mean:,.0f} on average "
        f"({percent(used)}) and {totals.used_cores_p95:,.0f} at the 95th percentile"
    )
    why = "" if asked_for_hosts else " (a quarter of what is given out; say --hosts for yours)"
    memory = (
        f", {show_memory(found.hosts.memory_mib)} each" if found.hosts.memory_mib else ", memory not limited"
    )
    console.print(f"on {found.hosts.count} hosts of {found.hosts.cores:g} cores{memory}{why}\n")
    console.print(_policies(found))
    console.print(
        Text(
            f"overload: share of {show_duration(totals.period_s)} host-slots in which a host was asked for more "
            f"than it has, over {found.windows} placements, each judged on what came after it",
            style="dim",
        )
    )
    console.print()
    console.print(_calibration(found))
    waste = flavour_waste(tuple(advice), prices)
    saved = waste.given_micros_per_hour - waste.tailored_micros_per_hour
    console.print(
        f"\nsizes: {show_money(waste.given_micros_per_hour)}/h as given, "
        f"{show_money(waste.tailored_micros_per_hour)}/h tailored: "
        f"{monthly(saved)} a month; flavours of fixed ratio would waste {percent(waste.share)}"
    )
    console.print(hints({"resize": "yunhe flex recommend …", "one of them": "yunhe flex explain INSTANCE …"}))


def _policies(found: Assessment) -> object:
    rows = [
        (
            one.name,
            f"{one.placed:.0f}",
            f"{one.vcpus:,.0f}",
            f"{one.vcpu_per_core:.2f}",
            percent(one.utilisation),
            f"{percent(one.stated, 1) if one.stated else '–'} / {percent(one.violation, 2)}",
            percent(one.worst_host),
            f"{one.hosts_needed:.1f} at {percent(one.violation_when_all_placed, 2)}",
            show_money(one.cost_micros_per_vcpu_hour),
        )
        for one in found.policies
    ]
    return table(
        (
            "",
            "placed",
            "vCPU",
            "vCPU/core",
            "used",
            "overload stated/realised",
            "worst host",
            "hosts for all",
            "per vCPU-h",
        ),
        rows,
    )


def _calibration(found: Assessment) -> object:
    rows = [
        (
            percent(one.stated, 1),
            percent(one.realised, 2),
            f"{one.realised / one.stated:.2f}",
            percent(one.worst_window),
            f"{one.hosts:.1f}",
        )
        for one in found.calibration
    ]
    return table(("stated", "realised", "ratio", "worst placement", "hosts for all"), rows)


def show_advice(advice: Sequence[Recommendation], reading: TraceReading, prices: Prices, top: int) -> None:
    """Print the largest savings and the shortages."""
    console = out()
    for line in understood(reading):
        console.print(Text(line, style="dim"))
    urgent = [one for one in advice if one.severity is Severity.CRITICAL]
    rest = [one for one in advice if one.severity is not Severity.CRITICAL]
    shown = [*urgent, *rest][:top]
    rows = [
        (
            one.instance,
            Text(one.severity, style=STYLES[one.severity]),
            spec_text(one.given),
            spec_text(one.recommended),
            spec_text(one.reserved),
            show_money(one.saving_micros_per_hour),
            "; ".join(one.evidence),
        )
        for one in shown
    ]
    console.print(table(("instance", "", "given", "should be", "reserve", "saves/h", "why"), rows))
    waste = flavour_waste(tuple(advice), prices)
    left = (
        f"{len(advice) - len(shown)} more; --top N or --output csv shows all. "
        if len(advice) > len(shown)
        else ""
    )
    console.print(
        f"\n{left}All {len(advice)}: {show_money(waste.given_micros_per_hour)}/h as given, "
        f"{show_money(waste.tailored_micros_per_hour)}/h as recommended "
        f"(best fixed flavours {show_money(waste.flavours_micros_per_hour)}/h)"
    )


def spec_text(spec: InstanceSize) -> str:
    """Return a size in a few letters."""
    memory = f" {show_memory(spec.memory_mib)}" if spec.memory_mib else ""
    return f"{show_cpu(spec.cpu_millis)} core{'' if spec.cpu_millis == 1000 else 's'}{memory}"


def monthly(micros_per_hour: int) -> str:
    """Return what an hourly amount comes to in a month, without cents where they do not matter."""
    micros = micros_per_hour * HOURS_PER_MONTH
    return show_money(micros) if abs(micros) < 1000 * MICROS else f"¥{micros / MICROS:,.0f}"


def show_explanation(found: InstanceExplanation) -> None:
    """Print one instance."""
    console = out()
    one = found.recommendation
    console.print(f"{found.instance}   given {spec_text(one.given)}   tier {one.tier}\n")
    console.print(
        f"  CPU   mean {found.mean_cores:.2f}   p50 {found.p50_cores:.2f}   p95 {found.p95_cores:.2f}   "
        f"p99 {found.p99_cores:.2f}   highest {found.highest_cores:.2f} cores   ({found.samples:,} samples)"
    )
    top = max(found.by_hour_cores) or 1.0
    bars = "".join(BARS[round(value / top * (len(BARS) - 1))] for value in found.by_hour_cores)
    day, hour = divmod(found.busiest_hour_of_week, 24)
    console.print(f"  by hour (UTC) 0h ▕{bars}▏ 23h   busiest {DAYS[day]} {hour:02}:00")
    state = "warm" if found.warm else "new: counts at what it was given until a day of samples is there"
    console.print(f"  profile {state}, {found.profile_bytes / 1024:.1f} KiB\n")
    console.print(f"  should be {spec_text(one.recommended)}   {one.severity}", style=STYLES[one.severity])
    for line in one.evidence:
        console.print(f"    · {line}")
    console.print(f"    · then short of CPU {percent(found.cpu_short)} of the time seen")
    console.print(f"  reserved for it in tier {one.tier}: {spec_text(one.reserved)}")
    console.print(f"  nearest fixed flavour {spec_text(one.flavour)}")
    console.print(f"  saves {show_money(one.saving_micros_per_hour)}/h")


def write_policies_csv(file: TextIO, found: Assessment) -> None:
    """Write one row for each policy."""
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow(PolicyResult.__struct_fields__)
    for one in found.policies:
        writer.writerow([getattr(one, name) for name in PolicyResult.__struct_fields__])


ADVICE_COLUMNS = (
    "instance",
    "tier",
    "severity",
    "given_cpu_millis",
    "given_memory_mib",
    "cpu_millis",
    "memory_mib",
    "reserved_cpu_millis",
    "reserved_memory_mib",
    "saving_micros_per_hour",
    "evidence",
)
EXPLAINED = tuple(
    name
    for name in InstanceExplanation.__struct_fields__
    if name not in {"instance", "recommendation", "by_hour_cores"}
)


def _advice_row(one: Recommendation) -> tuple[object, ...]:
    return (
        one.instance,
        one.tier,
        one.severity,
        one.given.cpu_millis,
        one.given.memory_mib,
        one.recommended.cpu_millis,
        one.recommended.memory_mib,
        one.reserved.cpu_millis,
        one.reserved.memory_mib,
        one.saving_micros_per_hour,
        "; ".join(one.evidence),
    )


def write_advice_csv(file: TextIO, advice: Sequence[Recommendation]) -> None:
    """Write one row for each instance."""
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow(ADVICE_COLUMNS)
    writer.writerows(_advice_row(one) for one in advice)


def write_explanation_csv(file: TextIO, found: InstanceExplanation) -> None:
    """Write one row: the advice, what it rests on, and the mean of each hour of the day."""
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow((*ADVICE_COLUMNS, *EXPLAINED, *(f"hour_{hour:02}_cores" for hour in range(24))))
    writer.writerow(
        (
            *_advice_row(found.recommendation),
            *(getattr(found, name) for name in EXPLAINED),
            *found.by_hour_cores,
        )
    )
