"""Files on their way into a pod and out of it: kept by the cluster, so that no process of ours must live for them."""

import random
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import anyio
import msgspec
import pytest

from engines.kubernetes.cluster import Cluster
from yunhe.conformance.caller import EngineCaller, archive_of, chunks_of, fetch
from yunhe.infrastructure.contract.kind import Target
from yunhe.infrastructure.contract.model import Ending, Phase
from yunhe.infrastructure.kubernetes.engine import KubernetesEngine, open_engine
from yunhe.infrastructure.kubernetes.files.uploads import FILES_LIMIT_BYTES, PIECE_BYTES, BareList
from yunhe.infrastructure.kubernetes.objects import names
from yunhe.infrastructure.kubernetes.objects.pods import collection, path_of
from yunhe.infrastructure.kubernetes.target import read_target
from yunhe.kernel.errors import ConflictError, ForbiddenError, NotFoundError, TooLargeError
from yunhe.kernel.ids import AllocationId, NodeId, ProjectId
from yunhe.kernel.resources import Resources

pytestmark = [pytest.mark.anyio, pytest.mark.engine, pytest.mark.drives("kubernetes")]

SMALL = Resources(cpu_millis=100, memory_mib=64)
NAMESPACE = "yunhe-files"


@asynccontextmanager
async def connected(cluster: Cluster) -> AsyncGenerator[EngineCaller]:
    options = {"kubeconfig": str(cluster.kubeconfig()), "sample_every": "0.5"}
    async with open_engine(read_target(Target(options=options))) as engine:
        yield EngineCaller(engine, NodeId(""), ProjectId("files"), SMALL, 45.0)


@pytest.fixture
async def caller(kubernetes_cluster: Cluster) -> AsyncGenerator[EngineCaller]:
    async with connected(kubernetes_cluster) as caller:
        yield caller


def engine_of(caller: EngineCaller) -> KubernetesEngine:
    assert isinstance(caller.engine, KubernetesEngine)
    return caller.engine


async def pieces_of(caller: EngineCaller, allocation_id: AllocationId) -> list[str]:
    label = {"labelSelector": f"{names.PIECE_OF}={allocation_id}"}
    body = await engine_of(caller).api.get(collection("configmaps", NAMESPACE), label)
    return [piece.metadata.name for piece in msgspec.json.decode(body, type=BareList).items or ()]


async def test_processes_come_and_go_between_put_launch_end_and_fetch_and_nothing_is_lost(
    kubernetes_cluster: Cluster,
) -> None:
    noise = random.Random(7).randbytes(2 * PIECE_BYTES)
    archive = archive_of({"in.bin": noise})
    async with connected(kubernetes_cluster) as first:
        upload = first.upload(archive)
        await engine_of(first).put_archive(upload, chunks_of(archive, 100_000))
        assert len(await pieces_of(first, upload.allocation_id)) == 3
    async with connected(kubernetes_cluster) as second:
        seen = await second.look(upload.allocation_id)
        assert seen is not None
        assert seen.phase is Phase.PREPARING
        await second.run(
            "cp data/in.bin out.bin",
            allocation_id=upload.allocation_id,
            token=2,
            outputs=("out.bin",),
            timeout_s=600,
        )
    async with connected(kubernetes_cluster) as third:
        seen = await third.ended(upload.allocation_id)
        assert (seen.exit_code, seen.ending) == (0, Ending.DONE)
    async with connected(kubernetes_cluster) as fourth:
        assert await fourth.ended(upload.allocation_id) == seen
        assert await fetch(engine_of(fourth), upload.allocation_id, "*.bin") == {"out.bin": noise}
        await fourth.engine.release(upload.allocation_id, 3)
        assert await pieces_of(fourth, upload.allocation_id) == []
        await is_gone(fourth, upload.allocation_id)


async def is_gone(caller: EngineCaller, allocation_id: AllocationId) -> None:
    """Wait until the node has ended the keeper and let go of the pod."""
    path = path_of("pods", (NAMESPACE, names.object_name(allocation_id)))
    with anyio.fail_after(20):
        while True:
            try:
                await engine_of(caller).api.get(path)
            except NotFoundError:
                return
            await anyio.sleep(0.1)


