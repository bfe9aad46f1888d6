"""What grew over a soak: a robust slope of each figure after warm-up, judged by a stated rule."""

import itertools
import math
import statistics
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from yunhe.observability.log_file import FILE_BYTES, OLDER_FILES

Sample = Mapping[str, float]
"""Figures by name; ``time_s`` counts from the start, ``jobs`` is the number submitted so far."""

WARM_UP_SHARE = 1 / 3
MEMORY_SHARE_PER_H = 0.02
MEMORY_MIB_PER_H = 2.0
COUNT_PER_H = 2.0
LEAST_GROWTH = 2.0
"""MiB, descriptors, threads or files: less than this over the whole measurement is noise."""
JUDGED_AFTER_S = 1200.0
ROWS_PER_JOB = 0.01
STEADY = 1.25
JOB_TABLES = frozenset(
    {
        "account_audit",
        "account_audit_chain",
        "application_submission",
        "blob",
        "blob_chunk",
        "blob_garbage",
        "chunk",
        "orchestration_allocation",
        "orchestration_job",
        "orchestration_log",
        "orchestration_round",
        "outbox_event",
        "perception_usage",
        "trade_balance",
        "trade_ledger",
    }
)
"""Tables that keep rows of every job; all others must not grow."""
BOUNDS = {"server logs MiB": (OLDER_FILES + 1) * FILE_BYTES / 2**20}
"""What may grow to a bound: the log rotates."""

RULE = f"""\
The first third of the samples is warm-up. For each figure after it: the median of the slopes between all pairs of samples
(Theil-Sen). It grows if that slope and the slope over the second half alone both exceed, per hour,
  memory                        {MEMORY_MIB_PER_H:g} MiB and {MEMORY_SHARE_PER_H:.0%} of the level
  descriptors, threads, files   {COUNT_PER_H:g}
and come to at least {LEAST_GROWTH:g} over the time measured. PSS is shown and not judged: it also rises when another process that
maps the same pages ends. What leaks is in RSS and in anonymous memory.
Tables that keep rows of jobs, and the database's size, may grow with the jobs: their growth per job in the second half
is at most {STEADY:g} times that in the first. The server's log stays within the bound of its rotation. Every other table gains less than one row in {1 / ROWS_PER_JOB:g} jobs.
Memory and what may grow with the jobs are judged if {JUDGED_AFTER_S / 60:g} minutes were measured after warm-up."""


class Growth(NamedTuple):
    """How one figure developed."""

    name: str
    level: float
    """The median after warm-up."""
    slope: float
    """Per hour, or per job for what the database keeps."""
    late_slope: float
    """The same over the second half."""
    grows: bool
    per: str = "h"


def judge(samples: Sequence[Sample]) -> list[Growth]:
    """Return how every figure developed after warm-up; of none if there are fewer than six samples."""
    kept = samples[int(len(samples) * WARM_UP_SHARE) :]
    if len(kept) < 4:
        return []
    names = [name for name in kept[-1] if name not in {"time_s", "jobs"}]
    return [_judge(name, kept) for name in names if all(name in sample for sample in kept)]


def _judge(name: str, kept: Sequence[Sample]) -> Growth:
    values = [sample[name] for sample in kept]
    level = statistics.median(values)
    if name in BOUNDS:
        return Growth(name, level, 0.0, 0.0, values[-1] > BOUNDS[name])
    span_s = kept[-1]["time_s"] - kept[0]["time_s"]
    in_database = name.startswith("rows ") or name == "database MiB"
    axis = [sample["jobs"] if in_database else sample["time_s"] / 3600 for sample in kept]
    half = len(kept) // 2
    whole, early, late = (
        slope(axis, values),
        slope(axis[:half], values[:half]),
        slope(axis[half:], values[half:]),
    )
    if name == "database MiB" or name.removeprefix("rows ") in JOB_TABLES:
        return Growth(name, level, whole, late, late > STEADY * early and span_s >= JUDGED_AFTER_S, "job")
    if in_database:
        return Growth(name, level, whole, late, min(whole, late) > ROWS_PER_JOB, "job")
    limit = COUNT_PER_H
    if name.endswith("PSS MiB"):
        limit = math.inf
    elif name.endswith("MiB"):
        share = MEMORY_SHARE_PER_H * level
        limit = max(MEMORY_MIB_PER_H, share) if span_s >= JUDGED_AFTER_S else math.inf
    return Growth(
        name, level, whole, late, min(whole, late) > limit and whole * span_s / 3600 >= LEAST_GROWTH
    )


def slope(xs: Sequence[float], ys: Sequence[float]) -> float:
    """Return the median of the slopes between all pairs of points; 0 if no two differ in x."""
    points = list(zip(xs, ys, strict=True))
    slopes = [(b[1] - a[1]) / (b[0] - a[0]) for a, b in itertools.combinations(points, 2) if b[0] != a[0]]
    return statistics.median(slopes) if slopes else 0.0


def table(samples: Sequence[Sample]) -> str:
    """Return the figures as a table, and the verdict under it."""
    found = judge(samples)
    if not found:
        return f"{len(samples)} samples are too few to judge."
    last = samples[-1]
    lines = [f"{last['jobs']:,.0f} jobs in {last['time_s'] / 60:.1f} minutes, {len(samples)} samples", ""]
    lines.append(f"{'':34}{'first':>10}{'median':>10}{'last':>10}{'slope':>12}{'late slope':>12}")
    for row in found:
        digits = 1 if row.name.endswith("MiB") else 0
        first, end = samples[0].get(row.name, 0.0), last[row.name]
        lines.append(
            f"{row.name:34}{first:>10,.{digits}f}{row.level:>10,.{digits}f}{end:>10,.{digits}f}"
            f"{row.slope:>12.4g}{row.late_slope:>12.4g} /{row.per}{'   GROWS' if row.grows else ''}"
        )
    growing = [row.name for row in found if row.grows]
    lines += [
        "",
        RULE,
        "",
        f"Grows: {', '.join(growing)}." if growing else "Nothing grows but the rows of jobs.",
    ]
    return "\n".join(lines)
