"""One instance explained: from samples of any period."""

import numpy as np
import pytest

from yunhe.flexible.sizing.explanation import explain_instance
from yunhe.flexible.sizing.rightsizing import PRICE_BOOK
from yunhe.flexible.trace import DAY_S, Dimension, Trace
from yunhe.kernel.money import Tier


@pytest.mark.parametrize("period_s", [60, 300, 600, 1800, 3600])
def test_nine_days_are_enough_to_know_an_instance_however_often_it_was_sampled(period_s: int):
    def explained(days: float) -> bool:
        usage = np.full((1, int(days * DAY_S) // period_s), 0.5, dtype=np.float32)
        request = {Dimension.CPU: np.array([4.0])}
        trace = Trace(("one",), 345_600, period_s, {Dimension.CPU: usage}, request)
        return explain_instance(trace, "one", Tier.HIGH, PRICE_BOOK, frozenset()).warm

    assert explained(days=9)
    assert not explained(days=0.5)
