"""A Slurm site as a person meets it: one command adds it, a task runs there to its end, and the bill knows."""

import json
import sys
from collections.abc import Generator
from pathlib import Path

import pytest

from engines.slurm.cluster import SlurmCluster
from integration.entrypoints.cli.conftest import Shell, free_port
from support.agent_roots import agent_root
from support.repository import REPOSITORY

pytestmark = pytest.mark.drives("slurm")

TASK = """
name: canal
resources: {cpus: 1, memory: 200MB}
envs: {WATER: level}
setup: echo "setting up"
run: |
  echo "on $SLURM_JOB_ID: $WATER"
  python3 -c 'import time; end = time.process_time() + 0.5
  while time.process_time() < end: pass'
  exit 3
"""


@pytest.fixture(scope="module")
def admin(tmp_path_factory: pytest.TempPathFactory) -> Generator[Shell]:
    shell = Shell(tmp_path_factory.mktemp("admin") / "home", REPOSITORY)
    with agent_root() as root:
        words = ("up", "--no-sample", "--port", str(free_port()), "--agent-root", str(root))
        try:
            first = shell(*words, timeout_s=110.0)
            assert first.returncode == 0, first.stderr
            yield shell
        finally:
            shell("down")


def test_one_command_adds_a_site_and_a_task_runs_there_to_its_end(
    admin: Shell, cluster: SlurmCluster, tmp_path: Path
) -> None:
    options = {
        "root": str(cluster.directory / "platform"),
        "slurm_conf": str(cluster.configuration),
        "partition": "main",
        "python": sys.executable,
    }
    words = [word for name, value in options.items() for word in ("--option", f"{name}={value}")]
    price = ["--price", "cpu=3600/h,mem=0.01/h"]
    added = admin("pool", "add", "slurm", "--name", "site", *price, *words, timeout_s=120)
    assert added.returncode == 0, added.stderr
    assert "a job runs" in added.stderr
    assert "8 cores" in added.stderr

    (tmp_path / "task.yaml").write_text(TASK)
    done = admin("run", "-y", "--pool", "site", tmp_path / "task.yaml", timeout_s=120)
    assert done.returncode == 3, done.stderr
    assert done.stdout.splitlines()[0] == "setting up"
    assert done.stdout.splitlines()[1].endswith(": level")
    assert "✗ failed" in done.stderr

    job = json.loads(admin.inside("ps", "--all", "--limit", "1", "-o", "json").stdout)[0]
    assert (job["name"], job["state"], job["exit_code"]) == ("canal", "failed", 3)
    (line,) = json.loads(admin.inside("cost", "--by", "pool", "-o", "json").stdout)["lines"]
    assert 500_000 <= line["cpu_us"] <= 3_000_000
    assert (
        line["cpu_us"] <= line["amount_micros"] <= line["cpu_us"] * 1.1
    )  # a core-second costs 1, memory next to nothing


def test_a_partition_that_is_not_there_adds_nothing(admin: Shell, cluster: SlurmCluster) -> None:
    words = ["--option", f"slurm_conf={cluster.configuration}", "--option", "partition=mian"]
    words += ["--option", f"root={cluster.directory / 'platform-2'}"]
    added = admin("pool", "add", "slurm", "--name", "typo", *words, timeout_s=120)
    assert added.returncode != 0
    assert "no partition mian" in added.stderr
    assert "main" in added.stderr
