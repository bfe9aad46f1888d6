"""Whether this node can take another allocation, and what it lacks if not; it is ready again by itself."""

from __future__ import annotations

import os
import shutil

from yunhe.agent.durable import reserve
from yunhe.agent.protocol.refusals import DISK_FULL, Refusal, refusal_of

ROOM_TO_KEEP_BYTES = 1024 * 1024
INODES_TO_KEEP = 64
"""A claim takes about fifteen."""
_PROBE_BYTES = 64 * 1024


class Fitness:
    """What keeps a node from claiming: too little room, or a write that failed and fails still."""

    def __init__(self, root: str, scratch: str) -> None:
        self._root = root
        self._scratch = os.path.join(scratch, "probe")
        self._fault: OSError | None = None

    def refusal(self) -> Refusal | None:
        """Return why no allocation can be claimed now; None where one can."""
        disk = os.statvfs(self._root)
        free_bytes = disk.f_bavail * disk.f_frsize
        if free_bytes < ROOM_TO_KEEP_BYTES:
            return _lacking(
                f"{free_bytes >> 10} KiB are free in {self._root}, {ROOM_TO_KEEP_BYTES >> 10} needed"
            )
        if disk.f_files and disk.f_favail < INODES_TO_KEEP:
            return _lacking(f"{disk.f_favail} inodes are free in {self._root}, {INODES_TO_KEEP} needed")
        return None if self._fault is None else refusal_of(self._fault, f"writing to {self._root}")

    def note(self, fault: OSError) -> None:
        """Take no allocation until what has failed works again."""
        self._fault = fault

    def probe(self) -> None:
        """Where a write has failed, try again what a claim does."""
        if self._fault is None:
            return
        try:
            os.makedirs(self._scratch, exist_ok=True)
            reserve(os.path.join(self._scratch, "file"), _PROBE_BYTES)
            self._fault = None
        except OSError as fault:
            self._fault = fault
        finally:
            shutil.rmtree(self._scratch, ignore_errors=True)


def _lacking(what: str) -> Refusal:
    return Refusal(DISK_FULL, f"{what}.", remedy="Free space on the node, or release allocations.")
