"""What the platform itself has recorded of its jobs, as a table of usage: one row for each minute of each attempt."""

from collections.abc import Callable, Iterable
from itertools import islice
from typing import Protocol

import numpy as np

from yunhe.control.pools.model import UsageMinute
from yunhe.flexible.reading.tables import Table
from yunhe.kernel.errors import InvalidInputError
from yunhe.kernel.resources import Resources
from yunhe.scheduling.orchestration.jobs.model import Job

MOST_JOBS = 10_000
SOURCE = "the platform's record"


class RecordedUsage(Protocol):
    """What is asked of a client."""

    def jobs(self, *, project: str = "") -> Iterable[Job]:
        """Yield jobs, newest first."""
        ...

    def usage(self, job_id: str) -> tuple[UsageMinute, ...]:
        """Return what a job used, minute by minute."""
        ...


def recorded_usage(records: RecordedUsage, project: str, progress: Callable[[int, int], None]) -> Table:
    """Return the minutes of the newest jobs of *project*, of as many as there are up to a limit.

    CPU is the mean of each minute and memory its peak, as running short of either means something else. An
    attempt is an instance, since each is placed anew; only where a job has several do their names say which.
    """
    rows: list[tuple[str, UsageMinute, Resources]] = []
    jobs = [job for job in islice(records.jobs(project=project), MOST_JOBS) if job.attempts]
    for done, job in enumerate(jobs, 1):
        names = {
            attempt.allocation_id: job.id if len(job.attempts) == 1 else f"{job.id}/{attempt.number}"
            for attempt in job.attempts
        }
        given = {attempt.allocation_id: attempt.resources for attempt in job.attempts}
        rows.extend(
            (names[minute.allocation_id], minute, given[minute.allocation_id])
            for minute in records.usage(job.id)
        )
        progress(done, len(jobs))
    if not rows:
        raise InvalidInputError(
            f"The platform has recorded no minute of use of {len(jobs):,} jobs.",
            remedy="See what there is with `yunhe ps --all`; minutes are kept for a time, and come with a delay.",
        )
    return Table(
        SOURCE,
        {
            "instance": [name for name, _, _ in rows],
            "time": np.array([60 * minute.minute for _, minute, _ in rows]),
            "cpu_used_millis": np.array([minute.cpu_mean_millis for _, minute, _ in rows]),
            "cpu_allocated_millis": np.array([given.cpu_millis for _, _, given in rows]),
            "memory_used_mib": np.array([minute.memory_max_mib for _, minute, _ in rows]),
            "memory_allocated_mib": np.array([given.memory_mib for _, _, given in rows]),
        },
        len(rows),
        1,
    )
