"""Money is counted in integers, and every party computes the same cent."""

import math
from fractions import Fraction

from hypothesis import given
from hypothesis import strategies as st

from yunhe.kernel.money import MICROS, divide_up, show_money

amounts = st.integers(-(10**24), 10**24)


@given(amounts, st.integers(1, 10**15))
def test_division_rounds_to_the_nearest_and_halves_up(numerator: int, denominator: int) -> None:
    exact = Fraction(numerator, denominator)
    assert divide_up(numerator, denominator) == math.floor(exact + Fraction(1, 2))
    assert abs(divide_up(numerator, denominator) - exact) <= Fraction(1, 2)


@given(st.lists(st.integers(0, 10**15), min_size=1, max_size=20), st.integers(1, 10**12))
def test_billing_in_parts_is_off_by_at_most_half_a_micro_each(parts: list[int], denominator: int) -> None:
    billed = sum(divide_up(part, denominator) for part in parts)
    assert abs(billed - Fraction(sum(parts), denominator)) <= Fraction(len(parts), 2)


@given(amounts)
def test_what_is_shown_is_the_amount_to_half_a_digit(micros: int) -> None:
    text = show_money(micros)
    digits = text.replace("¥", "")
    decimals = len(digits.partition(".")[2])
    assert decimals == (2 if abs(micros) >= MICROS else 4)
    assert abs(Fraction(digits) - Fraction(micros, MICROS)) <= Fraction(1, 2 * 10**decimals)
