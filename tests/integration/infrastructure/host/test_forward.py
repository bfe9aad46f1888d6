"""Connections into tasks of a host: inside the task's network, wherever the host is, and bounded."""

import os
from collections.abc import AsyncGenerator, Generator
from contextlib import asynccontextmanager

import anyio
import pytest

from integration.infrastructure.host.orders import launched, log_of, running
from integration.infrastructure.host.sshd import SshServer, ssh_server
from support.agent_roots import agent_root
from support.host_networks import PORT, HostNetwork, host_network
from yunhe.conformance.power_promises import LISTENS, heard
from yunhe.infrastructure.contract.model import LaunchOrder
from yunhe.infrastructure.host import link
from yunhe.infrastructure.host.engine import HostEngine
from yunhe.infrastructure.host.target import LocalHost
from yunhe.kernel.confinement import Confinement
from yunhe.kernel.errors import ConflictError, PoolUnreachableError

pytestmark = [pytest.mark.anyio, pytest.mark.skipif(os.geteuid() != 0, reason="needs root: namespaces")]

INSIDE = 8888
HOLDS = "python3 -c 'import socket, time; s = socket.create_server((\"127.0.0.1\", 8888)); print(1, flush=True); time.sleep(60)'"
"""Listens and reads nothing: connections are made by the kernel, and what is sent stays on its way."""


@pytest.fixture(scope="module")
def network() -> Generator[HostNetwork]:
    with host_network() as network:
        yield network


@pytest.fixture(scope="module")
def server() -> Generator[SshServer, None, None]:
    with ssh_server() as server:
        yield server


@asynccontextmanager
async def local_engine(network: HostNetwork) -> AsyncGenerator[HostEngine]:
    with agent_root() as root:
        async with HostEngine(LocalHost(root=str(root), python=network.python)) as engine:
            yield engine


async def listening(engine: HostEngine, script: str = f"{LISTENS}{INSIDE}", **fields: object) -> LaunchOrder:
    order = await launched(engine, script, **fields)
    await running(engine, order.allocation_id)
    with anyio.fail_after(30):
        while not await log_of(engine, order.allocation_id):
            await anyio.sleep(0.05)
    return order


async def asked(engine: HostEngine, order: LaunchOrder, port: int = INSIDE) -> bytes:
    with anyio.fail_after(30):
        async with engine.forward(order.allocation_id, port) as session:
            await session.send(b"hello\n")
            return await heard(session, 6)


@pytest.mark.parametrize("wanted", [None, Confinement(network="none")], ids=["own network", "none"])
async def test_two_tasks_on_one_port_are_told_apart_and_nothing_of_the_host_is_reached(
    network: HostNetwork, wanted: Confinement | None
) -> None:
    async with local_engine(network) as engine:
        one = await listening(engine, confinement=wanted)
        other = await listening(engine, HOLDS, confinement=wanted)
        assert await asked(engine, one) == b"HELLO\n"
        async with engine.forward(other.allocation_id, INSIDE) as session:
            await session.send(b"to nobody who reads")
        with pytest.raises(ConflictError, match=f"Nothing listens on port {PORT}"):
            await asked(engine, one, PORT)  # where a program of the host does


@pytest.mark.parametrize("user", ["root", "member"])
async def test_a_task_of_a_host_behind_ssh_is_reached(server: SshServer, user: str) -> None:
    async with HostEngine(server.target(user)) as engine:
        order = await listening(engine)
        assert await asked(engine, order) == b"HELLO\n"


async def test_what_nobody_reads_waits_at_its_sender_and_holds_up_nobody_else(network: HostNetwork) -> None:
    async with local_engine(network) as engine:
        order = await listening(engine, HOLDS)
        sent = 0
        async with engine.forward(order.allocation_id, INSIDE) as session:
            with anyio.move_on_after(3):
                while True:
                    await session.send(bytes(1 << 16))
                    sent += 1 << 16
            assert sent < 20 << 20
            assert (await engine.inventory()).nodes


async def test_one_connection_too_many_is_refused_in_time(
    network: HostNetwork, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(link, "FORWARDS", 2)
    monkeypatch.setattr(link, "SESSION_WITHIN_S", 0.3)
    async with local_engine(network) as engine:
        order = await listening(engine)
        async with engine.forward(order.allocation_id, INSIDE), engine.forward(order.allocation_id, INSIDE):
            with pytest.raises(PoolUnreachableError, match="2 connections into jobs are open"):
                await asked(engine, order)
        assert await asked(engine, order) == b"HELLO\n"
