"""The waiting queue: which pending jobs are worth a look, by what would have to change for them.

Jobs of one shape wait for the same thing. A shape that was refused is parked with the least room it needs on one node,
and is looked at again when a node gains that much, when pools change, or in turn. Work per round is bounded; it does
not grow with the number of shapes that wait.
"""

from bisect import bisect_left, bisect_right, insort
from collections import OrderedDict
from collections.abc import Iterable
from itertools import islice

import numpy as np
from numpy.typing import NDArray

from yunhe.kernel.ids import JobId
from yunhe.scheduling.decision.model import Demand

IntArray = NDArray[np.int64]
COLUMNS = 4
"""Cores, memory, disk and accelerators, as in the room of a node."""
COMPARED = 8
"""So many nodes that gained room are compared one by one; more, by the most that any of them has."""
IN_TURN = 25
"""So many parked shapes are looked at now and then only because something changed: nothing is ever forgotten."""


class WaitingQueue:
    """Pending jobs by shape; a shape is due (new or woken) or parked."""

    def __init__(self) -> None:
        self._jobs: dict[str, list[JobId]] = {}
        self._due: dict[str, None] = {}
        self._parked: OrderedDict[str, int] = OrderedDict()
        """Shape → the world it was refused in; the one looked at longest ago comes first."""
        self._needs = np.zeros((64, COLUMNS), dtype=np.int64)
        self._row: dict[str, int] = {}
        self._shape_of_row: list[str] = []
        self._held: dict[str, list[tuple[JobId, str]]] = {}
        """Project → its shapes that wait for its quota alone, by the oldest job of each."""
        self._holder: dict[str, tuple[str, JobId]] = {}

    def __len__(self) -> int:
        return len(self._jobs)

    def __contains__(self, shape: str) -> bool:
        return shape in self._jobs

    @property
    def due(self) -> int:
        """How many shapes are due."""
        return len(self._due)

    def add(self, job_id: JobId, shape: str) -> bool:
        """Take a pending job in; return whether its shape is due, that is, not parked."""
        jobs = self._jobs.get(shape)
        if jobs is None:
            self._jobs[shape] = [job_id]
            self._due[shape] = None
        elif not _has(jobs, job_id):
            insort(jobs, job_id)
        return shape in self._due

    def remove(self, job_id: JobId, shape: str) -> None:
        """Forget a job that is not pending any more; a shape without jobs is forgotten too."""
        jobs = self._jobs.get(shape, [])
        if _has(jobs, job_id):
            jobs.remove(job_id)
        if not jobs:
            self._jobs.pop(shape, None)
            self._due.pop(shape, None)
            self._unpark(shape)
            self._unhold(shape)

    def hold(self, shape: str, project_id: str) -> None:
        """Note that a shape waits for the quota of its project; nothing else makes it due."""
        if shape not in self._jobs:
            return
        self._due.pop(shape, None)
        self._unpark(shape)
        self._unhold(shape)
        oldest = self._jobs[shape][0]
        self._holder[shape] = (project_id, oldest)
        insort(self._held.setdefault(project_id, []), (oldest, shape))

    @property
    def holding(self) -> list[str]:
        """The projects of which jobs wait for the quota."""
        return list(self._held)

    def let_go(self, project_id: str, limit: int) -> None:
        """Make due the shapes with the oldest jobs that wait for a project's quota, up to *limit*."""
        for _, shape in self._held.get(project_id, [])[:limit]:
            self._unhold(shape)
            self._due[shape] = None

    def _unhold(self, shape: str) -> None:
        project_id, oldest = self._holder.pop(shape, ("", JobId("")))
        held = self._held.get(project_id)
        if held is not None:
            del held[bisect_left(held, (oldest, shape))]
            if not held:
                del self._held[project_id]

    def park(self, shape: str, needs: IntArray, world: int) -> None:
        """Note that a shape was refused in *world*; only a node with room for *needs* can change that."""
        if shape not in self._jobs:
            return
        self._due.pop(shape, None)
        row = self._row.get(shape)
        if row is None:
            row = self._row[shape] = len(self._shape_of_row)
            self._shape_of_row.append(shape)
            if row == len(self._needs):
                self._needs = np.concatenate([self._needs, np.zeros_like(self._needs)])
        self._needs[row] = needs
        self._parked[shape] = world
        self._parked.move_to_end(shape)

    def wake(self, room: IntArray | None = None) -> None:
        """Make due what may fit where a row of *room* is free now; None: pools changed, so everything."""
        if room is None:
            woken = list(self._parked)
        else:
            # The most that any has wakes a few more than needed, and none less.
            nodes = room if len(room) <= COMPARED else room.max(axis=0, keepdims=True)
            needs = self._needs[: len(self._shape_of_row)]
            fits = np.zeros(len(needs), dtype=np.bool_)
            for free in nodes:
                fits |= (needs <= free).all(axis=1)
            woken = [self._shape_of_row[row] for row in np.flatnonzero(fits)]
        for shape in woken:
            self._make_due(shape)

    def _make_due(self, shape: str) -> None:
        self._unpark(shape)
        self._due[shape] = None

    def _unpark(self, shape: str) -> None:
        self._parked.pop(shape, None)
        row = self._row.pop(shape, None)
        if row is None:
            return
        last = self._shape_of_row.pop()
        if last != shape:
            self._shape_of_row[row], self._row[last] = last, row
            self._needs[row] = self._needs[len(self._shape_of_row)]

    def choose(self, first: Iterable[str], limit: int, world: int | None) -> list[str]:
        """Return the shapes to look at in this round; who waits longest for a look comes first.

        These are *first* where due, *limit* more that are due, and a few that were refused in another world than
        *world*; None: none of those.
        """
        chosen = dict.fromkeys(shape for shape in first if shape in self._due)
        chosen |= dict.fromkeys(islice((shape for shape in self._due if shape not in chosen), limit))
        for shape, refused_in in list(islice(self._parked.items(), 0 if world is None else IN_TURN)):
            if refused_in == world:
                break  # and so were all after it
            self._make_due(shape)
            chosen[shape] = None
        return list(chosen)

    def page(self, shapes: Iterable[str], after: str, limit: int) -> list[tuple[JobId, str]]:
        """Return the first *limit* jobs of *shapes* beyond the ID *after*, in order of their IDs, with their shapes."""
        found: list[tuple[JobId, str]] = []
        for shape in shapes:
            jobs = self._jobs.get(shape, [])
            start = bisect_right(jobs, after)
            found += [(job, shape) for job in jobs[start : start + limit]]
        found.sort()
        return found[:limit]


def _has(jobs: list[JobId], job_id: JobId) -> bool:
    at = bisect_left(jobs, job_id)
    return at < len(jobs) and jobs[at] == job_id


def needs_of(demand: Demand) -> IntArray:
    """Return the least that a node must have free for *demand* to become placeable by that node's room.

    Nothing at all where more than room decides: any change of room, groups or bandwidth may then do.
    """
    if demand.affinity or demand.spread or demand.traffic or demand.data:
        return np.zeros(COLUMNS, dtype=np.int64)
    asks = [alternative.resources for alternative in demand.alternatives]
    return np.array(
        [
            min(ask.cpu_millis for ask in asks),
            min(ask.memory_mib for ask in asks),
            min(ask.disk_mib for ask in asks),
            min(sum(wanted.milli for wanted in ask.accelerators) for ask in asks),
        ],
        dtype=np.int64,
    )
