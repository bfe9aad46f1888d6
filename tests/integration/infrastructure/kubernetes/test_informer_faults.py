"""A real API server that forgets, refuses, dies and falls silent: no hot loop, nothing twice, nothing missed.

Each test changes ConfigMaps while the fault is on, and in the end compares what an informer told, change by change,
with what the API server itself lists.
"""

import itertools
from collections import Counter
from collections.abc import AsyncGenerator, Generator
from contextlib import asynccontextmanager
from typing import Any

import anyio
import anyio.to_thread
import httpx
import pytest

from engines.kubernetes.cluster import Cluster
from engines.kubernetes.faulty_proxy import Answer, FaultyProxy, faulty_proxy, too_many_requests
from yunhe.infrastructure.kubernetes.api.client import Api
from yunhe.infrastructure.kubernetes.api.informer import Informer, Pace
from yunhe.infrastructure.kubernetes.api.kubeconfig import read_access
from yunhe.infrastructure.kubernetes.api.shapes import Key, Record
from yunhe.infrastructure.kubernetes.api.watch import WatchSource

MAPS = "/api/v1/namespaces/default/configmaps"
PACE = Pace(first_pause_s=0.1, longest_pause_s=2.0, lives_after_s=2.0, quiet_s=2.5)
WITHIN_S = 60.0
EXPIRED = (
    b'{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"Expired","code":410,'
    b'"message":"too old resource version"}'
)

pytestmark = [pytest.mark.anyio, pytest.mark.engine, pytest.mark.drives("kubernetes API server")]


class Heard:
    """Counts what an informer told of each object."""

    def __init__(self) -> None:
        self.came: Counter[str] = Counter()
        self.went: Counter[str] = Counter()

    def __call__(self, key: Key, was: Record | None, now: Record | None) -> None:
        if was is None:
            self.came[key[1]] += 1
        elif now is None:
            self.went[key[1]] += 1


class Bench:
    """A proxy before a cluster, objects of one test, and an informer that watches them through the proxy."""

    names = itertools.count()

    def __init__(self, cluster: Cluster, proxy: FaultyProxy, client: httpx.Client) -> None:
        self.cluster, self.proxy = cluster, proxy
        self.label = f"test-{next(self.names)}"
        self.heard = Heard()
        self.made: list[str] = []
        self.gone: list[str] = []
        self._client = client

    def create(self, count: int) -> None:
        """Make objects, past the proxy."""
        for _ in range(count):
            name = f"{self.label}-{len(self.made)}"
            metadata = {"name": name, "labels": {"test": self.label}}
            self._call("POST", MAPS, json={"metadata": metadata})
            self.made.append(name)

    def delete(self, count: int) -> None:
        """Delete the oldest objects, past the proxy."""
        for name in [one for one in self.made if one not in self.gone][:count]:
            self._call("DELETE", f"{MAPS}/{name}")
            self.gone.append(name)

    def listed(self) -> set[str]:
        """Return what the API server says there is."""
        answer = self._call("GET", MAPS, params={"labelSelector": f"test={self.label}"})
        return {item["metadata"]["name"] for item in answer.json()["items"]}

    def version(self) -> str:
        """Return the version of what there is now."""
        return self._call("GET", MAPS).json()["metadata"]["resourceVersion"]

    def watch_answer(self, version: str) -> tuple[int, str]:
        """Return the status and the first event of a plain watch from *version*."""
        params = {"watch": "1", "resourceVersion": version, "timeoutSeconds": "5"}
        with self._client.stream("GET", MAPS, params=params) as answer:
            return answer.status_code, next(answer.iter_lines())

    def watches(self) -> int:
        """Return how many watches have been asked for."""
        return self.proxy.count(rf"{MAPS}\?.*watch=1")

    def lists(self) -> int:
        """Return how often everything has been asked for."""
        return self.proxy.count("sendInitialEvents=true") + self.proxy.count(rf"{MAPS}\?.*limit=")

    @asynccontextmanager
    async def watching(self) -> AsyncGenerator[Informer[Record]]:
        """Watch the objects through the proxy."""
        access = read_access("", str(self.cluster.kubeconfig(server=self.proxy.url)))
        async with Api(access) as api, anyio.create_task_group() as group:
            source = WatchSource(path=MAPS, shape=Record, label_selector=f"test={self.label}")
            informer = Informer(api, source, pace=PACE)
            informer.store.listen(self.heard)
            group.start_soon(informer.run)
            await informer.wait_synced(30)
            yield informer
            group.cancel_scope.cancel()

    async def in_step(self, informer: Informer[Record]) -> None:
        """Wait until the informer holds what the API server lists, then hold it to having told each change once."""
        listed = await anyio.to_thread.run_sync(self.listed)
        with anyio.fail_after(WITHIN_S):
            while {one.metadata.name for one in informer.store.all()} != listed:
                await anyio.sleep(0.05)
        assert listed == set(self.made) - set(self.gone)
        assert set(self.heard.came) >= listed, "missed"
        assert max(self.heard.came.values()) == 1, "told twice"
        seen_and_gone = [name for name in self.gone if self.heard.came[name]]
        assert [self.heard.went[name] for name in seen_and_gone] == [1] * len(seen_and_gone)

    def _call(self, method: str, path: str, **more: Any) -> httpx.Response:
        return self._client.request(method, path, **more).raise_for_status()


