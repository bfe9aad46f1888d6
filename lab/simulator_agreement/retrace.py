"""Every placement of a platform's event log, decided again at the moment and on the knowledge it was decided on.

The log says when jobs came, when their room came free, and of each placement the last event that was known. Nothing else
is taken from it: the simulator's own queue and the scheduling core place every job anew, each decision on the room that
its own earlier ones left. One that differs from the log would show in those that follow.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import msgspec

from yunhe.kernel.ids import JobId, NodeId, PoolId
from yunhe.scheduling.decision.cycle import Cycle
from yunhe.scheduling.decision.model import Demand
from yunhe.scheduling.orchestration.jobs.events import JOB_CHANGED, JobChanged
from yunhe.scheduling.orchestration.jobs.states import FINAL, JobState
from yunhe.scheduling.perception.snapshot import Snapshot
from yunhe.simulator.engine import shape_of
from yunhe.simulator.model import SimulatedTask
from yunhe.simulator.queue import SimulatedQueue
from yunhe.storage.outbox import Event

GIVES_ROOM_BACK = FINAL | {JobState.PENDING, JobState.UNKNOWN, JobState.PREEMPTED}


class Spot(NamedTuple):
    """Where a job was placed, and on what knowledge."""

    pool_id: PoolId
    node_id: NodeId
    knew: int


class Retraced(NamedTuple):
    """One placement: as it was, and as it is decided again (None: it would have waited)."""

    job_id: JobId
    attempt: int
    was: Spot
    again: Spot | None


class _TraceStep(NamedTuple):
    """One thing to do, in the order of the log; what a decision knew comes before it."""

    at: int
    rank: int
    do: str
    job_id: JobId = JobId("")
    pool_id: PoolId = PoolId("")


def retrace(
    log: Sequence[Event], demands: Mapping[JobId, Demand], world: Snapshot, closed: Mapping[PoolId, int]
) -> list[Retraced]:
    """Return each placement of *log* with the one decided again; *closed*: pools that were gone after some event."""
    changes = [(e.seq, msgspec.json.decode(e.body, type=JobChanged)) for e in log if e.topic == JOB_CHANGED]
    was: dict[JobId, list[Spot]] = {}
    for _, change in changes:
        if change.placing is not None:
            spot = Spot(change.placing.pool_id, change.placing.node_id, change.placing.knew)
            was.setdefault(change.job_id, []).append(spot)
    steps = _steps(changes, was)
    steps += [_TraceStep(seq, 0, "close", pool_id=pool_id) for pool_id, seq in closed.items()]
    again = _Replay(demands, world).run(sorted(steps))
    return [
        Retraced(job_id, number + 1, spot, again.get((job_id, number)))
        for job_id, spots in was.items()
        for number, spot in enumerate(spots)
    ]


def _steps(changes: list[tuple[int, JobChanged]], was: dict[JobId, list[Spot]]) -> list[_TraceStep]:
    steps = [_TraceStep(knew, 1, "sit") for knew in {spot.knew for spots in was.values() for spot in spots}]
    placed: dict[JobId, int] = {}
    holding: set[JobId] = set()
    for seq, change in changes:
        job_id = change.job_id
        if change.placing is not None:
            placed[job_id] = placed.get(job_id, 0) + 1
            holding.add(job_id)
        elif change.state in GIVES_ROOM_BACK and job_id in holding:
            holding.discard(job_id)
            steps.append(_TraceStep(seq, 0, "free", job_id))
        if change.state is JobState.PENDING:
            coming = was.get(job_id, [])[placed.get(job_id, 0) :]
            # Jobs are read a moment after what is promised: one may be placed by who did not know its event yet.
            at = min(seq, coming[0].knew) if coming else seq
            steps.append(_TraceStep(at, 0, "join", job_id))
    return steps


class _Replay:
    """The world as the decisions made again leave it."""

    def __init__(self, demands: Mapping[JobId, Demand], world: Snapshot) -> None:
        self._demands = demands
        self._turn = {job_id: turn for turn, job_id in enumerate(sorted(demands))}
        self._cycle = Cycle(world)
        self._queue = SimulatedQueue()
        self._tries: list[tuple[JobId, int]] = []
        """Every time a job came to wait: the job, and how often it had waited before."""
        self._latest: dict[JobId, int] = {}
        self._gone: set[int] = set()
        self._knew = 0
        self._spots: dict[tuple[JobId, int], Spot] = {}

    def run(self, steps: Sequence[_TraceStep]) -> dict[tuple[JobId, int], Spot]:
        """Return where each try of each job goes."""
        for step in steps:
            if step.do == "close":
                self._cycle.appraiser.close_pool(self._cycle.snapshot.row_of_pool[step.pool_id])
            elif step.do == "join":
                self._join(step.job_id)
            elif step.do == "free":
                self._free(step.job_id)
            else:
                self._knew = step.at
                self._queue.let_in(self._placed)
        return self._spots

    def _join(self, job_id: JobId) -> None:
        demand = self._demands[job_id]
        number = self._tries[self._latest[job_id]][1] + 1 if job_id in self._latest else 0
        self._latest[job_id] = len(self._tries)
        self._tries.append((job_id, number))
        shape = shape_of(
            SimulatedTask(submitted_at=0, resources=demand.alternatives[0].resources, run_s=0, demand=demand)
        )
        self._queue.join(shape, self._turn[job_id], self._latest[job_id])

    def _free(self, job_id: JobId) -> None:
        if self._cycle.holds(job_id):
            self._cycle.release(job_id)
        else:
            self._gone.add(
                self._latest[job_id]
            )  # in truth it had room by now, and it has ended: it waits no more

    def _placed(self, number: int) -> bool:
        if number in self._gone:
            return True
        job_id = self._tries[number][0]
        given = self._cycle.place(self._demands[job_id])
        if given is None:
            return False
        member, snapshot = given.fit.members[0], self._cycle.snapshot
        spot = Spot(snapshot.pools[member.pool].id, snapshot.node_ids[member.row], self._knew)
        self._spots[self._tries[number]] = spot
        return True
