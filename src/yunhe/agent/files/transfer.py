"""Archives in and out: the bytes pass through here, the files are touched only by a process of their owner."""

from __future__ import annotations

import asyncio
import contextlib
import os
from abc import ABC, abstractmethod
from typing import Any, ContextManager

from yunhe.agent.files.members import check_path
from yunhe.agent.protocol.calls import Call
from yunhe.agent.protocol.handles import read_all
from yunhe.agent.protocol.refusals import CONFLICT, DISK_FULL, Refusal, refusal_of
from yunhe.agent.protocol.streams import pass_on, raise_refusal, receive_file
from yunhe.agent.runs.directory import Run
from yunhe.agent.runs.fitness import ROOM_TO_KEEP_BYTES
from yunhe.agent.runs.register import PREPARING

STATUS_WITHIN_S = 30.0


class FileTransfers(ABC):
    """The verbs that move files, for whoever keeps the allocations."""

    incoming: str
    """The directory of archives that are being received."""

    async def put(self, call: Call) -> None:
        """Receive an archive, check it whole, and have it unpacked."""
        body = call.body
        if not await self.wants(body):
            await call.answer({"had": True})
            return
        check_path(body["path"], "path")
        if body["size_bytes"] > self.free_disk_bytes() - ROOM_TO_KEEP_BYTES:
            raise Refusal(
                DISK_FULL, f"There is no room for {body['size_bytes']} bytes.", remedy="Free space."
            )
        path = os.path.join(self.incoming, os.urandom(16).hex())
        try:
            await receive_file(call, path)
            await self.unpack(body, path)
        except OSError as fault:
            raise refusal_of(fault, "receiving an archive") from fault
        finally:
            _remove(path)
        await call.answer({"had": False})

    async def get(self, call: Call) -> None:
        """Stream an archive of what matches."""
        run, uid = self.owner(call.body["allocation_id"])
        for pattern in call.body["paths"]:
            check_path(pattern, "paths")
        with self.limits_of(run.id) as limits:
            await self._send_packed(
                call, {"uid": uid, "work": run.work, "paths": call.body["paths"], **limits}
            )
        await call.answer({})

    async def _send_packed(self, call: Call, order: dict[str, Any]) -> None:
        status_reader, status_writer = os.pipe()
        data_reader, data_writer = os.pipe()
        try:
            try:
                self.spawn("pack", order, [data_writer, status_writer])
            finally:
                os.close(data_writer)
                os.close(status_writer)
            await pass_on(call, data_reader)
            raise_refusal(await asyncio.wait_for(read_all(status_reader), STATUS_WITHIN_S))
        finally:
            os.close(data_reader)
            os.close(status_reader)

    @abstractmethod
    async def wants(self, body: dict[str, Any]) -> bool:
        """Return ``is_wanted`` of what is known of the allocation."""

    @abstractmethod
    async def unpack(self, body: dict[str, Any], archive: str) -> None:
        """Have the archive unpacked, unless it is not wanted any more, and record that it was."""

    @abstractmethod
    def owner(self, allocation_id: str) -> tuple[Run, int]:
        """Return the directory of an allocation that is known, and the user of its files."""

    @abstractmethod
    def free_disk_bytes(self) -> int:
        """Return how much may still be written where the allocations live."""

    @abstractmethod
    def spawn(self, job: str, order: dict[str, Any], handles: list[int]) -> None:
        """Start a job of ``archives`` in a process of its own."""

    def limits_of(self, allocation_id: str) -> ContextManager[dict[str, Any]]:
        """Hold what confines a process that handles files of an allocation; nothing where somebody else does."""
        return contextlib.nullcontext({})

    def begin_unpacking(self, order: dict[str, Any], archive: str) -> int:
        """Start the process that unpacks *archive*; return the handle on which its answer will come."""
        reader, writer = os.pipe()
        try:
            with open(archive, "rb") as file:
                self.spawn("unpack", order, [file.fileno(), writer])
        finally:
            os.close(writer)
        return reader


def is_wanted(body: dict[str, Any], run: Run | None, project: str, phase: str, *, over: bool) -> bool:
    """Return whether an archive is needed by *run*, if that is known; refuse it where it may not come."""
    name = body["allocation_id"]
    if over:
        raise Refusal(CONFLICT, f"{name} was stopped or released; nothing can be put there.")
    if run is None:
        return True
    if (run.record("uploads") or {}).get(body["path"]) == body["digest"]:
        return False
    if phase != PREPARING:
        raise Refusal(CONFLICT, f"{name} is {phase}; files come before the launch.")
    if project != body["project_id"]:
        raise Refusal(CONFLICT, f"{name} holds files of project {project}.")
    return True


def _remove(path: str) -> None:
    if os.path.exists(path):
        os.unlink(path)
