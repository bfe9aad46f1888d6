"""What decisions were made on is kept compactly, and gives the same decision with its reasons again."""

from random import Random
from typing import NamedTuple

import msgspec

from support.worlds import random_demand, random_world
from yunhe.kernel.ids import JobId
from yunhe.scheduling.decision.cycle import Cycle
from yunhe.scheduling.decision.decide import decide_in, place_in
from yunhe.scheduling.decision.model import Decision, Demand, Placed
from yunhe.scheduling.orchestration.placing.rounds import (
    RecordedDecision,
    RoundLog,
    RoundRow,
    explain_again,
    read_decision,
)


class Told(NamedTuple):
    """A decision as it is stored, and as it was explained when it was made."""

    recorded: RecordedDecision
    demand: Demand
    full: Decision


def decide_some(cycle: Cycle, rng: Random, batch: int) -> list[Told]:
    told: list[Told] = []
    for number in range(4):
        demand = msgspec.structs.replace(random_demand(rng), job_id=JobId(f"{batch}-{number}"))
        full = decide_in(demand, cycle, advise=False)
        short = place_in(demand, cycle)
        if isinstance(short, Placed):
            told.append(Told(RecordedDecision(decision=short, turn=len(told)), demand, full))
    return told


def test_a_decision_is_explained_as_it_would_have_been_when_it_was_made() -> None:
    explained, longest = 0, 0
    for seed in range(40):
        rng, log = Random(seed), RoundLog()
        cycle, rows = Cycle(random_world(rng)), list[RoundRow]()
        for batch in range(4):
            seen = cycle.after()
            told = decide_some(cycle, rng, batch)
            rows.append(log.row(seen, [cycle.reservation(one.demand.job_id) for one in told], 1.0))
            chain = [row for row in rows if row.chain == rows[-1].chain]
            for recorded, demand, full in told:
                again = explain_again(recorded, demand, chain)
                assert msgspec.json.encode(again) == msgspec.json.encode(full)
                explained += 1
                longest = max(longest, len(chain))
            if told and batch % 2:
                cycle.release(told[0].demand.job_id)
    assert explained > 100
    assert longest > 2, "no decision stood on rows that only say what changed"


def test_a_decision_of_an_earlier_version_is_read_with_the_reasons_it_has() -> None:
    data = b'{"type":"waiting","rejected":[],"smallest_change":"ask for less","snapshot_version":3}'
    recorded = read_decision(data)
    assert explain_again(recorded, random_demand(Random(1)), []) == recorded.decision
