from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from yunhe.kernel.backoff import Backoff, delay_s


def test_delays_double_up_to_the_longest_and_begin_again_after_a_reset() -> None:
    backoff = Backoff(0.5, 3.0)
    assert [backoff.next_s() for _ in range(5)] == [0.5, 1.0, 2.0, 3.0, 3.0]
    backoff.reset()
    assert backoff.next_s() == 0.5


def test_a_delay_that_is_capped_once_is_doubled_from_there() -> None:
    backoff = Backoff(4.0, 30.0)
    assert [backoff.next_s(), backoff.next_s(2.0), backoff.next_s()] == [4.0, 2.0, 4.0]


def test_a_delay_by_count_is_the_one_that_so_many_attempts_would_have_reached() -> None:
    backoff = Backoff(0.5, 60.0)
    assert [delay_s(0.5, 60.0, failures) for failures in range(100)] == [backoff.next_s() for _ in range(100)]


@given(st.floats(0.001, 10), st.floats(0.001, 100))
def test_no_delay_is_shorter_than_the_one_before_or_longer_than_the_longest(
    first: float, longest: float
) -> None:
    backoff = Backoff(first, longest)
    delays = [backoff.next_s() for _ in range(2000)]
    assert all(earlier <= later <= longest for earlier, later in pairwise(delays))
