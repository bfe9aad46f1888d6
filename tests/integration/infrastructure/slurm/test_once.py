"""Whoever dies, a job runs once: helpers, the controller, and launches that come twice."""

import json
import os
import signal
import time
from pathlib import Path

import anyio
import pytest

from engines.slurm.cluster import SlurmCluster
from engines.slurm.orders import ended, launch, marking, order, running, runs, site
from yunhe.infrastructure.contract.model import Phase
from yunhe.infrastructure.slurm.engine import SlurmEngine
from yunhe.kernel.errors import PoolUnreachableError

pytestmark = [pytest.mark.anyio, pytest.mark.drives("slurm")]


@pytest.mark.parametrize("where", ["before-claim", "after-claim", "before-spawn", "after-spawn"])
async def test_a_helper_killed_while_it_launches_leaves_one_run(
    cluster: SlurmCluster, tmp_path: Path, where: str
) -> None:
    fatal = {"YUNHE_FAILPOINT": where, "YUNHE_FAILPOINT_DIR": str(tmp_path)}
    made = order(marking(tmp_path / "marks"))
    async with SlurmEngine(cluster.target(environment=fatal)) as engine:
        with pytest.raises(PoolUnreachableError):
            await engine.launch(made)
        assert (tmp_path / where).exists()
        await engine.launch(made)
        await engine.launch(made)
        seen = await ended(engine, made)
        assert (seen.phase, seen.exit_code) == (Phase.EXITED, 0)
    assert runs(tmp_path / "marks") == 1
    assert len(cluster.jobs(made.allocation_id)) == 1


async def test_a_claim_that_nobody_takes_further_is_unknown_and_stays_so(
    cluster: SlurmCluster, tmp_path: Path
) -> None:
    fatal = {"YUNHE_FAILPOINT": "after-claim", "YUNHE_FAILPOINT_DIR": str(tmp_path)}
    made = order(marking(tmp_path / "marks"))
    async with SlurmEngine(cluster.target(environment=fatal)) as engine:
        with pytest.raises(PoolUnreachableError):
            await engine.launch(made)
        claim = cluster.directory / "site" / "runs" / made.allocation_id / "claim.json"
        claim.write_text(json.dumps({**json.loads(claim.read_text()), "claimed_at": time.time() - 1000}))
        seen = await ended(engine, made)
        assert seen.phase is Phase.UNKNOWN
        assert "never handed to Slurm" in seen.detail
        await engine.launch(made)
        await anyio.sleep(1)
        assert (await ended(engine, made)).phase is Phase.UNKNOWN
    assert runs(tmp_path / "marks") == 0
    assert cluster.jobs(made.allocation_id) == []


async def test_of_two_jobs_for_one_allocation_one_runs(cluster: SlurmCluster, tmp_path: Path) -> None:
    async with site(cluster) as engine:
        made = await launch(engine, marking(tmp_path / "marks", "sleep 1"))
        directory = cluster.directory / "site" / "runs" / made.allocation_id
        (program,) = (cluster.directory / "site").glob("agent-*.pyz")
        variables = {"YUNHE_PYTHON": "python3", "YUNHE_PROGRAM": str(program), "YUNHE_RUN": str(directory)}
        exported = ",".join(f"{name}={value}" for name, value in variables.items())
        name = f"--job-name=yunhe-{made.allocation_id}"
        assert cluster.ask(
            "sbatch",
            "--parsable",
            name,
            f"--export=ALL,{exported}",
            "--output=/dev/null",
            f"{directory}/job.sh",
        )
        seen = await ended(engine, made)
        assert (seen.phase, seen.exit_code) == (Phase.EXITED, 0)
        with anyio.fail_after(30):
            while cluster.ask("squeue", "--noheader", name.replace("job-", "")):
                await anyio.sleep(0.2)
    assert runs(tmp_path / "marks") == 1


async def test_the_controller_may_be_killed_while_jobs_run_and_are_launched(
    cluster: SlurmCluster, tmp_path: Path
) -> None:
    async with site(cluster) as engine:
        short = await launch(engine, marking(tmp_path / "short", "sleep 8", "exit 4"))
        long = await launch(engine, marking(tmp_path / "long", "sleep 20"))
        await running(engine, short)
        await running(engine, long)
        cluster.kill_controller()
        try:
            seen = await ended(engine, short)
            assert (seen.phase, seen.exit_code) == (Phase.EXITED, 4)
            with anyio.fail_after(30):
                while not any("answer" in notice for notice in (await engine.observe()).notices):
                    await anyio.sleep(0.2)
            late = order(marking(tmp_path / "late"))
            with pytest.raises(PoolUnreachableError):
                await engine.launch(late)
        finally:
            cluster.start_controller()
        await engine.launch(late)
        for made in (late, long):
            seen = await ended(engine, made)
            assert (seen.phase, seen.exit_code) == (Phase.EXITED, 0)
    assert [runs(tmp_path / name) for name in ("short", "long", "late")] == [1, 1, 1]


async def test_a_stop_reaches_a_job_while_the_controller_is_away(cluster: SlurmCluster) -> None:
    async with site(cluster) as engine:
        made = await launch(engine, "sleep 300")
        await running(engine, made)
        cluster.end("slurmctld")
        try:
            began = time.monotonic()
            await engine.stop(made.allocation_id, 1, grace_s=1)
            seen = await ended(engine, made)
            assert seen.ending == "stopped"
            assert time.monotonic() - began < 20
        finally:
            cluster.start_controller()


async def test_a_helper_killed_under_way_is_replaced_and_nothing_is_lost(
    cluster: SlurmCluster, tmp_path: Path
) -> None:
    async with site(cluster) as engine:
        made = await launch(engine, marking(tmp_path / "marks", "sleep 1", "exit 3"))
        os.kill((await engine.hello())["pid"], signal.SIGKILL)
        seen = await ended(engine, made)
        assert (seen.phase, seen.exit_code) == (Phase.EXITED, 3)
        minutes = [minute async for minute in engine.usage() if minute.allocation_id == made.allocation_id]
        assert len({minute.seq for minute in minutes}) == len(minutes) >= 1
    assert runs(tmp_path / "marks") == 1
