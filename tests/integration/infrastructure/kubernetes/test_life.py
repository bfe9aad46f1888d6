"""Whole clusters: three at once, an API server that goes and comes, and nothing left behind."""

import subprocess
import time
from pathlib import Path

import pytest

from engines.kubernetes.asking import (
    JOBS,
    PODS,
    Object,
    condition,
    container,
    create,
    ended,
    log,
    pod,
    running,
    state,
    wait_for,
    wait_gone,
)
from engines.kubernetes.cluster import Cluster, cluster, clusters
from engines.kubernetes.nodes import node, run_nodes

pytestmark = [
    pytest.mark.engine,
    pytest.mark.drives("kube-apiserver", "kube-scheduler", "kube-controller-manager", "etcd"),
]


def test_three_whole_clusters_run_a_job_each(kubernetes_programs: None) -> None:
    began_s = time.monotonic()
    with clusters(3) as made:
        print(f"three clusters: ready in {time.monotonic() - began_s:.1f} s")
        for number, one in enumerate(made):
            print(f"cluster {number}: MiB {one.resident_mib()}")
            with run_nodes(one, node(f"node-{number}")), one.client() as client:
                template = {"spec": {"restartPolicy": "Never", "containers": [container("hostname")]}}
                create(client, JOBS, {"metadata": {"name": f"in-{number}"}, "spec": {"template": template}})
                path = f"{JOBS}/in-{number}"
                wait_for(client, path, lambda seen: condition(seen, "Complete").get("status") == "True")
                (done,) = client.get(PODS).json()["items"]
                assert done["spec"]["nodeName"] == f"node-{number}"


def test_a_pod_outlives_the_api_server_and_nothing_outlives_the_cluster(kubernetes_programs: None) -> None:
    with cluster() as made, run_nodes(made, node("node-1")) as nodes:
        with made.client() as client:
            create(client, PODS, pod("steady", "echo begun; sleep 6; echo went on"))
            create(client, PODS, pod("endless", "exec sleep 8765"))
            running(client, "steady")
            running(client, "endless")
        made.restart_api_server()
        with made.client() as client:
            assert ended(client, "steady")["status"]["containerStatuses"][0]["restartCount"] == 0
            assert log(client, "steady") == "begun\nwent on\n"
            create(client, PODS, pod("after", "true"))
            assert ended(client, "after")["status"]["phase"] == "Succeeded"
        pids = [*made.pids().values(), nodes.pid()]
        assert [pid for pid in pids if Path(f"/proc/{pid}").exists()] == pids
    assert not [pid for pid in pids if Path(f"/proc/{pid}").exists()]
    assert not any(b"sleep\x008765" in process_command(folder) for folder in Path("/proc").glob("[0-9]*"))
    assert not made.folder.exists()
    shown = subprocess.run(
        ["ip", "-brief", "address", "show", "lo"], capture_output=True, text=True, check=True
    )
    assert nodes.address not in shown.stdout


def test_a_node_that_crashed_comes_back_without_what_it_ran(kubernetes_cluster: Cluster) -> None:
    with (
        run_nodes(kubernetes_cluster, node("frail", frail="yes")) as nodes,
        kubernetes_cluster.client() as client,
    ):
        here = {"nodeSelector": {"frail": "yes"}}
        create(client, PODS, pod("lost", "exec sleep 600", here))
        create(client, PODS, pod("returns", "exec sleep 600", here | {"restartPolicy": "OnFailure"}))
        running(client, "lost")
        running(client, "returns")
        nodes.kill()
        nodes.start()
        said = state(ended(client, "lost"))["terminated"]
        assert (said["exitCode"], said["reason"]) == (137, "ContainerStatusUnknown")
        seen = wait_for(client, f"{PODS}/returns", restarted_once)
        assert "running" in state(seen)
        client.delete(f"{PODS}/returns", params={"gracePeriodSeconds": 0}).raise_for_status()
        wait_gone(client, f"{PODS}/returns")
    with kubernetes_cluster.client() as client:
        client.delete("/api/v1/nodes/frail").raise_for_status()


def restarted_once(seen: Object) -> bool:
    """Return whether a pod's container runs for the second time."""
    (one,) = seen["status"]["containerStatuses"]
    return one["restartCount"] == 1 and "running" in one["state"]


def process_command(folder: Path) -> bytes:
    """Return the command line of a process; empty for one that has just ended."""
    try:
        return (folder / "cmdline").read_bytes()
    except OSError:
        return b""
