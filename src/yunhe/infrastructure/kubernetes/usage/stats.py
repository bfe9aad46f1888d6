"""What nodes and pods use now: from each kubelet's summary where we may ask for it, else from metrics.k8s.io."""

import time
from enum import StrEnum
from typing import NamedTuple

import anyio
import msgspec

from yunhe.infrastructure.contract.model import Throughput
from yunhe.infrastructure.kubernetes.api.answers import decode
from yunhe.infrastructure.kubernetes.api.client import Api
from yunhe.infrastructure.kubernetes.api.shapes import ApiObject, Key, Meta
from yunhe.infrastructure.kubernetes.objects import names
from yunhe.infrastructure.kubernetes.objects.phases import epoch
from yunhe.infrastructure.kubernetes.objects.quantities import MIB, parse_quantity
from yunhe.infrastructure.kubernetes.usage.meters import PodSample
from yunhe.kernel.errors import YunheError

STATS_WITHIN_S = 8.0
AT_ONCE = 16
NODE_USE_AGE_S = 15.0


class UsageSource(StrEnum):
    """Where usage comes from."""

    KUBELET = "kubelet stats through nodes/proxy"
    METRICS = "metrics.k8s.io"
    NONE = "nothing: neither nodes/proxy nor metrics.k8s.io can be read"


class Cpu(ApiObject, frozen=True):
    """A kubelet's figures for processors."""

    time: str | None = None
    usage_nano_cores: int = 0
    usage_core_nano_seconds: int = 0


class Memory(ApiObject, frozen=True):
    """A kubelet's figures for memory."""

    working_set_bytes: int = 0
    rss_bytes: int | None = None


class KubeletNetwork(ApiObject, frozen=True):
    """A kubelet's counters for a node's network."""

    time: str | None = None
    rx_bytes: int = 0
    tx_bytes: int = 0


class ContainerStats(ApiObject, frozen=True):
    """One container."""

    name: str = ""
    cpu: Cpu | None = None
    memory: Memory | None = None


class PodReference(ApiObject, frozen=True):
    """Which pod."""

    name: str = ""
    namespace: str = ""


class PodStats(ApiObject, frozen=True):
    """One pod."""

    pod_ref: PodReference = PodReference()
    containers: tuple[ContainerStats, ...] = ()


class NodeStats(ApiObject, frozen=True):
    """The node itself."""

    cpu: Cpu | None = None
    memory: Memory | None = None
    network: KubeletNetwork | None = None


class Summary(ApiObject, frozen=True):
    """All a kubelet tells."""

    node: NodeStats = NodeStats()
    pods: tuple[PodStats, ...] = ()


class MetricsUsage(ApiObject, frozen=True):
    """Rates of one container in metrics.k8s.io."""

    name: str = ""
    usage: dict[str, str] = msgspec.field(default_factory=dict)


class PodMetrics(ApiObject, frozen=True):
    """One pod in metrics.k8s.io."""

    metadata: Meta = Meta()
    timestamp: str | None = None
    containers: tuple[MetricsUsage, ...] = ()


class NodeMetrics(ApiObject, frozen=True):
    """One node in metrics.k8s.io."""

    metadata: Meta = Meta()
    usage: dict[str, str] = msgspec.field(default_factory=dict)


class PodMetricsList(ApiObject, frozen=True):
    """All pods."""

    items: tuple[PodMetrics, ...] = ()


class NodeMetricsList(ApiObject, frozen=True):
    """All nodes."""

    items: tuple[NodeMetrics, ...] = ()


class NodeUse(NamedTuple):
    """What a node uses now, whoever it is for."""

    cpu_millis: int
    memory_mib: int
    throughput: Throughput | None = None


class UsageReading(NamedTuple):
    """What was read at one moment."""

    nodes: dict[str, NodeUse]
    pods: dict[Key, PodSample]


