"""What Slurm does to a job is told as what it was."""

import pytest

from engines.slurm.cluster import SlurmCluster
from engines.slurm.orders import ended, launch, order, running, site, until
from yunhe.infrastructure.contract.model import Ending, Phase
from yunhe.kernel.resources import Resources

pytestmark = [pytest.mark.anyio, pytest.mark.drives("slurm")]


async def test_a_job_of_a_higher_partition_preempts_ours(cluster: SlurmCluster) -> None:
    async with site(cluster, partition="scavenge") as engine:
        made = await launch(engine, "echo began\nsleep 300", node="n3")
        await running(engine, made)
        number = cluster.ask(
            "sbatch",
            "--parsable",
            "--partition=urgent",
            "--exclusive",
            "--output=/dev/null",
            "--wrap=sleep 2",
        )
        seen = await ended(engine, made)
        assert (seen.phase, seen.ending) == (Phase.EXITED, Ending.PREEMPTED)
        assert seen.meters.wall_ms > 0
        cluster.ask("scancel", number)


async def test_what_ignores_the_signal_of_a_preemption_is_told_as_preempted_too(
    cluster: SlurmCluster,
) -> None:
    async with site(cluster, partition="scavenge") as engine:
        made = await launch(engine, 'trap "" TERM\nwhile true; do sleep 0.2; done', node="n3")
        await running(engine, made)
        number = cluster.ask(
            "sbatch",
            "--parsable",
            "--partition=urgent",
            "--exclusive",
            "--output=/dev/null",
            "--wrap=sleep 2",
        )
        seen = await ended(engine, made)
        assert (seen.phase, seen.ending) == (Phase.EXITED, Ending.PREEMPTED)
        cluster.ask("scancel", number)


async def test_slurm_s_own_time_limit_is_a_timeout(cluster: SlurmCluster) -> None:
    async with site(cluster, partition="short", time_limit="5m") as engine:
        made = await launch(engine, "sleep 300")
        await running(engine, made)
        (number,) = cluster.jobs(made.allocation_id)
        assert "TimeLimit=00:05:00" in cluster.ask("scontrol", "show", "job", number)
        cluster.ask("scontrol", "update", f"JobId={number}", "EndTime=now")
        seen = await ended(engine, made)
        assert (seen.phase, seen.ending) == (Phase.EXITED, Ending.TIMED_OUT)


async def test_a_job_over_its_memory_is_out_of_memory(cluster: SlurmCluster) -> None:
    script = "exec python3 -c 'import time; held = bytearray(400 << 20); time.sleep(60)'"
    async with site(cluster) as engine:
        made = await launch(engine, script, resources=Resources(cpu_millis=1000, memory_mib=60))
        seen = await ended(engine, made)
        assert (seen.phase, seen.ending) == (Phase.EXITED, Ending.OUT_OF_MEMORY), seen


async def test_a_job_that_somebody_else_cancels_is_stopped_and_says_by_slurm(cluster: SlurmCluster) -> None:
    async with site(cluster) as engine:
        made = await launch(engine, "sleep 300")
        await running(engine, made)
        cluster.ask("scancel", *cluster.jobs(made.allocation_id))
        seen = await ended(engine, made)
        assert (seen.phase, seen.ending) == (Phase.EXITED, Ending.STOPPED)
        assert "CANCELLED" in seen.detail


@pytest.mark.parametrize("number", [9, 15])
async def test_a_job_that_ends_by_a_signal_of_its_own_is_done(cluster: SlurmCluster, number: int) -> None:
    async with site(cluster) as engine:
        seen = await ended(engine, await launch(engine, f"kill -{number} $$"))
        assert (seen.phase, seen.ending, seen.exit_code) == (Phase.EXITED, Ending.DONE, 128 + number)


async def test_a_job_cancelled_while_it_waits_never_ran(cluster: SlurmCluster) -> None:
    async with site(cluster) as engine:
        full = Resources(cpu_millis=4000, memory_mib=3000)
        held = [await launch(engine, "sleep 300", resources=full) for _ in range(2)]
        for one in held:
            await running(engine, one)
        waiting = await launch(engine, "echo never", resources=full)
        seen = await until(engine, waiting, lambda seen: "PENDING" in seen.detail)
        assert seen.phase is Phase.STARTING
        cluster.ask("scancel", *cluster.jobs(waiting.allocation_id))
        seen = await ended(engine, waiting)
        assert (seen.ending, seen.started_at, seen.log_bytes) == (Ending.STOPPED, None, 0)


async def test_a_node_that_fails_leaves_its_job_unknown(cluster: SlurmCluster) -> None:
    async with site(cluster, partition="scavenge") as engine:
        made = await launch(engine, 'trap "" TERM\nwhile true; do sleep 0.2; done', node="n3")
        await running(engine, made)
        cluster.ask("scontrol", "update", "NodeName=n3", "State=DOWN", "Reason=test")
        try:
            seen = await ended(engine, made)
            assert seen.phase is Phase.UNKNOWN
            assert "NODE_FAIL" in seen.detail
        finally:
            cluster.ask("scontrol", "update", "NodeName=n3", "State=RESUME")


async def test_a_job_whose_node_lacks_python_says_so(cluster: SlurmCluster) -> None:
    async with site(cluster, python="/nonexistent/python") as engine:
        made = await launch(engine, "true")
        seen = await ended(engine, made)
        assert (seen.phase, seen.exit_code) == (Phase.EXITED, 125)
        assert "/nonexistent/python" in seen.detail


async def test_what_slurm_has_forgotten_is_unknown_and_not_guessed(cluster: SlurmCluster) -> None:
    async with site(cluster) as engine:
        made = order("sleep 300")
        await engine.launch(made)
        await running(engine, made)
        directory = cluster.directory / "site" / "runs" / made.allocation_id
        job = directory / "job.json"
        (number,) = cluster.jobs(made.allocation_id)
        cluster.ask("scontrol", "update", f"JobId={number}", "Name=renamed")
        job.write_text('{"job": "999999", "at": 0}')
        (directory / "place.json").unlink(missing_ok=True)
        seen = await ended(engine, made)
        assert seen.phase is Phase.UNKNOWN
        assert "no longer knows" in seen.detail
        cluster.ask("scancel", number)
