"""Amounts of money as people read them."""

import pytest

from yunhe.kernel.money import divide_up, show_money


@pytest.mark.parametrize(
    ("micros", "shown"),
    [
        (0, "¥0.0000"),
        (49, "¥0.0000"),
        (50, "¥0.0001"),
        (300, "¥0.0003"),
        (999_949, "¥0.9999"),
        (999_999, "¥1.0000"),
        (1_000_000, "¥1.00"),
        (1_004_999, "¥1.00"),
        (1_005_000, "¥1.01"),
        (2**60, "¥1152921504606.85"),
        (-1, "¥0.0000"),
        (-2_500_000, "-¥2.50"),
    ],
)
def test_money_is_shown_to_the_cent_or_closer(micros: int, shown: str) -> None:
    assert show_money(micros) == shown


def test_another_symbol_can_be_shown() -> None:
    assert show_money(1_500_000, "$") == "$1.50"


def test_a_half_is_rounded_up() -> None:
    assert [divide_up(n, 2) for n in (-3, -1, 1, 3)] == [-1, 0, 1, 2]
