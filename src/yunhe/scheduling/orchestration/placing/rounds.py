"""What decisions were made on: kept compactly with them, so that one can be explained when somebody asks.

Each batch of decisions leaves a row: what was reserved by each, and how the room had changed since the row before. The
first row of a chain holds a whole snapshot. Chains are short, and a process begins a new one when pools change.
"""

from typing import Any, NamedTuple

import msgspec

from yunhe.kernel.ids import JobId, new_id
from yunhe.scheduling.decision.archive import (
    RoomChange,
    differ_in_room_only,
    pack,
    room_change,
    unpack,
    with_room,
)
from yunhe.scheduling.decision.cycle import Cycle, HeldResources
from yunhe.scheduling.decision.decide import decide_in
from yunhe.scheduling.decision.model import Decision, Demand, Placed, Waiting
from yunhe.scheduling.perception.snapshot import Snapshot

LONGEST_CHAIN = 256


class RecordedDecision(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A short decision, and where to find what it was made on."""

    decision: Decision
    chain: str = ""
    number: int = 0
    turn: int = 0
    """How many decisions of its batch came before it."""


class RoundRow(NamedTuple):
    """A row to be written with the decisions of a batch."""

    chain: str
    number: int
    world: bytes
    reserved: bytes


class RoundLog:
    """Makes the rows of one process, one chain after another."""

    def __init__(self) -> None:
        self._last: RoundRow | None = None
        self._seen: Snapshot | None = None

    def row(self, seen: Snapshot, reserved: list[HeldResources], now: float) -> RoundRow:
        """Return the row of a batch that began with *seen* and took *reserved*; it must be written before the next."""
        last, before = self._last, self._seen
        if last is None or before is None or last.number + 1 == LONGEST_CHAIN:
            begins = True
        else:
            begins = not differ_in_room_only(before, seen)
        if begins or last is None or before is None:
            row = RoundRow(new_id("round", now), 0, pack(seen), pack(reserved))
        else:
            row = RoundRow(last.chain, last.number + 1, pack(room_change(before, seen)), pack(reserved))
        self._last, self._seen = row, seen
        return row

    def begin_anew(self) -> None:
        """Begin a new chain: whether the last row was written is not known."""
        self._last = self._seen = None


def read_decision(data: bytes) -> RecordedDecision:
    """Return a decision as it was stored; those of earlier versions stand alone, with all their reasons."""
    plain: dict[str, Any] = msgspec.json.decode(data)
    if "decision" in plain:
        return msgspec.convert(plain, RecordedDecision)
    return RecordedDecision(decision=msgspec.convert(plain, Decision))


def explain_again(recorded: RecordedDecision, demand: Demand, rows: list[RoundRow]) -> Decision:
    """Return a stored decision with every pool's reasons at its time; as short as it is where *rows* are gone."""
    short = recorded.decision
    if not rows or not isinstance(short, Placed):
        return short
    changes = [unpack(row.world, RoomChange) for row in rows[1:]]
    cycle = Cycle(with_room(unpack(rows[0].world, Snapshot), changes))
    before: list[HeldResources] = unpack(rows[-1].reserved, list[HeldResources])[: recorded.turn]
    for number, reservation in enumerate(before):
        cycle.hold(JobId(str(number)), reservation)
    decision = decide_in(demand, cycle, advise=False)
    if isinstance(decision, Waiting) and demand.avoid_pools:
        decision = decide_in(msgspec.structs.replace(demand, avoid_pools=()), cycle, advise=False)
    agrees = isinstance(decision, Placed) and decision.assignments == short.assignments
    return decision if agrees else short
