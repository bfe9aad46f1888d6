"""Jobs run exactly as often as reported while servers, workers and agents are killed under them."""

import os
import random

import pytest

from faults.campaign import FAILPOINTS, Plan, campaign
from faults.verdict import problems_of
from support.postgres import new_database

pytestmark = pytest.mark.anyio

SEED = int(os.environ.get("YUNHE_FAULTS_SEED", "1"))
"""The same every time, so that whether a change lands is not drawn by lot; the variable tries another."""
TOO_SLOW = "usage-before-commit"
"""Reached only once a minute's lease of a killed worker has run out."""

FREEZES = (
    "launch-after-call",
    "exit-before-record",
    "finish-after-outputs",
    "final-before-commit",
    "settle-before-commit",
)
"""Where a worker that lost its lease unawares is about to write, or is in the middle of it."""

WHOLE = Plan(seed=SEED, jobs=300, failpoints=FAILPOINTS, random_kills=25)
SAMPLE = Plan(
    seed=SEED,
    jobs=40,
    failpoints=tuple(random.Random(SEED).sample([name for name in FAILPOINTS if name != TOO_SLOW], 7)),
    random_kills=5,
    kill_every_s=(0.5, 2.5),
)


async def attack(plan: Plan, database_url: str, capsys: pytest.CaptureFixture[str]) -> None:
    with campaign(plan, database_url) as under_attack:
        await under_attack.run()
        with capsys.disabled():
            print(f"\n{under_attack.figures()}")
        problems = await problems_of(under_attack)
        assert not problems, "\n".join([under_attack.figures(), *problems])


@pytest.mark.timeout(300)
async def test_a_sample_of_kills_loses_and_repeats_nothing_on_sqlite(
    capsys: pytest.CaptureFixture[str],
) -> None:
    await attack(SAMPLE, "", capsys)


@pytest.mark.timeout(300)
async def test_a_sample_of_kills_loses_and_repeats_nothing_on_postgresql(
    capsys: pytest.CaptureFixture[str], postgres: str
) -> None:
    await attack(SAMPLE, new_database(postgres, "faults_sample"), capsys)


@pytest.mark.engine
@pytest.mark.timeout(900)
async def test_killing_at_every_failpoint_and_at_random_loses_and_repeats_nothing_on_sqlite(
    capsys: pytest.CaptureFixture[str],
) -> None:
    await attack(WHOLE, "", capsys)


@pytest.mark.engine
@pytest.mark.timeout(900)
async def test_killing_at_every_failpoint_and_at_random_loses_and_repeats_nothing_on_postgresql(
    capsys: pytest.CaptureFixture[str], postgres: str
) -> None:
    await attack(WHOLE._replace(freezes=FREEZES), new_database(postgres, "faults_whole"), capsys)
