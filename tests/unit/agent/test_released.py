"""What an agent holds of allocations that were released: a mark of each, and nothing else."""

import asyncio
import gc
import hashlib
import os
import time
import tracemalloc
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from yunhe.agent.daemon.machine import DeclaredMachine
from yunhe.agent.daemon.server import AgentServer
from yunhe.agent.daemon.spawner import Spawner
from yunhe.agent.files.removal import remove_tree
from yunhe.agent.limits.limits import LimitsBackend
from yunhe.agent.limits.ungrouped import Ungrouped
from yunhe.agent.protocol.calls import Call
from yunhe.agent.protocol.frames import Frame
from yunhe.agent.runs import changes, node
from yunhe.agent.runs.directory import Run
from yunhe.agent.runs.node import AgentNode, AgentSettings
from yunhe.agent.runs.processes import identify
from yunhe.agent.runs.watch import RunWatch
from yunhe.agent.runtimes import network
from yunhe.agent.runtimes.interface import HostOptions
from yunhe.agent.runtimes.wrapper import clock_ms

ARCHIVE = b"an archive"
MOST_BYTES = 150
"""What may be held of one released allocation; its name alone takes 81."""


class QuickSpawner(Spawner):
    """Leaves the records of a task that has ended at once, where a process would."""

    def __init__(self) -> None:
        super().__init__([])

    def spawn(self, job: str, order: dict[str, Any], handles: list[int] | None = None) -> int:
        if job == "unpack":
            os.write((handles or [])[1], b"{}")
        if job == "task":
            run, now = Run(order["runs"], order["allocation_id"]), {"started_at": time.time()}
            begun = {**identify(os.getpid())._asdict(), **now, "started_clock_ms": clock_ms()}
            run.create_record("start", begun)
            run.announce("step")
            ended: dict[str, Any] = {"exit_code": 0, "ending": "done", "step": "step", "detail": ""}
            counters = {"cpu_us": 1000, "read_bytes": 0, "written_bytes": 0, "log_bytes": 0}
            times = {"ended_at": time.time(), "ended_clock_ms": clock_ms() + 5}
            run.write_record("exit", {**ended, **counters, **times})
        return os.getpid()


class Agent:
    """A node and its server, in this process."""

    def __init__(self, root: Path) -> None:
        declared = DeclaredMachine("here", None, None)
        self.node = AgentNode(AgentSettings(str(root), declared, 700_000, 10, HostOptions()), QuickSpawner())
        self.node.has_scratch = False
        self.node.on_trash = remove_tree
        self.watch = RunWatch(self.node)
        self.server = AgentServer(self.node, self.watch, "digest", self._probe)
        self.answers: list[bytes] = []
        self.told = -1

    async def _probe(self) -> None:
        return None

    async def _send(self, data: bytes) -> None:
        self.answers.append(data)

    async def ask(self, verb: str, body: dict[str, Any], *sent: bytes) -> None:
        """Have a request answered, and refuse to go on if it was refused."""
        self.answers.clear()
        call = Call(1, verb, body, self._send)
        under_way = asyncio.ensure_future(self.server.handle(call))
        while sent and not self.answers:
            await asyncio.sleep(0)
        for piece in sent:
            call.take(Frame({"data": True}, piece))
        await under_way
        assert b'"ok"' in self.answers[-1], self.answers

    async def live_through(self, name: str) -> None:
        """Take an allocation from its files to its release."""
        who = {"allocation_id": name, "token": 2}
        digest = hashlib.sha256(ARCHIVE).hexdigest()
        archive = {"path": "", "digest": digest, "size_bytes": len(ARCHIVE), "resources": {}}
        await self.ask("put_archive", {**who, "project_id": "p1", **archive}, ARCHIVE, b"")
        steps = [{"name": "step", "script": "true"}]
        order = {"node_id": "here", "resources": {"cpu_millis": 10}, "steps": steps, "envs": {"NAME": name}}
        await self.ask("launch", {**who, "project_id": "p1", **order, "network": "host"})
        self.watch.tick()
        await self.ask("observe", {"beyond": self.node.changes.version - 1, "changes": True})
        await self.ask("release", who)
        minutes = self.node.spool.beyond(self.told)
        self.told = minutes[-1]["seq"] if minutes else self.told


def _no_groups(_root: str) -> LimitsBackend:
    return LimitsBackend("rlimits", {})


def _no_processes(_group: Ungrouped) -> list[int]:
    return []


def _no_networks(forwarding: str) -> str:
    return f"not here, {forwarding=}"


@pytest.fixture
def agent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Agent:
    """An agent that makes no group, no network and no sync: none of them is held in memory."""
    monkeypatch.setattr(node, "find_backend", _no_groups)
    monkeypatch.setattr(Ungrouped, "processes", _no_processes)
    monkeypatch.setattr(network, "_why_not", _no_networks)
    monkeypatch.setattr(os, "fsync", print)
    monkeypatch.setattr(changes, "GONE_KEPT", 20)
    return Agent(tmp_path / "agent")


def census() -> Counter[str]:
    """Count the objects of the agent and of asyncio that are alive."""
    gc.collect()
    kinds = [type(one) for one in gc.get_objects()]
    ours = ("yunhe.agent", "asyncio", "_asyncio")
    return Counter(kind.__name__ for kind in kinds if str(kind.__module__).startswith(ours))


async def _live_through(agent: Agent, names: range) -> tuple[Counter[str], int]:
    for number in names:
        await agent.live_through(f"allocation-{number:021d}")
    return census(), tracemalloc.get_traced_memory()[0]


async def _grow(agent: Agent) -> list[tuple[Counter[str], float]]:
    """Return what 200 allocations leave behind, three times: what else lives in this process grows and shrinks."""
    before, held_before = await _live_through(agent, range(60))
    rounds: list[tuple[Counter[str], float]] = []
    for first in (60, 260, 460):
        after, held_after = await _live_through(agent, range(first, first + 200))
        rounds.append((after - before, (held_after - held_before) / 200))
        before, held_before = after, held_after
    return rounds


def test_of_a_released_allocation_a_mark_is_held_and_nothing_else(agent: Agent) -> None:
    tracemalloc.start()
    try:
        rounds = asyncio.run(_grow(agent))
    finally:
        tracemalloc.stop()
    assert agent.node.register.allocations == {}
    assert len(agent.node.register.marks) == 660
    assert any(more == Counter() and bytes_each < MOST_BYTES for more, bytes_each in rounds), rounds
