"""No output is dropped when many jobs of one pool end at the same moment."""

import os

import pytest

from faults.burst import Burst
from faults.campaign import Plan, campaign

pytestmark = pytest.mark.anyio

JOBS = int(os.environ.get("YUNHE_BURST_JOBS", "400"))
AWAY_S = float(os.environ.get("YUNHE_BURST_AWAY_S", "5"))
"""The full form: ``YUNHE_BURST_JOBS=1000 YUNHE_BURST_AWAY_S=60``."""


@pytest.mark.timeout(1800)
@pytest.mark.parametrize(
    "away_s",
    [
        pytest.param(0.0, id="with the server there"),
        pytest.param(AWAY_S, id="with the server away", marks=pytest.mark.engine),
    ],
)
async def test_every_output_of_a_burst_is_home_byte_for_byte_or_its_loss_is_on_the_job(
    away_s: float, capsys: pytest.CaptureFixture[str]
) -> None:
    plan = Plan(seed=0, jobs=JOBS, failpoints=(), random_kills=0)
    with campaign(plan, kind=Burst) as burst:
        burst.away_s = away_s
        await burst.run()
        with capsys.disabled():
            print(f"\n{burst.figures()}")
        assert not burst.problems, "\n".join([burst.figures(), *burst.problems[:20]])
        lost = [job.name for job in burst.jobs.values() if job.outputs_lost]
        assert not lost, "nothing that exists may count as lost"
