"""A connection into an allocation through a plugin that is its own process."""

import random

import anyio
import pytest

from support.agent_roots import agent_root
from support.repository import REPOSITORY
from yunhe.conformance.caller import new_allocation_id
from yunhe.conformance.plugin_promises import plugin_process
from yunhe.conformance.power_promises import LISTENS, heard
from yunhe.infrastructure.contract.engine import SupportsForward
from yunhe.infrastructure.contract.kind import Target
from yunhe.infrastructure.contract.model import LaunchOrder, Step
from yunhe.kernel.errors import ConflictError
from yunhe.kernel.ids import ProjectId
from yunhe.kernel.resources import Resources

pytestmark = pytest.mark.anyio
LOCAL = REPOSITORY / "src/yunhe/infrastructure/host/local/plugin.toml"


async def test_bytes_go_both_ways_and_each_side_may_end_alone() -> None:
    port = random.randrange(20_000, 30_000)
    with agent_root() as root, plugin_process(LOCAL) as plugin:
        async with plugin.kind().connect(Target(options={"root": str(root)})) as engine:
            assert isinstance(engine, SupportsForward)
            (node,) = (await engine.inventory()).nodes
            order = LaunchOrder(
                allocation_id=new_allocation_id(),
                token=1,
                project_id=ProjectId("p"),
                node_id=node.id,
                resources=Resources(cpu_millis=500, memory_mib=64),
                steps=(Step(name="run", script=f"{LISTENS}{port}"),),
            )
            await engine.launch(order)
            with anyio.fail_after(60):
                async for _ in engine.logs(order.allocation_id, follow=True):
                    break
                with pytest.raises(ConflictError, match="Nothing listens"):
                    async with engine.forward(order.allocation_id, port + 1):
                        pass
                async with engine.forward(order.allocation_id, port) as session:
                    await session.send(b"line\n" + bytes(3_000_000))
                    await session.send(b"")
                    assert await heard(session, -1) == b"LINE\n3000000 more"
            await engine.stop(order.allocation_id, 1, grace_s=0.0)