async def test_the_end_is_told_while_the_keeper_stays_and_what_befalls_it_changes_nothing(
    caller: EngineCaller,
) -> None:
    order = await caller.run("echo kept > a.txt\nexit 3", outputs=("*.txt",), timeout_s=300)
    seen = await caller.ended(order.allocation_id)
    assert (seen.exit_code, seen.ending, seen.meters.wall_ms <= 5000) == (3, Ending.DONE, True)
    key = engine_of(caller).records.key_of(order)
    pod = msgspec.json.decode(await engine_of(caller).api.get(path_of("pods", key)))
    assert pod["status"]["phase"] == "Running"
    # The deadline passes: that of the keeper alone, which has the grace to hand the files over.
    await engine_of(caller).api.patch(path_of("pods", key), {"spec": {"activeDeadlineSeconds": 1}})
    await anyio.sleep(2)
    assert await fetch(engine_of(caller), order.allocation_id, "a.txt") == {"a.txt": b"kept\n"}
    assert await caller.look(order.allocation_id) == seen
    await caller.engine.stop(order.allocation_id, 1)
    assert await caller.look(order.allocation_id) == seen
    await caller.engine.release(order.allocation_id, 1)
    await is_gone(caller, order.allocation_id)


async def test_files_are_there_after_a_timeout_that_the_task_heard(caller: EngineCaller) -> None:
    script = "trap 'echo late > a.txt; exit 8' TERM\nwhile :; do sleep 1 & wait $!; done"
    order = await caller.run(script, outputs=("*.txt",), timeout_s=2)
    seen = await caller.ended(order.allocation_id)
    assert (seen.exit_code, seen.ending) == (8, Ending.TIMED_OUT)
    assert await fetch(engine_of(caller), order.allocation_id, "*.txt") == {"a.txt": b"late\n"}
    await caller.engine.release(order.allocation_id, 1)


async def test_files_are_there_after_a_stop_that_the_task_heard(caller: EngineCaller) -> None:
    script = "trap 'echo asked > a.txt; exit 9' TERM\necho ready\nwhile :; do sleep 1 & wait $!; done"
    order = await caller.run(script, outputs=("*.txt",))
    await caller.until(order.allocation_id, lambda seen: seen.log_bytes > 0)
    await caller.engine.stop(order.allocation_id, 1, grace_s=20)
    seen = await caller.ended(order.allocation_id)
    assert (seen.exit_code, seen.ending) == (9, Ending.STOPPED)
    assert await fetch(engine_of(caller), order.allocation_id, "*.txt") == {"a.txt": b"asked\n"}
    await caller.engine.release(order.allocation_id, 1)
    await is_gone(caller, order.allocation_id)


async def test_without_outputs_files_can_be_fetched_while_it_runs_and_not_after(caller: EngineCaller) -> None:
    order = await caller.run("echo now > a.txt\necho ready\nsleep 600")
    await caller.until(order.allocation_id, lambda seen: seen.log_bytes > 0)
    assert await fetch(engine_of(caller), order.allocation_id, "*") == {"a.txt": b"now\n"}
    await caller.engine.stop(order.allocation_id, 1, grace_s=0)
    await caller.ended(order.allocation_id)
    with pytest.raises(NotFoundError, match="went with its pod") as refused:
        await fetch(engine_of(caller), order.allocation_id, "*")
    assert "outputs" in refused.value.remedy
    await caller.engine.release(order.allocation_id, 1)
    with pytest.raises(NotFoundError):
        await fetch(engine_of(caller), order.allocation_id, "*")


async def test_too_many_files_are_refused_unread_and_leave_nothing(caller: EngineCaller) -> None:
    archive = archive_of({"a": b"x"})
    huge = caller.upload(archive, size_bytes=FILES_LIMIT_BYTES + 1)
    unread = chunks_of(archive)
    with pytest.raises(TooLargeError) as refused:
        await engine_of(caller).put_archive(huge, unread)
    assert "fetch it" in refused.value.remedy
    assert b"".join([chunk async for chunk in unread]) == archive
    assert await caller.look(huge.allocation_id) is None
    await engine_of(caller).put_archive(
        caller.upload(archive, allocation_id=huge.allocation_id), chunks_of(archive)
    )
    rest = caller.upload(
        archive,
        allocation_id=huge.allocation_id,
        path="more",
        size_bytes=FILES_LIMIT_BYTES - len(archive) + 1,
    )
    with pytest.raises(TooLargeError):
        await engine_of(caller).put_archive(rest, chunks_of(archive))
    await caller.engine.stop(huge.allocation_id, 1)
    await caller.engine.release(huge.allocation_id, 1)
    assert await pieces_of(caller, huge.allocation_id) == []


