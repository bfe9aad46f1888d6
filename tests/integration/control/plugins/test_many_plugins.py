"""A hundred plugin processes at once: the state of their pools is told quickly and is fresh."""

import pytest
from bench.plugins import TARGET_P95_S, measure

from support.go_plugin import built_go_plugin
from yunhe.control.plugins.registry import HEARTBEAT_S


@pytest.mark.alone  # a statement about speed
@pytest.mark.engine
@pytest.mark.drives("go-plugin")
@pytest.mark.feature("C10", "N17")
def test_the_state_of_a_hundred_plugins_is_told_within_200_ms_and_is_no_older_than_a_heartbeat() -> None:
    built_go_plugin()  # skips where there is no Go
    report = measure(100, queries=50)
    assert report.plugins == 100
    assert report.p95_s < TARGET_P95_S, report
    assert report.oldest_s <= HEARTBEAT_S, report
