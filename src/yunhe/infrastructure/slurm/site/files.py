"""The files of a site's allocations: the agent's own code unpacks and packs, in a process of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import Any, Awaitable, Callable

from yunhe.agent.failpoints import reach
from yunhe.agent.files.transfer import FileTransfers, is_wanted
from yunhe.agent.protocol.refusals import Refusal
from yunhe.agent.protocol.streams import raise_refusal
from yunhe.agent.runs.directory import Run
from yunhe.agent.runs.register import PREPARING
from yunhe.infrastructure.slurm.site.ledger import Ledger

Aside = Callable[..., Awaitable[Any]]
"""Runs a function in a thread and waits for it."""


class SiteFiles(FileTransfers):
    """Unpacks while the allocation is held against every other helper of the site."""

    def __init__(self, ledger: Ledger, program: str, aside: Aside) -> None:
        self._ledger = ledger
        self._program = program
        self._aside = aside
        self.incoming = ledger.incoming

    def free_disk_bytes(self) -> int:
        """Return how much may still be written on the site's file system."""
        disk = os.statvfs(self._ledger.root)
        return disk.f_bavail * disk.f_frsize

    def owner(self, allocation_id: str) -> tuple[Run, int]:
        """Return the directory of an allocation and the account that owns every one."""
        return self._ledger.known(allocation_id), os.geteuid()

    async def wants(self, body: dict[str, Any]) -> bool:
        """Return whether the ledger knows of a need."""
        return await self._aside(self._wants, body)

    def _wants(self, body: dict[str, Any]) -> bool:
        with self._ledger.commanding(body["allocation_id"]) as run:
            return self._is_wanted(run, body)

    def _is_wanted(self, run: Run, body: dict[str, Any]) -> bool:
        owner = self._ledger.fence(run, body["token"])
        over = self._ledger.mark_of(run.id) is not None
        if owner is None:
            return is_wanted(body, None, "", "", over=over)
        phase = PREPARING if run.record("claim") is None else "launched"
        return is_wanted(body, run, owner["project_id"], phase, over=over or bool(owner.get("stopped")))

    async def unpack(self, body: dict[str, Any], archive: str) -> None:
        """Have the archive unpacked, and admit its project."""
        await self._aside(self._unpack, body, archive)

    def _unpack(self, body: dict[str, Any], archive: str) -> None:
        with self._ledger.commanding(body["allocation_id"]) as run:
            if not self._is_wanted(run, body):
                return
            self._ledger.admit_project(body["project_id"])
            fresh = run.record("owner") is None
            try:
                run.make(os.geteuid())
                reach("before-unpack")
                limit_bytes = body.get("resources", {}).get("disk_mib", 0) << 20
                order = {
                    "uid": os.geteuid(),
                    "work": run.work,
                    "path": body["path"],
                    "limit_bytes": limit_bytes,
                }
                reader = self.begin_unpacking(order, archive)
                with os.fdopen(reader, "rb") as status:
                    raise_refusal(status.read())
                reach("after-unpack")
                run.write_record("uploads", {**(run.record("uploads") or {}), body["path"]: body["digest"]})
                self._ledger.own(run, token=body["token"], project_id=body["project_id"])
            except (OSError, Refusal):
                if fresh:
                    self._ledger.discard(run)
                raise

    def spawn(self, job: str, order: dict[str, Any], handles: list[int]) -> None:
        """Start this helper again, to do one job on an archive."""
        text = json.dumps({**order, "spawner": os.getpid()})
        words = ["archive", job, "--order", text, "--handles", ",".join(map(str, handles))]
        subprocess.Popen([sys.executable, "-I", "-S", self._program, *words], pass_fds=handles)
