"""A long queue: a gang at its head that nothing can hold, all or nothing, holds nobody up."""

import statistics
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import anyio
import pytest

from integration.scheduling.orchestration.stage import with_a_pool
from support import apart
from yunhe.control.pools.model import PoolSpec, Step
from yunhe.infrastructure.fake.kind import FakeKind
from yunhe.kernel.ids import JobId, ProjectId, new_id
from yunhe.kernel.resources import Resources
from yunhe.runtime.platform import Platform
from yunhe.runtime.start import running
from yunhe.scheduling.decision.cycle import Cycle
from yunhe.scheduling.decision.decide import place_in_order
from yunhe.scheduling.decision.model import Alternative, Decision, Demand, Waiting
from yunhe.scheduling.orchestration.jobs.model import Job, JobFilter, JobOrder
from yunhe.scheduling.orchestration.jobs.states import JobState
from yunhe.scheduling.orchestration.jobs.store import shape_of
from yunhe.scheduling.orchestration.placing import placement_round, placer
from yunhe.scheduling.orchestration.placing.placement_round import PlacementRound
from yunhe.trading.applications.model import Submission
from yunhe.trading.demand.model import ResourceSpec, Task

pytestmark = pytest.mark.anyio

QUEUED = 10_000
ENOUGH = 200
SHAPES = 2000
STARTS = 5
MOST_BEFORE = 120
"""So many of the backlog may be judged between the submission of a job and its placement."""
HOPELESS = "large"
MEMBERS = 9
"""Of 16 cores each: one more than two pools of 64 hold together."""


class Rounds:
    """Counts what the placer decides while a test runs: how many rounds, and for which job how often."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.count = 0
        self.decided: Counter[JobId] = Counter()
        counted = self

        class Counted(PlacementRound):
            def __init__(self, *world: object) -> None:
                counted.count += 1
                super().__init__(*world)  # pyright: ignore[reportArgumentType] - as they were given

        def placing(demands: Sequence[Demand], cycle: Cycle) -> list[Decision]:
            decisions = place_in_order(demands, cycle)
            waiting = set[str]()
            for demand, decision in zip(demands, decisions, strict=True):
                shape = shape_of(demand)
                if isinstance(decision, Waiting) and shape in waiting:
                    continue  # one answer serves all of its shape
                if isinstance(decision, Waiting):
                    waiting.add(shape)
                counted.decided[demand.job_id] += 1
            return decisions

        monkeypatch.setattr(placer, "PlacementRound", Counted)
        monkeypatch.setattr(placement_round, "place_in_order", placing)


def gang(members: int = MEMBERS) -> JobOrder:
    """Return an order that no task can spell yet: members on any pools, all at once or none."""
    one = Resources(cpu_millis=16_000, memory_mib=64)
    demand = Demand(
        job_id=JobId(new_id("job", time.time())),
        project_id=ProjectId("default"),
        alternatives=(Alternative(one),),
        members=members,
        one_pool=False,
        priority=9,
    )
    return JobOrder(
        demand=demand, name="gang", submitted_by="admin", steps=(Step(name="run", script="true\n"),)
    )


async def two_pools(platform: Platform) -> None:
    second = PoolSpec(name="annex", kind="fake", target="annex", options={"cpus": "64"})
    assert all([check.ok async for check in platform.pools.add(second)])


async def told_why(platform: Platform, job: Job) -> Job:
    with anyio.fail_after(30):
        while not (now := await platform.orchestration.job(job.id)).reason:
            await anyio.sleep(0.02)
    return now


async def test_an_impossible_gang_at_the_head_of_ten_thousand_holds_nobody_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rounds = Rounds(monkeypatch)
    async with running(apart.settings(tmp_path), kinds={"fake": FakeKind()}) as platform:
        who = await with_a_pool(platform, cpus="64")
        await two_pools(platform)
        (head,) = await platform.orchestration.submit((gang(),))
        waiting = await told_why(platform, head)
        assert waiting.reason == ("annex: 9 asked together, room for 4; lab: 9 asked together, room for 4"), (
            "each member alone fits, and the pools are empty"
        )
        explained = await platform.orchestration.explain(head.id)
        assert isinstance(explained.decision, Waiting)
        assert "ask for 8 members" in explained.decision.smallest_change

        ordinary = Submission(task=Task(run="sleep 0.1\n", resources=ResourceSpec(cpus=1)))
        behind = [
            job
            for _ in range(QUEUED // 1000)
            for job in await platform.applications.submit(who, (ordinary,) * 1000)
        ]
        assert all(head.id < job.id for job in behind), "the gang was to be the head"
        with anyio.fail_after(60):
            while True:
                done = await platform.orchestration.jobs(
                    JobFilter(states=(JobState.SUCCEEDED,), limit=ENOUGH)
                )
                if len(done.jobs) == ENOUGH:
                    break
                await anyio.sleep(0.2)
        pending = await platform.orchestration.jobs(JobFilter(states=(JobState.PENDING,), limit=1))
        assert pending.jobs, "the queue was to be long"
        still = await platform.orchestration.job(head.id)
        assert still.state is JobState.PENDING
        assert not still.attempts, "of a gang nothing starts unless all does"
    assert rounds.decided[head.id] <= rounds.count, "the gang is judged once in a round"
    ordinary_jobs = len(rounds.decided) - 1
    judged = sum(rounds.decided.values()) - rounds.decided[head.id]
    assert judged <= ordinary_jobs + rounds.count, "and so is the first of those that find no room"


def hopeless(number: int) -> JobOrder:
    """Return an order that no pool can hold, unlike any other."""
    asks = Resources(cpu_millis=1_000_000 + number, memory_mib=64)
    demand = Demand(
        job_id=JobId(new_id("job", time.time())),
        project_id=ProjectId("default"),
        alternatives=(Alternative(asks),),
    )
    steps = (Step(name="run", script="true\n"),)
    return JobOrder(demand=demand, name=HOPELESS, submitted_by="admin", steps=steps)


async def test_what_comes_is_placed_before_a_backlog_of_shapes_and_the_backlog_is_worked_off(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings, kinds = apart.settings(tmp_path), {"fake": FakeKind()}
    async with running(settings, kinds=kinds) as platform:
        who = await with_a_pool(platform, cpus="64")
        backlog = await platform.orchestration.submit(tuple(hopeless(number) for number in range(SHAPES)))
    rounds = Rounds(monkeypatch)
    monkeypatch.setattr(placer, "BACKLOG_S", 0.02)
    async with running(settings, kinds=kinds) as platform:
        fits = Submission(task=Task(run="true\n", resources=ResourceSpec(cpus=1)))
        judged: list[int] = []
        while len(judged) < STARTS:
            before = rounds.decided.total()
            (job,) = await platform.applications.submit(who, (fits,))
            with anyio.fail_after(30):
                while (await platform.orchestration.job(job.id)).state is JobState.PENDING:
                    await anyio.sleep(0.002)
            judged.append(rounds.decided.total() - before)
        assert statistics.median(judged) <= MOST_BEFORE, judged
        assert len(rounds.decided) < SHAPES, "the backlog was to last"
        for job in backlog:
            await told_why(platform, job)
