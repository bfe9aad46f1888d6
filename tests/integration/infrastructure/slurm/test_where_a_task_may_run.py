"""On a real Slurm site: each field keeps a task from a pool that does not offer what it asks for."""

import sys
from pathlib import Path

import pytest

from engines.slurm.cluster import SlurmCluster
from integration.entrypoints.cli.conftest import Shell, free_port
from integration.entrypoints.cli.placement_cases import FACTS, check_every_field
from support.agent_roots import agent_root
from support.repository import REPOSITORY

pytestmark = pytest.mark.drives("slurm")


def test_each_field_holds_on_a_slurm_site(cluster: SlurmCluster, tmp_path: Path) -> None:
    shell = Shell(tmp_path / "home", REPOSITORY)
    options = {
        "root": str(cluster.directory / "placement"),
        "slurm_conf": str(cluster.configuration),
        "partition": "main",
        "python": sys.executable,
    }
    words = [word for name, value in options.items() for word in ("--option", f"{name}={value}")]
    with agent_root() as root:
        try:
            up = shell(
                "up", "--no-sample", "--port", str(free_port()), "--agent-root", str(root), timeout_s=110
            )
            assert up.returncode == 0, up.stderr
            price = ("--price", "cpu=0.05/h")
            added = shell("pool", "add", "slurm", "--name", "site", *price, *FACTS, *words, timeout_s=120)
            assert added.returncode == 0, added.stderr
            check_every_field(shell, "site")
        finally:
            shell("down")
