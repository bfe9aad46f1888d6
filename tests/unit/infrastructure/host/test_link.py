"""Calls to an agent queue here, so that it never has to refuse one for being too many."""

import io
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import cast

import anyio
import pytest
from anyio.abc import Process

from yunhe.agent.daemon.server import MAX_CALLS
from yunhe.agent.protocol.frames import Decoder, encode
from yunhe.infrastructure.host import link as links
from yunhe.infrastructure.host.link import FORWARDS, REQUESTS, SESSIONS, TRANSFERS, AgentLink, Body
from yunhe.kernel.errors import PoolUnreachableError

pytestmark = pytest.mark.anyio


class Agent:
    """Takes calls, and answers none of them before it is told to."""

    def __init__(self) -> None:
        self.calls: dict[int, str] = {}
        self.returncode = 0
        self.stdin = self.stdout = self
        self._decoder = Decoder()
        self._answers, self._answered = anyio.create_memory_object_stream[bytes](10_000)

    async def send(self, data: bytes) -> None:
        for frame in self._decoder.feed(data):
            if "verb" in frame.header:
                self.calls[frame.header["id"]] = frame.header["verb"]

    async def receive(self, _most: int) -> bytes:
        return await self._answered.receive()

    def answer(self, verb: str) -> None:
        for number in [number for number, asked in self.calls.items() if asked == verb]:
            del self.calls[number]
            self._answers.send_nowait(encode({"id": number, "ok": {}}))

    async def wait(self) -> int:
        return 0

    async def aclose(self) -> None:
        self._answers.close()
        self._answered.close()


@asynccontextmanager
async def linked() -> AsyncGenerator[tuple[Agent, AgentLink]]:
    agent = Agent()
    link = AgentLink(cast("Process", agent), io.BytesIO())
    try:
        yield agent, link
    finally:
        await link.close()


async def read(link: AgentLink, verb: str, body: Body) -> None:
    async for _ in link.stream(verb, body):
        pass


def test_all_kinds_of_calls_together_stay_below_the_limit_of_an_agent() -> None:
    assert REQUESTS + TRANSFERS + SESSIONS + FORWARDS < MAX_CALLS


async def test_what_is_too_much_waits_and_holds_up_no_command() -> None:
    async with linked() as (agent, link), anyio.create_task_group() as tasks:
        for _ in range(3 * TRANSFERS):
            tasks.start_soon(read, link, "get_archive", {})
        await anyio.wait_all_tasks_blocked()
        assert len(agent.calls) == TRANSFERS
        tasks.start_soon(lambda: link.request("stop", {}, timeout_s=60))
        await anyio.wait_all_tasks_blocked()
        agent.answer("stop")
        for _ in range(3):
            await anyio.wait_all_tasks_blocked()
            assert len(agent.calls) == TRANSFERS
            agent.answer("get_archive")


async def test_waiting_for_its_turn_does_not_count_as_silence_of_the_agent() -> None:
    async with linked() as (agent, link), anyio.create_task_group() as tasks:
        for _ in range(REQUESTS):
            tasks.start_soon(lambda: link.request("stop", {}, timeout_s=60))
        await anyio.wait_all_tasks_blocked()
        tasks.start_soon(lambda: link.request("launch", {}, timeout_s=0.5))
        await anyio.sleep(0.7)
        agent.answer("stop")
        await anyio.wait_all_tasks_blocked()
        assert not link.broken
        agent.answer("launch")


async def test_a_session_too_many_is_refused_with_the_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(links, "SESSION_WITHIN_S", 0.05)
    async with linked() as (agent, link), anyio.create_task_group() as tasks:
        for _ in range(SESSIONS):
            tasks.start_soon(read, link, "logs", {"follow": True})
        await anyio.wait_all_tasks_blocked()
        with pytest.raises(PoolUnreachableError, match="are open on this host"):
            await read(link, "exec", {})
        agent.answer("logs")
