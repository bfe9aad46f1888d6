"""Room on the database's disk that is kept for what has begun: a file that gives its blocks back when the disk is full."""

import logging
import os
import threading
import time
from pathlib import Path

LOOK_EVERY_S = 1.0

log = logging.getLogger(__name__)


class Reserve:
    """A file of *size_bytes* beside the database; of 0 bytes, there is none and it is never spent."""

    def __init__(self, database: Path | None, size_bytes: int) -> None:
        self._path = database and database.with_name(f"{database.name}.reserve")
        self._size_bytes = size_bytes if database else 0
        self._lock = threading.Lock()
        self._look_at = 0.0
        self.spent = self._size_bytes > 0
        self.renew()
        if self.spent:
            log.warning(
                "disk has no room for the reserve, new jobs are refused", extra={"reserve": str(self._path)}
            )

    def spend(self) -> bool:
        """Give the room back to the disk; return whether there was any to give."""
        with self._lock:
            if self._path is None or not self._size_bytes or self.spent:
                return False
            self.spent = True
            self._look_at = time.monotonic() + LOOK_EVERY_S
            log.warning("disk is full, new jobs are refused", extra={"reserve": str(self._path)})
            try:
                os.truncate(self._path, 0)  # its inode stays: making a file may need one that is not there
            except OSError:  # somebody has removed it
                return False
            return True

    def renew(self) -> None:
        """Take the room again if it was spent and the disk has it, and some more for new work."""
        with self._lock:
            if self._path is None or not self.spent or time.monotonic() < self._look_at:
                return
            self._look_at = time.monotonic() + LOOK_EVERY_S
            try:
                self.spent = not _taken(self._path, self._size_bytes)
            except OSError as error:
                log.warning(
                    "reserve cannot be made", extra={"reserve": str(self._path), "problem": str(error)}
                )
            if not self.spent:
                log.info("disk has room, new jobs are accepted", extra={"reserve": str(self._path)})


def _taken(path: Path, size_bytes: int) -> bool:
    """Make the file as large as it shall be; return whether the disk had the room."""
    handle = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        state = os.fstat(handle)
        missing = size_bytes - state.st_blocks * 512
        if missing > 0:
            disk = os.fstatvfs(handle)
            if disk.f_bavail * disk.f_frsize < missing + size_bytes // 4:
                os.ftruncate(handle, 0)
                return False
            os.posix_fallocate(handle, 0, size_bytes)
        os.ftruncate(handle, size_bytes)
    except OSError:
        os.ftruncate(handle, 0)
        raise
    finally:
        os.close(handle)
    return True


def has_no_room(database: Path) -> bool:
    """Return whether the disk of *database* has no block or no inode left for it."""
    disk = os.statvfs(database.parent)
    return disk.f_bavail * disk.f_frsize < 64 * 1024 or (disk.f_files > 0 and disk.f_favail == 0)
