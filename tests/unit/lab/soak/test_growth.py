"""The rule of a soak tells a leak from noise, steps and what flattens."""

import random
from collections.abc import Callable

import pytest
from lab.soak.growth import Sample, judge, slope, table

Figure = Callable[[float, random.Random], float]
"""Its value by the hours since the start, with some noise."""

MINUTES = 115
EVERY_S = 30.0


def samples(name: str, value: Figure) -> list[Sample]:
    """Return a soak of two jobs a second with one figure; *value* gets the hours since the start."""
    noise = random.Random(5)
    times = [number * EVERY_S for number in range(int(MINUTES * 60 / EVERY_S))]
    return [{"time_s": at, "jobs": 2 * at, name: value(at / 3600, noise)} for at in times]


def grows(name: str, value: Figure) -> bool:
    (row,) = judge(samples(name, value))
    return row.grows


LEAKS: list[tuple[str, Figure]] = [
    ("api RSS MiB", lambda h, r: 120 + 4 * h + r.gauss(0, 1)),
    ("agent anonymous MiB", lambda h, r: 15 + 2.5 * h + r.gauss(0, 0.3)),
    ("api descriptors", lambda h, r: 13 + int(6 * h) + r.choice([0, 0, 3])),
    ("agent files", lambda h, r: 11 + 7200 * h),
    ("unfinished jobs", lambda h, r: max(0.0, 100 * h + r.gauss(0, 3))),
    ("rows orchestration_wait", lambda h, r: 100 * h),
    ("rows trade_ledger", lambda h, r: 7200 * h if h < 1.2 else 7200 * 1.2 + 14400 * (h - 1.2)),
    ("database MiB", lambda h, r: 8 + 40 * h * h),
    ("server logs MiB", lambda h, r: 40 * h),
]


@pytest.mark.parametrize(("name", "value"), LEAKS)
def test_what_leaks_is_found(name: str, value: Figure) -> None:
    assert grows(name, value)


SOUND: list[tuple[str, Figure]] = [
    ("api RSS MiB", lambda h, r: 120 + r.gauss(0, 3)),
    ("api RSS MiB", lambda h, r: 120 + min(h, 0.5) * 60 + r.gauss(0, 1)),
    ("api RSS MiB", lambda h, r: 120 + (8 if h > 0.9 else 0) + r.gauss(0, 1)),
    ("spawner PSS MiB", lambda h, r: 6 + 3 * h),
    ("api descriptors", lambda h, r: 13 + r.choice([0, 1, 4])),
    ("unfinished jobs", lambda h, r: r.choice([0, 1, 40])),
    ("rows orchestration_wait", lambda h, r: r.choice([0, 1, 2])),
    ("rows trade_ledger", lambda h, r: 7200 * h),
    ("database MiB", lambda h, r: 8 + 20 * h + r.gauss(0, 0.1)),
    ("server logs MiB", lambda h, r: min(30.0, 20 * h)),
]


@pytest.mark.parametrize(("name", "value"), SOUND)
def test_noise_steps_and_rows_of_jobs_are_not_growth(name: str, value: Figure) -> None:
    assert not grows(name, value)


def test_a_slope_is_not_moved_by_a_few_wild_samples() -> None:
    values = [float(x) for x in range(50)]
    values[7] = values[30] = 1e6
    assert slope(range(50), values) == pytest.approx(1.0, rel=0.01)


def test_memory_of_a_run_of_seconds_is_shown_but_not_judged() -> None:
    short = samples("api RSS MiB", lambda h, r: 100 + 10_000 * h)[:12]
    assert "api RSS MiB" in table(short)
    assert not judge(short)[0].grows
