"""The ledger's chain: whatever is changed, dropped, swapped or added is noticed by anyone who checks."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from yunhe.control.pools.model import Meters
from yunhe.kernel.ids import AllocationId, JobId, PoolId, ProjectId
from yunhe.kernel.money import Prices, Tier
from yunhe.kernel.resources import Accelerators, Resources
from yunhe.scheduling.orchestration.jobs.events import AllocationMetered
from yunhe.trading.trades.bill import bill
from yunhe.trading.trades.chain import GENESIS, masked, sealed, verify
from yunhe.trading.trades.model import Balance, LedgerEntry, PriceList
from yunhe.trading.trades.price import amount_micros, tier_prices

PRICES = PriceList(
    pool_id=PoolId("pool_a"),
    version=1,
    since=0.0,
    tiers=tier_prices(Prices(cpu_core_hour_micros=50_000, memory_gib_hour_micros=10_000, io_gib_micros=100)),
)


def reading(cpu_us: int, wall_ms: int, *, final: bool = False, tier: Tier = Tier.HIGH) -> AllocationMetered:
    return AllocationMetered(
        allocation_id=AllocationId("alloc_a"),
        job_id=JobId("job_a"),
        project_id=ProjectId("team"),
        pool_id=PoolId("pool_a"),
        tier=tier,
        resources=Resources(cpu_millis=1000, memory_mib=1024, accelerators=(Accelerators("A100", 500),)),
        meters=Meters(wall_ms=wall_ms, cpu_us=cpu_us, memory_mib_ms=wall_ms * 100, written_bytes=cpu_us),
        final=final,
    )


def ledger(increments: list[tuple[int, int]]) -> list[LedgerEntry]:
    balance, previous, lines = Balance(), GENESIS, list[LedgerEntry]()
    cpu = wall = 0
    for number, (more_cpu, more_wall) in enumerate(increments, 1):
        cpu, wall = cpu + more_cpu, wall + more_wall
        (entry,), balance = bill(
            reading(cpu, wall, final=number == len(increments)), balance, [PRICES], wall / 1000
        )
        lines.append(sealed(msgspec.structs.replace(entry, seq=number), previous))
        previous = lines[-1].hash
    return lines


increments = st.lists(st.tuples(st.integers(0, 10**10), st.integers(0, 10**7)), min_size=1, max_size=8)


@given(increments)
def test_what_was_written_verifies_whole_or_masked(steps: list[tuple[int, int]]) -> None:
    lines = ledger(steps)
    assert verify(lines).ok
    hidden = [masked(line) if line.seq % 2 else line for line in lines]
    verdict = verify(hidden)
    assert verdict.ok
    assert verdict.masked == len([line for line in lines if line.seq % 2])
    assert verdict.last_hash == lines[-1].hash


@given(increments, st.data())
def test_any_change_to_any_line_is_noticed(steps: list[tuple[int, int]], data: st.DataObject) -> None:
    lines = ledger(steps)
    victim = data.draw(st.integers(0, len(lines) - 1))
    field, value = data.draw(
        st.sampled_from(
            [
                ("amount_micros", lines[victim].amount_micros + 1),
                ("project_id", "thief"),
                ("tier", Tier.LOW),
                ("to_ms", lines[victim].to_ms + 1),
                ("final", not lines[victim].final),
                ("previous", "f" * 64),
            ]
        )
    )
    forged = [*lines]
    forged[victim] = msgspec.structs.replace(lines[victim], **{field: value})
    assert not verify(forged).ok
    resealed = sealed(
        msgspec.structs.replace(lines[victim], amount_micros=lines[victim].amount_micros + 1),
        lines[victim].previous,
    )
    assert not verify([*lines[:victim], resealed, *lines[victim + 1 :]]).ok or victim == len(lines) - 1
    if victim < len(lines) - 1:
        assert not verify([*lines[:victim], *lines[victim + 1 :]]).ok


@given(increments)
def test_the_lines_add_up_to_what_was_used(steps: list[tuple[int, int]]) -> None:
    lines = ledger(steps)
    assert sum(line.used.cpu_us for line in lines) == sum(cpu for cpu, _ in steps)
    assert sum(line.reserved.cpu_us for line in lines) == 1000 * sum(wall for _, wall in steps)
    whole = amount_micros(
        msgspec.structs.replace(
            lines[0].used,
            cpu_us=sum(c for c, _ in steps),
            memory_mib_ms=100 * sum(w for _, w in steps),
            io_bytes=sum(c for c, _ in steps),
            accelerator_ms={},
        ),
        PRICES.tiers[Tier.HIGH],
    )
    assert abs(sum(line.amount_micros for line in lines) - whole) <= 2 * len(lines)


@given(st.integers(0, 10**10), st.integers(0, 10**10), st.integers(1, 10**7))
def test_a_counter_that_goes_back_is_never_billed_twice_or_negative(
    first: int, second: int, wall: int
) -> None:
    (one,), balance = bill(reading(first, wall), Balance(), [PRICES], wall / 1000)
    (two,), balance = bill(reading(second, wall), balance, [PRICES], wall / 1000)
    assert one.used.cpu_us + two.used.cpu_us == max(first, second)
    assert two.amount_micros >= 0
    assert balance.used.cpu_us == max(first, second)


def resealed(lines: list[LedgerEntry]) -> list[LedgerEntry]:
    """Return lines chained anew: what a forger can do who holds the whole ledger."""
    previous, chained = GENESIS, list[LedgerEntry]()
    for line in lines:
        chained.append(sealed(line, previous))
        previous = chained[-1].hash
    return chained


@given(increments, st.data())
def test_an_amount_that_is_not_use_at_its_prices_is_noticed_though_chained_anew(
    steps: list[tuple[int, int]], data: st.DataObject
) -> None:
    lines = ledger(steps)
    victim = data.draw(st.integers(0, len(lines) - 1))
    field = data.draw(st.sampled_from(["amount_micros", "reserved_micros"]))
    more = getattr(lines[victim], field) + data.draw(st.integers(1, 10**9))
    forged = [*lines]
    forged[victim] = msgspec.structs.replace(lines[victim], **{field: more})
    verdict = verify(resealed(forged))
    assert f"the amounts of line {victim + 1} are not" in verdict.problem
    assert verify(resealed(lines)).ok


def test_a_line_from_before_lines_carried_prices_still_verifies_and_is_told() -> None:
    plain = ledger([(5, 1000), (7, 500)])
    old = resealed(
        [msgspec.structs.replace(line, prices=msgspec.UNSET, began_at=msgspec.UNSET) for line in plain]
    )
    text = msgspec.json.encode(old)
    assert b"prices" not in text
    assert b"began_at" not in text, "its hash would no longer be that of what it says"
    verdict = verify(msgspec.json.decode(text, type=list[LedgerEntry]))
    assert (verdict.ok, verdict.unpriced) == (True, 2)
    assert verify(plain).unpriced == 0


def test_an_empty_ledger_verifies_and_a_gap_at_the_start_does_not() -> None:
    assert verify([]).ok
    assert not verify(ledger([(1, 1), (1, 1)])[1:]).ok


def test_entries_survive_json_with_their_hashes() -> None:
    lines = ledger([(5, 1000), (7, 500)])
    text = msgspec.json.encode(lines)
    assert verify(msgspec.json.decode(text, type=list[LedgerEntry])).ok
    assert pytest.approx(1.0) == lines[0].at
