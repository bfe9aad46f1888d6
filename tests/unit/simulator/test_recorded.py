"""The past of a platform as a workload, a line that keeps its order, and a platform that takes time to react."""

import pytest

from support.worlds import cores, node, pool, world
from yunhe.control.pools.model import Pool, PoolNode, PoolSpec, PoolState
from yunhe.kernel.errors import InvalidInputError
from yunhe.kernel.ids import AllocationId, JobId, NodeId, PoolId, ProjectId, made_at_s, new_id
from yunhe.kernel.resources import Resources
from yunhe.scheduling.decision.model import Alternative, Demand, Policy
from yunhe.scheduling.orchestration.jobs.model import Attempt, Job
from yunhe.scheduling.orchestration.jobs.states import JobState
from yunhe.simulator.engine import SimulationEngine
from yunhe.simulator.model import SimulatedPlatform, SimulatedTask, Workload
from yunhe.simulator.queue import SimulatedQueue
from yunhe.simulator.recorded import past_of, world_of
from yunhe.simulator.run import simulate

START = 1_700_000_000.0


def job(submitted: float, placed: float, started: float, stopped: float, freed: float) -> Job:
    demand = Demand(
        job_id=JobId(new_id("job", START + submitted)),
        project_id=ProjectId("p"),
        alternatives=(Alternative(Resources(1000, 64)),),
        policy=Policy.BALANCED,
    )
    attempt = Attempt(
        allocation_id=AllocationId(new_id("alloc", START + placed)),
        number=1,
        pool_id=PoolId("lab"),
        pool_name="lab",
        node_id=NodeId("n"),
        resources=Resources(1000, 64),
        started_at=START + started,
        ended_at=START + stopped,
    )
    return Job(
        id=demand.job_id,
        name="task",
        project_id=ProjectId("p"),
        submitted_by="me",
        state=JobState.SUCCEEDED,
        submitted_at=START + submitted,
        ended_at=START + freed,
        attempts=(attempt,),
        demand=demand,
    )


LAB = Pool(
    id=PoolId("lab"),
    spec=PoolSpec(name="lab", kind="fake"),
    state=PoolState.READY,
    added_at=0,
    nodes=(
        PoolNode(
            id=NodeId("n"), pool_id=PoolId("lab"), total=Resources(1000, 1024), used=Resources(), seen_at=0
        ),
    ),
)


def test_an_identifier_tells_when_it_was_made() -> None:
    assert made_at_s(new_id("job", 1_700_000_000.1234)) == 1_700_000_000.123


def test_a_past_that_is_simulated_again_as_it_was_asked_for_takes_as_long() -> None:
    first, second = job(0, 0.5, 0.75, 10.75, 11.0), job(1, 11.5, 11.75, 31.75, 32.0)
    past = past_of([second, first], cores=1)
    assert [task.run_s for task in past.workload.tasks] == [10.0, 20.0]
    assert tuple(past.platform) == pytest.approx((0.5, 0.5))
    assert (past.was.makespan_s, past.was.policy) == (32.0, "as it was")
    again = simulate(past.workload, world_of([LAB], {}), None, platform=past.platform)
    assert again.policy == "as asked"
    assert (again.makespan_s, again.ended) == (past.was.makespan_s, 2)
    assert again.turnaround_mean_s == past.was.turnaround_mean_s


def test_jobs_that_never_ran_make_no_past() -> None:
    with pytest.raises(InvalidInputError, match="No job"):
        past_of([])


def test_who_came_first_goes_first_whatever_its_shape_and_one_that_does_not_fit_is_passed() -> None:
    queue, let_in = SimulatedQueue(), list[int]()
    for turn, shape in enumerate("abcab"):
        queue.join((0, shape), turn, turn)
    queue.join((-1, "z"), 9, 9)

    def placed(task: int) -> bool:
        if task == 2:
            return False
        let_in.append(task)
        return True

    queue.let_in(placed)
    assert let_in == [9, 0, 1, 3, 4]
    queue.let_in(lambda task: bool(let_in.append(task)) or True)
    assert let_in[-1] == 2
    assert not queue


def test_what_ends_within_the_time_of_reaction_is_given_out_together() -> None:
    here = world([pool("p")], [node("n", "p", cores(2, 2))])
    small, large = cores(1, 0), cores(2, 0)
    tasks = [
        SimulatedTask(submitted_at=at, resources=amount, run_s=run_s)
        for at, amount, run_s in ((0, small, 10), (0, small, 10.2), (1, large, 5), (2, small, 5))
    ]
    for platform, first in ((SimulatedPlatform(), 3), (SimulatedPlatform(reaction_s=0.5), 2)):
        engine = SimulationEngine(Workload("w", tasks), here, Policy.BALANCED, platform=platform)
        engine.run()
        started = [one.started_at or 0.0 for one in engine.outcomes()]
        assert (2 if started[2] < started[3] else 3) == first
