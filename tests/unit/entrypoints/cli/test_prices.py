"""Prices as an operator writes them."""

import pytest

from yunhe.entrypoints.cli.commands.pools.prices import EXAMPLE, parse_prices
from yunhe.kernel.errors import InvalidInputError
from yunhe.kernel.money import Prices


def test_prices_are_exact_integers() -> None:
    assert parse_prices(EXAMPLE) == Prices(
        cpu_core_hour_micros=50_000,
        memory_gib_hour_micros=10_000,
        io_gib_micros=1_000,
        accelerator_hour_micros={"A100": 12_000_000},
    )


def test_the_unit_may_be_left_out() -> None:
    assert parse_prices("cpu=0.1,net=2") == Prices(cpu_core_hour_micros=100_000, network_gib_micros=2_000_000)


@pytest.mark.parametrize(
    "text", ["", ",", "cpu", "cpu=", "cpu=-1/h", "cpu=1/GiB", "io=1/h", "cpu=0.0000001/h", "=1/h", "cpus=1/h"]
)
def test_what_is_no_price_is_refused_with_an_example(text: str) -> None:
    with pytest.raises(InvalidInputError) as caught:
        parse_prices(text)
    assert EXAMPLE in caught.value.remedy
