"""A host keeps the same promises when every allocation runs in a sandbox with a kernel of its own."""

import os
from collections.abc import Generator

import pytest

from support.agent_processes import members_of
from support.agent_roots import agent_root
from support.sandboxes import SANDBOXED, sandbox_environment
from yunhe.conformance.basic_promises import Connect
from yunhe.conformance.caller import EngineCaller
from yunhe.conformance.engine_promises import EnginePromises
from yunhe.infrastructure.contract.engine import Engine
from yunhe.infrastructure.host.engine import HostEngine, connect_host
from yunhe.infrastructure.host.target import LocalHost
from yunhe.kernel.resources import Resources


@pytest.fixture(scope="module")
def sandboxing_host() -> Generator[LocalHost, None, None]:
    with agent_root() as root:
        yield LocalHost(root=str(root), environment=sandbox_environment())


@pytest.mark.engine
@pytest.mark.drives("host agent with gVisor")
class TestHostSandboxedEngine(EnginePromises):
    usage_within_s = 5.0
    tick_s = 1.5  # a sandbox may take that long to start, and a timeout counts it
    patience_s = 30.0
    resources = Resources(cpu_millis=1000, memory_mib=192)  # the sandbox's own kernel is part of it
    confinement = SANDBOXED
    counts_cpu = False  # the sandbox's own kernel is billed with it

    @pytest.fixture
    def connect(self, sandboxing_host: LocalHost) -> Connect:
        async def connect() -> Engine:
            return await connect_host(sandboxing_host)

        return connect

    async def test_a_pinned_allocation_sees_only_its_cores(self, caller: EngineCaller) -> None:
        """The sandbox's kernel shows the cores it began with; that all of it is bound is the host's to say."""
        assert isinstance(caller.engine, HostEngine)
        order = await caller.run("sleep 60")
        await caller.running(order.allocation_id)
        await caller.engine.pin(order.allocation_id, 1, (0,))
        members = members_of(order.allocation_id)
        assert members
        assert {core for pid in members for core in os.sched_getaffinity(pid)} == {0}
