"""The first contact with a site: what is wrong is said by name, with what to do about it."""

import shutil
import socket
import sys
from collections.abc import Generator
from pathlib import Path

import pytest

from engines.slurm.cluster import SlurmCluster
from engines.slurm.orders import ended, order
from engines.slurm.sshd import login_node
from yunhe.infrastructure.contract.kind import Check, Target
from yunhe.infrastructure.slurm.engine import SlurmEngine
from yunhe.infrastructure.slurm.kind import SlurmKind
from yunhe.infrastructure.slurm.target import read_target
from yunhe.kernel.errors import InvalidInputError

pytestmark = [pytest.mark.anyio, pytest.mark.drives("slurm")]

STEPS = [
    "python found",
    "Slurm's programs",
    "controller answers",
    "version",
    "partition",
    "may submit",
    "a job runs",
]


@pytest.fixture(scope="module")
def ssh_config(tmp_path_factory: pytest.TempPathFactory) -> Generator[Path]:
    with login_node(tmp_path_factory.mktemp("sshd")) as path:
        yield path


async def checks(cluster: SlurmCluster, address: str = "", **options: str) -> list[Check]:
    chosen = {
        "root": str(cluster.directory / "onboarding"),
        "slurm_conf": str(cluster.configuration),
        "python": sys.executable,
    }
    target = Target(address=address, options={**chosen, **options})
    return [check async for check in SlurmKind().onboard(target)]


def reconfigured(cluster: SlurmCluster, path: Path, before: str, after: str) -> str:
    text = cluster.configuration.read_text()
    lines = [f"{before}={after}" if line.startswith(f"{before}=") else line for line in text.splitlines()]
    path.write_text("\n".join(lines) + "\n")
    return str(path)


async def test_a_site_that_is_ready_passes_every_check_and_has_run_a_job(cluster: SlurmCluster) -> None:
    found = await checks(cluster, partition="main")
    assert [check.step for check in found] == STEPS
    assert all(check.ok for check in found), found
    assert found[4].detail == "main: 2 nodes, 8 cores"
    assert found[-1].detail in {"on n1", "on n2"}


async def test_missing_programs_are_named(cluster: SlurmCluster, tmp_path: Path) -> None:
    failed = (await checks(cluster, programs=str(tmp_path)))[-1]
    assert (failed.step, failed.ok) == ("Slurm's programs", False)
    assert "sbatch" in failed.detail
    assert "--option programs=" in failed.remedy


async def test_a_controller_that_is_away_is_told_from_everything_else(
    cluster: SlurmCluster, tmp_path: Path
) -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        nobody = str(probe.getsockname()[1])
    conf = reconfigured(cluster, tmp_path / "slurm.conf", "SlurmctldPort", nobody)
    failed = (await checks(cluster, slurm_conf=conf))[-1]
    assert (failed.step, failed.ok) == ("controller answers", False)
    assert "slurmctld" in failed.remedy


async def test_credentials_that_the_controller_cannot_trust_are_told(
    cluster: SlurmCluster, tmp_path: Path
) -> None:
    conf = reconfigured(cluster, tmp_path / "slurm.conf", "AuthInfo", f"socket={tmp_path}/nobody")
    failed = (await checks(cluster, slurm_conf=conf))[-1]
    assert (failed.step, failed.ok) == ("controller answers", False)
    assert "munge" in failed.remedy


async def test_a_slurm_too_old_is_refused(cluster: SlurmCluster, tmp_path: Path) -> None:
    for name in ("sbatch", "squeue", "scancel", "srun"):
        (tmp_path / name).symlink_to(shutil.which(name) or "")
    old = tmp_path / "scontrol"
    old.write_text(
        '#!/bin/sh\necho "ClusterName             = old"\necho "SLURM_VERSION           = 19.05.8"\n'
    )
    old.chmod(0o755)
    failed = (await checks(cluster, programs=str(tmp_path)))[-1]
    assert (failed.step, failed.ok) == ("version", False)
    assert "19.05.8 is too old: 20.11" in failed.detail
    assert "upgraded" in failed.remedy


async def test_a_wrong_partition_is_answered_with_the_right_ones(cluster: SlurmCluster) -> None:
    failed = (await checks(cluster, partition="mian"))[-1]
    assert (failed.step, failed.ok) == ("partition", False)
    assert "mian" in failed.detail
    assert "main" in failed.remedy


async def test_a_wrong_account_is_told_from_a_wrong_partition(cluster: SlurmCluster) -> None:
    failed = (await checks(cluster, partition="closed", account="nobodys"))[-1]
    assert (failed.step, failed.ok) == ("may submit", False)
    assert "account" in failed.detail
    assert "--option account=" in failed.remedy


async def test_a_node_that_cannot_run_our_part_is_found_by_a_job(cluster: SlurmCluster) -> None:
    failed = (await checks(cluster, partition="main", python="/nonexistent/python"))[-1]
    assert (failed.step, failed.ok) == ("a job runs", False)
    assert "/nonexistent/python" in failed.detail
    assert "--option root=" in failed.remedy


async def test_a_login_node_that_is_not_there_is_not_reachable(
    cluster: SlurmCluster, ssh_config: Path
) -> None:
    failed = (await checks(cluster, "nobody-there", ssh_config=str(ssh_config)))[-1]
    assert (failed.step, failed.ok) == ("reachable", False)
    assert "refused" in failed.detail


async def test_a_key_that_is_not_accepted_is_told(cluster: SlurmCluster, ssh_config: Path) -> None:
    failed = (await checks(cluster, "wrong-key", ssh_config=str(ssh_config)))[-1]
    assert (failed.step, failed.ok) == ("key accepted", False)
    assert "authorized_keys" in failed.remedy


async def test_a_site_behind_ssh_runs_a_job(cluster: SlurmCluster, ssh_config: Path) -> None:
    found = await checks(cluster, "login", ssh_config=str(ssh_config), partition="main")
    assert [check.step for check in found] == ["reachable", "key accepted", *STEPS]
    assert all(check.ok for check in found), found
    target = Target(
        address="login",
        options={
            "root": str(cluster.directory / "far"),
            "ssh_config": str(ssh_config),
            "slurm_conf": str(cluster.configuration),
            "python": sys.executable,
        },
    )
    async with SlurmEngine(read_target(target)) as engine:
        made = order("echo from afar\nexit 9")
        await engine.launch(made)
        seen = await ended(engine, made)
        assert seen.exit_code == 9
        assert b"".join([chunk.data async for chunk in engine.logs(made.allocation_id)]) == b"from afar\n"


@pytest.mark.parametrize(
    ("option", "value"),
    [("partition", "a b"), ("account", "-x"), ("root", "/a/%j"), ("time_limit", "soon"), ("port", "ssh")],
)
def test_an_option_that_cannot_be_meant_is_refused_by_name(option: str, value: str) -> None:
    with pytest.raises(InvalidInputError) as refusal:
        read_target(Target(address="x", options={option: value}))
    assert [problem.field for problem in refusal.value.fields] == [f"options.{option}"]
