"""Three clusters at once as pools of one platform: each runs its own jobs, and one that goes takes no other along."""

from collections.abc import Generator
from contextlib import ExitStack
from pathlib import Path

import pytest

from engines.kubernetes.cluster import Cluster
from engines.kubernetes.nodes import node, run_nodes
from integration.control.plugins.platform_process import PlatformProcess
from integration.control.plugins.processes import until
from yunhe.control.pools.model import Check, PoolSpec, PoolState
from yunhe.entrypoints.client import Client
from yunhe.scheduling.orchestration.jobs.model import Job
from yunhe.scheduling.orchestration.jobs.states import FINAL, JobState
from yunhe.trading.applications.model import Submission
from yunhe.trading.demand.model import ResourceSpec, Task

pytestmark = [pytest.mark.engine, pytest.mark.drives("kubernetes"), pytest.mark.timeout(600)]
NAMES = ("north", "middle", "south")
WITHIN_S = 90.0


@pytest.fixture
def client(three_clusters: list[Cluster], tmp_path: Path) -> Generator[Client]:
    (tmp_path / "home").mkdir()
    with ExitStack() as stack:
        for name, cluster in zip(NAMES, three_clusters, strict=True):
            stack.enter_context(run_nodes(cluster, node(f"of-{name}")))
        client = stack.enter_context(stack.enter_context(PlatformProcess(tmp_path / "home")).client())
        for name, cluster in zip(NAMES, three_clusters, strict=True):
            options = {"kubeconfig": str(cluster.kubeconfig()), "sample_every": "1"}
            told = list(client.add_pool(PoolSpec(name=name, kind="kubernetes", options=options)))
            assert all(check.ok for check in told if isinstance(check, Check)), told
        yield client


def submit(client: Client, pool: str, script: str = "true") -> Job:
    wanted = ResourceSpec(cpus=0.1, memory="64MB", pool=pool)
    return client.submit(Submission(task=Task(run=script, resources=wanted)))


def succeed(client: Client, *jobs: Job) -> None:
    for job in jobs:
        until(lambda one=job: client.job(one.id).state in FINAL, WITHIN_S)
        assert client.job(job.id).state is JobState.SUCCEEDED, client.job(job.id)


def states(client: Client) -> dict[str, PoolState]:
    return {pool.spec.name: pool.state for pool in client.pools()}


def allocations_in(cluster: Cluster) -> int:
    """Return how many allocations a cluster has ever been asked to run."""
    with cluster.client() as client:
        listed = client.get("/api/v1/configmaps", params={"labelSelector": "yunhe.io/allocation"}).json()
    return len(listed["items"])


def test_each_runs_its_own_jobs_and_when_one_is_gone_the_others_go_on(
    three_clusters: list[Cluster], client: Client
) -> None:
    everywhere = dict.fromkeys(NAMES, PoolState.READY)
    assert states(client) == everywhere
    succeed(client, *[submit(client, name) for name in NAMES])
    assert [allocations_in(cluster) for cluster in three_clusters] == [1, 1, 1]

    through = submit(client, "middle", "sleep 20")
    until(lambda: client.job(through.id).state is JobState.RUNNING, WITHIN_S)
    three_clusters[1].stop_api_server()
    until(lambda: states(client)["middle"] is PoolState.OFFLINE, WITHIN_S)
    assert states(client) == everywhere | {"middle": PoolState.OFFLINE}
    succeed(client, submit(client, "north"), submit(client, "south"))
    waits = submit(client, "middle")
    assert states(client) == everywhere | {"middle": PoolState.OFFLINE}
    assert client.job(waits.id).state not in FINAL

    three_clusters[1].start_api_server()
    until(lambda: states(client) == everywhere, WITHIN_S)
    succeed(client, through, waits)
    assert [allocations_in(cluster) for cluster in three_clusters] == [2, 3, 2], "none twice, none elsewhere"
