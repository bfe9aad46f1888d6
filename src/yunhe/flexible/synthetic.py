"""A made-up cluster that behaves like real ones: a shared rhythm, bursts, a compute farm, slow drift."""

from dataclasses import dataclass

import numpy as np

from yunhe.flexible.trace import DAY_S, HOUR_S, Dimension, Floats, Trace

KINDS = ("office", "web", "batch", "farm", "idle")
DEMO_START_S = 1_767_571_200  # Monday 5 January 2026, 00:00 UTC


@dataclass(frozen=True, slots=True)
class Cluster:
    """What to make up."""

    instances: int = 160
    days: int = 21
    period_s: int = 300
    seed: int = 1


def synthetic_trace(cluster: Cluster) -> Trace:
    """Return a trace of office, web, batch, farm and idle instances; the same for the same seed.

    They share a pool-wide factor, so that they peak together more than independence would have it.
    """
    random = np.random.default_rng(cluster.seed)
    slots = cluster.days * DAY_S // cluster.period_s
    hour = (np.arange(slots) * cluster.period_s / HOUR_S) % 24
    weekday = (np.arange(slots) * cluster.period_s // DAY_S) % 7 < 5
    shared = _wandering(random, slots, hours=6, period_s=cluster.period_s)
    kinds = random.choice(5, size=cluster.instances, p=(0.35, 0.2, 0.1, 0.1, 0.25))
    cores = random.choice((1, 2, 4, 8, 16), size=cluster.instances, p=(0.25, 0.3, 0.25, 0.15, 0.05))
    gib_per_core = random.choice((2, 4, 8), size=cluster.instances, p=(0.4, 0.4, 0.2))
    rhythm = (
        _office(hour, weekday),
        _web(hour),
        _batch(hour),
        _farm(random, slots, cluster.period_s),
        np.full(slots, 0.02),
    )
    cpu = np.zeros((cluster.instances, slots), dtype=np.float32)
    memory = np.zeros_like(cpu)
    for row in range(cluster.instances):
        level = random.uniform(0.15, 0.75)
        drift = 1 + random.normal(0, 0.15) * np.arange(slots) / slots
        own = _wandering(random, slots, hours=1, period_s=cluster.period_s)
        share = level * rhythm[kinds[row]] * drift * np.exp(0.25 * shared + 0.35 * own)
        share = share + _bursts(random, slots) + random.uniform(0.005, 0.03)
        cpu[row] = cores[row] * np.clip(share, 0, 1)
        given_mib = cores[row] * gib_per_core[row] * 1024
        memory[row] = given_mib * np.clip(random.uniform(0.2, 0.6) + 0.15 * share, 0.02, 1)
    cpu[random.random(cpu.shape) < 0.002] = np.nan
    names = tuple(f"{KINDS[kind]}-{row:03}" for row, kind in enumerate(kinds))
    return Trace(
        names,
        DEMO_START_S,
        cluster.period_s,
        {Dimension.CPU: cpu, Dimension.MEMORY: memory},
        {
            Dimension.CPU: cores.astype(np.float64),
            Dimension.MEMORY: (cores * gib_per_core * 1024).astype(np.float64),
        },
    )


def _office(hour: Floats, weekday: np.ndarray[tuple[int, ...], np.dtype[np.bool_]]) -> Floats:
    day = np.exp(-(((hour - 10.5) / 2.2) ** 2)) + 0.9 * np.exp(-(((hour - 15.5) / 2.4) ** 2))
    return 0.08 + 0.6 * day * np.where(weekday, 1.0, 0.15)


def _web(hour: Floats) -> Floats:
    return 0.25 + 0.35 * np.exp(-(((hour - 20.5) / 3.0) ** 2))


def _batch(hour: Floats) -> Floats:
    return np.where((hour >= 1) & (hour < 4.5), 1.2, 0.05)


def _farm(random: np.random.Generator, slots: int, period_s: int) -> Floats:
    """Return campaigns: for hours everything in the farm is busy at once, then nothing is."""
    busy = np.zeros(slots)
    slot = 0
    while slot < slots:
        slot += int(random.exponential(20 * HOUR_S / period_s))
        length = int(random.exponential(9 * HOUR_S / period_s)) + 1
        busy[slot : slot + length] = 1.5
        slot += length
    return 0.03 + busy


def _wandering(random: np.random.Generator, slots: int, hours: float, period_s: int) -> Floats:
    """Return unit-variance noise that forgets itself over *hours*."""
    keep = np.exp(-period_s / (hours * HOUR_S))
    steps = random.normal(0, np.sqrt(1 - keep**2), slots)
    path = np.empty(slots)
    value = random.normal()
    for slot in range(slots):
        value = keep * value + steps[slot]
        path[slot] = value
    return path


def _bursts(random: np.random.Generator, slots: int) -> Floats:
    """Return rare plateaus: a build, a backup, a runaway query."""
    extra = np.zeros(slots)
    for start in np.flatnonzero(random.random(slots) < 1 / 900):
        length = int(random.exponential(6)) + 1
        extra[start : start + length] += random.uniform(0.2, 0.8)
    return extra
