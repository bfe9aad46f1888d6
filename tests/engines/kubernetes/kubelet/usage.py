"""What pods use, from the kernel's counters, in the two forms a kubelet has."""

import time
from collections.abc import Iterator
from typing import NamedTuple

from engines.kubernetes.kubelet.access import Object
from engines.kubernetes.kubelet.containers import now
from engines.kubernetes.kubelet.pods import PodWorker


class Usage(NamedTuple):
    """What one container has used and holds now."""

    pod: Object
    container: str
    started_at: str
    cpu_ns: int
    memory_bytes: int


def usages(workers: list[PodWorker]) -> Iterator[Usage]:
    """Yield one usage for each running container."""
    for worker in workers:
        for container in worker.containers():
            run = container.run
            if run is None or not container.is_running:
                continue
            try:
                cpu_ns, memory_bytes = (run.group.cpu_us() or 0) * 1000, run.group.memory_kib() * 1024
            except FileNotFoundError:  # it ended a moment ago
                continue
            yield Usage(worker.pod["metadata"], container.spec["name"], run.started_at, cpu_ns, memory_bytes)


def summary(node: str, workers: list[PodWorker]) -> Object:
    """Return the kubelet's ``/stats/summary``."""
    pods: dict[str, Object] = {}
    for one in usages(workers):
        cpu = {"time": now(), "usageCoreNanoSeconds": one.cpu_ns}
        memory = {"time": now(), "workingSetBytes": one.memory_bytes, "usageBytes": one.memory_bytes}
        reference = {key: one.pod[key] for key in ("name", "namespace", "uid")}
        pod = pods.setdefault(
            one.pod["uid"], {"podRef": reference, "startTime": one.started_at, "containers": []}
        )
        pod["containers"].append(
            {"name": one.container, "startTime": one.started_at, "cpu": cpu, "memory": memory}
        )
    for pod in pods.values():
        for kind in ("cpu", "memory"):
            parts = [container[kind] for container in pod["containers"]]
            pod[kind] = {"time": now()} | {
                key: sum(part[key] for part in parts) for key in parts[0] if key != "time"
            }
    return {"node": {"nodeName": node}, "pods": list(pods.values())}


def metrics(workers: list[PodWorker]) -> str:
    """Return the kubelet's ``/metrics/resource``."""
    at_ms = time.time_ns() // 10**6
    found = list(usages(workers))
    lines = ["# TYPE container_cpu_usage_seconds_total counter"]
    lines += [f"container_cpu_usage_seconds_total{_labels(one)} {one.cpu_ns / 1e9} {at_ms}" for one in found]
    lines += ["# TYPE container_memory_working_set_bytes gauge"]
    lines += [f"container_memory_working_set_bytes{_labels(one)} {one.memory_bytes} {at_ms}" for one in found]
    return "\n".join(lines) + "\n"


def _labels(one: Usage) -> str:
    return f'{{container="{one.container}",namespace="{one.pod["namespace"]}",pod="{one.pod["name"]}"}}'
