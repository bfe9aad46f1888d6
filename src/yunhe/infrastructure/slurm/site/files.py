"""Archives in and out of an allocation's directory: the agent's own code unpacks and packs, in a process of its own."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import uuid
from typing import Any, Awaitable, Callable

from yunhe.agent.failpoints import reach
from yunhe.agent.files.archives import check_path
from yunhe.agent.protocol.calls import Call
from yunhe.agent.protocol.handles import read_all
from yunhe.agent.protocol.refusals import CONFLICT, DISK_FULL, Refusal, refusal_of
from yunhe.agent.protocol.streams import pass_on, raise_refusal, receive_file
from yunhe.agent.runs.directory import Run
from yunhe.infrastructure.slurm.site.ledger import Ledger

ROOM_TO_KEEP_BYTES = 1024 * 1024
Aside = Callable[..., Awaitable[Any]]
"""Runs a function in a thread and waits for it."""


class SiteFiles:
    """The verbs that move files."""

    def __init__(self, ledger: Ledger, program: str, aside: Aside) -> None:
        self._ledger = ledger
        self._program = program
        self._aside = aside

    async def put(self, call: Call) -> None:
        """Receive an archive, check it whole, and have it unpacked."""
        body = call.body
        if not await self._aside(self._wanted, body):
            await call.answer({"had": True})
            return
        check_path(body["path"], "path")
        disk = os.statvfs(self._ledger.root)
        if body["size_bytes"] > disk.f_bavail * disk.f_frsize - ROOM_TO_KEEP_BYTES:
            raise Refusal(
                DISK_FULL, f"There is no room for {body['size_bytes']} bytes.", remedy="Free space."
            )
        path = os.path.join(self._ledger.incoming, uuid.uuid4().hex)
        try:
            await receive_file(call, path)
            await self._aside(self._unpack, body, path)
        except OSError as fault:
            raise refusal_of(fault, "receiving an archive") from fault
        finally:
            _remove(path)
        await call.answer({"had": False})

    def _wanted(self, body: dict[str, Any]) -> bool:
        with self._ledger.commanding(body["allocation_id"]) as run:
            return self._is_wanted(run, body)

    def _is_wanted(self, run: Run, body: dict[str, Any]) -> bool:
        """Return whether the bytes are needed; refuse them where they may not come."""
        owner = self._ledger.fence(run, body["token"])
        if self._ledger.mark_of(run.id) is not None or (owner is not None and owner.get("stopped")):
            raise Refusal(CONFLICT, f"{run.id} was stopped or released; nothing can be put there.")
        if owner is None:
            return True
        if (run.record("uploads") or {}).get(body["path"]) == body["digest"]:
            return False
        if run.record("claim") is not None:
            raise Refusal(CONFLICT, f"{run.id} was launched already; files come before that.")
        if owner["project_id"] != body["project_id"]:
            raise Refusal(CONFLICT, f"{run.id} holds files of project {owner['project_id']}.")
        return True

    def _unpack(self, body: dict[str, Any], path: str) -> None:
        with self._ledger.commanding(body["allocation_id"]) as run:
            if not self._is_wanted(run, body):
                return
            self._ledger.admit_project(body["project_id"])
            fresh = run.record("owner") is None
            try:
                run.make(os.geteuid())
                reach("before-unpack")
                reader = self._start("unpack", {"work": run.work, "path": body["path"]}, path)
                with os.fdopen(reader, "rb") as status:
                    raise_refusal(status.read())
                reach("after-unpack")
                run.write_record("uploads", {**(run.record("uploads") or {}), body["path"]: body["digest"]})
                self._ledger.own(run, token=body["token"], project_id=body["project_id"])
            except (OSError, Refusal):
                if fresh:
                    self._ledger.discard(run)
                raise

    def _start(self, job: str, order: dict[str, Any], archive: str) -> int:
        """Start the process that unpacks *archive*; return where its answer will come."""
        reader, writer = os.pipe()
        try:
            with open(archive, "rb") as file:
                self._spawn(job, order, [file.fileno(), writer])
        finally:
            os.close(writer)
        return reader

    def _spawn(self, job: str, order: dict[str, Any], handles: list[int]) -> None:
        text = json.dumps({**order, "uid": os.geteuid(), "spawner": os.getpid()})
        words = ["archive", job, "--order", text, "--handles", ",".join(map(str, handles))]
        subprocess.Popen([sys.executable, "-I", "-S", self._program, *words], pass_fds=handles)

    async def get(self, call: Call) -> None:
        """Stream an archive of what matches."""
        run = self._ledger.known(call.body["allocation_id"])
        for pattern in call.body["paths"]:
            check_path(pattern, "paths")
        status_reader, status_writer = os.pipe()
        data_reader, data_writer = os.pipe()
        try:
            try:
                order = {"work": run.work, "paths": call.body["paths"]}
                self._spawn("pack", order, [data_writer, status_writer])
            finally:
                os.close(data_writer)
                os.close(status_writer)
            await pass_on(call, data_reader)
            raise_refusal(await asyncio.wait_for(read_all(status_reader), 30))
        finally:
            os.close(data_reader)
            os.close(status_reader)
        await call.answer({})


def _remove(path: str) -> None:
    if os.path.exists(path):
        os.unlink(path)