async def test_what_was_only_prepared_can_be_stopped_and_then_takes_no_file_and_no_launch(
    caller: EngineCaller,
) -> None:
    archive = archive_of({"a": b"x"})
    upload = caller.upload(archive)
    await engine_of(caller).put_archive(upload, chunks_of(archive))
    with pytest.raises(ConflictError, match="not ended"):
        await caller.engine.release(upload.allocation_id, 1)
    await caller.engine.stop(upload.allocation_id, 2)
    assert (await caller.ended(upload.allocation_id)).ending is Ending.STOPPED
    other = archive_of({"b": b"y"})
    late = caller.upload(other, allocation_id=upload.allocation_id, token=2)
    with pytest.raises(ConflictError, match="no more files"):
        await engine_of(caller).put_archive(late, chunks_of(other))
    await caller.run("echo ran", allocation_id=upload.allocation_id, token=2)
    assert (await caller.ended(upload.allocation_id)).ending is Ending.STOPPED
    await caller.engine.release(upload.allocation_id, 2)
    assert await caller.look(upload.allocation_id) is None
    assert await pieces_of(caller, upload.allocation_id) == []


@pytest.mark.parametrize("released", [False, True])
async def test_an_archive_that_is_overtaken_by_a_stop_on_its_way_is_refused_and_leaves_nothing(
    caller: EngineCaller, *, released: bool
) -> None:
    first, second = archive_of({"a": b"x"}), archive_of({"b": b"y"})
    upload = caller.upload(first)
    await engine_of(caller).put_archive(upload, chunks_of(first))

    async def overtaken() -> AsyncGenerator[bytes, None]:
        await caller.engine.stop(upload.allocation_id, 1)
        if released:
            await caller.engine.release(upload.allocation_id, 1)
        yield second

    late = caller.upload(second, allocation_id=upload.allocation_id, path="more")
    with pytest.raises(ConflictError, match="no more files"):
        await engine_of(caller).put_archive(late, overtaken())
    await caller.engine.release(upload.allocation_id, 1)
    assert await pieces_of(caller, upload.allocation_id) == []


async def test_files_that_come_after_the_launch_are_refused(caller: EngineCaller) -> None:
    order = await caller.run("sleep 600")
    archive = archive_of({"a": b"x"})
    with pytest.raises(ConflictError, match="no more files"):
        await engine_of(caller).put_archive(
            caller.upload(archive, allocation_id=order.allocation_id), chunks_of(archive)
        )
    await caller.engine.stop(order.allocation_id, 1, grace_s=0)
    await caller.ended(order.allocation_id)
    await caller.engine.release(order.allocation_id, 1)


async def test_a_launch_that_is_refused_takes_its_files_with_it(
    kubernetes_cluster: Cluster, caller: EngineCaller
) -> None:
    archive = archive_of({"a": b"x"})
    upload = caller.upload(archive)
    await engine_of(caller).put_archive(upload, chunks_of(archive))
    path = f"/api/v1/namespaces/{NAMESPACE}/resourcequotas"
    quota = {"metadata": {"name": "small"}, "spec": {"hard": {"requests.cpu": "1"}}}
    with kubernetes_cluster.client() as client:
        client.post(path, json=quota).raise_for_status()
        try:
            with anyio.fail_after(30):
                while not (await caller.engine.account()).quotas:
                    await anyio.sleep(0.2)
            with pytest.raises(ForbiddenError, match="exceeded quota"):
                await caller.run(
                    "true",
                    allocation_id=upload.allocation_id,
                    resources=Resources(cpu_millis=2000, memory_mib=64),
                )
        finally:
            client.delete(f"{path}/small").raise_for_status()
    assert await caller.look(upload.allocation_id) is None
    assert await pieces_of(caller, upload.allocation_id) == []