class Stats:
    """Reads usage from whichever source there is."""

    def __init__(self, api: Api, source: UsageSource) -> None:
        self.source = source
        self._api = api
        self._integrated: dict[Key, PodSample] = {}
        self._node_use: dict[str, NodeUse] = {}
        self._node_use_asked: set[str] = set()
        self._node_use_read_at = float("-inf")
        self._networks: dict[str, tuple[KubeletNetwork, Throughput | None]] = {}

    async def read(self, nodes: set[str]) -> UsageReading:
        """Return what *nodes* and the pods on them use; a node that does not answer is left out."""
        if self.source is UsageSource.KUBELET:
            return await self._read_kubelets(nodes)
        if self.source is UsageSource.METRICS:
            return await self._read_metrics(nodes)
        return UsageReading({}, {})

    async def node_use(self, nodes: set[str]) -> dict[str, NodeUse]:
        """Return what nodes use, asked for no more often than kubelets look themselves."""
        now = anyio.current_time()
        if now - self._node_use_read_at > NODE_USE_AGE_S or not nodes <= self._node_use_asked:
            self._node_use_asked, self._node_use_read_at = nodes, now
            self._node_use = (await self.read(nodes)).nodes
        return self._node_use

    async def _read_kubelets(self, nodes: set[str]) -> UsageReading:
        reading = UsageReading({}, {})
        places = anyio.CapacityLimiter(AT_ONCE)

        async def read_one(node: str) -> None:
            async with places:
                try:
                    body = await self._api.get(
                        f"/api/v1/nodes/{node}/proxy/stats/summary", within_s=STATS_WITHIN_S
                    )
                    summary = decode(body, Summary)
                except YunheError:
                    return  # the gap is counted as such, see gap_ms
                _take_summary(node, summary, reading)
                if node in reading.nodes and summary.node.network is not None:
                    rate = self._rate(node, summary.node.network)
                    reading.nodes[node] = reading.nodes[node]._replace(throughput=rate)

        async with anyio.create_task_group() as group:
            for node in sorted(nodes):
                group.start_soon(read_one, node)
        return reading

    async def _read_metrics(self, nodes: set[str]) -> UsageReading:
        base = "/apis/metrics.k8s.io/v1beta1"
        label = {"labelSelector": names.ALLOCATION}
        of_nodes = decode(await self._api.get(f"{base}/nodes"), NodeMetricsList)
        of_pods = decode(await self._api.get(f"{base}/pods", label), PodMetricsList)
        reading = UsageReading({}, {})
        for node in of_nodes.items:
            if node.metadata.name in nodes:
                reading.nodes[node.metadata.name] = NodeUse(
                    int(parse_quantity(node.usage.get("cpu", "0")) * 1000),
                    int(parse_quantity(node.usage.get("memory", "0")) / MIB),
                )
        for pod in of_pods.items:
            for container in pod.containers:
                if container.name == names.CONTAINER:
                    reading.pods[pod.metadata.key] = self._integrate(pod, container)
        return reading

    def _integrate(self, pod: PodMetrics, container: MetricsUsage) -> PodSample:
        """Make a counter of a rate: what it was since the sample before, taken as constant."""
        at = epoch(pod.timestamp) or time.time()
        cores = float(parse_quantity(container.usage.get("cpu", "0")))
        last = self._integrated.get(pod.metadata.key)
        between_s = max(0.0, at - last.at) if last is not None else 0.0
        cpu_us = (last.cpu_us if last is not None else 0) + int(cores * between_s * 1e6)
        memory_mib = float(parse_quantity(container.usage.get("memory", "0")) / MIB)
        sample = self._integrated[pod.metadata.key] = PodSample(at, cpu_us, memory_mib)
        return sample

    def _rate(self, node: str, network: KubeletNetwork) -> Throughput | None:
        """Return what went through a node's network between the last two times its kubelet counted."""
        last, rate = self._networks.get(node, (network, None))
        between_s = (epoch(network.time) or 0.0) - (epoch(last.time) or 0.0)
        if between_s > 0:
            rate = Throughput(
                received_bytes_per_s=max(0, network.rx_bytes - last.rx_bytes) / between_s,
                sent_bytes_per_s=max(0, network.tx_bytes - last.tx_bytes) / between_s,
            )
        self._networks[node] = (network, rate)
        return rate

    def forget(self, key: Key) -> None:
        """Let go of a pod that has ended."""
        self._integrated.pop(key, None)


def _take_summary(node: str, summary: Summary, reading: UsageReading) -> None:
    cpu, memory = summary.node.cpu, summary.node.memory
    if cpu is not None and memory is not None:
        reading.nodes[node] = NodeUse(cpu.usage_nano_cores // 10**6, memory.working_set_bytes // MIB)
    for pod in summary.pods:
        for container in pod.containers:
            if container.name == names.CONTAINER and container.cpu and container.memory:
                held = container.memory.rss_bytes
                resident = container.memory.working_set_bytes if held is None else held
                reading.pods[pod.pod_ref.namespace, pod.pod_ref.name] = PodSample(
                    epoch(container.cpu.time) or time.time(),
                    container.cpu.usage_core_nano_seconds // 1000,
                    resident / MIB,
                )
