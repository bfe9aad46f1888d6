"""The assessment as one HTML file that explains itself: no script, no font, nothing to fetch."""

from collections.abc import Sequence
from html import escape
from pathlib import Path

from yunhe.entrypoints.cli.views.flex import monthly, percent, spec_text, understood
from yunhe.entrypoints.cli.views.flex_svg import (
    Axis,
    PlotMark,
    PointGroup,
    band,
    bars,
    columns,
    heat_map,
    scatter,
)
from yunhe.flexible.assessment.comparison import ENOUGH_WINDOWS, Assessment, PolicyResult
from yunhe.flexible.reading.rows import TraceReading
from yunhe.flexible.sizing.rightsizing import Recommendation, Severity, flavour_waste
from yunhe.kernel.money import Prices, show_money
from yunhe.kernel.units import show_duration

SHOWN_SIZES = 15
BUCKETS = ((0, 0.05), (0.05, 0.1), (0.1, 0.2), (0.2, 0.3), (0.3, 0.5), (0.5, 0.75), (0.75, float("inf")))
BUCKET_NAMES = ("< 5 %", "5–10 %", "10–20 %", "20–30 %", "30–50 %", "50–75 %", "> 75 %")

STYLE = """
:root{--ink:#1b2430;--dim:#5b6777;--line:#dfe5ec;--page:#fbfcfd;--card:#fff;--flexible:#1f6f54;--fixed:#b7791f;--cool:#3b6ea5}
@media (prefers-color-scheme:dark){:root{--ink:#e6ebf1;--dim:#9aa7b6;--line:#313b47;--page:#14181d;--card:#1c2229;
--flexible:#5cc29a;--fixed:#e2ae5b;--cool:#7fb0e6}}
*{box-sizing:border-box}body{margin:0;background:var(--page);color:var(--ink);font:16px/1.55 system-ui,sans-serif}
main{max-width:880px;margin:0 auto;padding:32px 20px 80px}h1{font-size:28px;line-height:1.25;margin:0 0 6px}
h2{font-size:20px;margin:44px 0 6px}p{margin:8px 0}.dim{color:var(--dim)}.small{font-size:14px}
.figures{display:grid;grid-template-columns:repeat(auto-fit,minmax(180px,1fr));gap:12px;margin:22px 0}
.figure{background:var(--card);border:1px solid var(--line);border-radius:10px;padding:14px 16px}
.figure b{display:block;font-size:26px;line-height:1.2}table{border-collapse:collapse;width:100%;margin:14px 0;font-size:14.5px}
th,td{text-align:right;padding:6px 8px;border-bottom:1px solid var(--line);vertical-align:top}th{font-weight:600;color:var(--dim)}
td{white-space:nowrap}th:first-child,td:first-child{text-align:left}td.text,th.text{text-align:left;white-space:normal}tr.ours td{font-weight:600}
.plot{background:var(--card);border:1px solid var(--line);border-radius:10px;padding:12px;margin:14px 0}
.scroll{overflow-x:auto}svg{width:100%;height:auto;display:block}svg text{fill:var(--ink);font:12px system-ui,sans-serif}
svg .tick{fill:var(--dim)}svg .title{fill:var(--dim)}svg .grid{stroke:var(--line)}svg .axis{stroke:var(--dim)}
svg .flexible{fill:var(--flexible)}svg .fixed{fill:var(--fixed)}svg .cool{fill:var(--cool)}
svg .line{fill:none;stroke-width:2}svg .flexible.line{stroke:var(--flexible)}svg .fixed.line{stroke:var(--fixed)}
svg .band{fill:var(--flexible);opacity:.14}svg .equal{fill:none;stroke:var(--dim);stroke-dasharray:4 4}
.critical{color:#c0392b}.warning{color:var(--fixed)}details{margin:10px 0}summary{cursor:pointer;color:var(--dim)}
dt{font-weight:600;margin-top:8px}dd{margin:0 0 0 18px}
"""


