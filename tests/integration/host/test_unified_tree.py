"""Version 2 on a real kernel, as far as this host lets us: members, freezing, killing and cpu time need no controller."""

import os
import subprocess
import time
from collections.abc import Generator
from pathlib import Path

import pytest

from yunhe.agent.cgroup_v2 import GroupV2


@pytest.fixture
def path() -> Generator[Path, None, None]:
    lines = Path("/proc/self/mountinfo").read_text().splitlines()
    mounts = [line.split()[4] for line in lines if " - cgroup2 " in line]
    if not mounts or not os.access(mounts[0], os.W_OK):
        pytest.skip("needs a writable cgroup2 mount")
    path = Path(mounts[0]) / f"yunhe-test-{os.getpid()}"
    path.mkdir()
    try:
        yield path
    finally:
        GroupV2(str(path)).kill()
        GroupV2(str(path)).remove()


def busy_member(group: GroupV2) -> "subprocess.Popen[bytes]":
    """Start a tree of two busy processes inside the group."""
    script = "(while :; do :; done) & while :; do :; done"
    return subprocess.Popen(["sh", "-c", script], preexec_fn=group.join)  # noqa: PLW1509 - no threads here


def test_members_are_frozen_counted_killed_and_the_group_removed(path: Path) -> None:
    group = GroupV2(str(path))
    with busy_member(group) as member:
        time.sleep(0.5)
        assert member.pid in group.processes()
        assert len(group.processes()) == 2
        group.freeze()
        frozen_at = group.cpu_us()
        time.sleep(0.3)
        assert frozen_at is not None
        assert frozen_at > 50_000
        assert group.cpu_us() == frozen_at, "a frozen group went on"
        group.thaw()
        time.sleep(0.3)
        assert (group.cpu_us() or 0) > frozen_at
        group.freeze()
        group.kill()  # also what is frozen
        assert member.wait(5) == -9
    assert group.processes() == []
    group.remove()
    assert not path.exists()
