"""What an allocation has used: counters that only grow, one-second samples, and minutes folded from them.

Cpu comes from the kernel's counter for the group, disk from the counters of the task's processes, living and reaped:
a missed sample loses nothing of either. Memory has no such counter and is integrated from the samples; between two
that are further apart than ``GAP_MS`` the lower of the two counts, and the time is told as a gap.
"""

from __future__ import annotations

import math
import mmap
import os
import struct
from typing import Any, NamedTuple

from yunhe.agent.durable import reserve
from yunhe.agent.limits.limits import LimitGroup
from yunhe.agent.runs.processes import io_bytes, read_stat
from yunhe.agent.runtimes.wrapper import REAPED

RING = 128
GAP_MS = 2500
BANDS = 32

_TOTALS = struct.Struct("<QQQQQQ")
_SAMPLE = struct.Struct("<QQQQQQ")
SAMPLES_BYTES = _TOTALS.size + RING * _SAMPLE.size


class _Totals(NamedTuple):
    """What is kept of all samples, also of those the ring has overwritten."""

    memory_kib_ms: int
    peak_kib: int
    gap_ms: int
    taken: int
    first_ms: int
    folded_ms: int


class UsageSample(NamedTuple):
    """Counters at a moment."""

    clock_ms: int
    wall_ms: int
    """Milliseconds since the epoch, to tell which minute it belongs to."""
    cpu_us: int
    memory_kib: int
    read_bytes: int
    written_bytes: int


def band_of(cpu_millis: float) -> int:
    """Return which of the 32 bands a rate falls into: two bands to each doubling, from 1 milli to 65 cores."""
    return min(BANDS - 1, int(2 * math.log2(cpu_millis))) if cpu_millis >= 1 else 0