@pytest.fixture
def bench(bare_cluster: Cluster) -> Generator[Bench]:
    with faulty_proxy(bare_cluster) as proxy, bare_cluster.client() as client:
        yield Bench(bare_cluster, proxy, client)


async def test_a_version_that_expired_while_it_was_away_is_told_in_the_stream_and_survived(
    bench: Bench,
) -> None:
    bench.create(20)
    async with bench.watching() as informer:
        bench.proxy.half_open()
        before = bench.version()
        bench.delete(5)
        bench.create(5)
        await anyio.to_thread.run_sync(bench.cluster.expire_resource_versions)
        status, event = bench.watch_answer(before)
        assert (status, '"code":410' in event) == (200, True), "the server did not say it in the stream"
        await bench.in_step(informer)
        assert bench.lists() >= 2, "the version had not expired"
        bench.create(1)
        await bench.in_step(informer)
        await anyio.sleep(2)
    assert bench.watches() <= 15, "a hot loop"
    assert sum(bench.heard.went.values()) == 5, "what vanished meanwhile was not told"


async def test_a_version_that_is_refused_as_expired_is_survived(bench: Bench) -> None:
    bench.create(20)
    async with bench.watching() as informer:
        bench.proxy.answers.append(
            Answer(
                r"watch=1.*resourceVersion=\d|resourceVersion=\d.*watch=1", "410 Gone", body=EXPIRED, times=3
            )
        )
        bench.proxy.half_open()
        bench.delete(5)
        bench.create(5)
        await bench.in_step(informer)
        await anyio.sleep(2)
    assert bench.proxy.answers[0].times < 3, "it was never refused"
    assert bench.lists() >= 2
    assert bench.watches() <= 12, "a hot loop"
    assert sum(bench.heard.went.values()) == 5


async def test_an_overloaded_server_is_left_alone_and_nothing_is_missed(bench: Bench) -> None:
    bench.create(5)
    async with bench.watching() as informer:
        bench.proxy.answers.append(too_many_requests(MAPS, retry_after_s=2, times=3))
        before = bench.watches()
        bench.proxy.hang_up()
        began_at = anyio.current_time()
        bench.create(5)
        bench.delete(2)
        await bench.in_step(informer)
        took_s = anyio.current_time() - began_at
    assert bench.proxy.answers[0].times == 0
    assert took_s >= 3 * 2, "it did not wait as long as it was told"
    assert bench.watches() - before == 4, "it asked more often than it was told to"


async def test_a_half_open_connection_is_noticed_and_nothing_is_missed(bench: Bench) -> None:
    bench.create(5)
    async with bench.watching() as informer:
        before = bench.watches()
        bench.proxy.half_open()
        bench.create(5)
        bench.delete(2)
        await bench.in_step(informer)
        assert bench.lists() == 1, "it resumed from where it was"
        assert bench.watches() - before <= 2


async def test_an_api_server_that_restarts_under_load_costs_nothing_but_time(bench: Bench) -> None:
    bench.create(10)
    async with bench.watching() as informer:
        before = len(bench.proxy.requests)
        for _ in range(2):
            bench.create(20)
            bench.delete(10)
            await anyio.to_thread.run_sync(bench.cluster.restart_api_server)
        bench.create(10)
        await bench.in_step(informer)
    assert len(bench.proxy.requests) - before <= 40, "a hot loop"


async def test_a_server_that_stays_silent_for_new_connections_too_is_not_hammered(bench: Bench) -> None:
    bench.create(3)
    async with bench.watching() as informer:
        bench.proxy.is_silent = True
        bench.proxy.half_open()
        before = len(bench.proxy.requests)
        bench.create(3)
        await anyio.sleep(8)
        assert len(bench.proxy.requests) - before <= 4, "a hot loop"
        assert informer.failing_since is not None
        bench.proxy.is_silent = False
        bench.proxy.half_open()
        await bench.in_step(informer)
