"""A platform brought up as a user would, with a cluster as one of its pools."""

import json
import re
from collections.abc import Generator
from pathlib import Path

import pytest

from engines.kubernetes.cluster import READER, Cluster
from integration.entrypoints.cli.conftest import Shell, free_port
from support.agent_roots import agent_root
from support.repository import REPOSITORY

pytestmark = [pytest.mark.engine, pytest.mark.drives("kubernetes")]


@pytest.fixture(scope="module")
def shell(tmp_path_factory: pytest.TempPathFactory) -> Generator[Shell]:
    with agent_root() as root:
        shell = Shell(tmp_path_factory.mktemp("admin") / "home", REPOSITORY)
        try:
            up = shell("up", "--port", str(free_port()), "--agent-root", str(root), timeout_s=110.0)
            assert up.returncode == 0, up.stderr
            yield shell
        finally:
            shell("down")


def add(shell: Shell, name: str, kubeconfig: Path) -> tuple[int, str]:
    done = shell("pool", "add", "kubernetes", "--name", name, "--option", f"kubeconfig={kubeconfig}")
    return done.returncode, done.stdout + done.stderr


def test_one_command_adds_a_cluster_and_a_job_runs_there(shell: Shell, kubernetes_cluster: Cluster) -> None:
    code, said = add(shell, "cluster", kubernetes_cluster.kubeconfig())
    assert code == 0, said
    for step in ("kubeconfig read", "reachable", "credentials accepted", "permissions", "pod admitted"):
        assert step in said
    done = shell(
        "run",
        "-y",
        "--pool",
        "cluster",
        "--name",
        "there",
        "--",
        "sh",
        "-c",
        "echo from $HOSTNAME; exit 3",
        timeout_s=90,
    )
    assert done.returncode == 3, done.stdout + done.stderr
    assert done.stdout.startswith("from ")
    jobs = json.loads(shell("ps", "--all", "--output", "json").stdout)
    assert any(job["name"] == "there" for job in (jobs["jobs"] if isinstance(jobs, dict) else jobs))


def test_a_cluster_that_lacks_a_right_is_not_added_and_the_role_is_printed(
    shell: Shell, kubernetes_cluster: Cluster
) -> None:
    code, said = add(shell, "poor", kubernetes_cluster.kubeconfig(READER))
    assert code != 0
    assert re.search(r"reader may not .*\bcreate\S* pods\b", said), said
    assert "ClusterRole" in said
    assert "poor" not in shell("pool", "ls").stdout
