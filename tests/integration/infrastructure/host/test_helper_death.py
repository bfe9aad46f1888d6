"""The processes that help an agent may die too: the next task starts, the next try succeeds, none outlives its agent."""

import os
import signal
from pathlib import Path

import anyio
import pytest

from integration.infrastructure.host.orders import ended, launched
from support import agent_processes
from support.agent_roots import kill_daemon, wait_gone
from yunhe.infrastructure.contract.model import Ending
from yunhe.infrastructure.host.engine import HostEngine
from yunhe.kernel.errors import PoolUnreachableError

pytestmark = pytest.mark.anyio

LARGE = "head -c 40000000 /dev/urandom > large"
"""More than fits between a packer and a reader that does not read."""


async def test_a_spawner_killed_while_idle_does_not_fail_the_next_task(
    engine: HostEngine, root: Path
) -> None:
    first = await launched(engine, "true")
    await ended(engine, first.allocation_id)
    (spawner,) = agent_processes.spawner(root)
    os.kill(spawner, signal.SIGKILL)
    wait_gone(spawner)
    second = await launched(engine, "exit 3")
    seen = await ended(engine, second.allocation_id)
    assert (seen.ending, seen.exit_code) == (Ending.DONE, 3)


async def test_a_spawner_killed_over_an_order_does_not_fail_it(engine: HostEngine, root: Path) -> None:
    first = await launched(engine, "true")
    await ended(engine, first.allocation_id)
    (spawner,) = agent_processes.spawner(root)
    os.kill(spawner, signal.SIGSTOP)  # it will have the order before it and not have carried it out
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(_kill_later, spawner)
        second = await launched(engine, "echo once; exit 3")
        seen = await ended(engine, second.allocation_id)
        assert (seen.ending, seen.exit_code, seen.log_bytes) == (Ending.DONE, 3, 5)


async def _kill_later(pid: int) -> None:
    await anyio.sleep(0.3)
    os.kill(pid, signal.SIGKILL)


async def test_a_killed_packer_is_worth_another_try(engine: HostEngine, root: Path) -> None:
    order = await launched(engine, LARGE)
    await ended(engine, order.allocation_id)
    with pytest.raises(PoolUnreachableError):
        async for _ in engine.get_archive(order.allocation_id, ("large",)):
            for packer in agent_processes.helpers(root):
                os.kill(packer, signal.SIGKILL)
    size = sum([len(chunk) async for chunk in engine.get_archive(order.allocation_id, ("large",))])
    assert size > 40_000_000


@pytest.mark.parametrize("killed", ["spawner", "daemon"])
async def test_a_packer_ends_with_its_agent(engine: HostEngine, root: Path, killed: str) -> None:
    order = await launched(engine, LARGE)
    await ended(engine, order.allocation_id)
    packers: list[int] = []
    with pytest.raises(PoolUnreachableError):
        async for _ in engine.get_archive(order.allocation_id, ("large",)):
            if packers:
                continue
            packers = agent_processes.helpers(root)
            if killed == "daemon":
                kill_daemon(root)
            else:
                os.kill(agent_processes.spawner(root)[0], signal.SIGKILL)
            await anyio.sleep(0.2)
    assert len(packers) == 1
    wait_gone(packers[0])
