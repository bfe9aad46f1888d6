"""Dispatch over three real API servers against a raw client, kube-scheduler's binding rate and our decisions.

Run with ``python -m bench.kubernetes``; it needs the control plane that ``python tools/control_plane.py`` builds. The
raw client is httpx with as many requests in flight, to the same servers, in the same process and run, in turns with us.
It writes the same two objects for each allocation, record and pod, and looks at nothing; further rows of it write the
pod alone, which is all that a launcher could write that fences and survives nothing. Its connections are ours or, as most
would have it, those of httpx's own pool, whose bookkeeping grows with the requests in flight.
"""

import argparse
import itertools
import ssl
import statistics
import sys
import time
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import AsyncExitStack, ExitStack, asynccontextmanager
from pathlib import Path
from typing import Any, NamedTuple

import anyio
import anyio.to_thread
import httpx

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests"))

from bench.scheduling import queue, speed, world
from engines.kubernetes.cluster import ADMIN, TOKENS, Cluster, Options, cluster
from tools.control_plane import NoControlPlaneError, programs
from yunhe.infrastructure.contract.kind import Target
from yunhe.infrastructure.contract.model import LaunchOrder, Step
from yunhe.infrastructure.kubernetes.api.connections import ConnectionPool
from yunhe.infrastructure.kubernetes.engine import KubernetesEngine, open_engine
from yunhe.infrastructure.kubernetes.objects.pods import pod_body, record_body
from yunhe.infrastructure.kubernetes.target import ClusterSettings, read_target
from yunhe.kernel.ids import AllocationId, NodeId, ProjectId, new_id
from yunhe.kernel.resources import Resources

SHARE_OF_RAW = 0.6
SAME_WORK = "raw, record and pod"
"""The raw client that is held against ours: the same two objects, over connections of the same make."""
CLUSTERS = 3
IN_FLIGHT = 32
NODES = 50
DECISION_NODES = 500
RAW = "raw"
BOUND_WITHIN_S = 300.0

Dispatch = Callable[[LaunchOrder], Awaitable[None]]


class Site(NamedTuple):
    """A cluster, the engine that drives it and a raw client of it."""

    cluster: Cluster
    engine: KubernetesEngine
    raw: httpx.AsyncClient
    raw_pooled: httpx.AsyncClient


def orders(count: int) -> list[LaunchOrder]:
    """Return so many allocations."""
    return [
        LaunchOrder(
            allocation_id=AllocationId(new_id("alloc", time.time())),
            token=1,
            project_id=ProjectId("bench"),
            node_id=NodeId(""),
            resources=Resources(cpu_millis=10, memory_mib=16),
            steps=(Step(name="run", script="echo hello\n"),),
        )
        for _ in range(count)
    ]


def raw_dispatch(client: httpx.AsyncClient, *, record: bool) -> Dispatch:
    """Return what writes an order's objects and looks at nothing."""
    numbers = itertools.count()

    async def post(kind: str, body: dict[str, Any]) -> dict[str, Any]:
        body["metadata"].pop("labels", None)  # our own informers shall not hear of them
        answer = await client.post(f"/api/v1/namespaces/{RAW}/{kind}", json=body)
        return answer.raise_for_status().json()

    async def dispatch(order: LaunchOrder) -> None:
        uid = f"00000000-0000-0000-0000-{next(numbers):012}"
        body = record_body(order, RAW)
        key = (RAW, body["metadata"]["name"])
        if record:
            uid = (await post("configmaps", body))["metadata"]["uid"]
        await post("pods", pod_body(order, key, uid, ClusterSettings()))

    return dispatch


async def rate(dispatches: list[Dispatch], each: int) -> float:
    """Return allocations per second over all clusters, each with as many requests in flight."""
    waiting = [iter(orders(each)) for _ in dispatches]

    async def work(dispatch: Dispatch, line: Any) -> None:
        for order in line:
            await dispatch(order)

    began = time.perf_counter()
    async with anyio.create_task_group() as group:
        for dispatch, line in zip(dispatches, waiting, strict=True):
            for _ in range(IN_FLIGHT):
                group.start_soon(work, dispatch, line)
    return each * len(dispatches) / (time.perf_counter() - began)


async def compare(sites: list[Site], each: int, rounds: int) -> dict[str, list[float]]:
    """Return the rates of each way, round by round and in turns."""
    ways: dict[str, list[Dispatch]] = {
        SAME_WORK: [raw_dispatch(site.raw, record=True) for site in sites],
        "ours": [site.engine.launch for site in sites],
        "raw, pod alone": [raw_dispatch(site.raw, record=False) for site in sites],
        "raw, httpx's pool": [raw_dispatch(site.raw_pooled, record=True) for site in sites],
        "the same, pod alone": [raw_dispatch(site.raw_pooled, record=False) for site in sites],
    }
    for dispatches in ways.values():
        await rate(dispatches, 10)  # untimed: namespaces, connections, warm caches
    rates: dict[str, list[float]] = {name: [] for name in ways}
    for number in range(rounds):
        turn = number % len(ways)  # nobody is always the first, with the emptiest servers
        for name, dispatches in [*ways.items()][turn:] + [*ways.items()][:turn]:
            rates[name].append(await rate(dispatches, each))
    return rates


async def binding_rate(sites: list[Site]) -> tuple[int, float]:
    """Start every kube-scheduler on what waits; return how many pods they bound together, and how many per second."""
    for site in sites:
        for number in range(NODES):
            await add_node(site.raw, f"node-{number}")
        await anyio.to_thread.run_sync(site.cluster.start_scheduler)
    began, bound, last = 0.0, 0, time.perf_counter()
    with anyio.fail_after(BOUND_WITHIN_S):
        while True:
            counts = [await count_pods(site.raw) for site in sites]
            now = time.perf_counter()
            total, waits = sum(count[0] for count in counts), sum(count[1] for count in counts)
            began = began or (last if total else 0.0)
            bound, last = total, now
            if waits == 0:
                return bound, bound / (now - began)
            await anyio.sleep(0.2)


