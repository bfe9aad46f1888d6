"""The engine over a dashboard in memory: what is sent, what is not, and what a new connection finds again."""

import hashlib
import io
import json
import zipfile
from typing import Any

import anyio
import hypothesis.strategies as st
import msgspec
import pytest
from hypothesis import HealthCheck, given, settings

from engines.ray_dashboard import HEAD, NOW_MS, Dashboard
from yunhe.conformance.caller import archive_of, chunks_of, files_in
from yunhe.infrastructure.contract.kind import Check, Target
from yunhe.infrastructure.contract.model import LaunchOrder, Phase, Step, Upload
from yunhe.infrastructure.ray import onboard
from yunhe.infrastructure.ray.engine import ENTRYPOINT, RayEngine
from yunhe.infrastructure.ray.kind import RayKind
from yunhe.infrastructure.ray.reports import FRESH_S
from yunhe.infrastructure.ray.target import RayTarget, read_target
from yunhe.kernel.errors import (
    ConflictError,
    FencedError,
    InvalidInputError,
    NotFoundError,
    PoolUnreachableError,
    UnsupportedError,
)
from yunhe.kernel.ids import AllocationId, NodeId, ProjectId
from yunhe.kernel.resources import Accelerators, Resources

pytestmark = pytest.mark.anyio
ID = AllocationId("alloc_1")


def order(**fields: Any) -> LaunchOrder:
    chosen: dict[str, Any] = {
        "allocation_id": ID,
        "token": 5,
        "project_id": ProjectId("p"),
        "node_id": NodeId("n"),
        "resources": Resources(500, 64),
        "steps": (Step(name="one", script="echo hello\n"),),
        **fields,
    }
    return LaunchOrder(**chosen)


def engine(dashboard: Dashboard) -> RayEngine:
    return RayEngine(dashboard.client())


def report(dashboard: Dashboard, allocation_id: str = ID, **fields: Any) -> None:
    body: dict[str, Any] = {"started_at": 1.0, "step": "one", "log_bytes": 0, "log_starts": [], "meters": {}}
    body.update(last_minute=0, ended=None)
    dashboard.files[f"yunhe/{allocation_id}/report.json"] = json.dumps({**body, **fields}).encode()


def ended(code: int) -> dict[str, Any]:
    return {"exit_code": code, "ending": "done", "ended_at": 2.0, "detail": ""}


def run(dashboard: Dashboard, status: str = "RUNNING", **fields: Any) -> None:
    dashboard.set_job(ID, status=status, driver_node_id=HEAD)
    report(dashboard, **fields)


async def test_a_launch_is_one_job_with_the_fixed_entrypoint_and_what_it_may_use() -> None:
    dashboard = Dashboard()
    await engine(dashboard).launch(order())
    (sent,) = dashboard.submissions
    assert sent["entrypoint"] == ENTRYPOINT
    assert sent["submission_id"] == ID
    assert (sent["entrypoint_num_cpus"], sent["entrypoint_memory"]) == (0.5, 64 * 1024**2)
    assert sent["runtime_env"]["working_dir"].startswith("gcs://_ray_pkg_yunhe_runner_")
    assert len(dashboard.packages) == 2


@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.text(";$`'|&<>(运", min_size=6), st.text(";$`'|&<>(河", min_size=6))
async def test_no_word_of_an_order_gets_near_the_entrypoint(script: str, value: str) -> None:
    dashboard = Dashboard()
    steps = (Step(name=script, script=script),)
    await engine(dashboard).launch(order(steps=steps, envs={"A": value}, secrets={"B": value}))
    sent = dict(dashboard.submissions[0])
    assert sent.pop("entrypoint") == ENTRYPOINT
    assert script not in json.dumps(sent, ensure_ascii=False)
    assert value not in json.dumps(sent, ensure_ascii=False)


async def test_launched_again_by_anybody_it_is_not_submitted_again() -> None:
    dashboard = Dashboard()
    first = engine(dashboard)
    async with anyio.create_task_group() as group:
        for _ in range(4):
            group.start_soon(first.launch, order())
    await engine(dashboard).launch(order())
    assert [sent["submission_id"] for sent in dashboard.submissions] == [ID]
    await engine(dashboard).launch(order(token=6))
    assert sorted(dashboard.jobs) == [ID, f"{ID}.token.6"]
    with pytest.raises(FencedError):
        await engine(dashboard).launch(order())


