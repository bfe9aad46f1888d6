"""A pool of each kind, for tests that say the same of every engine: ``pool_process``, ``pool_container`` and so on.

Each yields the pool to add and what a task there needs besides, such as an image.
"""

import sys
from collections.abc import Generator

import pytest

from engines.kubernetes import real_node
from engines.kubernetes.cluster import Cluster
from engines.ray_cluster import RayIsMissingError, ray_cluster, ray_python
from engines.slurm.cluster import slurm_cluster
from support.agent_roots import agent_root
from support.containers import IMAGE, container_store
from yunhe.control.pools.model import PoolSpec

PoolAndImage = tuple[PoolSpec, dict[str, str]]


@pytest.fixture
def pool_process() -> Generator[PoolAndImage]:
    """This machine, where tasks are processes."""
    with agent_root() as root:
        yield PoolSpec(name="here", kind="local", options={"root": str(root), "cpus": "2"}), {}


@pytest.fixture
def pool_container(monkeypatch: pytest.MonkeyPatch) -> Generator[PoolAndImage]:
    """This machine, where tasks are in containers."""
    with container_store() as store, agent_root() as root:
        for name, value in store.environment.items():
            monkeypatch.setenv(name, value)
        yield PoolSpec(name="here", kind="local", options={"root": str(root), "cpus": "2"}), {"image": IMAGE}


@pytest.fixture
def pool_slurm() -> Generator[PoolAndImage]:
    """A Slurm site."""
    with slurm_cluster() as cluster:
        options = {
            "root": str(cluster.directory / "platform"),
            "slurm_conf": str(cluster.configuration),
            "partition": "main",
            "python": sys.executable,
        }
        yield PoolSpec(name="site", kind="slurm", options=options), {}


@pytest.fixture
def pool_ray() -> Generator[PoolAndImage]:
    """A Ray cluster."""
    try:
        ray_python()
    except RayIsMissingError as reason:
        pytest.skip(str(reason))
    with ray_cluster() as cluster:
        yield PoolSpec(name="ray", kind="ray", target=cluster.url), {}


@pytest.fixture
def pool_kubernetes(real_nodes: Cluster) -> PoolAndImage:
    """A Kubernetes cluster with a real node."""
    options = {"kubeconfig": str(real_nodes.kubeconfig()), "image": real_node.IMAGE}
    return PoolSpec(name="cluster", kind="kubernetes", options=options), {}
