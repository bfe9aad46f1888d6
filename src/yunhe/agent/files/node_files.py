"""The files of a node's allocations, each owned by its project's user."""

from __future__ import annotations

import asyncio
import contextlib
import os
from typing import Any, Generator

from yunhe.agent.failpoints import reach
from yunhe.agent.files import scratch
from yunhe.agent.files.transfer import FileTransfers, is_wanted
from yunhe.agent.protocol.handles import read_all
from yunhe.agent.protocol.refusals import Refusal
from yunhe.agent.protocol.streams import raise_refusal
from yunhe.agent.runs.directory import Run
from yunhe.agent.runs.node import AgentNode
from yunhe.agent.runs.register import Allocation


class _Turn:
    """Whose turn it is to unpack into one allocation, and how many want it."""

    def __init__(self) -> None:
        self.lock = asyncio.Lock()
        self.takers = 0


class NodeFiles(FileTransfers):
    """Unpacks one archive of an allocation at a time, as the user of its project and in the allocation's group."""

    def __init__(self, node: AgentNode) -> None:
        self._node = node
        self._turns: dict[str, _Turn] = {}
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
        name = body["allocation_id"]
        turn = self._turns.setdefault(name, _Turn())
        turn.takers += 1
        try:
            async with turn.lock:
                if await self.wants(body):
                    await self._unpack(body, archive)
        finally:
            turn.takers -= 1
            if not turn.takers:
                del self._turns[name]

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
            with self._within(allocation, body.get("resources", {})) as limits:
                order = {"uid": allocation.uid, "work": run.work, "path": body["path"], **limits}
                await self._wait(self.begin_unpacking(order, archive))
            reach("after-unpack")
            await self.wants(body)  # refuses it if it was stopped meanwhile
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

    @contextlib.contextmanager
    def limits_of(self, allocation_id: str) -> Generator[dict[str, Any], None, None]:
        """Yield what confines a process to the group and the file system of an allocation."""
        allocation = self._node.register.known(allocation_id)
        with self._within(allocation, allocation.resources) as limits:
            yield limits

    @contextlib.contextmanager
    def _within(
        self, allocation: Allocation, resources: dict[str, Any]
    ) -> Generator[dict[str, Any], None, None]:
        node = self._node
        limit_bytes = node.machine.disk_limit_bytes(resources.get("disk_mib", 0) << 20)
        group = node.join_transfer(allocation, resources)
        try:
            yield {
                "allocation_id": allocation.id,
                "limits": group,
                "scratch": node.has_scratch and scratch.is_meant_for(allocation.run, limit_bytes),
                "limit_bytes": limit_bytes,
            }
        finally:
            node.leave_transfer(group["name"])

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
