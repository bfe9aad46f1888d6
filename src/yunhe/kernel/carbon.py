"""Carbon intensity: how many grams of CO₂ a kilowatt-hour stands for, hour by hour."""

import csv
import io
import math
from datetime import UTC, datetime

import msgspec

HOUR_S = 3600.0
DAY_H = 24
LONGEST_H = 24 * 366
LARGEST_G_PER_KWH = 1e5
COLUMNS = ["hour", "g_per_kwh"]


class CarbonSeries(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """How clean a pool's power is, hour by hour."""

    g_per_kwh: tuple[float, ...] = ()
    """One entry per hour; beyond the last, the series repeats. One entry: the same at any hour."""
    starts_at: float = 0.0
    """When the first entry begins, in seconds since the epoch."""
    feed: str = ""
    """The address that the series is read from again and again; empty: it was told."""


def parse_carbon(text: str) -> CarbonSeries:
    """Read a number, or CSV with the columns ``hour,g_per_kwh``; raise ``ValueError`` naming the line that is wrong.

    Hours are 0 to 23 (UTC, the same every day) or times of ISO 8601. An hour that is left out has the value before it.
    """
    lines = [line for line in text.splitlines() if line.strip()]
    if len(lines) == 1 and "," not in lines[0]:
        return CarbonSeries(g_per_kwh=(_grams(lines[0], "the value"),))
    rows = list(csv.reader(io.StringIO("\n".join(lines))))
    if not rows or [cell.strip().lower() for cell in rows[0]] != COLUMNS:
        raise ValueError(f"the first line must be {','.join(COLUMNS)}")
    values: dict[int, float] = {}
    for number, cells in enumerate(rows[1:], start=2):
        if len(cells) != len(COLUMNS):
            raise ValueError(f"line {number} must have {len(COLUMNS)} cells")
        hour = _hour(cells[0].strip(), f"line {number}")
        if hour in values:
            raise ValueError(f"line {number}: the hour {cells[0].strip()} is there twice")
        values[hour] = _grams(cells[1], f"line {number}")
    if not values:
        raise ValueError("there is no line below the columns")
    return _filled(values)


def _hour(text: str, where: str) -> int:
    """Return an hour of the day, or the hours from the epoch to a time."""
    if text.isdecimal():
        if int(text) >= DAY_H:
            raise ValueError(
                f"{where}: {text!r} is not an hour; write 0 to 23, or a time like 2026-01-31T06:00Z"
            )
        return int(text)
    try:
        time = datetime.fromisoformat(text)
    except ValueError:
        raise ValueError(
            f"{where}: {text!r} is not an hour; write 0 to 23, or a time like 2026-01-31T06:00Z"
        ) from None
    seconds = (time if time.tzinfo else time.replace(tzinfo=UTC)).timestamp()
    if seconds % HOUR_S or seconds < DAY_H * HOUR_S:
        raise ValueError(f"{where}: {text!r} must be the beginning of an hour")
    return int(seconds // HOUR_S)


def _grams(text: str, where: str) -> float:
    try:
        grams = float(text)
    except ValueError:
        raise ValueError(f"{where}: {text.strip()[:40]!r} is not a number of grams per kWh") from None
    if not (math.isfinite(grams) and 0 <= grams <= LARGEST_G_PER_KWH):
        raise ValueError(
            f"{where}: {text.strip()[:40]!r} must be from 0 to {LARGEST_G_PER_KWH:g} grams per kWh"
        )
    return grams


def _filled(values: dict[int, float]) -> CarbonSeries:
    first, last = min(values), max(values)
    if first < DAY_H:
        if last >= DAY_H:
            raise ValueError("hours of the day and times cannot be mixed")
        if first > 0:
            values[0] = values[last]  # the last value of the day lasts until the first of the next
        first, last = 0, DAY_H - 1
    if last - first >= LONGEST_H:
        raise ValueError(f"there are more than {LONGEST_H} hours from the first to the last")
    series: list[float] = []
    for hour in range(first, last + 1):
        series.append(values.get(hour, series[-1] if series else 0.0))
    return CarbonSeries(g_per_kwh=tuple(series), starts_at=first * HOUR_S)
