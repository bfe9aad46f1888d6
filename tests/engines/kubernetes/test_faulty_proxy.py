"""The proxy breaks connections in the ways it says, and in no other."""

import json
import time
from collections.abc import Generator

import httpx
import pytest

from engines.kubernetes.asking import PODS, create, pod
from engines.kubernetes.cluster import ADMIN, TOKENS, Cluster
from engines.kubernetes.faulty_proxy import FaultyProxy, faulty_proxy, too_many_requests

pytestmark = [pytest.mark.engine, pytest.mark.drives("kube-apiserver", "etcd")]


@pytest.fixture
def proxy(bare_cluster: Cluster) -> Generator[FaultyProxy]:
    with faulty_proxy(bare_cluster) as made:
        yield made


@pytest.fixture
def client(bare_cluster: Cluster, proxy: FaultyProxy) -> Generator[httpx.Client]:
    headers = {"authorization": f"Bearer {TOKENS[ADMIN]}"}
    with httpx.Client(
        base_url=proxy.url, verify=bare_cluster.tls(), headers=headers, trust_env=False
    ) as made:
        yield made


def test_requests_pass_and_are_counted(client: httpx.Client, proxy: FaultyProxy) -> None:
    for _ in range(3):
        assert client.get("/readyz").text == "ok"
    create(client, PODS, pod("through-the-proxy", "true"))
    assert client.delete(f"{PODS}/through-the-proxy", params={"gracePeriodSeconds": 0}).status_code == 200
    assert proxy.count("GET /readyz") == 3
    assert proxy.count("POST") == 1


def test_it_says_too_many_requests_as_often_as_told_and_then_lets_pass(
    client: httpx.Client, proxy: FaultyProxy
) -> None:
    proxy.answers.append(too_many_requests(r"GET .*/pods", retry_after_s=7, times=2))
    for _ in range(2):
        answer = client.get(PODS)
        assert (answer.status_code, answer.headers["retry-after"]) == (429, "7")
        assert answer.json()["reason"] == "TooManyRequests"
    assert client.get("/readyz").status_code == 200
    assert client.get(PODS).status_code == 200


def test_a_half_open_connection_is_silent_while_new_ones_work(
    client: httpx.Client, proxy: FaultyProxy, bare_cluster: Cluster
) -> None:
    with client.stream("GET", PODS, params={"watch": "1"}, timeout=httpx.Timeout(5, read=3.0)) as watch:
        lines = watch.iter_lines()
        with bare_cluster.client() as direct:
            create(direct, PODS, pod("seen", "true"))
        assert json.loads(next(lines))["type"] == "ADDED"
        proxy.half_open()
        with bare_cluster.client() as direct:
            create(direct, PODS, pod("unseen", "true"))
        with pytest.raises(httpx.ReadTimeout):
            next(lines)
    assert client.get(f"{PODS}/unseen").status_code == 200


def test_hanging_up_ends_a_watch_at_once(client: httpx.Client, proxy: FaultyProxy) -> None:
    with client.stream("GET", PODS, params={"watch": "1", "resourceVersion": "0"}, timeout=10) as watch:
        began_s = time.monotonic()
        proxy.hang_up()
        with pytest.raises(httpx.RemoteProtocolError):
            list(watch.iter_lines())
        assert time.monotonic() - began_s < 5


def test_a_delay_is_kept(client: httpx.Client, proxy: FaultyProxy) -> None:
    proxy.delay_s = 0.5
    began_s = time.monotonic()
    assert client.get("/readyz").status_code == 200
    assert time.monotonic() - began_s >= 0.5


def test_a_silent_network_answers_nothing_and_heals(client: httpx.Client, proxy: FaultyProxy) -> None:
    proxy.is_silent = True
    with pytest.raises(httpx.ReadTimeout):
        client.get("/readyz", timeout=1.0)
    proxy.is_silent = False
    assert client.get("/readyz").status_code == 200
