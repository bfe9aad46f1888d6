"""The helper and its jobs on the oldest Python they are written for, and on the newest here."""

import msgspec
import pytest

from engines.slurm.cluster import SlurmCluster
from engines.slurm.orders import ended, launch, running
from integration.infrastructure.host.test_pythons import interpreter
from yunhe.conformance.caller import fetch
from yunhe.infrastructure.contract.model import ExecRequest
from yunhe.infrastructure.slurm.engine import SlurmEngine

pytestmark = [pytest.mark.anyio, pytest.mark.drives("slurm")]


@pytest.mark.parametrize("version", ["3.8", "3.13"])
async def test_a_site_of_this_python_serves(cluster: SlurmCluster, version: str) -> None:
    python = interpreter(version)
    target = cluster.target(root=f"site-{version}", python=python)
    async with SlurmEngine(msgspec.structs.replace(target, python=python)) as engine:
        assert (await engine.hello())["python"].startswith(version)
        made = await launch(engine, "echo out > out.txt; sleep 3; exit 3")
        await running(engine, made)
        async with engine.exec(made.allocation_id, ExecRequest(argv=("cat", "out.txt"))) as session:
            assert (await session.receive(), await session.wait()) == (b"out\n", 0)
        seen = await ended(engine, made)
        assert (seen.exit_code, seen.ending) == (3, "done")
        assert seen.meters.wall_ms >= 2900
        assert await fetch(engine, made.allocation_id, "*.txt") == {"out.txt": b"out\n"}
        assert [minute async for minute in engine.usage()]
