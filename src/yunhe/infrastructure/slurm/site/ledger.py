"""Allocations on the site's shared file system. Whatever a helper must know, it reads here; nothing is in memory alone.

``runs/ID/``     one allocation: the agent's records (see ``yunhe.agent.runs.directory``), and beside them
  ``owner.json``   who commands it: the highest token, the project, whether it was stopped before it was launched
  ``job.json``     the job's number, once sbatch has told it; ``place.json`` the job that really began, and its node
  ``meters.json``  counters while it runs; ``minutes`` its folded minutes; ``end.json`` how it ended, with final counters
  ``verdict.json`` Slurm's last word on a job whose own record is missing or says that Slurm ended it
``marks/ID.json``  the token of an allocation that was stopped before it came, or released
``locks/``         one of 64 files is held while an allocation is commanded
"""

from __future__ import annotations

import fcntl
import os
import shutil
import time
import zlib
from contextlib import contextmanager
from typing import Any, Generator

from yunhe.agent.durable import create_json, read_json, replace_json
from yunhe.agent.protocol.refusals import FENCED, FORBIDDEN, NOT_FOUND, RESTARTING, Refusal
from yunhe.agent.runs.directory import Run

LOCK_WITHIN_S = 20.0
MARK_AGE_S = 30 * 86_400.0
LOCKS = 64
_TRY_EVERY_S = 0.02
_PARTS = ("runs", "marks", "trash", "incoming", "locks")


class Ledger:
    """The directories of one site."""

    def __init__(self, root: str) -> None:
        self.root = root
        self.runs, self.marks, self.trash, self.incoming, self._locks = (
            os.path.join(root, part) for part in _PARTS
        )
        for part in _PARTS:
            os.makedirs(os.path.join(root, part), mode=0o700, exist_ok=True)

    def run(self, name: str) -> Run:
        """Return where the allocation *name* lives, whether or not it does."""
        return Run(self.runs, name)

    def names(self) -> list[str]:
        """Return every allocation that is known; reading the directory also renews what a network mount remembers."""
        return sorted(os.listdir(self.runs))

    # One at a time

    @contextmanager
    def commanding(self, name: str) -> Generator[Run, None, None]:
        """Hold *name* against every other helper of this site, on whatever login node."""
        with self.held(f"{zlib.crc32(name.encode()) % LOCKS:02d}"):
            yield self.run(name)

    @contextmanager
    def held(self, lock: str) -> Generator[None, None, None]:
        """Hold one of the site's locks; the kernel lets go of it when we die."""
        handle = os.open(os.path.join(self._locks, lock), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        until = time.monotonic() + LOCK_WITHIN_S
        try:
            while True:
                try:
                    fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    break
                except BlockingIOError:
                    if time.monotonic() > until:
                        raise Refusal(
                            RESTARTING, "Another connection commands it just now.", remedy="Ask again."
                        ) from None
                    time.sleep(_TRY_EVERY_S)
            yield
        finally:
            os.close(handle)

    # Who commands

    def fence(self, run: Run, token: int) -> dict[str, Any] | None:
        """Return the owner, if there is one; refuse whoever has been superseded."""
        mark = self.mark_of(run.id)
        owner = run.record("owner") if mark is None else None
        seen = (mark or owner or {"token": token})["token"]
        if token < seen:
            raise Refusal(FENCED, f"{run.id} is commanded with token {seen} now; {token} is older.")
        return owner

    def mark_of(self, name: str) -> dict[str, Any] | None:
        """Return the mark of an allocation that is over for good."""
        return read_json(os.path.join(self.marks, f"{name}.json"))

    def mark(self, name: str, token: int) -> None:
        """Leave the mark that *name* was; whatever commands it with less is refused from now on."""
        replace_json(os.path.join(self.marks, f"{name}.json"), {"token": token, "at": time.time()})

    def own(self, run: Run, **changes: Any) -> None:
        """Change what is known of who commands *run*."""
        run.write_record("owner", {**(run.record("owner") or {}), **changes})

    def known(self, name: str) -> Run:
        """Return an allocation that is still known."""
        run = self.run(name)
        if self.mark_of(name) is not None or not run.exists():
            raise Refusal(NOT_FOUND, f"This site knows no allocation {name}.", remedy="It may be released.")
        return run

    def admit_project(self, project: str) -> None:
        """Let the first project in and no other: every job of the site runs as one Unix account."""
        path = os.path.join(self.root, "project.json")
        create_json(path, {"project_id": project})
        owner = (read_json(path) or {}).get("project_id")
        if owner != project:
            raise Refusal(
                FORBIDDEN,
                f"This site serves project {owner} only: all its jobs run as one Unix account.",
                remedy="Add the site again, as another account or with another root, for this project.",
            )

    # Leaving

    def discard(self, run: Run) -> None:
        """Move the directory out of sight at once, then remove it."""
        shutil.rmtree(run.remove(self.trash), ignore_errors=True)

    def sweep(self) -> None:
        """Remove what helpers that died left behind, and marks nobody can be late for any more."""
        for name in os.listdir(self.trash):
            shutil.rmtree(os.path.join(self.trash, name), ignore_errors=True)
        oldest = time.time() - MARK_AGE_S
        for entry in os.scandir(self.marks):
            if entry.stat().st_mtime < oldest:
                os.unlink(entry.path)
        for entry in os.scandir(self.incoming):
            if entry.stat().st_mtime < time.time() - 86_400:
                os.unlink(entry.path)


def job_number(run: Run) -> str:
    """Return the number of the job that runs the allocation, or will; empty while none is known."""
    place, job = run.record("place") or {}, run.record("job") or {}
    return place.get("job") or job.get("job") or ""
