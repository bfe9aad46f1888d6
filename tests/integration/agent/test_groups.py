"""Every promise of a group of processes, on this host's own kernel, whichever version of control groups it has."""

import os
import subprocess
import time
from collections.abc import Generator
from pathlib import Path

import pytest

from yunhe.agent.limits.cgroup_v2 import GroupV2
from yunhe.agent.limits.limits import LimitGroup, LimitsBackend, find_backend

TWO_BUSY = "(while :; do :; done) & while :; do :; done"
HOLD = "import time; held = bytearray({} << 20); print(len(held), flush=True); time.sleep(60)"


@pytest.fixture
def keeper() -> Generator[LimitsBackend, None, None]:
    keeper = find_backend(f"/tests/{os.getpid()}")
    if not keeper.grouped:
        pytest.skip("needs writable control groups")
    yield keeper
    keeper.remove()


@pytest.fixture
def group(keeper: LimitsBackend) -> Generator[LimitGroup, None, None]:
    group = keeper.group("all_1")
    group.create(500, 256)
    yield group
    group.kill()
    group.remove()
    assert keeper.leftovers() == []


@pytest.fixture
def unified() -> Generator[LimitGroup, None, None]:
    lines = Path("/proc/self/mountinfo").read_text().splitlines()
    mounts = [line.split()[4] for line in lines if " - cgroup2 " in line]
    if not mounts or not os.access(mounts[0], os.W_OK):
        pytest.skip("needs a writable cgroup2 mount")
    path = Path(mounts[0]) / f"yunhe-test-{os.getpid()}"
    path.mkdir()
    group = GroupV2(str(path))
    yield group
    group.kill()
    group.remove()


def member(group: LimitGroup, *argv: str) -> "subprocess.Popen[str]":
    return subprocess.Popen(argv, preexec_fn=group.join, stdout=subprocess.PIPE, text=True)  # noqa: PLW1509


def use_millis(group: LimitGroup, over_s: float) -> float:
    before, began = group.cpu_us() or 0, time.monotonic()
    time.sleep(over_s)
    return ((group.cpu_us() or 0) - before) / 1000 / (time.monotonic() - began)


def frozen_thawed_and_killed(group: LimitGroup) -> None:
    with member(group, "sh", "-c", TWO_BUSY) as busy:
        time.sleep(0.5)
        assert busy.pid in group.processes()
        assert len(group.processes()) == 2
        group.freeze()
        at = group.cpu_us()
        time.sleep(0.3)
        assert at is not None
        assert at > 20_000
        assert group.cpu_us() == at, "a frozen group went on"
        group.thaw()
        time.sleep(0.5)
        assert (group.cpu_us() or 0) > at
        group.freeze()
        group.kill()  # also what is frozen
        assert busy.wait(5) == -9
    assert group.processes() == []


def test_members_are_frozen_thawed_counted_and_killed(group: LimitGroup) -> None:
    frozen_thawed_and_killed(group)


def test_members_of_a_unified_tree_without_controllers_are_too(unified: LimitGroup) -> None:
    frozen_thawed_and_killed(unified)


def test_a_quota_holds_and_is_changed_live(group: LimitGroup) -> None:
    with member(group, "sh", "-c", TWO_BUSY):
        for limit in (500, 1500, 500):
            group.set_cpu(limit)
            time.sleep(1)
            used = use_millis(group, 2)
            print(f"limit {limit} used {used:.0f}")
            assert used < 1.1 * limit
        group.kill()


def test_memory_over_the_limit_is_killed_and_counted(group: LimitGroup) -> None:
    with member(group, "python3", "-c", HOLD.format(400)) as greedy:
        assert greedy.wait(20) == -9
    assert group.oom_kills() == 1
    assert 255 << 10 <= (group.memory_peak_kib() or 0) <= 256 << 10, (
        "the limit was reached, and no sample was taken"
    )


def test_the_most_ever_held_is_remembered_after_it_was_given_back(group: LimitGroup) -> None:
    script = "held = bytearray(100 << 20); del held; import time; print(flush=True); time.sleep(60)"
    with member(group, "python3", "-c", script) as brief:
        assert brief.stdout is not None
        brief.stdout.readline()
        assert group.memory_kib() < 50 << 10
        assert (group.memory_peak_kib() or 0) >= 100 << 10
        group.kill()


def test_memory_is_read_and_cannot_be_cut_below_what_is_held(group: LimitGroup) -> None:
    with member(group, "python3", "-c", HOLD.format(100)) as holder:
        assert holder.stdout is not None
        holder.stdout.readline()
        assert 100 <= group.memory_kib() / 1024 <= 125
        with pytest.raises(OSError):
            group.set_memory(50)
        group.set_memory(512)
        assert holder.poll() is None
        group.kill()


def test_members_are_bound_to_cores_and_set_free(keeper: LimitsBackend, group: LimitGroup) -> None:
    if not keeper.pins:
        pytest.skip("needs a cpuset controller")
    with member(group, "sleep", "60") as bound:
        everything = os.sched_getaffinity(bound.pid)
        group.set_cores([0])
        assert os.sched_getaffinity(bound.pid) == {0}
        group.set_cores([])
        assert os.sched_getaffinity(bound.pid) == everything
        group.kill()
