"""A trace: what many instances asked for and used, on one regular clock.

This is the one value every part of the engine reads. A file reader makes it from rows, a simulator from a
formula, and the platform's own store can make it from what its agents reported; nothing here knows which.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import StrEnum

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
Singles = npt.NDArray[np.float32]
Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]

HOUR_S = 3600
DAY_S = 86400
WEEK_S = 7 * DAY_S


class Dimension(StrEnum):
    """What an instance uses; the unit is fixed so that no number is ever without one."""

    CPU = "cpu"  # cores
    MEMORY = "memory"  # MiB
    DISK = "disk"  # KiB/s, read and write together
    NETWORK = "network"  # KiB/s, in and out together


UNITS: Mapping[Dimension, str] = {
    Dimension.CPU: "cores",
    Dimension.MEMORY: "MiB",
    Dimension.DISK: "KiB/s",
    Dimension.NETWORK: "KiB/s",
}


@dataclass(frozen=True, slots=True)
class Trace:
    """Usage of ``instances`` in slots of ``period_s`` from ``start_s``; a gap is NaN.

    ``usage[dimension]`` is instances × slots, ``request[dimension]`` what each instance was given.
    CPU is always present; the other dimensions are where the source has them.
    """

    instances: tuple[str, ...]
    start_s: int
    period_s: int
    usage: Mapping[Dimension, Singles]
    request: Mapping[Dimension, Floats]

    def __post_init__(self) -> None:
        shape = (len(self.instances), self.slots)
        for dimension, usage in self.usage.items():
            if usage.shape != shape or self.request[dimension].shape != shape[:1]:
                raise ValueError(f"{dimension}: usage {usage.shape} does not fit {shape[0]} instances")

    @property
    def slots(self) -> int:
        """Return how many slots of time there are."""
        return int(self.usage[Dimension.CPU].shape[1])

    @property
    def duration_s(self) -> int:
        """Return how long the trace lasts."""
        return self.slots * self.period_s

    def slot_times_s(self, first: int, last: int) -> Ints:
        """Return when each slot of ``[first, last)`` begins."""
        return self.start_s + self.period_s * np.arange(first, last, dtype=np.int64)

    def only(self, keep: Bools) -> "Trace":
        """Return the trace of the instances marked in *keep*."""
        return replace(
            self,
            instances=tuple(name for name, kept in zip(self.instances, keep, strict=True) if kept),
            usage={dimension: usage[keep] for dimension, usage in self.usage.items()},
            request={dimension: request[keep] for dimension, request in self.request.items()},
        )

    def between(self, first: int, last: int) -> "Trace":
        """Return the trace of the slots ``[first, last)``."""
        return replace(
            self,
            start_s=self.start_s + first * self.period_s,
            usage={dimension: usage[:, first:last] for dimension, usage in self.usage.items()},
        )


def hour_of_week(times_s: Ints) -> Ints:
    """Return 0 … 167 for each time: Monday 00:00 UTC is 0. The epoch was a Thursday."""
    return (times_s // HOUR_S + 3 * 24) % 168


def on_slots(instance: Ints, slot: Ints, value: Floats, shape: tuple[int, int]) -> Singles:
    """Return instances × slots; several values in one slot are averaged, none is NaN."""
    cell = instance * shape[1] + slot
    total = np.bincount(cell, weights=value, minlength=shape[0] * shape[1])
    count = np.bincount(cell, minlength=shape[0] * shape[1])
    with np.errstate(invalid="ignore"):
        return (total / count).reshape(shape).astype(np.float32)


def carried_forward(usage: Singles, slots: int) -> Singles:
    """Return *usage* with each gap filled by the value before it, for at most *slots* slots.

    Collectors drift by seconds, so a slot may hold two samples and its neighbour none.
    """
    filled = usage.copy()
    for _ in range(slots):
        empty = np.isnan(filled[:, 1:]) & ~np.isnan(filled[:, :-1])
        if not empty.any():
            break
        filled[:, 1:][empty] = filled[:, :-1][empty]
    return filled


def most_frequent(instance: Ints, size: Floats, instances: int) -> Floats:
    """Return the size each instance had most often; sizes that are missing or zero say nothing."""
    known = np.isfinite(size) & (size > 0)
    sizes, which = np.unique(size[known], return_inverse=True)
    if len(sizes) == 0:
        return np.zeros(instances)
    counts = np.bincount(instance[known] * len(sizes) + which, minlength=instances * len(sizes))
    table = counts.reshape(instances, len(sizes))
    return np.where(table.any(axis=1), sizes[np.argmax(table, axis=1)], 0.0)
