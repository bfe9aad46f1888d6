"""Which of two versions is the newer."""

import pytest

from yunhe.control.plugins.registry import version_order


@pytest.mark.parametrize(
    ("older", "newer"),
    [("1", "2"), ("1.9", "1.10"), ("1.9.9", "2"), ("2.0-rc1", "2.0"), ("2.0", "2.0.1"), ("v1", "1")],
)
def test_versions_sort_as_people_count(older: str, newer: str) -> None:
    assert version_order(older) < version_order(newer)
    assert not version_order(newer) < version_order(older)
