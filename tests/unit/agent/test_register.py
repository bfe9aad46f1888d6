"""What the agent must not forget, and what it may."""

import os
import pwd
import time
import tracemalloc
from pathlib import Path

import pytest

from yunhe.agent.protocol.refusals import Refusal
from yunhe.agent.runs import register as register_module
from yunhe.agent.runs.directory import Run
from yunhe.agent.runs.register import Allocation, Register
from yunhe.agent.runs.spool import Spool
from yunhe.agent.runs.users import Users

MOST_WHILE_COMPACTING = 400_000


def reopened(path: Path) -> Register:
    return Register(str(path / "journal"), str(path))


def allocation(path: Path, name: str, token: int) -> Allocation:
    one = Allocation(Run(str(path), name), token, "p1", 700_001)
    one.claimed = True
    one.resources = {"cpu_millis": 500}
    return one


def test_what_was_saved_is_there_after_a_crash(tmp_path: Path) -> None:
    register = reopened(tmp_path)
    register.save(allocation(tmp_path, "a", 3))
    register.mark("b", 7)
    again = reopened(tmp_path)
    assert again.allocations["a"].as_entry() == register.allocations["a"].as_entry()
    with pytest.raises(Refusal) as refused:
        again.fence("b", 6)
    assert refused.value.code == "fenced"
    assert again.fence("b", 7) is None


def test_a_mark_replaces_the_allocation(tmp_path: Path) -> None:
    register = reopened(tmp_path)
    register.save(allocation(tmp_path, "a", 3))
    register.mark("a", 4)
    assert reopened(tmp_path).allocations == {}
    assert reopened(tmp_path).marks["a"][0] == 4


def test_the_journal_stays_small_and_the_oldest_marks_are_forgotten(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(register_module, "MAX_MARKS", 50)
    monkeypatch.setattr(register_module, "_COMPACT_AFTER", 20)
    monkeypatch.setattr(os, "fsync", print)  # 500 of them would take seconds
    register = reopened(tmp_path)
    register.save(allocation(tmp_path, "kept", 1))
    for number in range(500):
        register.mark(f"m{number}", 1)
    again = reopened(tmp_path)
    assert set(again.allocations) == {"kept"}
    assert list(again.marks) == [f"m{number}" for number in range(450, 500)]
    assert len((tmp_path / "journal").read_bytes().splitlines()) < 200


def test_restarts_add_no_marks_beyond_the_bound(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(register_module, "MAX_MARKS", 50)
    monkeypatch.setattr(os, "fsync", print)
    for life in range(5):
        register = reopened(tmp_path)
        for number in range(40):
            register.mark(f"m{life}-{number}", 1)
        assert len(register.marks) == min(50, 40 * (life + 1))
        register.close()


def test_a_mark_is_forgotten_when_it_is_old_and_kept_as_new_when_it_is_made_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(register_module, "MARK_AGE_S", 100.0)
    began = time.time()
    register = reopened(tmp_path)
    for after_s, name, token in ((0, "a", 1), (1, "b", 1), (150, "a", 2), (300, "c", 1), (301, "d", 1)):
        monkeypatch.setattr(time, "time", lambda now=began + after_s: now)
        register.mark(name, token)
    assert list(register.marks) == ["c", "d"]
    assert list(reopened(tmp_path).marks) == ["c", "d"]


def test_a_journal_of_many_marks_is_written_and_read_line_by_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(register_module, "_COMPACT_AFTER", 20)
    monkeypatch.setattr(os, "fsync", print)
    register = reopened(tmp_path)
    tracemalloc.start()
    try:
        for number in range(6100):
            register.mark(f"allocation-{number % 3000:021d}", 1 + number // 3000)
        held, peak = tracemalloc.get_traced_memory()
        assert peak < held + MOST_WHILE_COMPACTING
        tracemalloc.reset_peak()
        again = reopened(tmp_path)
        assert tracemalloc.get_traced_memory()[1] < 2 * held + MOST_WHILE_COMPACTING
    finally:
        tracemalloc.stop()
    assert again.marks == register.marks
    assert len((tmp_path / "journal").read_bytes().splitlines()) < 3200


def test_minutes_are_kept_until_they_are_acknowledged_and_numbers_never_come_again(tmp_path: Path) -> None:
    path = str(tmp_path / "usage")
    spool = Spool(path)
    spool.add([{"minute": 1, "allocation_id": "a", "until_ms": 5}] * 3)
    assert [minute["seq"] for minute in Spool(path).beyond(-1)] == [0, 1, 2]
    again = Spool(path)
    assert [minute["seq"] for minute in again.beyond(1)] == [2]
    assert again.beyond(2) == []
    again.add([{"minute": 2, "allocation_id": "a", "until_ms": 9}])
    assert [minute["seq"] for minute in again.beyond(2)] == [3]


def test_a_project_keeps_its_user_and_no_known_user_is_given(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    taken = [entry.pw_uid for entry in pwd.getpwall()]
    users = Users(str(tmp_path / "users.json"), min(taken), len(set(taken)) + 3)
    given: dict[str, int] = {}
    for project in ("a", "b", "c"):
        given[project] = users.propose(project)
        users.settle(project, given[project])
    assert len(set(given.values())) == 3
    assert not set(given.values()) & set(taken)
    again = Users(str(tmp_path / "users.json"), 900_000, 10)
    assert {project: again.propose(project) for project in given} == given


def test_a_project_that_left_nothing_binds_no_node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    users = Users(str(tmp_path / "users.json"), 700_000, 10)
    users.propose("first")
    users.settle("second", users.propose("second"))
    with pytest.raises(Refusal, match="second only"):
        users.propose("first")


def test_a_users_file_that_cannot_be_read_is_set_aside(tmp_path: Path) -> None:
    path = tmp_path / "users.json"
    path.write_text("{")
    users = Users(str(path), 700_000, 10)
    assert "set aside" in users.notice
    assert (tmp_path / "users.json.quarantine").exists()
