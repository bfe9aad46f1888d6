"""An agent that no platform uses and that has no task ends by itself; whoever needs it starts it again."""

from pathlib import Path

import anyio
import pytest

from integration.infrastructure.host.orders import ended, launched, log_of
from support.agent_roots import daemon_pid, wait_gone
from yunhe.infrastructure.host.engine import HostEngine
from yunhe.infrastructure.host.target import DeclaredNode, LocalHost

pytestmark = pytest.mark.anyio


async def test_it_ends_when_it_is_left_alone_and_comes_back_when_it_is_needed(root: Path) -> None:
    host = LocalHost(root=str(root), declared=DeclaredNode(idle_s=1))
    async with HostEngine(host) as engine:
        order = await launched(engine, "sleep 4; echo done")
        begun = daemon_pid(root)
        assert begun is not None
    await anyio.sleep(3.0)
    assert daemon_pid(root) == begun, "it has a task to watch"
    async with HostEngine(host) as engine:
        await ended(engine, order.allocation_id)
        assert await log_of(engine, order.allocation_id) == b"done\n"
        await engine.release(order.allocation_id, order.token)
        await anyio.sleep(3.0)
        assert daemon_pid(root) == begun, "a platform is connected"
    wait_gone(begun)
    assert not (root / "agent.sock").exists()
    async with HostEngine(host) as engine:
        again = await launched(engine, "echo again")
        await ended(engine, again.allocation_id)
        assert await log_of(engine, again.allocation_id) == b"again\n"
        assert daemon_pid(root) not in (None, begun)
