"""Through the CLI: a job that is held until a time, and jobs that stay beside or apart from those of a group."""

import time
from collections.abc import Generator
from pathlib import Path

import msgspec
import pytest

from integration.entrypoints.api.serving import Served, add_fake_pool, serving
from integration.entrypoints.cli.conftest import Shell
from yunhe.scheduling.orchestration.jobs.model import Job
from yunhe.scheduling.orchestration.jobs.states import JobState
from yunhe.trading.applications.model import Submission
from yunhe.trading.demand.model import ResourceSpec, Task

WITHIN_S = 20.0


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Generator[Served]:
    with serving(tmp_path_factory.mktemp("together")) as served:
        with served.client() as client:
            add_fake_pool(client, "alpha", cpus="4", memory="8GB", nodes="2")
        yield served


@pytest.fixture
def shell(served: Served, tmp_path: Path) -> Generator[Shell]:
    yield Shell(tmp_path, tmp_path, {"YUNHE_URL": served.url, "YUNHE_KEY": served.key})
    with served.client() as client:
        for job in client.jobs(states=(JobState.PENDING, JobState.STARTING, JobState.RUNNING)):
            client.stop(job.id)


def submit(shell: Shell, *options: str, script: str = "sleep 600") -> Job:
    done = shell.inside("run", "--detach", "--output", "json", "--cpus", "1", *options, "--", script)
    assert done.returncode == 0, done.stderr
    return msgspec.json.decode(done.stdout, type=Job)


def wait_for(served: Served, job: Job, *states: JobState, reason: str = "") -> Job:
    deadline = time.monotonic() + WITHIN_S
    with served.client() as client:
        while True:
            now = client.job(job.id)
            if now.state in states and reason in now.reason:
                return now
            assert time.monotonic() < deadline, f"{now.state}: {now.reason}"
            time.sleep(0.05)


def test_a_job_is_held_until_start_after_and_ps_and_explain_say_so(served: Served, shell: Shell) -> None:
    job = submit(shell, "--start-after", "5s", "--name", "later", script="true")
    held = wait_for(served, job, JobState.PENDING, reason="held until ")
    assert held.demand.not_before == pytest.approx(held.submitted_at + 5, abs=1.0)
    assert "held until" in shell.inside("ps", "--output", "json").stdout
    page = shell.inside("explain", "later").stdout
    assert "later is held until " in page
    assert "(start_after)" in page
    ended = wait_for(served, job, JobState.SUCCEEDED)
    assert ended.started_at is not None
    assert ended.started_at >= (held.demand.not_before or 0.0)


def test_jobs_of_a_group_stay_apart_and_one_goes_where_the_group_runs(served: Served, shell: Shell) -> None:
    lonely = submit(shell, "--affinity", "web", "--name", "lonely")
    assert "does not agree with web" in wait_for(served, lonely, JobState.PENDING, reason="web").reason
    first = submit(shell, "--group", "web", "--anti-affinity", "web")
    second = submit(shell, "--group", "web", "--anti-affinity", "web")
    nodes = {wait_for(served, job, JobState.RUNNING).attempts[-1].node_id for job in (first, second)}
    assert len(nodes) == 2, "two members of one group on one node"
    third = submit(shell, "--group", "web", "--anti-affinity", "web", "--name", "third")
    wait_for(served, third, JobState.PENDING, reason="web")
    page = shell.inside("explain", "third").stdout
    assert "what runs here does not agree with web" in page
    assert "allow it beside web" in page
    assert '"rule": "together"' in shell.inside("explain", "third", "--output", "json").stdout
    assert wait_for(served, lonely, JobState.RUNNING).attempts[-1].node_id in nodes
    with served.client() as client:
        client.stop(first.id)
    wait_for(served, third, JobState.RUNNING)


def test_a_job_that_waits_ends_when_its_deadline_passes_and_says_what_it_waited_for(
    served: Served, shell: Shell
) -> None:
    late = submit(shell, "--cpus", "64", "--deadline", "2s", "--duration", "1s", "--name", "late")
    wait_for(served, late, JobState.PENDING, reason="64 cores asked")
    ended = wait_for(served, late, JobState.FAILED)
    assert ended.reason.startswith("its deadline passed at 20")
    assert "while it waited: alpha: " in ended.reason
    assert ended.ended_at is not None
    assert ended.ended_at >= (ended.demand.deadline_at or 0.0)
    assert not ended.attempts
    page = " ".join(shell.inside("explain", "late").stdout.split())
    assert "late failed: its deadline passed at 20" in page


def test_a_deadline_that_passes_while_nobody_serves_ends_the_job_when_somebody_does(tmp_path: Path) -> None:
    with serving(tmp_path) as first, first.client() as client:
        task = Task(run="true", resources=ResourceSpec(cpus=64), deadline="3s", duration="1s")
        job = client.submit(Submission(task=task))
        wait_for(first, job, JobState.PENDING, reason="no pool is connected")
    until_s = (job.demand.deadline_at or 0.0) - time.time()
    time.sleep(max(0.0, until_s))
    with serving(tmp_path) as second:
        assert "its deadline passed at 20" in wait_for(second, job, JobState.FAILED).reason


def test_a_deadline_does_not_end_a_job_that_runs(served: Served, shell: Shell) -> None:
    job = submit(shell, "--deadline", "4s", "--duration", "1s", script="sleep 6")
    running = wait_for(served, job, JobState.RUNNING, JobState.SUCCEEDED)
    ended = wait_for(served, job, JobState.SUCCEEDED)
    assert ended.ended_at is not None
    assert ended.ended_at > (running.demand.deadline_at or 0.0)


def test_jobs_of_a_group_are_spread_and_counted_one_by_one(served: Served, shell: Shell) -> None:
    """Two nodes, at most two of the group on each: the fifth waits until one has ended."""
    (shell.cwd / "two.yaml").write_text(
        "run: sleep 600\ngroups: [cache]\nspread: {over: node, at_most: 2}\nresources: {cpus: 0.5}\n"
    )

    def start() -> Job:
        done = shell.inside("run", "--detach", "--output", "json", "two.yaml")
        assert done.returncode == 0, done.stderr
        return msgspec.json.decode(done.stdout, type=Job)

    jobs = [start() for _ in range(4)]
    nodes = [wait_for(served, job, JobState.RUNNING).attempts[-1].node_id for job in jobs]
    assert sorted(map(nodes.count, set(nodes))) == [2, 2]
    fifth = start()
    wait_for(served, fifth, JobState.PENDING, reason="as many of cache run here as asked for: 2")
    page = " ".join(shell.inside("explain", fifth.id).stdout.split())
    assert "allow more of cache together" in page
    with served.client() as client:
        client.stop(jobs[0].id)
    assert wait_for(served, fifth, JobState.RUNNING).attempts[-1].node_id == nodes[0]


def test_members_spread_over_pools_as_asked(served: Served, shell: Shell) -> None:
    for options, outcome in (((), "placed"), (("--spread", "pool"), "waiting")):
        (shell.cwd / "two.yaml").write_text("run: 'true'\nservice: {replicas: 2}\n")
        done = shell.inside("plan", "--output", "json", *options, "two.yaml")
        assert done.returncode == 0, done.stderr
        assert msgspec.json.decode(done.stdout)["type"] == outcome
