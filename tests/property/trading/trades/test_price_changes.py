"""A price that changes while something runs: before the change the old price holds, after it the new, to the millisecond."""

from fractions import Fraction

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from yunhe.control.pools.model import Meters
from yunhe.kernel.ids import AllocationId, JobId, PoolId, ProjectId, new_id
from yunhe.kernel.money import Prices, Tier
from yunhe.kernel.resources import Accelerators, Resources
from yunhe.scheduling.orchestration.jobs.events import AllocationMetered
from yunhe.trading.trades.bill import began_at, bill
from yunhe.trading.trades.model import Balance, LedgerEntry, PriceList
from yunhe.trading.trades.price import amount_micros, tier_prices

BEGAN = 1_800_000_000.0


def price_list(version: int, since_ms: int) -> PriceList:
    tiers = tier_prices(
        Prices(cpu_core_hour_micros=10**6 * version, accelerator_hour_micros={"A100": 7 * 10**6 * version})
    )
    return PriceList(pool_id=PoolId("pool_a"), version=version, since=BEGAN + since_ms / 1000, tiers=tiers)


def reading(cpu_us: int, wall_ms: int, *, final: bool = False) -> AllocationMetered:
    return AllocationMetered(
        allocation_id=AllocationId("alloc_a"),
        job_id=JobId("job_a"),
        project_id=ProjectId("team"),
        pool_id=PoolId("pool_a"),
        tier=Tier.HIGH,
        resources=Resources(cpu_millis=1000, memory_mib=64, accelerators=(Accelerators("A100", 1000),)),
        meters=Meters(wall_ms=wall_ms, cpu_us=cpu_us, written_bytes=3 * cpu_us),
        started_at=BEGAN,
        final=final,
    )


def billed(steps: list[tuple[int, int]], book: list[PriceList]) -> list[LedgerEntry]:
    """Bill readings that each came a second late, from the lists that had been published by then."""
    balance, lines = Balance(), list[LedgerEntry]()
    cpu = wall = 0
    for number, (more_cpu, more_wall) in enumerate(steps, 1):
        cpu, wall = cpu + more_cpu, wall + more_wall
        at = BEGAN + wall / 1000 + 1
        entries, balance = bill(reading(cpu, wall, final=number == len(steps)), balance, book, at)
        lines += entries
    return lines


steps = st.lists(st.tuples(st.integers(0, 10**10), st.integers(0, 10**5)), min_size=1, max_size=5)
books = st.lists(st.integers(-(10**4), 5 * 10**5), max_size=5).map(
    lambda moments: [price_list(number, ms) for number, ms in enumerate(sorted(moments), 1)]
)


@given(steps, books)
def test_every_millisecond_is_billed_once_at_the_price_of_that_millisecond(
    steps: list[tuple[int, int]], book: list[PriceList]
) -> None:
    lines = billed(steps, book)
    assert [line.from_ms for line in lines] == [0, *(line.to_ms for line in lines[:-1])]
    assert lines[-1].to_ms == sum(wall for _, wall in steps)
    for line in lines:
        for moment in (line.from_ms, max(line.from_ms, line.to_ms - 1)):
            in_force = [prices.version for prices in book if round((prices.since - BEGAN) * 1000) <= moment]
            assert line.price_version == max(in_force, default=0)
        listed = book[line.price_version - 1].tiers[Tier.HIGH] if line.price_version else Prices()
        assert line.prices == listed
        assert line.amount_micros == amount_micros(line.used, listed)
        assert line.reserved_micros == amount_micros(line.reserved, listed)


@given(steps, books)
def test_splitting_loses_and_adds_nothing_and_follows_time(
    steps: list[tuple[int, int]], book: list[PriceList]
) -> None:
    lines = billed(steps, book)
    whole = billed(steps, [])
    assert len(whole) == len(steps)
    assert [line.final for line in lines] == [False] * (len(lines) - 1) + [True]
    for used in ("cpu_us", "io_bytes"):
        assert sum(getattr(line.used, used) for line in lines) == sum(getattr(w.used, used) for w in whole)
    assert sum(line.used.accelerator_ms["A100"] for line in lines) == lines[-1].to_ms
    assert sum(line.reserved.cpu_us for line in lines) == 1000 * lines[-1].to_ms
    for line in lines:
        if line.to_ms == line.from_ms:
            continue
        (reading_of,) = (w for w in whole if w.from_ms <= line.from_ms and line.to_ms <= w.to_ms != w.from_ms)
        part = Fraction(line.to_ms - line.from_ms, reading_of.to_ms - reading_of.from_ms)
        assert abs(line.used.cpu_us - reading_of.used.cpu_us * part) <= 1


@given(st.integers(1, 10**6), st.integers(1, 10**6), st.integers(0, 10**9))
def test_what_was_used_before_a_change_costs_what_it_would_have_without_it(
    before_ms: int, after_ms: int, cpu_us: int
) -> None:
    old, new = price_list(1, -1000), price_list(900, before_ms)
    first, second = billed([(cpu_us, before_ms + after_ms)], [old, new])
    (alone,) = billed([(first.used.cpu_us, before_ms)], [old])
    assert (first.amount_micros, first.to_ms) == (alone.amount_micros, before_ms)
    assert second.amount_micros == amount_micros(second.used, new.tiers[Tier.HIGH])


@given(st.integers(0, 10**7), st.floats(-(10**6), 10**6), st.integers(0, 10**7), st.booleans())
def test_a_clock_that_is_wrong_moves_no_use_before_its_placing_or_after_its_reading(
    wall_ms: int, skew_s: float, late_ms: int, told: bool
) -> None:
    one = msgspec.structs.replace(
        reading(0, wall_ms),
        allocation_id=AllocationId(new_id("alloc", BEGAN)),
        started_at=BEGAN + skew_s if told else None,
    )
    at = BEGAN + (wall_ms + late_ms) / 1000
    began = began_at(one, at)
    assert began >= BEGAN - 0.001
    assert began + wall_ms / 1000 <= at + 0.001
    if told and 0 <= skew_s <= late_ms / 1000:
        assert began == BEGAN + skew_s, "a clock that may be right is believed"
