"""A job through the API: planned, submitted, watched, read, changed, stopped and billed."""

import gzip
import io
import tarfile
import time
from pathlib import Path

import anyio
import pytest

from integration.entrypoints.api.conftest import People
from integration.entrypoints.api.serving import Served, add_fake_pool
from yunhe.control.pools.model import ExecRequest, Pool, PoolSpec
from yunhe.entrypoints.client import AsyncClient, Client
from yunhe.kernel.errors import (
    ConflictError,
    ForbiddenError,
    InvalidInputError,
    NotFoundError,
    UnauthenticatedError,
)
from yunhe.kernel.ids import ProjectId
from yunhe.kernel.places import Level, Place
from yunhe.kernel.resources import Resources
from yunhe.scheduling.decision.model import Placed, Waiting
from yunhe.scheduling.orchestration.jobs.model import Job
from yunhe.scheduling.orchestration.jobs.states import JobState
from yunhe.trading.applications.model import Submission, UploadedMount
from yunhe.trading.demand.model import ResourceSpec, Task

BLUE = ProjectId("blue")


def of(run: str, **fields: object) -> Submission:
    task = Task(run=run, **fields)  # pyright: ignore[reportArgumentType]
    return Submission(task=task, project_id=BLUE)


def finish(client: Client, job: Job) -> Job:
    *_, last = client.watch(job.id)
    return last


def until_running(client: Client, job: Job) -> Job:
    for seen in client.watch(job.id):
        if seen.state is JobState.RUNNING:
            return seen
    raise AssertionError(f"{job.id} ended without running")


def test_a_job_is_watched_to_its_end_and_its_output_read(people: People) -> None:
    job = people.ann.submit(of("echo one\nsleep 0.2\necho two", name="hello"))
    states = [seen.state for seen in people.ann.watch(job.id)]
    assert states[-1] is JobState.SUCCEEDED
    assert len(set(states)) > 1
    assert b"".join(piece.data for piece in people.ann.logs(job.id)) == b"one\ntwo\n"
    assert b"".join(piece.data for piece in people.ann.logs(job.id, attempt=1, offset=4)) == b"two\n"


def test_a_log_is_followed_while_the_job_runs(people: People) -> None:
    job = people.ann.submit(of("echo one\nsleep 1\necho two"))
    came: list[tuple[float, bytes]] = [
        (time.monotonic(), piece.data) for piece in people.ann.logs(job.id, follow=True)
    ]
    assert b"".join(data for _, data in came) == b"one\ntwo\n"
    assert came[-1][0] - came[0][0] > 0.5


def test_the_output_of_every_attempt_is_read_in_order(people: People) -> None:
    job = people.ann.submit(of("echo try\nexit 3", retries=2))
    ended = finish(people.ann, job)
    assert ended.state is JobState.FAILED
    assert len(ended.attempts) == 3
    pieces = list(people.ann.logs(job.id))
    assert [piece.attempt for piece in pieces] == [1, 2, 3]
    assert b"".join(piece.data for piece in pieces) == b"try\n" * 3
    followed = b"".join(piece.data for piece in people.ann.logs(job.id, follow=True))
    assert followed == b"try\n" * 3
    assert b"".join(piece.data for piece in people.ann.logs(job.id, attempt=2)) == b"try\n"


def test_a_plan_says_where_and_keeps_nothing(people: People) -> None:
    before = len(list(people.ann.jobs()))
    decision = people.ann.plan(of("true"))
    assert isinstance(decision, Placed)
    assert decision.candidates[0].pool_name == "lab"
    refused = people.ann.plan(of("true", resources=ResourceSpec(cpus=64)))
    assert isinstance(refused, Waiting)
    assert refused.rejected[0].pool_name == "lab"
    assert len(list(people.ann.jobs())) == before


@pytest.mark.feature(
    "R25",
    file="src/yunhe/scheduling/decision/filter/rules.py",
    old="if not wanted or level in wanted:",
    new="if not wanted or level is not None:",
)
@pytest.mark.feature(
    "R25",
    file="src/yunhe/entrypoints/api/routes/pools.py",
    old="if level is None or _level(pool) is level",
    new="if level is None or pool",
)
def test_terminal_edge_and_central_pools_are_told_apart_in_queries_and_by_decisions(people: People) -> None:
    """A pool has one level of three; listing, planning and running keep to the one that is asked for."""
    for level in Level:
        place = Place("sh", 31.2, 121.5, level)
        *_, pool = people.admin.add_pool(PoolSpec(name=f"at-{level}", kind="fake", target=level, place=place))
        assert isinstance(pool, Pool)
        assert pool.spec.place is not None
        assert pool.spec.place.level is level
    try:
        for level in Level:
            assert [pool.spec.name for pool in people.ann.pools(level=level)] == [f"at-{level}"]
            decision = people.ann.plan(of("true", level=level))
            assert isinstance(decision, Placed)
            assert [one.pool_name for one in decision.candidates] == [f"at-{level}"]
            refused = {(no.pool_name, no.rule) for no in decision.rejected}
            assert refused >= {(f"at-{other}", "level") for other in Level if other is not level}
            assert ("lab", "level") in refused, "what has no known level is not at the one asked for"
            job = finish(people.ann, people.ann.submit(of("true", level=level)))
            assert job.attempts[-1].pool_name == f"at-{level}"
        with pytest.raises(InvalidInputError):
            people.ann.pools(level="cloud")
        with pytest.raises(InvalidInputError):
            people.ann.plan(of("true", level="cloud"))
    finally:
        for level in Level:
            people.admin.remove_pool(f"at-{level}", force=True)


