"""What a site has, what it refuses, and what it keeps to itself."""

from typing import Any

import pytest

from engines.slurm.cluster import SlurmCluster
from engines.slurm.orders import ended, launch, order, running, site
from yunhe.infrastructure.contract.model import ExecRequest, Isolation
from yunhe.kernel.errors import ForbiddenError, InvalidInputError, NotFoundError, UnsupportedError, YunheError
from yunhe.kernel.ids import ProjectId
from yunhe.kernel.resources import Accelerators, Resources

pytestmark = [pytest.mark.anyio, pytest.mark.drives("slurm")]


async def test_partitions_are_regions_and_sizes_are_counted_in_each(cluster: SlurmCluster) -> None:
    async with site(cluster) as engine:
        catalogue = await engine.catalogue()
        assert [region.name for region in catalogue.regions] == [
            "closed", "main", "members", "scavenge", "short", "urgent",
        ]  # fmt: skip
        counts = {spec.region: (spec.name, spec.count) for spec in catalogue.specs}
        assert counts["main"] == ("4cpu-4000mib", 2)
        assert counts["scavenge"] == ("4cpu-4000mib", 1)
        assert (await engine.describe()).isolation is Isolation.ONE_PROJECT
        assert (await engine.account()).identity == "root@yunhetest"


async def test_a_named_partition_is_all_there_is(cluster: SlurmCluster) -> None:
    async with site(cluster, partition="scavenge") as engine:
        assert [node.id for node in (await engine.inventory()).nodes] == ["n3"]
        assert [region.name for region in (await engine.catalogue()).regions] == ["scavenge"]
        with pytest.raises(NotFoundError, match="n1"):
            await engine.launch(order("true", node="n1"))


async def test_a_drained_node_is_not_ready_and_says_why(cluster: SlurmCluster) -> None:
    cluster.ask("scontrol", "update", "NodeName=n4", "State=DRAIN", "Reason=new fans")
    try:
        async with site(cluster) as engine:
            ready = {str(node.id): (node.ready, node.reason) for node in (await engine.inventory()).nodes}
            assert ready["n1"] == (True, ""), ready
            assert not ready["n4"][0]
            assert "new fans" in ready["n4"][1]
    finally:
        cluster.ask("scontrol", "update", "NodeName=n4", "State=RESUME")


@pytest.mark.parametrize(
    ("fields", "error", "words"),
    [
        ({"resources": Resources(cpu_millis=9000)}, InvalidInputError, "cpu_millis"),
        ({"resources": Resources(memory_mib=9_000_000)}, InvalidInputError, "memory_mib"),
        ({"resources": Resources(accelerators=(Accelerators("a100", 500),))}, InvalidInputError, "whole"),
        ({"resources": Resources(accelerators=(Accelerators("a100", 1000),))}, InvalidInputError, "none"),
        (
            {"resources": Resources(accelerators=(Accelerators("a100", 1000, 80),))},
            InvalidInputError,
            "memory",
        ),
        ({"image": "alpine:3"}, UnsupportedError, "image"),
        ({"node": "n9"}, NotFoundError, "n9"),
    ],
    ids=["cores", "memory", "half-gpu", "no-gpu", "device-memory", "image", "node"],
)
async def test_an_order_the_site_cannot_keep_is_refused_by_name(
    cluster: SlurmCluster, fields: dict[str, Any], error: type[YunheError], words: str
) -> None:
    async with site(cluster) as engine:
        made = order("true", **fields)
        with pytest.raises(error, match=words):
            await engine.launch(made)
        assert all(seen.allocation_id != made.allocation_id for seen in (await engine.observe()).allocations)


async def test_an_order_longer_than_the_partition_allows_is_refused(cluster: SlurmCluster) -> None:
    async with site(cluster, partition="short") as engine:
        with pytest.raises(InvalidInputError, match="10 minutes"):
            await engine.launch(order("true", timeout_s=3600.0))


async def test_what_sbatch_refuses_leaves_nothing_behind(cluster: SlurmCluster) -> None:
    async with site(cluster, partition="closed", account="nobodys") as engine:
        made = order("true", node="n4")
        with pytest.raises(InvalidInputError, match="Invalid account"):
            await engine.launch(made)
        assert not (cluster.directory / "site" / "runs" / made.allocation_id).exists()
        with pytest.raises(NotFoundError):
            [chunk async for chunk in engine.logs(made.allocation_id)]


async def test_a_second_project_is_refused(cluster: SlurmCluster) -> None:
    async with site(cluster) as engine:
        await ended(engine, await launch(engine, "true"))
        with pytest.raises(ForbiddenError, match="p1"):
            await engine.launch(order("true", project_id=ProjectId("p2")))


async def test_a_secret_is_on_no_disk_whole(cluster: SlurmCluster) -> None:
    secret = "hush-c0ffee-4711"
    async with site(cluster) as engine:
        made = await launch(
            engine, 'test ${#TOKEN} = 16 && echo "it came"', "sleep 300", secrets={"TOKEN": secret}
        )
        await running(engine, made)
        kept = [path for path in cluster.directory.rglob("*") if path.is_file()]
        assert len(kept) > 20
        assert [path for path in kept if path.exists() and secret.encode() in path.read_bytes()] == []
        assert not (cluster.directory / "site" / "runs" / made.allocation_id / "sealed.json").exists()
        (number,) = cluster.jobs(made.allocation_id)
        assert secret not in cluster.ask("scontrol", "show", "job", "--detail", number)
        log = b"".join([chunk.data async for chunk in engine.logs(made.allocation_id)])
        assert log == b"it came\n"


async def test_a_task_sees_slurm_s_variables_and_its_own(cluster: SlurmCluster) -> None:
    async with site(cluster) as engine:
        script = 'echo "$SLURM_CPUS_ON_NODE $YUNHE_CPU_MILLIS $YUNHE_NODE_ID"; test -z "$YUNHE_SECRETS_KEY"'
        made = await launch(engine, script, resources=Resources(cpu_millis=1500, memory_mib=64))
        seen = await ended(engine, made)
        log = b"".join([chunk.data async for chunk in engine.logs(made.allocation_id)])
        assert (seen.exit_code, log) == (0, f"2 1500 {seen.node_id}\n".encode())


async def test_a_terminal_beside_a_job_is_one(cluster: SlurmCluster) -> None:
    async with site(cluster) as engine:
        made = await launch(engine, "sleep 300")
        await running(engine, made)
        request = ExecRequest(argv=("sh", "-c", "tty; exit 5"), tty=True)
        async with engine.exec(made.allocation_id, request) as session:
            output = b""
            while piece := await session.receive():
                output += piece
            assert (output.strip().startswith(b"/dev/"), await session.wait()) == (True, 5), output


async def test_the_meters_count_what_a_job_burns(cluster: SlurmCluster) -> None:
    burn = "exec python3 -c 'import time\nheld = bytearray(64 << 20)\nwhile time.process_time() < 2: pass'"
    async with site(cluster) as engine:
        seen = await ended(engine, await launch(engine, burn))
        assert seen.exit_code == 0
        assert 1_900_000 <= seen.meters.cpu_us <= 4_000_000
        assert seen.meters.memory_peak_mib >= 60
        assert seen.meters.memory_mib_ms >= 60 * 500
