"""What happened beside what the simulator says: placement by placement, and by when each job ended."""

import math
from typing import NamedTuple

from lab.simulator_agreement.reality import DIES, Reality
from lab.simulator_agreement.retrace import Retraced, retrace
from yunhe.scheduling.perception.snapshot import Snapshot
from yunhe.simulator.engine import SimulationEngine
from yunhe.simulator.model import Failure, SimulatedPlatform
from yunhe.simulator.recorded import past_of, world_of

NOTICED_WITHIN = 4
"""Taking a pool out is no event: between which two it became known is tried, so many to either side."""


class Agreement(NamedTuple):
    """How far the two agree; pairs are (real, simulated)."""

    placements: int
    lost: int
    waited: int
    same: int
    differing: list[Retraced]
    same_freely: int
    makespan_s: tuple[float, float]
    turnaround_s: tuple[float, float]
    errors_s: list[float]
    """By how much each job's end is off, without sign."""
    platform: SimulatedPlatform


def compare(real: Reality) -> Agreement:
    """Decide every placement again on the log, and simulate the whole freely from arrivals and run times alone."""
    world = world_of(real.pools, real.prices)
    retraced = _retraced(real, world)
    past = past_of(real.jobs)
    dead = next(pool.id for pool in real.pools if pool.spec.name == DIES)
    failure = Failure(pool_id=dead, at=real.died_at - past.began_at, lasts_s=math.inf)
    engine = SimulationEngine(past.workload, world, None, platform=past.platform, failures=(failure,))
    engine.run()
    simulated = engine.report()
    jobs = sorted(real.jobs, key=lambda job: job.id)
    freely = list(zip(jobs, engine.outcomes(), strict=True))
    same = [one for one in retraced if one.was == one.again]
    return Agreement(
        placements=len(retraced),
        lost=sum(len(job.attempts) - 1 for job in jobs),
        waited=sum((job.started_at or 0) - job.submitted_at > 1.0 for job in jobs),
        same=len(same),
        differing=[one for one in retraced if one.was != one.again],
        same_freely=sum(job.attempts[-1].pool_name == outcome.pool for job, outcome in freely),
        makespan_s=(past.was.makespan_s, simulated.makespan_s),
        turnaround_s=(past.was.turnaround_mean_s, simulated.turnaround_mean_s),
        errors_s=[
            abs((job.ended_at or 0) - past.began_at - (outcome.ended_at or math.inf))
            for job, outcome in freely
        ],
        platform=past.platform,
    )


def _retraced(real: Reality, world: Snapshot) -> list[Retraced]:
    demands = {job.id: job.demand for job in real.jobs}
    dead = next(pool.id for pool in real.pools if pool.spec.name == DIES)
    tried = [
        retrace(real.log, demands, world, {dead: real.died_after + off})
        for off in range(-NOTICED_WITHIN, NOTICED_WITHIN + 1)
    ]
    return max(tried, key=lambda found: sum(one.was == one.again for one in found))
