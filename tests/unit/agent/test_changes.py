"""The log of changes tells what changed after a version, all of it, or that it does not know."""

import pytest

from yunhe.agent.runs import changes
from yunhe.agent.runs.changes import ChangeLog


def test_only_what_changed_after_a_version_is_told_in_order() -> None:
    log = ChangeLog(100)
    for name in ("a", "b", "c", "a"):
        log.note(name)
    assert log.version == 104
    assert log.after(104) == ([], [])
    assert log.after(102) == (["c", "a"], [])
    assert log.after(100) == (["b", "c", "a"], [])


def test_what_is_gone_is_told_as_gone_until_it_comes_again() -> None:
    log = ChangeLog(0)
    log.note("a")
    log.forget("a")
    assert log.after(0) == ([], ["a"])
    log.note("a")
    assert log.after(1) == (["a"], [])


@pytest.mark.parametrize("version", [-1, 99, 102])
def test_a_version_of_another_life_is_not_known(version: int) -> None:
    log = ChangeLog(100)
    log.note("a")
    assert log.after(version) is None


def test_who_is_farther_behind_than_is_remembered_is_told_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(changes, "GONE_KEPT", 2)
    log = ChangeLog(0)
    for name in ("a", "b", "c"):
        log.forget(name)
    assert log.after(0) is None
    assert log.after(1) == ([], ["b", "c"])


def test_as_many_are_remembered_as_gone_as_are_known_but_no_fewer_than_some(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(changes, "GONE_KEPT", 2)
    log = ChangeLog(0)
    for number in range(10):
        log.note(f"known {number}")
    for number in range(5):
        log.forget(f"gone {number}")
    assert log.after(10) == ([], [f"gone {number}" for number in range(5)])
    for number in range(8):
        log.forget(f"known {number}")
    assert log.after(log.version - 3) is None
    assert log.after(log.version - 2) == ([], ["known 6", "known 7"])
