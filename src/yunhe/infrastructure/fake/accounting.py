"""What a fake allocation uses: all the cores and memory it was given, for as long as it runs."""

import math
from dataclasses import dataclass, field

from yunhe.infrastructure.contract.model import Meters, UsageMinute
from yunhe.kernel.ids import AllocationId
from yunhe.kernel.resources import Resources

SKETCH_BANDS = 32


def cpu_band(cpu_millis: float) -> int:
    """Return which of the log-spaced bands *cpu_millis* falls into: two bands to each doubling."""
    return min(SKETCH_BANDS - 1, int(2 * math.log2(cpu_millis))) if cpu_millis >= 1 else 0


@dataclass(slots=True)
class _Minute:
    number: int
    seconds: float = 0.0
    cpu_millis_s: float = 0.0
    cpu_max_millis: int = 0
    memory_mib_s: float = 0.0
    memory_max_mib: int = 0
    bands: list[float] = field(default_factory=lambda: [0.0] * SKETCH_BANDS)

    def add(self, seconds: float, cpu_millis: int, memory_mib: int) -> None:
        self.seconds += seconds
        self.cpu_millis_s += seconds * cpu_millis
        self.cpu_max_millis = max(self.cpu_max_millis, cpu_millis)
        self.memory_mib_s += seconds * memory_mib
        self.memory_max_mib = max(self.memory_max_mib, memory_mib)
        self.bands[cpu_band(cpu_millis)] += seconds


class UsageCounters:
    """Counters that only grow; minutes that are over go to a list shared by the whole pool."""

    def __init__(self, allocation_id: AllocationId, started_at: float, handed_out: list[UsageMinute]) -> None:
        self._id = allocation_id
        self._handed_out = handed_out
        self._started_at = self._told_at = started_at
        self._cpu_us = 0.0
        self._memory_mib_ms = 0.0
        self._memory_peak_mib = 0
        self._minute = _Minute(int(started_at // 60))

    def accrue(self, until: float, resources: Resources, *, working: bool) -> None:
        """Count the time up to *until* at these resources."""
        cpu_millis = resources.cpu_millis if working else 0
        while self._told_at < until:
            boundary = (self._minute.number + 1) * 60.0
            end = min(until, boundary)
            seconds = end - self._told_at
            self._cpu_us += seconds * cpu_millis * 1000
            self._memory_mib_ms += seconds * resources.memory_mib * 1000
            self._memory_peak_mib = max(self._memory_peak_mib, resources.memory_mib)
            self._minute.add(seconds, cpu_millis, resources.memory_mib)
            self._told_at = end
            if end == boundary:
                self._close_minute()

    def finish(self) -> None:
        """Hand out the minute that was still open when the allocation ended."""
        if self._minute.seconds > 0:
            self._close_minute()

    def meters(self, written_bytes: int) -> Meters:
        """Return the counters as of the last time that was counted."""
        return Meters(
            wall_ms=int((self._told_at - self._started_at) * 1000),
            cpu_us=int(self._cpu_us),
            memory_mib_ms=int(self._memory_mib_ms),
            memory_peak_mib=self._memory_peak_mib,
            written_bytes=written_bytes,
        )

    def _close_minute(self) -> None:
        minute, self._minute = self._minute, _Minute(self._minute.number + 1)
        self._handed_out.append(
            UsageMinute(
                seq=len(self._handed_out),
                allocation_id=self._id,
                minute=minute.number,
                samples=max(1, round(minute.seconds)),
                cpu_mean_millis=minute.cpu_millis_s / minute.seconds,
                cpu_max_millis=minute.cpu_max_millis,
                cpu_sketch=tuple(round(seconds) for seconds in minute.bands),
                memory_mean_mib=minute.memory_mib_s / minute.seconds,
                memory_max_mib=minute.memory_max_mib,
                read_bytes=0,
                written_bytes=0,
            )
        )
