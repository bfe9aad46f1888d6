"""What a waiting demand is told to change, changed, and decided on again."""

import os
from random import Random

from hypothesis import given, settings

from support import decision_oracle as oracle
from support.advice_reader import PHRASES, bare, phrases_of, readings_of
from support.worlds import demands, random_demand, random_world, worlds
from yunhe.scheduling.decision.advice.smallest import least_changes
from yunhe.scheduling.decision.cycle import Cycle
from yunhe.scheduling.decision.decide import decide
from yunhe.scheduling.decision.model import Demand, Placed, Waiting
from yunhe.scheduling.perception.snapshot import Snapshot

SOME = settings(max_examples=int(os.environ.get("YUNHE_EXAMPLES", "100")), deadline=None)


@SOME
@given(demands(), worlds())
def test_whoever_asks_again_as_advised_is_placed(wanted: Demand, here: Snapshot) -> None:
    decision = decide(wanted, here)
    if isinstance(decision, Waiting) and decision.smallest_change:
        for advice in decision.smallest_change.split(", or "):
            asked_again = [asked for asked, _ in readings_of(wanted, advice)]
            assert any(isinstance(decide(asked, here), Placed) for asked in asked_again), advice


@SOME
@given(demands(), worlds())
def test_nothing_is_advised_only_where_nothing_that_can_be_asked_for_would_run(
    wanted: Demand, here: Snapshot
) -> None:
    decision = decide(wanted, here)
    if isinstance(decision, Waiting) and not decision.smallest_change:
        assert not oracle.placeable(bare(wanted), here)


@SOME
@given(demands(), worlds())
def test_advice_is_singular_wherever_it_says_or(wanted: Demand, here: Snapshot) -> None:
    if isinstance(decide(wanted, here), Waiting):
        found = least_changes(wanted, Cycle(here))
        assert len(found) <= 1 or all(len(advice.changes) == 1 for advice in found)
        assert len({advice.what for advice in found}) == len(found), "two ways out, not one said twice"


def test_most_who_wait_are_advised_and_all_kinds_of_advice_are_drawn() -> None:
    waiting = advised = 0
    read: set[str] = set()
    for seed in range(600):
        rng = Random(seed)
        here, wanted = random_world(rng), random_demand(rng)
        decision = decide(wanted, here)
        if isinstance(decision, Waiting) and any(pool.accepts for pool in here.pools) and here.node_ids:
            waiting += 1
            advised += decision.smallest_change != ""
            read |= phrases_of(wanted, decision.smallest_change) if decision.smallest_change else set()
    assert waiting > 300
    assert advised > 0.9 * waiting
    assert len(read) >= 0.8 * len(PHRASES), set(PHRASES) - read
