"""To dispatch a task is one command on every engine: repeated it has the effect of one, and undone it leaves nothing."""

from collections import Counter
from collections.abc import Generator
from pathlib import Path

import pytest

from scenarios.same_task.pools import EnginePool, Platform
from scenarios.same_task.recorder import History, Starter, until
from scenarios.same_task.transcript import FOLDER
from yunhe.entrypoints.cli.session import daemon
from yunhe.scheduling.orchestration.jobs.states import FINAL, JobState
from yunhe.trading.applications.model import Submission
from yunhe.trading.demand.model import ResourceSpec, Task
from yunhe.trading.demand.parse import parse_yaml

pytestmark = [
    pytest.mark.engine,
    pytest.mark.drives("host", "kubernetes", "slurm", "Ray"),
    pytest.mark.timeout(900),
]

ENGINES = ("host", "kubernetes", "slurm", "ray")


@pytest.fixture(params=ENGINES)
def pool(request: pytest.FixtureRequest, platform: Platform) -> EnginePool:
    (found,) = [pool for pool in platform.pools if pool.engine == request.param]
    until(lambda: found.runs() == 0, "nothing runs there")
    return found


@pytest.fixture
def begun(platform: Platform) -> Generator[tuple[Starter, Counter[str]]]:
    """Count every beginning of a task, as the task itself tells it."""
    counted: Counter[str] = Counter()
    with Starter(History(platform.shell.home), lambda job_id: counted.update([job_id])) as starter:
        yield starter, counted


def task(name: str, pool: EnginePool, starter: Starter) -> Submission:
    written = parse_yaml((FOLDER / "tasks" / f"{name}.yaml").read_text())
    asked = written.resources
    return Submission(
        task=Task(
            name="dispatched",
            run=written.run,
            envs={"STARTER": starter.address},
            resources=ResourceSpec(cpus=asked.cpus, memory=asked.memory, pool=pool.name),
        )
    )


@pytest.mark.feature(
    "C09",
    file="src/yunhe/trading/applications/service.py",
    old="return await self._orchestration.submit(orders, key)",
    new="return await self._orchestration.submit(orders)",
)
def test_a_command_that_is_repeated_and_whose_giver_dies_begins_once_and_undone_leaves_nothing(
    platform: Platform, pool: EnginePool, begun: tuple[Starter, Counter[str]], tmp_path: Path
) -> None:
    starter, counted = begun
    shell, submission = platform.shell, task("cancelled", pool, starter)

    # The server is killed when the engine has taken the task and nobody has written that down.
    restart(platform, YUNHE_FAILPOINT="launch-after-call", YUNHE_FAILPOINT_DIR=str(tmp_path))
    with shell.client() as client:
        client.submit(submission, idempotency_key=pool.name)
    until(lambda: daemon.running(shell.home) is None, "the server is dead")
    restart(platform)

    with shell.client() as client:
        job = client.submit(submission, idempotency_key=pool.name)  # by a caller who has heard nothing
        until(lambda: counted[job.id] > 0, "it has begun")
        assert client.submit(submission, idempotency_key=pool.name).id == job.id
        assert pool.runs() == 1
        assert pool.reserved(client.job(job.id).attempts[0].allocation_id).memory_mib == 128

        assert shell("stop", job.id).returncode == 0
        assert shell("stop", job.id).returncode == 0
        until(lambda: client.job(job.id).state in FINAL, "it has ended")
        ended = client.job(job.id)
        assert (ended.state, ended.exit_code, len(ended.attempts)) == (JobState.STOPPED, 9, 1)
        until(lambda: pool.runs() == 0, "nothing is left on the engine")
        assert counted[job.id] == 1
        told = [piece.data for piece in client.logs(job.id)]
        assert b"".join(told) == b"begun\nasked to end\n"
        assert client.submit(submission, idempotency_key=pool.name).state is JobState.STOPPED


@pytest.mark.feature(
    "C09",
    file="src/yunhe/entrypoints/cli/commands/jobs/run.py",
    old="[client.submit(submissions[0])] if len(submissions) == 1 else client.submit_batch(submissions)",
    new="[client.submit(one) for one in submissions]",
)
def test_commands_given_together_are_taken_together_or_not_at_all(
    platform: Platform, pool: EnginePool, tmp_path: Path
) -> None:
    shell = platform.shell
    bad = tmp_path / "bad.yaml"
    bad.write_text("name: bad\nrun: 'true'\nsecrets: [NEVER_SET]\n")
    good = FOLDER / "tasks" / "fails.yaml"
    with shell.client() as client:
        before = [job.id for job in client.jobs(pool=pool.name)]
        done = shell("run", "-y", "-d", "--pool", pool.name, good, bad)
        assert done.returncode != 0
        assert "NEVER_SET" in done.stderr
        assert [job.id for job in client.jobs(pool=pool.name)] == before
        assert not list(client.jobs(states=[JobState.PENDING, JobState.STARTING, JobState.RUNNING]))
    assert pool.runs() == 0


def restart(platform: Platform, **environment: str) -> None:
    """Start the server anew with *environment*, as a supervisor would; pools and jobs are as they were."""
    shell = platform.shell
    shell("down")
    shell.extra = environment
    try:
        said = shell("up", *platform.up, timeout_s=110)
    finally:
        shell.extra = {}
    assert said.returncode == 0, said.stderr