async def test_of_two_connections_that_launch_at_once_ray_takes_one() -> None:
    dashboard = Dashboard()
    dashboard.overtaken_by = {
        "submission_id": ID,
        "metadata": {"yunhe": "allocation", "token": "6", "project": "p", "resources": "{}"},
    }
    with pytest.raises(FencedError):
        await engine(dashboard).launch(order(token=5))
    assert [job["metadata"]["token"] for job in dashboard.jobs.values()] == ["6"]


async def test_of_a_stop_and_a_launch_at_once_the_one_that_comes_second_gives_way() -> None:
    dashboard = Dashboard()
    dashboard.overtaken_by = {
        "submission_id": ID,
        "metadata": {"yunhe": "allocation", "token": "5", "project": "p", "resources": "{}"},
    }
    await engine(dashboard).stop(ID, 5, grace_s=1)
    assert dashboard.stops == [ID], "the launch came first, so it is what is stopped"
    dashboard = Dashboard()
    dashboard.overtaken_by = {
        "submission_id": ID,
        "metadata": {"yunhe": "tombstone", "token": "5"},
        "entrypoint_resources": {"CPU": 1.0},
    }
    await engine(dashboard).launch(order(token=5))
    assert dashboard.jobs[ID]["metadata"]["yunhe"] == "tombstone", "the stop came first, so nothing starts"


async def test_a_stop_before_the_launch_takes_its_place() -> None:
    dashboard = Dashboard()
    await engine(dashboard).stop(ID, 5)
    assert dashboard.stops == []
    await engine(dashboard).launch(order(token=5))
    with pytest.raises(FencedError):
        await engine(dashboard).launch(order(token=4))
    assert dashboard.jobs[ID]["metadata"]["yunhe"] == "tombstone"
    assert (await engine(dashboard).observe()).allocations == ()


async def test_a_stop_leaves_its_mark_before_ray_is_asked() -> None:
    dashboard = Dashboard()
    await engine(dashboard).launch(order())
    run(dashboard)
    await engine(dashboard).stop(ID, 7, grace_s=2.5)
    assert f"{ID}.stop.7.2500" in dashboard.jobs
    assert dashboard.stops == [ID]
    with pytest.raises(FencedError):
        await engine(dashboard).release(ID, 6)


async def test_a_new_connection_knows_all_that_the_old_one_knew() -> None:
    dashboard = Dashboard()
    old = engine(dashboard)
    await old.launch(order())
    run(dashboard, "FAILED", ended=ended(3), log_bytes=6, log_starts=[0], meters={"wall_ms": 900})
    dashboard.files[f"yunhe/{ID}/log/{0:020d}"] = b"hello\n"
    before = await old.observe()
    await old.close()
    new = engine(dashboard)
    after = await new.observe()
    assert after.allocations == before.allocations
    assert after.version >= before.version
    (seen,) = after.allocations
    assert (seen.phase, seen.exit_code, seen.meters.wall_ms, seen.node_id) == (Phase.EXITED, 3, 900, HEAD)
    assert [chunk.data async for chunk in new.logs(ID, offset=2)] == [b"llo\n"]


async def test_a_release_forgets_and_still_fences() -> None:
    dashboard = Dashboard()
    await engine(dashboard).launch(order())
    with pytest.raises(ConflictError):
        await engine(dashboard).release(ID, 5)
    run(dashboard, "SUCCEEDED", ended=ended(0))
    await engine(dashboard).release(ID, 6)
    assert (await engine(dashboard).observe()).allocations == ()
    with pytest.raises(NotFoundError):
        _ = [chunk async for chunk in engine(dashboard).logs(ID)]
    with pytest.raises(FencedError):
        await engine(dashboard).launch(order(token=5))
    await engine(dashboard).launch(order(token=7))
    assert dashboard.jobs[ID]["status"] == "SUCCEEDED"


async def test_a_log_in_segments_is_read_from_every_byte_that_is_kept() -> None:
    dashboard = Dashboard()
    await engine(dashboard).launch(order())
    whole = bytes(range(30))
    run(dashboard, "SUCCEEDED", ended=ended(0), log_bytes=30, log_starts=[10, 20])
    for start in (10, 20):
        dashboard.files[f"yunhe/{ID}/log/{start:020d}"] = whole[start : start + 10]
    for offset in range(31):
        chunks = [chunk async for chunk in engine(dashboard).logs(ID, offset=offset)]
        assert b"".join(chunk.data for chunk in chunks) == whole[max(offset, 10) :]
        assert not chunks or chunks[0].offset == max(offset, 10)


