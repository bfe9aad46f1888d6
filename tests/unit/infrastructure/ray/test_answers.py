"""What Ray answers, as recorded from a real cluster, is understood; what nobody knows is an error."""

from pathlib import Path

import msgspec
import pytest

import yunhe.infrastructure.ray
from engines.ray_dashboard import RECORDED, Dashboard
from yunhe.infrastructure.contract.manifest import read_manifest
from yunhe.infrastructure.contract.model import Ending, Phase, Power
from yunhe.infrastructure.ray.engine import MISSING
from yunhe.infrastructure.ray.marks import RayAllocation, read_known
from yunhe.infrastructure.ray.phases import NEVER_RAN, observe
from yunhe.infrastructure.ray.wire import Ended, RayJob, RayReport, ReportReading
from yunhe.kernel.errors import (
    ForbiddenError,
    NotFoundError,
    PoolUnreachableError,
    UnauthenticatedError,
    UnsupportedError,
)
from yunhe.kernel.ids import AllocationId
from yunhe.kernel.resources import Resources

REPORT = RayReport(
    started_at=10.0,
    step="step-1",
    log_bytes=8,
    log_starts=[0],
    meters={"wall_ms": 5},
    last_minute=0,
    ended=None,
)
ENDED = msgspec.structs.replace(REPORT, ended=Ended(exit_code=3, ending="done", ended_at=12.0, detail=""))


def known(status: str, *, error_type: str | None = None, stopped: bool = False) -> RayAllocation:
    job = RayJob(
        type="SUBMISSION",
        status=status,
        submission_id="alloc_1",
        error_type=error_type,
        message="it went wrong\nTraceback …",
        end_time=13_000,
        metadata={"yunhe": "allocation", "token": "4", "resources": '{"cpu_millis":500}'},
        driver_node_id="n1",
    )
    return RayAllocation(allocation_id=AllocationId("alloc_1"), main=job, token=4, stopped=stopped)


def test_the_manifest_is_complete_and_lacks_what_the_engine_lacks() -> None:
    folder = Path(yunhe.infrastructure.ray.__file__).parent
    manifest = read_manifest(folder / "plugin.toml")
    assert manifest.name == "ray"
    assert manifest.missing == MISSING
    assert manifest.powers == (Power.FILES,)


def test_the_jobs_of_a_real_cluster_are_read() -> None:
    jobs = msgspec.convert(RECORDED["jobs"], list[RayJob])
    seen = {one.role for one in read_known(jobs).values() if one.main}
    assert seen == {"allocation", "tombstone"}
    for one in read_known(jobs).values():
        if one.main:
            assert observe(one, ReportReading()).token >= 1


@pytest.mark.parametrize(
    ("status", "report", "phase"),
    [
        ("PENDING", None, Phase.STARTING),
        ("RUNNING", None, Phase.STARTING),
        ("RUNNING", REPORT, Phase.RUNNING),
        ("RUNNING", ENDED, Phase.RUNNING),
        ("SUCCEEDED", ENDED, Phase.EXITED),
        ("FAILED", ENDED, Phase.EXITED),
        ("STOPPED", ENDED, Phase.EXITED),
        ("STOPPED", None, Phase.EXITED),
        ("SUCCEEDED", None, Phase.EXITED),
        ("FAILED", None, Phase.UNKNOWN),
        ("FAILED", REPORT, Phase.UNKNOWN),
    ],
)
def test_each_status_of_ray_has_its_phase(status: str, report: RayReport | None, phase: Phase) -> None:
    seen = observe(known(status), ReportReading(report))
    assert (seen.phase, seen.token, seen.resources) == (phase, 4, Resources(cpu_millis=500))


def test_how_it_ended_is_what_the_runner_recorded() -> None:
    seen = observe(known("FAILED"), ReportReading(ENDED))
    assert (seen.exit_code, seen.ending, seen.ended_at) == (3, Ending.DONE, 12.0)


@pytest.mark.parametrize("error_type", sorted(NEVER_RAN))
def test_what_ray_could_not_start_has_exited_and_says_why(error_type: str) -> None:
    seen = observe(known("FAILED", error_type=error_type), ReportReading())
    assert (seen.phase, seen.exit_code) == (Phase.EXITED, 125)
    assert "it went wrong" in seen.detail
    assert "Traceback" not in seen.detail
    stopped = observe(known("FAILED", error_type=error_type, stopped=True), ReportReading())
    assert (stopped.phase, stopped.ending) == (Phase.EXITED, Ending.STOPPED)


def test_what_a_crash_left_open_is_unknown_and_not_guessed() -> None:
    for report in (None, REPORT):
        seen = observe(known("FAILED", error_type="JOB_SUPERVISOR_ACTOR_DIED"), ReportReading(report))
        assert (seen.phase, seen.exit_code, seen.ending) == (Phase.UNKNOWN, None, None)


@pytest.mark.parametrize("status", ["SUCCEEDED", "FAILED", "STOPPED"])
def test_no_end_is_told_while_the_node_that_knows_it_does_not_answer(status: str) -> None:
    assert observe(known(status), ReportReading(REPORT, certain=False)).phase is Phase.RUNNING
    assert observe(known(status), ReportReading(None, certain=False)).phase is Phase.STARTING
    assert observe(known(status), ReportReading(ENDED, certain=False)).exit_code == 3


def test_a_status_nobody_knows_is_an_error_that_names_it() -> None:
    with pytest.raises(UnsupportedError, match="HIBERNATING"):
        observe(known("HIBERNATING"), ReportReading())


@pytest.mark.anyio
class TestRefusals:
    async def test_each_trouble_has_its_own_message_and_remedy(self) -> None:
        dashboard = Dashboard()
        client = dashboard.client()
        dashboard.reachable = False
        with pytest.raises(PoolUnreachableError, match="did not answer") as unreachable:
            await client.version()
        dashboard.reachable, dashboard.status = True, 401
        with pytest.raises(UnauthenticatedError, match="asks for a token") as nameless:
            await client.version()
        dashboard.status = 403
        with pytest.raises(ForbiddenError, match="refuses our token") as refused:
            await client.version()
        dashboard.status = 404
        with pytest.raises(UnsupportedError, match="not a Ray dashboard") as stranger:
            await client.version()
        remedies = {error.value.remedy for error in (unreachable, nameless, refused, stranger)}
        assert len(remedies) == 4
        assert all(remedies)

    async def test_a_page_that_is_no_dashboard_is_told_from_one(self) -> None:
        dashboard = Dashboard()
        dashboard.version = {"hello": "world"}
        with pytest.raises(UnsupportedError, match="not a Ray dashboard"):
            await dashboard.client().version()

    async def test_an_empty_file_is_empty_also_where_ray_stumbles_over_it(self) -> None:
        dashboard = Dashboard()
        dashboard.files["yunhe/a"] = b""
        assert await dashboard.client().read_file("n", "yunhe/a") == b""
        dashboard.stumbles = True
        assert await dashboard.client().read_file("n", "yunhe/a") == b""
        with pytest.raises(NotFoundError):
            await dashboard.client().read_file("n", "yunhe/b")

    async def test_an_answer_of_another_shape_is_an_error_that_names_the_call(self) -> None:
        dashboard = Dashboard()
        dashboard.jobs["x"] = {"status": "RUNNING"}
        with pytest.raises(UnsupportedError, match="/api/jobs/"):
            await dashboard.client().jobs()
