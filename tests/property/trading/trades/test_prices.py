"""The price book: high > medium > low for every unit that is charged, in the prices and in what is owed."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from yunhe.kernel.errors import InvalidInputError
from yunhe.kernel.money import CPU_US_PER_HOUR, Prices, Tier
from yunhe.trading.trades.model import Quantities
from yunhe.trading.trades.price import amount_micros, tier_prices, units

prices = st.builds(
    Prices,
    cpu_core_hour_micros=st.integers(0, 10**9),
    memory_gib_hour_micros=st.integers(0, 10**9),
    io_gib_micros=st.integers(0, 10**6),
    network_gib_micros=st.integers(0, 10**6),
    accelerator_hour_micros=st.dictionaries(st.sampled_from(["A100", "H200"]), st.integers(0, 10**9)),
)
tiny = st.builds(Prices, cpu_core_hour_micros=st.integers(0, 3), memory_gib_hour_micros=st.integers(0, 2))
"""So few that all three orders of them come up often."""


@given(prices | tiny)
def test_prices_that_follow_from_high_fall_with_the_tier_or_are_refused_by_name(high: Prices) -> None:
    small = {f"high.{name}" for name, price in units(high).items() if 0 < price < 4}
    if small:
        with pytest.raises(InvalidInputError, match="fall with the tier") as refused:
            tier_prices(high)
        assert {field.field for field in refused.value.fields} == small
        return
    tiers = tier_prices(high)
    for name, price in units(tiers[Tier.HIGH]).items():
        medium, low = units(tiers[Tier.MEDIUM])[name], units(tiers[Tier.LOW])[name]
        assert price > medium > low > 0 or price == medium == low == 0


@given(prices, st.integers(0, 10**12), st.integers(0, 10**12), st.integers(0, 10**12))
def test_the_same_use_never_costs_more_in_a_lower_tier(high: Prices, cpu: int, memory: int, io: int) -> None:
    charged = Prices(cpu_core_hour_micros=high.cpu_core_hour_micros + 4, io_gib_micros=high.io_gib_micros + 4)
    tiers = tier_prices(charged)
    used = Quantities(cpu_us=cpu, memory_mib_ms=memory, io_bytes=io, network_bytes=io)
    owed = [amount_micros(used, tiers[tier]) for tier in (Tier.HIGH, Tier.MEDIUM, Tier.LOW)]
    assert owed == sorted(owed, reverse=True)
    if cpu * charged.cpu_core_hour_micros > 10 * CPU_US_PER_HOUR:
        assert owed[0] > owed[1] > owed[2]


CHARGED = Prices(
    cpu_core_hour_micros=100,
    memory_gib_hour_micros=100,
    io_gib_micros=100,
    network_gib_micros=100,
    accelerator_hour_micros={"A100": 100},
)


@pytest.mark.parametrize("name", sorted(units(CHARGED)))
@pytest.mark.parametrize(
    "book", [(100, 50, 50), (100, 0, 0), (100, 100, 50), (0, 5, 0), (0, 0, 5), (9, 5, -1)]
)
def test_a_unit_that_does_not_fall_is_named(name: str, book: tuple[int, int, int]) -> None:
    high, medium, low = (of_one_unit(name, micros) for micros in book)
    with pytest.raises(InvalidInputError, match="fall with the tier") as refused:
        tier_prices(high, {Tier.MEDIUM: medium, Tier.LOW: low})
    assert {field.field.partition(".")[2] for field in refused.value.fields} == {name}


def of_one_unit(name: str, micros: int) -> Prices:
    name, _, kind = name.partition(".")
    return Prices(**{name: {kind: micros} if kind else micros})  # pyright: ignore[reportArgumentType]


@given(prices | tiny, prices | tiny, prices | tiny)
def test_a_price_book_is_accepted_exactly_when_every_unit_falls(
    high: Prices, medium: Prices, low: Prices
) -> None:
    charged = {name for tier in (high, medium, low) for name, micros in units(tier).items() if micros}

    def falls(upper: Prices, lower: Prices) -> bool:
        return all(units(upper).get(name, 0) > units(lower).get(name, 0) for name in charged)

    book = {Tier.MEDIUM: medium, Tier.LOW: low}
    if falls(high, medium) and falls(medium, low):
        assert tier_prices(high, book) == {Tier.HIGH: high, **book}
    else:
        with pytest.raises(InvalidInputError, match="fall with the tier"):
            tier_prices(high, book)