async def test_a_log_without_a_byte_is_empty() -> None:
    dashboard = Dashboard()
    await engine(dashboard).launch(order())
    run(dashboard, "SUCCEEDED", ended=ended(0))
    assert [chunk async for chunk in engine(dashboard).logs(ID, follow=True)] == []


async def test_versions_tell_of_news_and_of_nothing_else() -> None:
    dashboard = Dashboard()
    one = engine(dashboard)
    await one.launch(order())
    first = (await one.observe()).version
    assert (await one.observe()).version == first
    run(dashboard)
    second = (await one.observe()).version
    assert second > first


async def test_what_is_read_of_an_ended_allocation_is_read_once() -> None:
    dashboard = Dashboard()
    one = engine(dashboard)
    await one.launch(order())
    run(dashboard, "SUCCEEDED", ended=ended(0))
    before = await one.observe()
    dashboard.files.clear()
    assert (await one.observe()).allocations == before.allocations


async def test_a_report_that_could_not_be_read_at_the_end_is_read_again() -> None:
    dashboard = Dashboard()
    one = engine(dashboard)
    await one.launch(order())
    run(dashboard, "RUNNING")
    await one.observe()
    dashboard.deaf.add(f"yunhe/{ID}/report.json")
    run(dashboard, "FAILED", ended=ended(3))
    (seen,) = (await one.observe()).allocations
    assert (seen.phase, seen.exit_code) == (Phase.RUNNING, None)
    dashboard.deaf.clear()
    await anyio.sleep(FRESH_S)
    (seen,) = (await one.observe()).allocations
    assert (seen.phase, seen.exit_code) == (Phase.EXITED, 3)


async def test_a_report_of_another_shape_is_an_error_that_names_it() -> None:
    dashboard = Dashboard()
    await engine(dashboard).launch(order())
    run(dashboard)
    dashboard.files[f"yunhe/{ID}/report.json"] = b"{}"
    with pytest.raises(UnsupportedError, match=ID):
        await engine(dashboard).observe()


async def test_minutes_are_handed_out_in_sequence_and_only_once_they_are_old_enough() -> None:
    dashboard = Dashboard()
    one = engine(dashboard)
    await one.launch(order())
    young = 10**19
    minutes = [
        {
            "seq": seq,
            "allocation_id": ID,
            "minute": 1,
            "samples": 1,
            "cpu_mean_millis": 1.0,
            "cpu_max_millis": 1.0,
        }
        | {"cpu_sketch": [0] * 32, "memory_mean_mib": 1.0, "memory_max_mib": 1.0, "read_bytes": 0}
        | {"written_bytes": 0}
        for seq in (1000, 2000, young)
    ]
    run(dashboard, last_minute=young)
    dashboard.files[f"yunhe/{ID}/minutes.jsonl"] = b"\n".join(json.dumps(one).encode() for one in minutes)
    assert [minute.seq async for minute in one.usage()] == [1000, 2000]
    assert [minute.seq async for minute in one.usage(beyond=1000)] == [2000]


async def test_an_image_and_what_no_node_has_are_refused_before_anything_is_sent() -> None:
    dashboard = Dashboard()
    with pytest.raises(UnsupportedError, match="image"):
        await engine(dashboard).launch(order(image="example/image:1"))
    with pytest.raises(InvalidInputError):
        await engine(dashboard).launch(order(resources=Resources(accelerators=(Accelerators("A100", 1000),))))
    assert (dashboard.submissions, dashboard.packages) == ([], {})


async def test_files_wait_in_ray_for_the_launch_and_are_missed_when_ray_drops_them() -> None:
    dashboard = Dashboard()
    archive = archive_of({"a.txt": b"alpha"})
    one = engine(dashboard)
    await one.put_archive(upload_of(archive), chunks_of(archive))
    (seen,) = (await engine(dashboard).observe()).allocations
    assert seen.phase is Phase.PREPARING
    kept = dict(dashboard.packages)
    dashboard.packages.clear()
    with pytest.raises(ConflictError, match="too late"):
        await engine(dashboard).launch(order())
    dashboard.packages.update(kept)
    await engine(dashboard).launch(order())
    modules = dashboard.submissions[-1]["runtime_env"]["py_modules"]
    assert modules[1:] == [f"gcs://{name}" for name in kept]


async def test_results_are_packed_file_by_file() -> None:
    dashboard = Dashboard()
    await engine(dashboard).launch(order())
    run(dashboard, "SUCCEEDED", ended=ended(0))
    top = f"yunhe/{ID}/work/"
    large = bytes(range(256)) * 5000
    dashboard.files |= {f"{top}a.txt": b"alpha", f"{top}large.txt": large, f"{top}run.log": b"x"}
    pieces = [piece async for piece in engine(dashboard).get_archive(ID, ("*.txt", "nowhere/*"))]
    assert files_in(b"".join(pieces)) == {"a.txt": b"alpha", "large.txt": large}


