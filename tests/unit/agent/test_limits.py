"""Control groups against a tree of plain files that stands for the kernel's; version 2 is known only this far."""

import hashlib
import os
from pathlib import Path

import pytest

from yunhe.agent.limits.cgroup_v2 import GroupV2
from yunhe.agent.limits.limits import find_backend
from yunhe.agent.runs.processes import most_processes


@pytest.fixture
def v2(tmp_path: Path) -> Path:
    mount = tmp_path / "cgroup"
    mount.mkdir()
    (mount / "cgroup.controllers").write_text("cpuset cpu io memory pids\n")
    (mount / "cgroup.subtree_control").write_text("")
    return mount


def mountinfo(tmp_path: Path, *lines: str) -> str:
    path = tmp_path / "mountinfo"
    path.write_text("\n".join(lines) + "\n")
    return str(path)


def kernel_files(group: Path, **files: str) -> None:
    """Make the files the kernel would make in a new group."""
    group.mkdir(parents=True, exist_ok=True)
    names = (
        "cgroup.procs",
        "cpu.max",
        "cpu.weight",
        "memory.max",
        "pids.max",
        "cpuset.cpus",
        "cgroup.freeze",
    )
    for name in names:
        (group / name).write_text("")
    for name, text in {"memory_stat": "anon 1048576\nfile_mapped 2097152\n", **files}.items():
        (group / name.replace("_", ".", 1)).write_text(text)


def test_a_unified_tree_with_the_controllers_is_chosen_and_handed_down(v2: Path, tmp_path: Path) -> None:
    line = f"31 23 0:28 / {v2} rw shared:1 - cgroup2 cgroup2 rw"
    parent = v2 / f"yunhe-{hashlib.sha256(b'/some/root').hexdigest()[:12]}"
    parent.mkdir()
    (parent / "cgroup.subtree_control").write_text("")
    keeper = find_backend("/some/root", mountinfo=mountinfo(tmp_path, line))
    assert (keeper.kind, keeper.words, keeper.pins) == ("v2", "cgroup v2", True)
    assert (parent / "cgroup.subtree_control").read_text() == "+cpu +cpuset +memory +pids"


def test_a_unified_tree_without_cpu_and_memory_is_not_chosen(v2: Path, tmp_path: Path) -> None:
    (v2 / "cgroup.controllers").write_text("hugetlb\n")
    line = f"41 31 0:38 / {v2} rw - cgroup2 cgroup2 rw"
    assert find_backend("/some/root", mountinfo=mountinfo(tmp_path, line)).words == "rlimits and nice"


@pytest.mark.parametrize(
    ("cpu_millis", "quota", "weight"),
    [(0, "max 100000", "100"), (1500, "150000 100000", "150"), (1, "1000 100000", "1")],
)
def test_limits_are_written_as_version_2_wants_them(
    tmp_path: Path, cpu_millis: int, quota: str, weight: str
) -> None:
    group = tmp_path / "group"
    kernel_files(group)
    GroupV2(str(group)).create(cpu_millis, 64)
    assert (group / "cpu.max").read_text() == quota
    assert (group / "cpu.weight").read_text() == weight
    assert (group / "memory.max").read_text() == str(64 << 20)


def test_counters_are_read_as_version_2_writes_them(tmp_path: Path) -> None:
    group = tmp_path / "group"
    events = "low 0\nhigh 0\nmax 3\noom 1\noom_kill 2\n"
    kernel_files(group, cpu_stat="usage_usec 123456\nuser_usec 1\n", memory_events=events)
    assert GroupV2(str(group)).cpu_us() == 123_456
    assert GroupV2(str(group)).memory_kib() == 3072
    assert GroupV2(str(group)).oom_kills() == 2


def test_a_limit_below_what_is_resident_is_refused_by_version_2(tmp_path: Path) -> None:
    group = tmp_path / "group"
    kernel_files(group)
    with pytest.raises(OSError, match="resident"):
        GroupV2(str(group)).set_memory(1)
    assert (group / "memory.max").read_text() == ""


def test_cores_are_bound_and_set_free(tmp_path: Path) -> None:
    group = tmp_path / "group"
    kernel_files(group)
    (tmp_path / "cpuset.cpus.effective").write_text("0-3\n")
    GroupV2(str(group)).set_cores([0, 2])
    assert (group / "cpuset.cpus").read_text() == "0,2"
    (group / "cpuset.cpus").write_text("")
    GroupV2(str(group)).set_cores([])
    assert (group / "cpuset.cpus").read_text() == "0-3"


def test_the_first_hierarchy_needs_all_its_controllers(tmp_path: Path) -> None:
    lines: list[str] = []
    for controller in ("cpu", "memory", "freezer"):
        (tmp_path / controller).mkdir()
        lines.append(f"3 2 0:1 / {tmp_path / controller} rw - cgroup cgroup rw,{controller}")
    assert find_backend("/r", mountinfo=mountinfo(tmp_path, *lines)).kind == "rlimits"


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root: control groups")
def test_real_groups_are_made_below_one_parent_and_removed() -> None:
    keeper = find_backend("/nowhere/in/particular")
    group = keeper.group("all_1")
    group.create(500, 64)
    assert keeper.leftovers() == ["all_1"]
    group.remove()
    group.remove()
    keeper.remove()
    assert not any(Path(path).exists() for path in keeper.paths.values())


@pytest.mark.parametrize(
    ("cpu_millis", "memory_mib", "most"),
    [(100, 64, 64), (250, 512, 250), (2000, 512, 512), (10, 8, 64), (0, 300, 300), (300, 0, 300)],
)
def test_a_task_may_have_as_many_processes_as_its_reservation_is_large(
    cpu_millis: int, memory_mib: int, most: int
) -> None:
    assert most_processes(cpu_millis, memory_mib) == most


def test_a_task_that_reserved_nothing_or_much_has_the_bound_of_the_host() -> None:
    assert 256 <= most_processes(0, 0) == most_processes(64_000, 1 << 20) <= 4096
