"""The tables, as plain text that can be pasted into the documentation."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from lab.oversubscription.causes import calibrated, cause
from lab.oversubscription.evaluation import Evaluation, profile_text
from lab.oversubscription.methods import DEFAULT, MAIN, STATED
from lab.oversubscription.statistics import TINY, Matched, Rate, matched, percent, violation_rate
from yunhe.flexible.replay import ReplayOutcome

CORE_HOUR_COST = 0.10
"""Stated price book: one core of a host costs ¥0.10 an hour, whatever is on it."""

PAPER_ALLOCATED, PAPER_GAP = 0.80, 0.60


def grid(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a table as Markdown, padded so that it reads well as text."""
    body = [list(row) for row in rows]
    widths = [max(len(cell) for cell in column) for column in zip(header, *body, strict=True)]

    def line(cells: Sequence[str]) -> str:
        return "| " + " | ".join(cell.ljust(width) for cell, width in zip(cells, widths, strict=True)) + " |"

    return "\n".join([line(header), "|" + "|".join("-" * (w + 2) for w in widths) + "|", *map(line, body)])


def set_heading(result: Evaluation) -> str:
    """Return what was done to one set."""
    data, hosts = result.data, result.hosts
    counts = [len(step.window.instances) for step in result.steps[MAIN]]
    tuned = "" if data.tuned_until_s is None else " (the half on which no number was chosen)"
    left = f"; {hosts.left_out} instances larger than 0.8 of a host left out" if hosts.left_out else ""
    return (
        f"## {data.name}\n\n{min(counts)}–{max(counts)} instances a window, sizes {data.sizes}; "
        f"{len(counts)} windows{tuned}, {profile_text(data.schedule)}; hosts of {hosts.cores:g} cores, "
        f"{hosts.reason}{left}.\n"
    )


def method_table(result: Evaluation, seed: int) -> str:
    """Return the main table of one set."""
    header = (
        "method",
        "stated",
        "in sample",
        "violation out of sample [95 %]",
        "worst host",
        "lost work",
        "hosts",
        "hosts at 1 %",
        "vCPU/core",
        "utilisation",
        "¥/vCPU-h",
        "ms/window",
    )
    rows: list[Sequence[str]] = []
    for (name, stated), record in result.records.items():
        outcomes = record.outcomes
        rate = violation_rate(outcomes, seed)
        at_main = _at_main_rate(result, name, stated)
        cores = sum(one.hosts for one in outcomes) * result.hosts.cores
        rows.append(
            (
                f"**{name}**" if name == DEFAULT else name,
                percent(stated, 1) if stated else "–",
                percent(float(np.mean([one.in_sample for one in outcomes]))),
                rate_text(rate),
                percent(max(one.worst_host for one in outcomes), 1),
                percent(lost_work(outcomes)),
                f"{np.mean([one.hosts for one in outcomes]):.1f}",
                f"{at_main.hosts:.1f}" if at_main else "–",
                f"{sum(one.requested for one in outcomes) / cores:.2f}",
                percent(utilisation(outcomes, result.hosts.cores), 1),
                tenant_cost(outcomes, result.hosts.cores),
                f"{1000 * record.seconds / len(outcomes):.0f}" if record.seconds else "–",
            )
        )
    return grid(header, rows)


def utilisation(outcomes: Sequence[ReplayOutcome], cores: float, hosts: int | None = None) -> float:
    """Return used over available core-time: of the hosts used, or of *hosts* given ones."""
    slots = [one.judged / max(1, one.hosts) for one in outcomes]
    available = sum(
        (one.hosts if hosts is None else hosts) * length for one, length in zip(outcomes, slots, strict=True)
    )
    return sum(one.used for one in outcomes) / (available * cores)


def lost_work(outcomes: Sequence[ReplayOutcome]) -> float:
    """Return the share of the work asked for that overloaded hosts could not do."""
    return sum(one.lost for one in outcomes) / max(TINY, sum(one.used for one in outcomes))


def tenant_cost(outcomes: Sequence[ReplayOutcome], cores: float, hosts: int | None = None) -> str:
    """Return what a vCPU costs for an hour: the hosts used, or *hosts* given ones, shared by what is on them."""
    paid = sum(one.hosts if hosts is None else hosts for one in outcomes) * cores
    return f"{CORE_HOUR_COST * paid / max(TINY, sum(one.requested for one in outcomes)):.4f}"


def rate_text(rate: Rate) -> str:
    """Return a rate with its interval."""
    return f"{percent(rate.value)} [{100 * rate.low:.2f}, {100 * rate.high:.2f}]"


def _at_main_rate(result: Evaluation, name: str, stated: float | None) -> Matched | None:
    if name.startswith("fixed"):
        return matched(MAIN, result.sweeps["fixed ratio"])
    if name in result.sweeps and stated in {None, MAIN}:
        return matched(MAIN, result.sweeps[name])
    return None