class Meter:
    """The ring of samples of one allocation and its totals, in a file that outlives the agent."""

    def __init__(self, path: str) -> None:
        reserve(path, SAMPLES_BYTES)  # a page without room on the disk would end whoever writes to it
        handle = os.open(path, os.O_RDWR | os.O_CLOEXEC)
        self._page = mmap.mmap(handle, SAMPLES_BYTES)
        os.close(handle)

    def close(self) -> None:
        """Let go of the file."""
        self._page.close()

    def add(self, sample: UsageSample) -> None:
        """Put *sample* into the ring and its memory into the integral; counters never go back."""
        totals = self._totals()
        last = self.last()
        if last is None:
            totals = totals._replace(first_ms=sample.clock_ms)
        else:
            between_ms = sample.clock_ms - last.clock_ms
            if between_ms <= 0:
                return
            sample = sample._replace(
                cpu_us=max(sample.cpu_us, last.cpu_us),
                read_bytes=max(sample.read_bytes, last.read_bytes),
                written_bytes=max(sample.written_bytes, last.written_bytes),
            )
            totals = _integrate(totals, last, sample)
        _SAMPLE.pack_into(self._page, _TOTALS.size + totals.taken % RING * _SAMPLE.size, *sample)
        peak_kib = max(totals.peak_kib, sample.memory_kib)
        self._set(totals._replace(taken=totals.taken + 1, peak_kib=peak_kib))

    def finish(self, final: UsageSample, peak_kib: int | None) -> None:
        """Add the counters of the end, once; a sample taken while they were being written may bear a later time."""
        last = self.last()
        more = last is not None and (final.cpu_us, *final[4:]) != (last.cpu_us, *last[4:])
        if last is not None and more:
            final = final._replace(clock_ms=max(final.clock_ms, last.clock_ms + 1))
        self.add(final)
        self.raise_peak(peak_kib)

    def raise_peak(self, peak_kib: int | None) -> None:
        """Take the kernel's own count of the most memory held: samples miss what comes and goes between them."""
        totals = self._totals()
        if peak_kib is not None and peak_kib > totals.peak_kib:
            self._set(totals._replace(peak_kib=peak_kib))

    def last(self) -> UsageSample | None:
        """Return the newest sample."""
        taken = self._totals().taken
        return self._sample(taken - 1) if taken else None

    def _sample(self, number: int) -> UsageSample:
        return UsageSample(*_SAMPLE.unpack_from(self._page, _TOTALS.size + number % RING * _SAMPLE.size))

    def totals(self) -> dict[str, int]:
        """Return the cumulative meters."""
        totals = self._totals()
        last = self.last()
        if last is None:
            return {}
        return {
            "wall_ms": last.clock_ms - totals.first_ms,
            "cpu_us": last.cpu_us,
            "memory_mib_ms": totals.memory_kib_ms // 1024,
            "memory_peak_mib": -(-totals.peak_kib // 1024),
            "read_bytes": last.read_bytes,
            "written_bytes": last.written_bytes,
            "gap_ms": totals.gap_ms,
        }

    def fold(self, *, everything: bool) -> list[dict[str, Any]]:
        """Return the minutes that are complete and not marked yet; with *everything*, the open one too."""
        pending = self._pending()
        minutes: list[dict[str, Any]] = []
        while len(pending) > 1:
            minute = pending[1].wall_ms // 60_000
            inside = [sample for sample in pending[1:] if sample.wall_ms // 60_000 <= minute]
            if len(inside) == len(pending) - 1 and not everything:
                break
            minutes.append(_fold_minute(minute, [pending[0], *inside]))
            pending = pending[len(inside) :]
        return minutes

    def mark(self, until_ms: int) -> None:
        """Remember that everything up to *until_ms* has been spooled."""
        totals = self._totals()
        self._set(totals._replace(folded_ms=max(totals.folded_ms, until_ms)))

    def _pending(self) -> list[UsageSample]:
        """Return the last folded sample and every one since."""
        totals = self._totals()
        samples = [self._sample(number) for number in range(max(0, totals.taken - RING), totals.taken)]
        return [sample for sample in samples if sample.clock_ms >= totals.folded_ms]

    def _totals(self) -> _Totals:
        return _Totals(*_TOTALS.unpack_from(self._page, 0))

    def _set(self, totals: _Totals) -> None:
        _TOTALS.pack_into(self._page, 0, *totals)


def _integrate(totals: _Totals, last: UsageSample, sample: UsageSample) -> _Totals:
    between_ms = sample.clock_ms - last.clock_ms
    if between_ms > GAP_MS:
        held = min(last.memory_kib, sample.memory_kib) * between_ms
        return totals._replace(memory_kib_ms=totals.memory_kib_ms + held, gap_ms=totals.gap_ms + between_ms)
    held = (last.memory_kib + sample.memory_kib) * between_ms // 2
    return totals._replace(memory_kib_ms=totals.memory_kib_ms + held)


def _fold_minute(minute: int, samples: list[UsageSample]) -> dict[str, Any]:
    """Fold a minute; the first sample is the one before it and only tells where the counters stood."""
    sketch = [0] * BANDS
    highest = 0.0
    for before, after in zip(samples, samples[1:]):  # noqa: B905, RUF007 - Python 3.8 has neither
        between_ms = after.clock_ms - before.clock_ms
        rate = (after.cpu_us - before.cpu_us) / between_ms
        sketch[band_of(rate)] += max(1, round(between_ms / 1000))
        highest = max(highest, rate)
    first, last = samples[0], samples[-1]
    memory = [sample.memory_kib / 1024 for sample in samples[1:]]
    return {
        "until_ms": last.clock_ms,
        "minute": minute,
        "samples": len(samples) - 1,
        "cpu_mean_millis": (last.cpu_us - first.cpu_us) / (last.clock_ms - first.clock_ms),
        "cpu_max_millis": highest,
        "cpu_sketch": sketch,
        "memory_mean_mib": sum(memory) / len(memory),
        "memory_max_mib": max(memory),
        "read_bytes": last.read_bytes - first.read_bytes,
        "written_bytes": last.written_bytes - first.written_bytes,
    }


def read_use(group: LimitGroup, reaped_path: str) -> tuple[int, int]:
    """Return cpu microseconds and resident KiB of a running allocation, up to now."""
    cpu_us = group.cpu_us()
    if cpu_us is None:
        stats = map(read_stat, group.processes())
        cpu_us = read_reaped(reaped_path)[0] + sum(stat.cpu_us for stat in stats if stat)
    return cpu_us, group.memory_kib()


def read_io(group: LimitGroup, reaped_path: str) -> tuple[int, int]:
    """Return bytes read and written by a running allocation, living and reaped processes together."""
    _, read_total, written_total = read_reaped(reaped_path)
    for pid in group.processes():
        read_bytes, written_bytes = io_bytes(pid)
        read_total += read_bytes
        written_total += written_bytes
    return read_total, written_total


def read_reaped(path: str) -> tuple[int, int, int]:
    """Return what the wrapper has published of its reaped processes."""
    try:
        with open(path, "rb") as file:
            data = file.read(REAPED.size)
    except FileNotFoundError:
        return 0, 0, 0
    return REAPED.unpack(data) if len(data) == REAPED.size else (0, 0, 0)
