"""What is shown can be typed back, and no text makes a parser do anything but answer or refuse."""

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from yunhe.kernel.units import (
    LARGEST,
    parse_cpu_millis,
    parse_duration_s,
    parse_memory_mib,
    show_cpu,
    show_duration,
    show_memory,
)

PARSERS: list[Callable[[str], float]] = [parse_cpu_millis, parse_memory_mib, parse_duration_s]


@given(st.integers(0, 10**12))
def test_cores_shown_are_read_back_exactly(millis: int) -> None:
    assert parse_cpu_millis(show_cpu(millis)) == millis
    assert parse_cpu_millis(f"{millis}m") == millis


@given(st.floats(1, 1e12))
def test_memory_shown_is_read_back_to_three_digits(mib: float) -> None:
    assert parse_memory_mib(show_memory(mib)) == pytest.approx(mib, rel=0.0051, abs=1)


@given(st.floats(0, 1e9))
def test_a_duration_shown_is_read_back_to_its_rounding(seconds: float) -> None:
    rounding_s = 0.05 if seconds < 60 else 30 if seconds < 3600 else 180 if seconds < 172800 else 4320
    assert parse_duration_s(show_duration(seconds)) == pytest.approx(seconds, abs=rounding_s * 1.001)


@given(st.floats(1, 1e12), st.floats(1, 1e12))
def test_more_memory_never_reads_back_as_less(one: float, other: float) -> None:
    less, more = sorted((one, other))
    assert parse_memory_mib(show_memory(less)) <= parse_memory_mib(show_memory(more))


@given(st.integers(0, 10**9), st.sampled_from(["K", "M", "G", "T"]), st.sampled_from(["", "B", "i", "iB"]))
def test_the_ending_of_a_memory_unit_and_its_case_do_not_matter(
    number: int, letter: str, ending: str
) -> None:
    try:
        plain = parse_memory_mib(f"{number}{letter}")
    except ValueError:
        plain = None
    for text in (f"{number}{letter}{ending}", f"{number} {letter}{ending}".lower()):
        if plain is None:
            with pytest.raises(ValueError, match="write"):
                parse_memory_mib(text)
        else:
            assert parse_memory_mib(text) == plain


@given(st.sampled_from(PARSERS), st.text() | st.from_regex(r"\A[0-9.]{0,30}[A-Za-z]{0,4}\Z"))
def test_any_text_is_read_as_a_sane_amount_or_refused_with_advice(
    parse: Callable[[str], float], text: str
) -> None:
    try:
        amount = parse(text)
    except ValueError as refusal:
        assert "write" in str(refusal)  # noqa: PT017 - reading it is fine too
    else:
        assert 0 <= amount <= LARGEST
        assert (amount == 0) == (float("".join(c for c in text if c in "0123456789.")) == 0)