def calibration_table(results: Sequence[Evaluation], seed: int) -> str:
    """Return stated against realised for the default on every set, and what other rules take at the same rate.

    Which fixed ratio, or which of the other rules with which margin, realises that rate is known only afterwards.
    """
    header = (
        "set",
        "stated",
        "realised violation [95 %]",
        "ratio",
        "0.3–1.5×",
        "lost work",
        "hosts",
        "¥/vCPU-h",
        "fixed ratio at the same rate: hosts, lost",
        "fewer hosts",
        "best simple rule at the same rate: hosts, lost",
    )
    rows: list[Sequence[str]] = []
    for result in results:
        for stated in STATED:
            outcomes = result.records[DEFAULT, stated].outcomes
            rate = violation_rate(outcomes, seed)
            hosts = float(np.mean([one.hosts for one in outcomes]))
            fixed = matched(rate.value, result.sweeps["fixed ratio"])
            rows.append(
                (
                    result.data.name,
                    percent(stated, 1),
                    rate_text(rate),
                    f"{rate.value / stated:.2f}",
                    "yes" if calibrated(rate.value, stated) else "NO",
                    percent(lost_work(outcomes)),
                    f"{hosts:.1f}",
                    tenant_cost(outcomes, result.hosts.cores),
                    f"{fixed.hosts:.1f}, {percent(fixed.lost)}" if fixed else "none is that safe",
                    f"{round(100 * (1 - hosts / fixed.hosts))} %" if fixed else "–",
                    _best_simple_rule(result, rate.value),
                )
            )
    return grid(header, rows)


def _best_simple_rule(result: Evaluation, rate: float) -> str:
    """Return the rule that, with the margin that gives *rate*, takes the fewest hosts."""
    found = [
        (at.hosts, at.lost, name)
        for name, sweep in result.sweeps.items()
        if name != "fixed ratio" and (at := matched(rate, sweep))
    ]
    if not found:
        return "none is that safe"
    hosts, lost, name = min(found)
    return f"{name}: {hosts:.1f}, {percent(lost)}"


def misses(results: Sequence[Evaluation]) -> str:
    """Return a sentence on each row outside the band, from the evidence of the walk itself."""
    lines = [
        f"- {result.data.name} at {percent(stated, 1)}: {why}"
        for result in results
        for stated in STATED
        if (why := cause(result, stated)) is not None
    ]
    return "\n".join(lines) or "None."


def baseline_table(results: Sequence[Evaluation]) -> str:
    """Return the gap between what is sold and what is used in a pool without oversubscription.

    The pool has the hosts that its busiest window takes at 1×, so that nobody is ever refused; how much of it is
    allocated on average is found, not set. Beside it what is used of a pool of which the published 80 % are sold.
    """
    header = (
        "set",
        "hosts",
        "allocated",
        "used",
        "gap",
        "used where 80 % are sold",
        "gap there",
        "within 5 points of the paper's",
    )
    rows: list[Sequence[str]] = []
    for result in results:
        one = baseline(result)
        rows.append(
            (
                result.data.name,
                f"{one.hosts}",
                percent(one.allocated, 1),
                percent(one.used, 1),
                f"{100 * (one.allocated - one.used):.0f} points",
                percent(one.used_of_sold * PAPER_ALLOCATED, 1),
                f"{100 * one.gap_at_published:.0f} points",
                _against_published(one.gap_at_published),
            )
        )
    rows.append(("the paper", "–", "80 %+", "about 20 %", "60 points", "about 20 %", "60 points", "–"))
    return grid(header, rows)


def _against_published(gap: float) -> str:
    if abs(gap - PAPER_GAP) <= 0.05:
        return "yes"
    return "no, wider" if gap > PAPER_GAP else "no, narrower"


@dataclass(frozen=True, slots=True)
class Baseline:
    """A pool without oversubscription, sized for its busiest window."""

    hosts: int
    allocated: float
    used: float

    @property
    def used_of_sold(self) -> float:
        """Return how much of what is sold is used."""
        return self.used / self.allocated

    @property
    def gap_at_published(self) -> float:
        """Return the gap where the published share of the cores is sold."""
        return PAPER_ALLOCATED * (1 - self.used_of_sold)


def baseline(result: Evaluation) -> Baseline:
    """Return the pool that takes everybody at 1× in every window: what is allocated and used on average."""
    outcomes = result.records["fixed 1x", None].outcomes
    hosts = max(one.hosts for one in outcomes)
    cores = hosts * result.hosts.cores
    slots = [one.judged / max(1, one.hosts) for one in outcomes]
    allocated = float(np.mean([one.requested for one in outcomes])) / cores
    return Baseline(hosts, allocated, sum(one.used for one in outcomes) / (cores * sum(slots)))


def ratio_table(results: Sequence[Evaluation], seed: int) -> str:
    """Return what fixed ratios do to hosts: some idle, some short, at the same time in the same pool."""
    header = (
        "set",
        "policy",
        "hosts",
        "¥/vCPU-h",
        "violation [95 %]",
        "hosts used below a quarter",
        "hosts ever short",
    )
    rows: list[Sequence[str]] = []
    for result in results:
        for ratio in (1, 2, 3):
            name = f"fixed {ratio}x"
            outcomes = result.records[name, None].outcomes
            idle, hot = np.mean(result.idle_and_hot[name], axis=0)
            rows.append(
                (
                    result.data.name,
                    name,
                    f"{np.mean([one.hosts for one in outcomes]):.1f}",
                    tenant_cost(outcomes, result.hosts.cores),
                    rate_text(violation_rate(outcomes, seed)),
                    percent(idle, 0),
                    percent(hot, 0),
                )
            )
    return grid(header, rows)
