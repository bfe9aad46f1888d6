"""The files of a node's allocations, each owned by its project's user."""

from __future__ import annotations

import asyncio
import os
from typing import Any

from yunhe.agent.failpoints import reach
from yunhe.agent.files.transfer import FileTransfers, is_wanted
from yunhe.agent.protocol.handles import read_all
from yunhe.agent.protocol.refusals import Refusal
from yunhe.agent.protocol.streams import raise_refusal
from yunhe.agent.runs.directory import Run
from yunhe.agent.runs.node import AgentNode
from yunhe.agent.runs.register import Allocation


class NodeFiles(FileTransfers):
    """Unpacks one archive at a time, as the user of its project."""

    def __init__(self, node: AgentNode) -> None:
        self._node = node
        self._unpacking = asyncio.Lock()
        self.incoming = node.incoming

    async def wants(self, body: dict[str, Any]) -> bool:
        """Return whether the register knows of a need."""
        name, register = body["allocation_id"], self._node.register
        found = register.fence(name, body["token"])
        if found is None:
            return is_wanted(body, None, "", "", over=name in register.marks)
        over = name in register.marks or found.stopped
        return is_wanted(body, found.run, found.project, found.phase, over=over)

    async def unpack(self, body: dict[str, Any], archive: str) -> None:
        """Have the archive unpacked, and claim its directory for the project."""
        async with self._unpacking:
            if await self.wants(body):
                await self._unpack(body, archive)

    async def _unpack(self, body: dict[str, Any], archive: str) -> None:
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
            await self._wait(self.begin_unpacking(run, allocation.uid, body["path"], archive))
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
        node.changed(name)

    @staticmethod
    async def _wait(reader: int) -> None:
        try:
            raise_refusal(await read_all(reader))
        finally:
            os.close(reader)

    def owner(self, allocation_id: str) -> tuple[Run, int]:
        """Return the directory and the project's user."""
        allocation = self._node.register.known(allocation_id)
        return allocation.run, allocation.uid

    def free_disk_bytes(self) -> int:
        """Return what the machine has left."""
        return self._node.machine.free_disk_bytes()

    def spawn(self, job: str, order: dict[str, Any], handles: list[int]) -> None:
        """Have the spawner fork it."""
        self._node.spawner.spawn(job, order, handles)
