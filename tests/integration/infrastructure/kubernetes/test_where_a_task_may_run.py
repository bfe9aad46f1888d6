"""On a real cluster: each field keeps a task away, and GPU and Ascend devices are extended resources of its nodes."""

from collections.abc import Generator

import msgspec
import pytest

from engines.kubernetes.cluster import Cluster, cluster
from engines.kubernetes.nodes import node, run_nodes
from integration.entrypoints.cli.conftest import Shell, free_port
from integration.entrypoints.cli.placement_cases import FACTS, check_every_field, explained, planned, said
from support.agent_roots import agent_root
from support.repository import REPOSITORY

pytestmark = [pytest.mark.engine, pytest.mark.drives("kubernetes")]

DEVICES = "A100=nvidia.com/gpu,Ascend910=huawei.com/Ascend910"


@pytest.fixture(scope="module")
def devices(kubernetes_programs: None) -> Generator[Cluster]:
    """A cluster with a plain node, one with GPUs and one with Ascend devices."""
    with (
        cluster() as made,
        run_nodes(
            made,
            node("plain", zone="north"),
            node("gpus", zone="south", **{"nvidia.com/gpu": "2"}),
            node("ascends", zone="south", **{"huawei.com/Ascend910": "4"}),
        ),
    ):
        yield made


@pytest.fixture(scope="module")
def shell(devices: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Generator[Shell]:
    shell = Shell(tmp_path_factory.mktemp("devices") / "home", REPOSITORY)
    with agent_root() as root:
        try:
            up = shell(
                "up", "--no-sample", "--port", str(free_port()), "--agent-root", str(root), timeout_s=110
            )
            assert up.returncode == 0, up.stderr
            options = (
                "--option",
                f"kubeconfig={devices.kubeconfig()}",
                "--option",
                f"accelerators={DEVICES}",
            )
            price = ("--price", "cpu=0.05/h")
            added = shell(
                "pool", "add", "kubernetes", "--name", "cluster", *price, *FACTS, *options, timeout_s=120
            )
            assert added.returncode == 0, added.stdout + added.stderr
            yield shell
        finally:
            shell("down")


def test_each_field_holds_on_a_cluster(shell: Shell) -> None:
    check_every_field(shell, "cluster")


@pytest.mark.parametrize(
    ("wanted", "where"), [("A100:2", "gpus"), ("Ascend910:4", "ascends"), ("Ascend910:1", "ascends")]
)
def test_a_task_with_devices_runs_on_the_node_that_has_them(shell: Shell, wanted: str, where: str) -> None:
    (placed,) = planned(shell, "--pool", "cluster", "--gpus", wanted)["assignments"]
    assert placed["node_id"].endswith(f"/{where}")
    done = shell("run", "--yes", "--pool", "cluster", "--gpus", wanted, "--", "true", timeout_s=90)
    assert done.returncode == 0, done.stdout + done.stderr
    jobs = msgspec.json.decode(said(shell, "ps", "--all", "--limit", "1", "--output", "json"))
    assert jobs[0]["attempts"][-1]["node_id"].endswith(f"/{where}")


def test_devices_that_no_node_has_and_labels_of_nodes_keep_a_task_waiting(shell: Shell) -> None:
    for options, rule in {
        ("--gpus", "A100:3"): "roomy",
        ("--gpus", "H100:1"): "roomy",
        ("--gpus", "A100:1", "--where", "zone=north"): "roomy",
        ("--where", "zone=east"): "labelled",
    }.items():
        decision = explained(shell, "--pool", "cluster", *options)["decision"]
        rules = {no["pool_name"]: no["rule"] for no in decision["rejected"]}
        assert rules["cluster"] == rule, options
    (placed,) = planned(shell, "--pool", "cluster", "--where", "zone=north")["assignments"]
    assert placed["node_id"].endswith("/plain")