async def count_pods(client: httpx.AsyncClient) -> tuple[int, int]:
    """Return how many pods have a node, and how many wait for one; only numbers travel."""
    counts: list[int] = []
    for sign in ("!=", "="):
        params = {"fieldSelector": f"spec.nodeName{sign}", "limit": "1"}
        answer = (await client.get("/api/v1/pods", params=params)).raise_for_status().json()
        counts.append(len(answer["items"]) + answer["metadata"].get("remainingItemCount", 0))
    if counts[0] == 1 or counts[1] == 1:  # a limit with a selector may hide how many remain
        for index, sign in enumerate(("!=", "=")):
            answer = (
                await client.get("/api/v1/pods", params={"fieldSelector": f"spec.nodeName{sign}"})
            ).json()
            counts[index] = len(answer["items"])
    return counts[0], counts[1]


async def add_node(client: httpx.AsyncClient, name: str) -> None:
    """Add a node that is ready and that nothing runs on."""
    capacity = {"cpu": "64", "memory": "256Gi", "pods": "1000"}
    ready = [{"type": "Ready", "status": "True", "reason": "Bench", "message": "no kubelet"}]
    body = {
        "metadata": {"name": name},
        "status": {"allocatable": capacity, "capacity": capacity, "conditions": ready},
    }
    (await client.post("/api/v1/nodes", json=body)).raise_for_status()
    headers = {"content-type": "application/merge-patch+json"}
    answer = await client.patch(f"/api/v1/nodes/{name}", content=b'{"spec":{"taints":null}}', headers=headers)
    answer.raise_for_status()


@asynccontextmanager
async def open_site(made: Cluster) -> AsyncGenerator[Site]:
    """Hold every client of a cluster."""
    tls = ssl.create_default_context(cafile=str(made.authority.pair.certificate))
    headers = {"authorization": f"Bearer {TOKENS[ADMIN]}"}
    limits = httpx.Limits(max_connections=None, max_keepalive_connections=None)
    settings = read_target(Target(options={"kubeconfig": str(made.kubeconfig())}))
    async with (
        httpx.AsyncClient(
            base_url=made.url, transport=ConnectionPool(tls), headers=headers, timeout=60.0
        ) as raw,
        httpx.AsyncClient(
            base_url=made.url, verify=tls, headers=headers, limits=limits, timeout=60.0, trust_env=False
        ) as pooled,
        open_engine(settings) as engine,
    ):
        (await raw.post("/api/v1/namespaces", json={"metadata": {"name": RAW}})).raise_for_status()
        yield Site(made, engine, raw, pooled)


async def measure(clusters: list[Cluster], each: int, rounds: int) -> dict[str, float]:
    """Print every figure, and return the shares of what the raw clients reach."""
    async with AsyncExitStack() as stack:
        sites = [await stack.enter_async_context(open_site(made)) for made in clusters]
        rates = await compare(sites, each, rounds)
        print(
            f"{len(sites)} API servers, {IN_FLIGHT} in flight to each, {rounds} rounds of {each * len(sites)} in turns"
        )
        print(f"{'':<24}{'per s (median)':>16}{'each round':>30}")
        for name, found in rates.items():
            shown = " ".join(f"{one:.0f}" for one in found)
            print(f"{name:<24}{statistics.median(found):>16.0f}{shown:>30}")
        shares = shares_of(rates)
        for name, share in shares.items():
            print(f"ours against {name:<24}{share:>8.0%}")
        bound, per_s = await binding_rate(sites)
        print(
            f"kube-scheduler: {len(sites)} of them bound {bound} pods to {NODES} nodes each, {per_s:.0f} pods/s together"
        )
        found = speed(world(len(sites), DECISION_NODES), queue(3_000, distinct=False), 1_000)
        print(
            f"our decisions over {len(sites)} pools of {DECISION_NODES} nodes, pool and node chosen and reserved, "
            f"nothing written: {found.rate:,.0f} /s"
        )
        return shares


def shares_of(rates: dict[str, list[float]]) -> dict[str, float]:
    """Return how much of each raw way ours reaches: the median of the rounds, each against its own neighbours."""
    return {
        name: statistics.median(mine / theirs for mine, theirs in zip(rates["ours"], found, strict=True))
        for name, found in rates.items()
        if name != "ours"
    }


def missed(shares: dict[str, float]) -> list[str]:
    """Return a line if the target was missed; the other ways are shown to compare."""
    share = shares[SAME_WORK]
    return [] if share >= SHARE_OF_RAW else [f"✗ {share:.0%} of {SAME_WORK}, {SHARE_OF_RAW:.0%} wanted"]


def main() -> None:
    """Run three control planes and measure."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--each", type=int, default=150, help="allocations for each cluster in a round")
    parser.add_argument("--rounds", type=int, default=5)
    arguments, _ = parser.parse_known_args()
    try:
        programs()
    except NoControlPlaneError as why:
        print(f"skipped: {why}")
        return
    with ExitStack() as stack:
        options = Options(scheduler=False, controllers=False)
        clusters = [stack.enter_context(cluster(options)) for _ in range(CLUSTERS)]
        shares = anyio.run(measure, clusters, arguments.each, arguments.rounds)
    problems = missed(shares)
    if problems:
        print("\n".join(problems))
        sys.exit(1)


if __name__ == "__main__":
    main()
