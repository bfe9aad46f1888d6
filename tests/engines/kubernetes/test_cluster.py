"""The clusters that other tests stand on are real, separate, and break only when told to."""

import contextlib
import json
import time

import httpx
import pytest

from engines.kubernetes.asking import PODS, Object, create, pod
from engines.kubernetes.cluster import READER, Cluster, Options, cluster

pytestmark = [pytest.mark.engine, pytest.mark.drives("kube-apiserver", "etcd")]
NAMESPACES = "/api/v1/namespaces"


def first_event(client: httpx.Client, version: str) -> Object:
    """Return the first thing a watch of pods from *version* says."""
    query = {"watch": "1", "resourceVersion": version}
    with client.stream("GET", PODS, params=query) as answer:
        assert answer.status_code == 200
        return json.loads(next(answer.iter_lines()))


def test_three_clusters_run_at_once_and_know_nothing_of_each_other(kubernetes_programs: None) -> None:
    with contextlib.ExitStack() as stack:
        clusters: list[Cluster] = []
        for number in range(3):
            began_s = time.monotonic()
            clusters.append(stack.enter_context(cluster(Options(scheduler=False, controllers=False))))
            print(
                f"cluster {number}: ready in {time.monotonic() - began_s:.1f} s, MiB {clusters[-1].resident_mib()}"
            )
        for number, one in enumerate(clusters):
            with one.client() as client:
                create(client, NAMESPACES, {"metadata": {"name": f"only-in-{number}"}})
        for number, one in enumerate(clusters):
            with one.client() as client:
                names = {item["metadata"]["name"] for item in client.get(NAMESPACES).json()["items"]}
                assert {name for name in names if name.startswith("only-in")} == {f"only-in-{number}"}


def test_the_version_is_stamped(bare_cluster: Cluster) -> None:
    with bare_cluster.client() as client:
        assert client.get("/version").json()["gitVersion"].startswith("v1.")


def test_a_reader_may_look_and_not_touch_and_a_stranger_may_nothing(bare_cluster: Cluster) -> None:
    with bare_cluster.client(READER) as client:
        assert client.get(PODS).status_code == 200
        assert client.post(PODS, json=pod("refused", "true")).status_code == 403
        assert client.get(PODS, headers={"authorization": "Bearer wrong"}).status_code == 401


def test_an_api_server_that_was_killed_comes_back_on_its_port_with_all_it_knew(bare_cluster: Cluster) -> None:
    with bare_cluster.client() as client:
        create(client, NAMESPACES, {"metadata": {"name": "survivor"}})
    before = bare_cluster.pids()["kube-apiserver"]
    bare_cluster.kill_api_server()
    with bare_cluster.client() as client, pytest.raises(httpx.ConnectError):
        client.get("/readyz")
    print(f"ready again in {bare_cluster.start_api_server():.1f} s")
    assert bare_cluster.pids()["kube-apiserver"] != before
    with bare_cluster.client() as client:
        assert client.get(f"{NAMESPACES}/survivor").status_code == 200


@pytest.mark.parametrize("watch_cache", [True, False])
def test_resource_versions_expire_when_told_to(kubernetes_programs: None, *, watch_cache: bool) -> None:
    with cluster(Options(scheduler=False, controllers=False, watch_cache=watch_cache)) as made:
        with made.client() as client:
            old = client.get(PODS).json()["metadata"]["resourceVersion"]
            create(client, PODS, pod("one", "true"))
            assert first_event(client, old)["type"] == "ADDED"
            create(client, PODS, pod("two", "true"))
        made.expire_resource_versions()
        with made.client() as client:
            event = first_event(client, old)
            assert (event["type"], event["object"]["code"]) == ("ERROR", 410)