def test_who_may_only_look_may_plan_and_not_run(people: People) -> None:
    assert isinstance(people.vic.plan(of("true")), Placed)
    with pytest.raises(ForbiddenError):
        people.vic.submit(of("true"))


def test_a_waiting_job_explains_itself_and_stops_at_once(people: People) -> None:
    job = people.ann.submit(of("true", resources=ResourceSpec(cpus=64)))
    explanation = people.ann.explain(job.id)
    assert isinstance(explanation.decision, Waiting)
    assert explanation.job.id == job.id
    assert people.ann.stop(job.id).state is JobState.STOPPED
    assert people.ann.stop(job.id).state is JobState.STOPPED


def test_a_running_job_is_resized_and_stopped(people: People) -> None:
    job = until_running(people.ann, people.ann.submit(of("sleep 60")))
    resized = people.ann.resize(job.id, Resources(cpu_millis=500))
    assert resized.attempts[-1].resources.cpu_millis == 500
    assert resized.attempts[-1].resources.memory_mib == job.attempts[-1].resources.memory_mib
    people.ann.stop(job.id)
    assert finish(people.ann, job).state is JobState.STOPPED
    assert isinstance(people.ann.explain(job.id).decision, Placed)


def test_outputs_and_files_come_as_archives(people: People, tmp_path: Path) -> None:
    job = until_running(
        people.ann, people.ann.submit(of("echo kept > result.txt\nsleep 60", outputs=("result.txt",)))
    )
    people.ann.files(job.id, ["result.txt"], tmp_path / "files.tgz")
    assert read_member(tmp_path / "files.tgz", "result.txt") == b"kept\n"
    people.ann.stop(job.id)
    finish(people.ann, job)
    people.ann.outputs(job.id, tmp_path / "outputs.tgz")
    assert read_member(tmp_path / "outputs.tgz", "result.txt") == b"kept\n"


def read_member(archive: Path, name: str) -> bytes:
    with tarfile.open(archive) as tar:
        found = tar.extractfile(name)
        assert found is not None
        return found.read()


def test_a_log_and_outputs_stay_when_the_pool_is_gone(people: People, tmp_path: Path) -> None:
    add_fake_pool(people.admin, "passing")
    task = Task(
        run="echo last words\necho kept > result.txt",
        resources=ResourceSpec(cpus=1, pool="passing"),
        outputs=("result.txt",),
    )
    job = people.ann.submit(Submission(task=task, project_id=BLUE))
    finish(people.ann, job)
    people.admin.remove_pool("passing", force=True)
    assert b"".join(piece.data for piece in people.ann.logs(job.id)) == b"last words\n"
    people.ann.outputs(job.id, tmp_path / "outputs.tgz")
    assert read_member(tmp_path / "outputs.tgz", "result.txt") == b"kept\n"


def test_a_job_without_outputs_says_so(people: People, tmp_path: Path) -> None:
    job = people.ann.submit(of("true"))
    finish(people.ann, job)
    with pytest.raises(NotFoundError, match="outputs"):
        people.ann.outputs(job.id, tmp_path / "none.tgz")
    with pytest.raises(ConflictError, match="not running"):
        people.ann.files(job.id, ["x"], tmp_path / "none.tgz")
    assert not (tmp_path / "none.tgz").exists()


def test_an_upload_is_sent_once_and_mounted(people: People, tmp_path: Path) -> None:
    tree = tmp_path / "tree"
    tree.mkdir()
    (tree / "greeting.txt").write_text("hello\n")
    blob = people.ann.upload_directory("blue", tree)
    assert people.ann.upload_directory("blue", tree) == blob
    uploads = [entry for entry in people.admin.audit() if entry.action == "upload"]
    assert len(uploads) == 1
    submission = Submission(
        task=Task(run="cat greeting.txt", workdir="."),
        project_id=BLUE,
        mounts=(UploadedMount(path=".", blob_id=blob),),
    )
    job = people.ann.submit(submission)
    assert finish(people.ann, job).state is JobState.SUCCEEDED
    assert b"".join(piece.data for piece in people.ann.logs(job.id)) == b"hello\n"


