"""A full disk under the server: what needs room is refused with a remedy, and goes on once there is room again."""

import errno
import os
import subprocess
from collections.abc import Generator
from pathlib import Path

import pytest

from integration.entrypoints.api.serving import add_fake_pool, serving
from integration.entrypoints.api.witness import state_of
from yunhe.entrypoints.client import Client
from yunhe.kernel.errors import DiskFullError
from yunhe.runtime.settings import Settings
from yunhe.trading.applications.model import Submission
from yunhe.trading.demand.model import ResourceSpec, Task

NOWHERE = ResourceSpec(cpus=64)  # it waits: nothing changes by itself while the test looks


@pytest.fixture
def small_disk(tmp_path: Path) -> Generator[Path]:
    if os.geteuid() != 0:
        pytest.skip("mounting a small file system needs root")
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=16m", "tmpfs", str(tmp_path)], check=True)
    yield tmp_path
    subprocess.run(["umount", str(tmp_path)], check=True)


def fill(file: Path) -> None:
    with pytest.raises(OSError, match=os.strerror(errno.ENOSPC)), file.open("wb", buffering=0) as ballast:
        while True:
            ballast.write(bytes(4096))


def submit_until_refused(client: Client) -> DiskFullError:
    for _ in range(100):
        try:
            client.submit(Submission(task=Task(run="#" * 10_000, resources=NOWHERE)))
        except DiskFullError as error:
            return error
    raise AssertionError("the disk never was full")


def test_a_full_disk_refuses_jobs_and_archives_whole_and_nothing_needs_repair_afterwards(
    small_disk: Path,
) -> None:
    home, ballast = small_disk / "home", small_disk / "ballast"
    database = f"sqlite:///{home / 'yunhe.db'}"
    with serving(home, database_url=database, encode_calls=False) as served, served.client() as client:
        add_fake_pool(client)
        settings: Settings = served.settings
        fill(ballast)
        refused = submit_until_refused(client)
        assert "no room" in str(refused)
        assert "Free some space" in refused.remedy
        before = state_of(settings)
        tree = small_disk.parent / f"{small_disk.name}-tree"
        tree.mkdir()
        (tree / "noise").write_bytes(os.urandom(1 << 20))
        with pytest.raises(DiskFullError):
            client.upload_directory("default", tree)
        with pytest.raises(DiskFullError):
            client.submit(Submission(task=Task(run="#" * 10_000, resources=NOWHERE)))
        kept = ("orchestration_job", "trade_ledger", "blob", "account_project")
        assert {name: state_of(settings)[name] for name in kept} == {name: before[name] for name in kept}
        ballast.unlink()
        known = len(list(client.jobs()))
        client.submit(Submission(task=Task(run="true", resources=NOWHERE)))
        assert len(list(client.jobs())) == known + 1
        client.upload_directory("default", tree)
