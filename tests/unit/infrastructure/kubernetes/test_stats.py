"""Of a pod with several containers only the task's is metered."""

import json
from typing import Any

import pytest

from yunhe.infrastructure.kubernetes.api.client import Api
from yunhe.infrastructure.kubernetes.api.kubeconfig import Access
from yunhe.infrastructure.kubernetes.objects import names
from yunhe.infrastructure.kubernetes.usage.stats import Stats, UsageSource

pytestmark = pytest.mark.anyio


def figures(name: str, core_s: int, memory_mib: int) -> dict[str, Any]:
    return {
        "name": name,
        "cpu": {"time": "2027-01-15T08:00:00Z", "usageCoreNanoSeconds": core_s * 10**9},
        "memory": {"workingSetBytes": memory_mib << 20},
        "usage": {"cpu": f"{core_s}", "memory": f"{memory_mib}Mi"},
    }


class Answers(Api):
    """An API server that knows one pod, whose keeper works harder than its task."""

    def __init__(self) -> None:
        super().__init__(Access(name="test", server="http://nowhere"))

    async def get(self, path: str, *_: Any, **__: Any) -> bytes:
        both = [figures(names.KEEPER, 50, 500), figures(names.CONTAINER, 3, 40)]
        reference = {"namespace": "ns", "name": "alloc-1"}
        pod = {
            "metadata": reference,
            "podRef": reference,
            "timestamp": "2027-01-15T08:00:00Z",
            "containers": both,
        }
        return json.dumps({"items": [] if path.endswith("/nodes") else [pod], "pods": [pod]}).encode()


@pytest.mark.parametrize("source", [UsageSource.KUBELET, UsageSource.METRICS])
async def test_a_keeper_is_never_metered_as_its_task(source: UsageSource) -> None:
    reading = await Stats(Answers(), source).read({"node-1"})
    sample = reading.pods["ns", "alloc-1"]
    assert sample.memory_mib == 40
    assert sample.cpu_us in (3_000_000, 0)  # a rate is no counter until there are two samples