def write_report(
    path: Path, found: Assessment, reading: TraceReading, advice: Sequence[Recommendation], prices: Prices
) -> None:
    """Write the report to *path*."""
    body = "".join(
        (
            _headline(found),
            _policies(found),
            _distribution(found),
            _density(found),
            _calibration(found),
            _heat(found),
            _sizes(advice, prices),
            _how(found),
            _input(reading, found),
        )
    )
    path.write_text(
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width,initial-scale=1">'
        f"<title>Flexible computing: what this pool could carry</title><style>{STYLE}</style></head>"
        f"<body><main>{body}</main></body></html>\n",
        encoding="utf-8",
    )


def _named(found: Assessment, name: str) -> PolicyResult:
    return next(one for one in found.policies if one.name == name)


def _headline(found: Assessment) -> str:
    totals, flexible = found.totals, _named(found, "flexible")
    one = _named(found, "fixed 1×")
    used = totals.used_cores_mean / totals.requested_cores
    gain = flexible.vcpus / one.vcpus
    length = f"{totals.days:.0f} days" if totals.days >= 2 else f"{totals.days * 24:.0f} hours"
    figures = (
        (percent(used, 0), f"of the {totals.requested_cores:,.0f} cores given out were used on average"),
        (f"{gain:.1f}×", f"as many vCPU fit the same {found.hosts.count} hosts as without oversubscription"),
        (
            percent(flexible.violation, 2),
            f"of the time a host was then really short of CPU; {percent(flexible.stated or 0, 1)} was allowed",
        ),
        (
            f"{flexible.hosts_needed:.1f}",
            f"hosts are enough for all {totals.instances} instances; {one.hosts_needed:.0f} at one core per vCPU",
        ),
    )
    boxes = "".join(f'<div class="figure"><b>{value}</b>{escape(text)}</div>' for value, text in figures)
    return (
        f"<h1>What this pool could carry</h1><p class='dim'>{totals.instances} instances over {length}, "
        f"a sample every {show_duration(totals.period_s)}; {found.hosts.count} hosts of {found.hosts.cores:g} cores"
        f"</p><div class='figures'>{boxes}</div>"
        "<p>Most instances use far less than they were given, and rarely all at the same time. So a host can take "
        "more of them than its cores would suggest. How many more is the question: too few wastes machines, too "
        "many makes everybody slow at the worst moment. This report replays what really happened and counts both.</p>"
    )


def _policies(found: Assessment) -> str:
    rows = "".join(
        f"<tr{' class=ours' if one.stated else ''}><td>{escape(one.name)}</td><td>{one.placed:.0f}</td>"
        f"<td>{one.vcpus:,.0f}</td><td>{one.vcpu_per_core:.2f}</td><td>{percent(one.utilisation)}</td>"
        f"<td>{percent(one.stated) if one.stated else '–'}</td><td>{percent(one.violation, 2)}</td>"
        f"<td>{percent(one.worst_host)}</td><td>{one.hosts_needed:.1f}</td>"
        f"<td>{show_money(one.cost_micros_per_vcpu_hour)}</td></tr>"
        for one in found.policies
    )
    return (
        f"<h2>The same {found.hosts.count} hosts, four ways of filling them</h2>"
        "<p>A fixed ratio sells so many vCPU for each real core, whatever they do. Flexible placement looks at what "
        "the instances on each host use together and stops before the overload you allow.</p>"
        "<div class='scroll'><table><tr><th>policy</th><th>instances placed</th><th>vCPU</th><th>vCPU per core</th>"
        "<th>cores used</th><th>overload allowed</th><th>overload that happened</th><th>worst host, worst time</th>"
        f"<th>hosts for all</th><th>cost per vCPU-hour</th></tr>{rows}</table></div>"
        "<p class='dim small'>Overload: the share of time in which a host was asked for more CPU than it has. Cost "
        "per vCPU-hour: what the hosts cost, shared by the vCPU on them.</p>"
    )


def _distribution(found: Assessment) -> str:
    def shares(values: Sequence[float]) -> list[float]:
        return [sum(low <= value < high for value in values) / max(1, len(values)) for low, high in BUCKETS]

    mean, peak = shares(found.mean_utilisation), shares(found.p95_utilisation)
    y = Axis("share of instances", 0, max(*mean, *peak, 0.1) * 1.15, lambda v: percent(v, 0))
    drawing = columns(
        (("on average", "cool", mean), ("at its 95th percentile", "fixed", peak)),
        BUCKET_NAMES,
        "CPU used, as a share of what the instance was given",
        y,
    )
    idle = sum(value < 0.2 for value in found.mean_utilisation) / max(1, len(found.mean_utilisation))
    return (
        "<h2>How much of what was given out is used</h2>"
        f"<p>{percent(idle, 0)} of the instances use less than a fifth of their CPU on average. The second set of "
        "columns shows a busy moment of each instance (one in twenty samples is higher).</p>"
        f'<div class="plot">{drawing}</div>'
    )


