"""What an allocation has used, from what its node says of it now and then.

Processor time is the kernel's own counter and loses nothing between samples; what came after the last one, and the bytes
of its disks, the wrapper tells when it ends. That stands in a note to which the task can write too: it can add to what the
node has told, never take from it. Memory has no counter and is integrated; a gap longer than ``GAP_S`` counts at the lower
of its two ends. Minutes are folded in this process: when it ends, the open
minute of each running allocation is lost, the counters are not, for they are written on the pod every minute.
"""

import itertools
from typing import NamedTuple

from yunhe.agent.runs.meters import BANDS, band_of
from yunhe.infrastructure.contract.model import Meters, UsageMinute
from yunhe.infrastructure.kubernetes.objects.wrapper import Used
from yunhe.kernel.ids import AllocationId

GAP_S = 45.0
"""Kubelets look at a container every ten to twenty seconds."""
KEPT_MINUTES = 20_000
MOST_CORES = 1024
MOST_MEMORY_MIB = 64 * 2**20
MOST_BYTES_PER_MS = 10**8
"""More than a node can do: a task that tells more than these has made it up."""


class PodSample(NamedTuple):
    """Counters at a moment."""

    at: float
    cpu_us: int
    memory_mib: float


class PodMeter:
    """The counters of one allocation; they only grow."""

    def __init__(self, allocation_id: AllocationId, held: Meters) -> None:
        self.allocation_id = allocation_id
        self._held = held
        self._memory_mib_ms = float(held.memory_mib_ms)
        self._memory_peak_mib = float(held.memory_peak_mib)
        self._covered_ms = 0.0
        self._last: PodSample | None = None
        self._minute: list[PodSample] = []
        self._closed = False

    def add(self, sample: PodSample) -> list[PodSample]:
        """Take a sample in; return the samples of a minute that is over, beginning with the one before it."""
        self._memory_peak_mib = max(self._memory_peak_mib, sample.memory_mib)
        last, self._last = self._last, sample
        if last is not None:
            if sample.at <= last.at:
                self._last = last
                return []
            sample = sample._replace(cpu_us=max(sample.cpu_us, last.cpu_us))
            self._last = sample
            self._integrate(last, sample)
        over: list[PodSample] = []
        if len(self._minute) > 1 and int(self._minute[1].at // 60) != int(sample.at // 60):
            over, self._minute = self._minute, [self._minute[-1]]
        self._minute.append(sample)
        return over

    def rest(self, began: float, ended: float) -> list[PodSample]:
        """Return the samples of the open minute, for there will be no more.

        The end is the last one, and where no sample saw it the start is the first. If these are too far apart, nobody
        knows what lies between.
        """
        rest, self._minute = self._minute, []
        if self._closed:
            return []
        self._closed = True
        memory_mib = rest[-1].memory_mib if rest else self._held.memory_peak_mib
        rest = rest or [PodSample(began, 0, 0.0)]
        end = PodSample(ended + 1.0, self._held.cpu_us, memory_mib)  # it ended within that second
        if 0 < end.at - rest[-1].at <= GAP_S:
            rest.append(end)
        return rest if len(rest) > 1 else []

    def meters(self, wall_ms: int, used: Used | None = None) -> Meters:
        """Return the counters, the wall time being what the pod tells, and *used* what its task tells at its end."""
        last = self._last
        told = _possible(used, wall_ms) if used is not None else Used(0)
        self._held = Meters(
            wall_ms=max(self._held.wall_ms, wall_ms),
            cpu_us=max(self._held.cpu_us, last.cpu_us if last is not None else 0, told.cpu_us),
            memory_mib_ms=int(self._memory_mib_ms),
            memory_peak_mib=max(round(self._memory_peak_mib), told.memory_peak_mib),
            read_bytes=max(self._held.read_bytes, told.read_bytes),
            written_bytes=max(self._held.written_bytes, told.written_bytes),
            gap_ms=max(self._held.gap_ms, wall_ms - int(self._covered_ms)),
        )
        return self._held

    def _integrate(self, last: PodSample, sample: PodSample) -> None:
        between_ms = (sample.at - last.at) * 1000
        if between_ms > GAP_S * 1000:
            self._memory_mib_ms += min(last.memory_mib, sample.memory_mib) * between_ms
        else:
            self._memory_mib_ms += (last.memory_mib + sample.memory_mib) / 2 * between_ms
            self._covered_ms += between_ms


def _possible(used: Used, wall_ms: int) -> Used:
    """Return *used* if a node could have done that in the time, else nothing: whoever made it up pays no fantasy price."""
    most_ms = wall_ms + 1000  # the API tells whole seconds
    possible = (
        used.cpu_us <= most_ms * 1000 * MOST_CORES
        and used.memory_peak_mib <= MOST_MEMORY_MIB
        and used.read_bytes + used.written_bytes <= most_ms * MOST_BYTES_PER_MS
    )
    return used if possible else Used(0)


class Minutes:
    """Folded minutes, numbered so that a later process's numbers are greater."""

    def __init__(self, first_seq: int) -> None:
        self._next = first_seq
        self._minutes: list[UsageMinute] = []

    def add(self, allocation_id: AllocationId, samples: list[PodSample]) -> None:
        """Fold the samples of a minute."""
        if samples:
            self._minutes.append(fold(self._next, allocation_id, samples))
            self._next += 1
            del self._minutes[:-KEPT_MINUTES]

    def beyond(self, seq: int) -> list[UsageMinute]:
        """Return the minutes after *seq*; those up to it have been taken and are let go."""
        self._minutes = [minute for minute in self._minutes if minute.seq > seq]
        return list(self._minutes)


def fold(seq: int, allocation_id: AllocationId, samples: list[PodSample]) -> UsageMinute:
    """Fold a minute; the first sample is the one before it and only tells where the counters stood."""
    sketch = [0] * BANDS
    highest = 0.0
    for before, after in itertools.pairwise(samples):
        between_s = after.at - before.at
        rate = (after.cpu_us - before.cpu_us) / between_s / 1000
        sketch[band_of(rate)] += max(1, round(between_s))
        highest = max(highest, rate)
    first, last = samples[0], samples[-1]
    memory = [sample.memory_mib for sample in samples[1:]]
    return UsageMinute(
        seq=seq,
        allocation_id=allocation_id,
        minute=int(samples[1].at // 60),
        samples=min(61, len(samples) - 1),
        cpu_mean_millis=(last.cpu_us - first.cpu_us) / (last.at - first.at) / 1000,
        cpu_max_millis=highest,
        cpu_sketch=tuple(sketch),
        memory_mean_mib=sum(memory) / len(memory),
        memory_max_mib=max(memory),
        read_bytes=0,
        written_bytes=0,
    )
