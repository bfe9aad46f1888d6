"""Identifiers are distinct, sort by time, and are safe in a path, a URL and a shell."""

import re

from hypothesis import given
from hypothesis import strategies as st

from yunhe.kernel.ids import new_id

moments = st.integers(0, 4_000_000_000_000).map(lambda ms: ms / 1000)


@given(moments, moments)
def test_an_id_made_later_sorts_later(one: float, other: float) -> None:
    earlier, later = sorted((one, other))
    if int(earlier * 1000) < int(later * 1000):
        assert new_id("job", earlier) < new_id("job", later)


@given(moments)
def test_an_id_is_a_prefix_and_nineteen_plain_letters(at_s: float) -> None:
    assert re.fullmatch(r"job_[0-9a-hjkmnp-tv-z]{19}", new_id("job", at_s))


def test_ids_made_in_one_moment_are_distinct() -> None:
    assert len({new_id("job", 1_700_000_000.0) for _ in range(10_000)}) == 10_000
