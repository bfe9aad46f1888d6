"""Archives in and out: the bytes pass through here, the files are touched only by a process of their owner."""

from __future__ import annotations

import asyncio
import itertools
import os
from typing import Any

from yunhe.agent.failpoints import reach
from yunhe.agent.files.archives import check_path
from yunhe.agent.protocol.calls import Call
from yunhe.agent.protocol.handles import read_all
from yunhe.agent.protocol.refusals import CONFLICT, DISK_FULL, Refusal, refusal_of
from yunhe.agent.protocol.streams import pass_on, raise_refusal, receive_file
from yunhe.agent.runs.directory import Run
from yunhe.agent.runs.node import AgentNode
from yunhe.agent.runs.register import PREPARING, Allocation

ROOM_TO_KEEP_BYTES = 1024 * 1024


class FileTransfers:
    """The verbs that move files."""

    def __init__(self, node: AgentNode) -> None:
        self._node = node
        self._numbers = itertools.count()
        self._unpacking = asyncio.Lock()

    async def put(self, call: Call) -> None:
        """Receive an archive, check it whole, and have it unpacked."""
        body = call.body
        if not self._wanted(body):
            await call.answer({"had": True})
            return
        check_path(body["path"], "path")
        if body["size_bytes"] > self._node.machine.free_disk_bytes() - ROOM_TO_KEEP_BYTES:
            raise Refusal(
                DISK_FULL, f"There is no room for {body['size_bytes']} bytes.", remedy="Free space."
            )
        path = os.path.join(self._node.incoming, f"{next(self._numbers)}")
        try:
            await receive_file(call, path)
            async with self._unpacking:
                if self._wanted(body):
                    await self._unpack(body, path)
        except OSError as fault:
            raise refusal_of(fault, "receiving an archive") from fault
        finally:
            _remove(path)
        await call.answer({"had": False})

    def _wanted(self, body: dict[str, Any]) -> bool:
        """Return whether the bytes are needed; refuse them where they may not come."""
        name = body["allocation_id"]
        allocation = self._node.register.fence(name, body["token"])
        if name in self._node.register.marks or (allocation is not None and allocation.stopped):
            raise Refusal(CONFLICT, f"{name} was stopped or released; nothing can be put there.")
        if allocation is None:
            return True
        uploads = allocation.run.record("uploads") or {}
        if uploads.get(body["path"]) == body["digest"]:
            return False
        if allocation.phase != PREPARING:
            raise Refusal(CONFLICT, f"{name} is {allocation.phase}; files come before the launch.")
        if allocation.project != body["project_id"]:
            raise Refusal(CONFLICT, f"{name} holds files of project {allocation.project}.")
        return True

    async def _unpack(self, body: dict[str, Any], path: str) -> None:
        node, name = self._node, body["allocation_id"]
        allocation = node.register.allocations.get(name)
        fresh = allocation is None
        if allocation is None:
            uid = node.users.propose(body["project_id"])
            allocation = Allocation(Run(node.runs, name), body["token"], body["project_id"], uid)
        run = allocation.run
        node.busy.add(name)
        try:
            run.make(allocation.uid)
            reach("before-unpack")
            await self._have_unpacked(allocation, body["path"], path)
            reach("after-unpack")
            node.users.settle(allocation.project, allocation.uid)
            owner = {"token": body["token"], "project_id": allocation.project, "uid": allocation.uid}
            run.write_record("owner", owner)
            run.write_record("uploads", {**(run.record("uploads") or {}), body["path"]: body["digest"]})
            allocation.token = body["token"]
            node.register.save(allocation)
        except (OSError, Refusal):
            if fresh:
                node.on_trash(run.remove(node.trash))
            raise
        finally:
            node.busy.discard(name)
        node.changed()

    async def _have_unpacked(self, allocation: Allocation, path: str, archive: str) -> None:
        reader, writer = os.pipe()
        order = {"uid": allocation.uid, "work": allocation.run.work, "path": path}
        try:
            self._spawn_unpack(order, archive, writer)
            raise_refusal(await read_all(reader))
        finally:
            os.close(reader)

    def _spawn_unpack(self, order: dict[str, Any], archive: str, writer: int) -> None:
        try:
            with open(archive, "rb") as file:
                self._node.spawner.spawn("unpack", order, [file.fileno(), writer])
        finally:
            os.close(writer)

    async def get(self, call: Call) -> None:
        """Stream an archive of what matches."""
        allocation = self._node.register.known(call.body["allocation_id"])
        for pattern in call.body["paths"]:
            check_path(pattern, "paths")
        status_reader, status_writer = os.pipe()
        data_reader, data_writer = os.pipe()
        order = {"uid": allocation.uid, "work": allocation.run.work, "paths": call.body["paths"]}
        try:
            try:
                self._node.spawner.spawn("pack", order, [data_writer, status_writer])
            finally:
                os.close(data_writer)
                os.close(status_writer)
            await pass_on(call, data_reader)
            raise_refusal(await read_all(status_reader))
        finally:
            os.close(data_reader)
            os.close(status_reader)
        await call.answer({})


def _remove(path: str) -> None:
    if os.path.exists(path):
        os.unlink(path)