def _density(found: Assessment) -> str:
    top = max([one.realised_when_all_placed for one in found.calibration] + [0.02]) * 1.5
    shown = [one for one in found.ratios if one.realised <= top]
    most = max(one.hosts for one in [*shown, *found.calibration])
    x = Axis("hosts needed for all instances (fewer is cheaper)", 0, most * 1.08, lambda v: f"{v:g}")
    y = Axis("overload that happened", 0, top, lambda v: percent(v, 0 if top > 0.05 else 1))
    fixed = tuple(
        PlotMark(
            one.hosts,
            one.realised,
            f"{one.ratio:g}×",
            f"fixed {one.ratio:g}×: {one.hosts:.1f} hosts, {percent(one.realised, 2)} overload",
        )
        for one in shown
    )
    flexible = tuple(
        PlotMark(
            one.hosts,
            one.realised_when_all_placed,
            f"{100 * one.stated:g} % allowed",
            f"flexible, {percent(one.stated)} stated: {one.hosts:.1f} hosts, "
            f"{percent(one.realised_when_all_placed, 2)} overload",
        )
        for one in found.calibration
    )
    groups = (
        PointGroup("fixed ratio", "fixed", fixed, joined=True),
        PointGroup("flexible", "flexible", flexible, joined=True, labels_left=True),
    )
    return (
        "<h2>Density against overload</h2><p>Each point is a way of placing every instance. Left means fewer hosts, "
        "down means fewer moments of shortage: down and left is better. A fixed ratio must be guessed in advance; "
        "the flexible points follow from what you state.</p>"
        f'<div class="plot">{scatter(groups, x, y)}</div>'
    )


def _calibration(found: Assessment) -> str:
    def show(value: float) -> str:
        return f"{100 * value:g} %"

    x = Axis("overload you allow", 0.003, 0.09, show, (0.005, 0.01, 0.02, 0.05), log=True)
    y = Axis("overload that happened", 0.0002, 0.2, show, (0.001, 0.01, 0.1), log=True)
    marks = tuple(
        PlotMark(
            one.stated,
            one.realised,
            percent(one.realised, 2),
            f"stated {percent(one.stated)}, realised {percent(one.realised, 2)}",
        )
        for one in found.calibration
    )
    drawing = scatter((PointGroup("flexible", "flexible", marks),), x, y, band(x, y, 0.3, 1.5))
    rows = "".join(
        f"<tr><td>{percent(one.stated)}</td><td>{percent(one.realised, 2)}</td><td>{one.realised / one.stated:.2f}</td>"
        f"<td>{percent(one.worst_window)}</td><td>{one.hosts:.1f}</td></tr>"
        for one in found.calibration
    )
    return (
        "<h2>Can the stated overload be believed?</h2><p>The same walk with four different limits. On the dashed line "
        "what happened is exactly what was allowed; inside the green band it is between 0.3 and 1.5 times that. "
        "What is kept is the rate over time: one bad day may be well above it, as the fourth column shows.</p>"
        f"{_few(found)}"
        f'<div class="plot">{drawing}</div>'
        "<table><tr><th>allowed</th><th>happened</th><th>ratio</th><th>worst placement</th><th>hosts for all</th></tr>"
        f"{rows}</table>"
    )


def _few(found: Assessment) -> str:
    if found.windows >= ENOUGH_WINDOWS:
        return ""
    return (
        f"<p class='warning'>Only {found.windows} placements were judged: too few to show whether the limit is kept. "
        f"It takes {ENOUGH_WINDOWS} or more.</p>"
    )