async def test_files_on_a_node_that_died_are_gone_and_not_an_empty_archive() -> None:
    dashboard = Dashboard()
    await engine(dashboard).launch(order())
    dashboard.set_job(ID, status="SUCCEEDED", driver_node_id="a node that died")
    with pytest.raises(NotFoundError, match="has died"):
        [piece async for piece in engine(dashboard).get_archive(ID, ("*.txt",))]


async def test_a_cluster_that_was_started_anew_is_noticed() -> None:
    dashboard = Dashboard()
    one = engine(dashboard)
    await one.describe()
    await one.observe()
    dashboard.reachable = False
    with pytest.raises(PoolUnreachableError):
        await one.observe()
    dashboard.reachable = True
    dashboard.version["session_name"] = "session_2"
    assert "session_2" in (await one.observe()).notices[0]


async def test_a_sweep_is_ordered_of_what_was_released_an_hour_ago() -> None:
    dashboard = Dashboard()
    await engine(dashboard).launch(order())
    run(dashboard, "SUCCEEDED", ended=ended(0))
    await engine(dashboard).release(ID, 5)
    other = AllocationId("alloc_2")
    dashboard.set_job(f"{ID}.released.5", start_time=NOW_MS - 365 * 86_400_000)
    await engine(dashboard).launch(order(allocation_id=other))
    name = dashboard.submissions[-1]["runtime_env"]["py_modules"][0].removeprefix("gcs://")
    with zipfile.ZipFile(io.BytesIO(dashboard.packages[name])) as package:
        assert json.loads(package.read("yunhe-order.json"))["sweep"] == [ID]


def upload_of(archive: bytes, **fields: Any) -> Upload:
    chosen: dict[str, Any] = {
        "allocation_id": ID,
        "token": 5,
        "project_id": ProjectId("p"),
        "path": "data",
        "digest": hashlib.sha256(archive).hexdigest(),
        "size_bytes": len(archive),
        **fields,
    }
    return Upload(**chosen)


class TestOnboarding:
    """Each step of ``yunhe pool add ray``, and what is said when it fails."""

    async def checks(self, dashboard: Dashboard, monkeypatch: pytest.MonkeyPatch) -> list[Check]:
        monkeypatch.setattr(onboard, "RayClient", dashboard.client)
        monkeypatch.setattr(onboard, "TRIAL_WITHIN_S", 0.5)
        return [check async for check in RayKind().onboard(Target(address="http://head:8265"))]

    @pytest.mark.parametrize(
        ("fault", "step", "words"),
        [
            ({"reachable": False}, "reachable", "did not answer"),
            ({"status": 401}, "token accepted", "asks for a token"),
            ({"status": 403}, "token accepted", "refuses our token"),
            ({"version": {"hello": "x"}}, "version", "not a Ray dashboard"),
            ({"version": {"ray_version": "2.45.0"}}, "version", "2.46 or newer"),
            ({}, "a job runs", "did not end"),
        ],
    )
    async def test_the_step_that_fails_is_named_with_a_remedy(
        self, fault: dict[str, Any], step: str, words: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        dashboard = Dashboard()
        for name, value in fault.items():
            setattr(dashboard, name, value)
        checks = await self.checks(dashboard, monkeypatch)
        assert [check.ok for check in checks] == [True] * (len(checks) - 1) + [False]
        assert checks[-1].step == step
        assert words in checks[-1].detail
        assert checks[-1].remedy


@pytest.mark.parametrize("address", ["", "head:8265", "ftp://head", "http://"])
async def test_an_address_that_is_none_is_refused(address: str) -> None:
    with pytest.raises(InvalidInputError):
        read_target(Target(address=address))


async def test_a_token_is_read_from_its_file_and_shown_to_ray_only(tmp_path: Any) -> None:
    file = tmp_path / "token"
    file.write_text("hush\n")
    target = read_target(Target(address="http://head:8265/", options={"token_file": str(file)}))
    assert target.headers() == {"Authorization": "Bearer hush"}
    assert b"hush" not in msgspec.json.encode(target)
    with pytest.raises(InvalidInputError, match="cannot be read"):
        RayTarget(url="http://head:8265", token_file=str(tmp_path / "nowhere")).headers()