def test_jobs_are_listed_in_pages_newest_first_and_filtered(people: People) -> None:
    made = people.ann.submit_batch(
        of("true", name="listed", resources=ResourceSpec(cpus=64)) for _ in range(7)
    )
    listed = list(people.ann.jobs(name="listed", page=3))
    assert [job.id for job in listed] == [job.id for job in reversed(made)]
    assert {job.id for job in people.ann.jobs(states=[JobState.PENDING])} >= {job.id for job in made}
    assert not list(people.ann.jobs(states=[JobState.SUCCEEDED], name="listed"))
    assert not list(people.ann.jobs(pool="lab", name="listed"))
    assert not list(people.bob.jobs())
    assert {job.id for job in people.vic.jobs(project="blue", name="listed")} == {job.id for job in made}
    for job in made:
        people.ann.stop(job.id)


def test_a_batch_is_accepted_in_its_order(people: People) -> None:
    made = people.ann.submit_batch(of("true", name=f"part-{number}") for number in range(5))
    assert [job.name for job in made] == [f"part-{number}" for number in range(5)]
    assert {finish(people.ann, job).state for job in made} == {JobState.SUCCEEDED}


def test_what_was_used_is_billed_to_the_job(people: People) -> None:
    job = people.ann.submit(of("sleep 0.3"))
    finish(people.ann, job)
    deadline = time.monotonic() + 10
    while not (report := people.ann.cost(job=job.id)).lines:
        assert time.monotonic() < deadline
        time.sleep(0.1)
    assert report.lines[0].key == job.id
    first = people.ann.cost(limit=1)
    pages = [first]
    while (cursor := pages[-1].next_cursor) is not None:
        pages.append(people.ann.cost(limit=1, cursor=cursor))
    assert [len(page.lines) for page in pages] == [1] * first.count
    assert sum(page.lines[0].amount_micros for page in pages) == first.amount_micros
    assert report.lines[0].cpu_us > 0
    lines = list(people.ann.ledger(project="blue"))
    assert [line.seq for line in lines] == list(range(1, len(lines) + 1))
    assert people.bob.cost().lines == ()


def test_usage_of_a_short_job_has_no_full_minute_lost(people: People) -> None:
    job = people.ann.submit(of("sleep 0.2"))
    finish(people.ann, job)
    deadline = time.monotonic() + 20
    while not (minutes := people.ann.usage(job.id)):
        assert time.monotonic() < deadline
        time.sleep(0.2)
    assert minutes[0].allocation_id == people.ann.job(job.id).attempts[0].allocation_id


def test_a_command_runs_beside_a_job(served: Served, people: People) -> None:
    job = until_running(people.ann, people.ann.submit(of("echo mine > file.txt\nsleep 60")))

    async def beside(
        request: ExecRequest, stdin: bytes = b"", key: str = people.keys["ann"]
    ) -> tuple[bytes, int | None]:
        async with (
            AsyncClient(served.url, key) as client,
            client.exec(job.id, request) as stream,
        ):
            if stdin:
                await stream.send(stdin)
                await stream.send(b"")
            output = b""
            while data := await stream.receive():
                output += data
            return output, stream.exit_code

    assert anyio.run(beside, ExecRequest(argv=("cat", "file.txt"))) == (b"mine\n", 0)
    assert anyio.run(beside, ExecRequest(argv=("cat",)), b"typed") == (b"typed", 0)
    assert anyio.run(beside, ExecRequest(argv=("false",))) == (b"", 1)
    for who, refusal in {"vic": ForbiddenError, "bob": NotFoundError, "nobody": UnauthenticatedError}.items():
        with pytest.raises(refusal):
            anyio.run(beside, ExecRequest(argv=("true",)), b"", people.keys.get(who, "yk_nobody"))
    people.ann.stop(job.id)
    finish(people.ann, job)
    with pytest.raises(ConflictError, match="not running"):
        anyio.run(beside, ExecRequest(argv=("true",)))


def test_the_archive_of_files_is_gzip(people: People, tmp_path: Path) -> None:
    job = until_running(people.ann, people.ann.submit(of("touch a\nsleep 60")))
    people.ann.files(job.id, ["a"], tmp_path / "a.tgz")
    tarfile.open(fileobj=io.BytesIO(gzip.decompress((tmp_path / "a.tgz").read_bytes()))).close()
    people.ann.stop(job.id)