def _heat(found: Assessment) -> str:
    return (
        "<h2>Every host, hour by hour</h2><p>The last placement of the walk, and what then happened: a row for each "
        "host, time from left to right. Pale is idle, dark blue is full, "
        '<span class="critical">red</span> is a moment in which the host was asked for more than it has.</p>'
        f'<div class="plot">{heat_map(found.heat, found.heat_hours)}</div>'
    )


def _sizes(advice: Sequence[Recommendation], prices: Prices) -> str:
    waste = flavour_waste(tuple(advice), prices)
    saved = waste.given_micros_per_hour - waste.tailored_micros_per_hour
    top = [one for one in advice if one.saving_micros_per_hour > 0][:10]
    drawing = bars(
        [
            (
                one.instance,
                float(one.saving_micros_per_hour),
                f"{monthly(one.saving_micros_per_hour)} a month",
            )
            for one in top
        ]
    )
    short = [one for one in advice if one.severity is Severity.CRITICAL]
    rows = "".join(
        f"<tr><td>{escape(one.instance)}</td><td class='{one.severity}'>{one.severity}</td>"
        f"<td>{spec_text(one.given)}</td><td>{spec_text(one.recommended)}</td>"
        f"<td>{monthly(one.saving_micros_per_hour)}</td>"
        f"<td class='text small'>{escape('; '.join(one.evidence))}</td></tr>"
        for one in [*short, *(one for one in advice if one.severity is not Severity.CRITICAL)][:SHOWN_SIZES]
    )
    return (
        "<h2>What each instance should be</h2>"
        f"<p>All instances cost {show_money(waste.given_micros_per_hour)} an hour as given. Sized to what they use "
        f"on their busiest day of the week they would cost {show_money(waste.tailored_micros_per_hour)}: "
        f"<b>{monthly(saved)} a month less</b>. The best fixed flavours (2 cores 4 GiB, 8 cores "
        f"32 GiB …) would cost {show_money(waste.flavours_micros_per_hour)}, of which {percent(waste.share)} serves "
        f"no demand. {len(short)} instances are too small today.</p>"
        f'<div class="plot">{drawing}</div>'
        "<div class='scroll'><table><tr><th>instance</th><th>severity</th><th>given</th><th>should be</th>"
        f"<th>saves a month</th><th class='text'>why</th></tr>{rows}</table></div>"
        "<p class='dim small'>All of them: <code>yunhe flex recommend FILE --output csv</code>. Prices: "
        f"{show_money(prices.cpu_core_hour_micros)} per core-hour, {show_money(prices.memory_gib_hour_micros)} per "
        "GiB-hour.</p>"
    )


def _how(found: Assessment) -> str:
    return (
        "<h2>How this was worked out</h2>"
        f"<p>The trace was walked through as it happened ({escape(found.profile)}; {found.windows} placements). Before "
        "each placement only the past was looked at. Several rules for how much a host needs were tried on the "
        "windows already gone by, each with a range of safety margins; the one that would have met the limit with the "
        f"fewest hosts was used next. The last one used was “{escape(found.rule)}” with a margin of "
        f"{found.margin:.2f}. Then the hosts were judged on what came after.</p>"
        "<details><summary>Words</summary><dl>"
        "<dt>vCPU</dt><dd>A core as it is sold. Without oversubscription one vCPU is one real core.</dd>"
        "<dt>Overload</dt><dd>The instances on a host together ask for more CPU than it has. They are slowed down "
        "until it passes; nothing fails.</dd>"
        "<dt>95th percentile</dt><dd>Nineteen of twenty samples are lower.</dd>"
        "<dt>Aligned</dt><dd>Instances are added up moment by moment, so that those which are busy together count "
        "together. Treating them as independent would understate the peaks.</dd></dl></details>"
        "<details><summary>What it cannot see</summary><p>Samples are averages over "
        f"{show_duration(found.totals.period_s)}: shorter peaks are invisible. Instances that start after a placement "
        "are not in it. Memory is never oversubscribed here. A load unlike anything in the past will surprise any "
        "rule; the error budget then makes the next placements more careful.</p></details>"
    )


def _input(reading: TraceReading, found: Assessment) -> str:
    lines = "".join(f"<li>{escape(line)}</li>" for line in [*understood(reading), *found.notes])
    return f"<h2>What was read</h2><ul class='small'>{lines}</ul>"
