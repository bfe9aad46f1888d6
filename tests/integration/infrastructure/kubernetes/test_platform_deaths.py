"""A server that is killed while a task's files are on their way loses none of them, and runs the task once."""

import time
from pathlib import Path

import pytest

from engines.kubernetes.cluster import Cluster
from faults.marks import Marks
from integration.entrypoints.cli.conftest import Shell, free_port
from support.agent_roots import agent_root
from yunhe.kernel.errors import YunheError
from yunhe.scheduling.orchestration.jobs.model import Job
from yunhe.scheduling.orchestration.jobs.states import FINAL, JobState

pytestmark = [pytest.mark.engine, pytest.mark.drives("kubernetes"), pytest.mark.timeout(300)]

DEATHS = (
    "launch-after-files",
    "launch-after-call",
    "exit-after-record",
    "finish-after-logs",
    "outputs-before-record",
    "release-before-call",
)
"""Between put and launch, launch and record, end and fetch, fetch and record."""
TASK = """
name: freight
workdir: cargo
outputs: [delivered.txt]
timeout: 5m
resources: {cpus: 0.2, memory: 64MB}
run: |
  echo ran
  cp tea.txt delivered.txt
"""


def test_a_server_that_dies_at_every_step_of_the_way_loses_no_file(
    kubernetes_cluster: Cluster, tmp_path: Path
) -> None:
    marks = Marks(tmp_path / "marks", DEATHS)
    (tmp_path / "cargo").mkdir()
    (tmp_path / "cargo" / "tea.txt").write_text("twelve chests\n")
    (tmp_path / "freight.yaml").write_text(TASK)
    with agent_root() as root:
        shell = Shell(tmp_path / "home", tmp_path, marks.environment())
        up = ("up", "--no-sample", "--port", str(free_port()), "--agent-root", str(root))
        try:
            said = shell(*up, timeout_s=110)
            assert said.returncode == 0, said.stderr
            kubeconfig = f"kubeconfig={kubernetes_cluster.kubeconfig()}"
            said = shell("pool", "add", "kubernetes", "--name", "cluster", "--option", kubeconfig)
            assert said.returncode == 0, said.stderr
            for name in DEATHS:
                marks.arm(name)
            said = shell("run", "-y", "--detach", "--pool", "cluster", "freight.yaml")
            assert said.returncode == 0, said.stderr
            job = ended(shell, up, marks)
            assert (job.state, len(job.attempts)) == (JobState.SUCCEEDED, 1), job.reason
            assert shell("logs", job.id).stdout == "ran\n"
            said = shell("cp", f"{job.id}:", tmp_path / "home-again")
            assert said.returncode == 0, said.stderr
            assert (tmp_path / "home-again" / "delivered.txt").read_text() == "twelve chests\n"
        finally:
            shell("down")


def ended(shell: Shell, up: tuple[str, ...], marks: Marks) -> Job:
    """Return the job once it has ended and the server has died every death, raising it again each time."""
    until = time.monotonic() + 240
    while time.monotonic() < until:
        no_more_deaths = all(marks.has_fired(name) for name in DEATHS)  # asked first: who answers then, stays
        try:
            with shell.client() as client:
                (job,) = client.jobs(name="freight")
        except YunheError:
            said = shell(*up, timeout_s=110)  # one that dies again while it comes up is raised once more
            print(said.stderr)
            continue
        if job.state in FINAL and no_more_deaths:
            return job
        time.sleep(0.3)
    raise AssertionError(f"not all has happened: {[name for name in DEATHS if not marks.has_fired(name)]}")
