"""Clusters that tests share; each is started for the first test that asks and ended after the last."""

import os
from collections.abc import Generator
from pathlib import Path

import pytest

from engines.kubernetes.cluster import Cluster, Options, cluster, clusters
from engines.kubernetes.nodes import node, run_nodes
from engines.kubernetes.real_node import real_cluster
from tools.control_plane import NoControlPlaneError, programs


@pytest.fixture(scope="session")
def kubernetes_programs() -> None:
    """Skip what needs a control plane where there is none."""
    try:
        programs()
    except NoControlPlaneError as why:
        pytest.skip(f"no Kubernetes control plane: {why}")


@pytest.fixture(scope="session")
def kubernetes_cluster(kubernetes_programs: None) -> Generator[Cluster]:
    """A whole cluster: scheduler, controllers, and two nodes that run pods as local processes."""
    if "kube-scheduler" not in programs() or "kube-controller-manager" not in programs():
        pytest.skip("the folder of ready programs has no scheduler and controllers")
    devices = {"example.com/device": "2"}
    with (
        cluster() as made,
        run_nodes(made, node("node-1", zone="north"), node("node-2", zone="south", **devices)),
    ):
        yield made


@pytest.fixture(scope="session")
def real_nodes(kubernetes_programs: None) -> Generator[Cluster]:
    """A whole cluster with one real node: a kubelet, containerd and a network of pods; its one image is ``IMAGE``."""
    with real_cluster() as made:
        yield made


@pytest.fixture(scope="session")
def bare_cluster(kubernetes_programs: None) -> Generator[Cluster]:
    """An API server and etcd alone: nothing changes but by the test's own hand; tests may break it."""
    with cluster(Options(scheduler=False, controllers=False)) as made:
        yield made


@pytest.fixture(scope="session")
def three_clusters(kubernetes_programs: None) -> Generator[list[Cluster]]:
    """Three whole control planes without nodes; tests may break them."""
    with clusters(3) as made:
        yield made


@pytest.fixture(scope="session")
def kubeconfig(request: pytest.FixtureRequest) -> Path:
    """Access to a cluster where pods run: with ``USE_EXISTING_CLUSTER=true`` that of ``KUBECONFIG``, else our own.

    The second variable alone does not suffice: many people have it set for a cluster that no test should touch.
    """
    if os.environ.get("USE_EXISTING_CLUSTER", "").lower() == "true":
        return Path(os.environ["KUBECONFIG"])
    ours: Cluster = request.getfixturevalue("kubernetes_cluster")
    return ours.kubeconfig()
