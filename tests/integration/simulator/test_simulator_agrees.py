"""The simulator and reality: the same jobs on three real pools of which one dies, and simulated."""

from collections.abc import Generator
from contextlib import ExitStack
from pathlib import Path

import msgspec
import pytest
from lab.simulator_agreement.comparison import compare
from lab.simulator_agreement.reality import DIES, POOLS, really
from lab.simulator_agreement.retrace import retrace

from support.agent_roots import agent_root
from yunhe.kernel.ids import PoolId
from yunhe.kernel.money import Prices, Tier
from yunhe.scheduling.orchestration.jobs.events import JOB_CHANGED, JobChanged
from yunhe.scheduling.orchestration.jobs.states import JobState
from yunhe.simulator.recorded import world_of

pytestmark = pytest.mark.anyio

Charged = dict[Tier, Prices]

COMPLETION_WITHIN = 0.40
"""Stated error of a free simulation where the machine has ten times its work, as while tests run beside each other;
``python -m lab.simulator_agreement`` prints what it really is."""


@pytest.fixture
def roots() -> Generator[dict[str, Path]]:
    with ExitStack() as stack:
        yield {name: stack.enter_context(agent_root()) for name in POOLS}


async def test_200_contending_jobs_and_a_dying_pool_go_the_same_ways_simulated(
    tmp_path: Path, roots: dict[str, Path]
) -> None:
    real = await really(tmp_path, roots)
    assert len(real.jobs) == 200
    assert all(job.state is JobState.SUCCEEDED for job in real.jobs)
    lost = [job for job in real.jobs if len(job.attempts) > 1]
    assert lost, "nothing ran on the pool that died"
    assert all(job.attempts[0].pool_name == DIES != job.attempts[-1].pool_name for job in lost)
    found = compare(real)
    assert found.waited > 100, "they were to contend"
    assert found.differing == []
    assert found.placements == 200 + found.lost
    simulated, measured = found.makespan_s[1], found.makespan_s[0]
    assert simulated == pytest.approx(measured, rel=COMPLETION_WITHIN)
    assert found.turnaround_s[1] == pytest.approx(found.turnaround_s[0], rel=COMPLETION_WITHIN)

    # And it would have shown: placements that a log does not bear out are found out.
    world, demands = world_of(real.pools, real.prices), {job.id: job.demand for job in real.jobs}
    dear = world_of(real.pools, {pool: real.prices[other] for pool, other in _turned_around(real.prices)})
    assert any(one.was != one.again for one in retrace(real.log, demands, dear, {}))
    first_end = next(
        event
        for event in real.log
        if event.topic == JOB_CHANGED
        and msgspec.json.decode(event.body, type=JobChanged).state is JobState.SUCCEEDED
    )
    untold = [event for event in real.log if event != first_end]
    assert any(one.was != one.again for one in retrace(untold, demands, world, {}))


def _turned_around(prices: dict[PoolId, Charged]) -> list[tuple[PoolId, PoolId]]:
    return list(zip(prices, reversed(list(prices)), strict=True))
