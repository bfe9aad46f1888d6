"""Disks of a few megabytes, or a few inodes, and filling them."""

import errno
import os
import subprocess
import time
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import pytest

from yunhe.agent.files.mounts import detach_below

UNMOUNTED_WITHIN_S = 15.0


@contextmanager
def mounted(folder: Path, options: str) -> Generator[Path]:
    """Mount a small tmpfs at *folder* while the block runs."""
    if os.geteuid() != 0:
        pytest.skip("mounting a small file system needs root")
    folder.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(folder)], check=True)
    try:
        yield folder
    finally:
        _unmount(folder)
        folder.rmdir()


def _unmount(folder: Path) -> None:
    """Unmount once what an agent removes behind its last answer is gone."""
    until = time.monotonic() + UNMOUNTED_WITHIN_S
    while subprocess.run(["umount", str(folder)], check=False, capture_output=True).returncode != 0:
        assert time.monotonic() < until, f"{folder} is still in use"
        detach_below(str(folder))
        time.sleep(0.1)


def fill(ballast: Path, *, leave_bytes: int = 0) -> None:
    """Write zeros into *ballast* until its disk has *leave_bytes* left."""
    with _until_full(), ballast.open("wb", buffering=0) as file:
        while leave_bytes < free_bytes(ballast.parent):
            file.write(bytes(4096))


def fill_inodes(folder: Path) -> None:
    """Make empty files below *folder* until its disk has no inode left."""
    folder.mkdir()
    with _until_full():
        while True:
            (folder / f"{len(os.listdir(folder))}").touch()  # noqa: PTH208 - a count is all that is needed


@contextmanager
def _until_full() -> Generator[None]:
    try:
        yield
    except OSError as error:
        if error.errno != errno.ENOSPC:
            raise


def free_bytes(folder: Path) -> int:
    state = os.statvfs(folder)
    return state.f_bavail * state.f_frsize
