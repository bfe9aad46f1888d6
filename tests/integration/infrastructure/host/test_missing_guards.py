"""Hosts without root, namespaces or a filter of system calls are still useful, and say what they do not keep."""

import os
import shutil
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from integration.infrastructure.host.orders import ended, launched, log_of
from support.agent_roots import agent_root, end_agent
from support.bare_agents import python_without
from yunhe.infrastructure.contract.model import Isolation
from yunhe.infrastructure.host.engine import HostEngine
from yunhe.infrastructure.host.target import LocalHost
from yunhe.kernel.confinement import Confinement
from yunhe.kernel.errors import ForbiddenError, UnsupportedError

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to give things up"),
]
APART = ("private /tmp and /dev/shm", "hidden processes", "read-only system")
NOBODY = 65534


async def missing(engine: HostEngine) -> dict[str, str]:
    return {guard.name: guard.reason for guard in (await engine.describe()).guards if not guard.kept}


async def works(engine: HostEngine) -> None:
    order = await launched(engine, "echo $((6 * 7))")
    assert (await ended(engine, order.allocation_id)).exit_code == 0
    assert await log_of(engine, order.allocation_id) == b"42\n"


async def test_a_host_without_namespaces_runs_tasks_and_says_what_it_does_not_keep() -> None:
    with agent_root() as root, python_without("unshare") as python:
        async with HostEngine(LocalHost(root=str(root), python=python)) as engine:
            lacks = await missing(engine)
            assert all("does not let the agent make namespaces" in lacks[name] for name in APART)
            assert "system call filter" not in lacks
            await works(engine)
            with pytest.raises(UnsupportedError, match="namespaces"):
                await launched(engine, "true", confinement=Confinement(network="none"))


async def test_a_host_without_a_filter_runs_tasks_and_says_so() -> None:
    with agent_root() as root, python_without("seccomp") as python:
        async with HostEngine(LocalHost(root=str(root), python=python)) as engine:
            lacks = await missing(engine)
            assert "does not take" in lacks["system call filter"]
            assert not set(APART) & lacks.keys()
            await works(engine)


async def test_an_agent_that_is_not_root_serves_one_project_and_says_what_it_does_not_keep() -> None:
    with TemporaryDirectory(prefix="yunhe-") as folder, python_without(uid=NOBODY) as python:
        shutil.chown(folder, NOBODY, NOBODY)
        root = Path(folder) / "agent"
        root.mkdir()
        shutil.chown(root, NOBODY, NOBODY)
        async with HostEngine(LocalHost(root=str(root), python=python)) as engine:
            assert (await engine.describe()).isolation is Isolation.ONE_PROJECT
            lacks = await missing(engine)
            assert {name: lacks[name] for name in (*APART, "network of its own")} == dict.fromkeys(
                (*APART, "network of its own"), "the agent is not root"
            )
            assert "system call filter" not in lacks
            await works(engine)
            with pytest.raises(ForbiddenError, match="serves project"):
                await launched(engine, "true", project="another")
        end_agent(root)
