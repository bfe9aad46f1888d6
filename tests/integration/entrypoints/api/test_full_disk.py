"""A full disk under the server: what needs room is refused with a remedy, and goes on once there is room again."""

import errno
import os
from collections.abc import Generator
from pathlib import Path

import pytest

from integration.entrypoints.api.serving import add_fake_pool, serving
from integration.entrypoints.api.witness import state_of
from support.small_disks import fill, mounted
from yunhe.entrypoints.api.problems import as_yunhe_error
from yunhe.entrypoints.client import Client
from yunhe.kernel.errors import DiskFullError
from yunhe.runtime.settings import Settings
from yunhe.trading.applications.model import Submission
from yunhe.trading.demand.model import ResourceSpec, Task

NOWHERE = ResourceSpec(cpus=64)  # it waits: nothing changes by itself while the test looks


@pytest.fixture
def small_disk(tmp_path: Path) -> Generator[Path]:
    with mounted(tmp_path / "disk", "size=16m") as disk:
        yield disk


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


def test_a_file_that_finds_no_room_is_a_full_disk_and_any_other_fault_of_a_file_is_not() -> None:
    assert isinstance(as_yunhe_error(OSError(errno.ENOSPC, "no room")), DiskFullError)
    assert not isinstance(as_yunhe_error(OSError(errno.EACCES, "denied")), DiskFullError)
